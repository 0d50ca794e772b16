package project

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pmcp/logstore"
	"pmcp/server/args"
	"pmcp/server/socket"
)

// startGroupTool is the only tool of such a call.
const startGroupTool = "start_group"

// StartGroupAtOwner has the live window that has run a member of a group last start it, with the
// arguments of start_group, for a client of that name. done is false if there is no such window, or if it cannot be asked; what
// the daemon has kept does not count.
func (p *Project) StartGroupAtOwner(ctx context.Context, client, group string, given args.Given) (a OwnerAnswer, done bool, err error) {
	all, err := p.ListGroups(ctx, group)
	if err != nil {
		return a, false, err
	}
	path, name := p.o.Store.split(p.name, all[0].Group.Name)
	rows, err := p.o.Store.Runs(ctx, logstore.RunFilter{Project: path, Names: all[0].Order, Current: true})
	if err != nil {
		return a, false, err
	}
	session, last := "", time.Time{}
	for i := range rows {
		if row := &rows[i]; row.Live && !row.Own && row.Started.After(last) && stored(row).Spec.Until.IsZero() {
			session, last = row.Session, row.Started
		}
	}
	if session == "" {
		return a, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ownerCallLimit)
	defer cancel()
	call := OwnerCall{Tool: startGroupTool, Project: path, Process: name, Arguments: given, Allowed: p.o.Manager.Allowed(), By: actorOf(client)}
	err = socket.Call(ctx, p.o.Store.dir, session, groupMethod, call, &a)
	switch {
	case errors.Is(err, socket.ErrUnavailable), errors.As(err, new(socket.Refusal)):
		return a, false, nil
	case errors.Is(err, socket.ErrUnknownOutcome):
		err = fmt.Errorf("group %s: the pmcp server that starts it ended or hung before it answered: %w", name, err)
	}
	return a, true, err
}
