package project

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/socket"
)

// Keep says how processes outlive a session. The zero value lets none do.
type Keep struct {
	// Here means that the daemon has started this session: what is kept keeps running in
	// it when its client is gone.
	Here bool
	// DiesWith is what ends the daemon although no session does, "" for nothing.
	DiesWith string
	// For is how long a process is kept here if its start does not say; 0 means that it
	// is not kept.
	For time.Duration
	// Idle is how long this session waits for another process to keep.
	Idle time.Duration
	// Keeper returns the id of a session of the daemon that keeps processes for this
	// one. gone is the id of one that could not be reached, or "". It is used unless
	// Here is set; nil refuses keep.
	Keeper func(ctx context.Context, gone string) (session string, err error)
	// Disconnect, unless nil, is called when the client is gone.
	Disconnect func()
}

// maxKeep is the longest time for which a process can be kept.
const maxKeep = 7 * 24 * time.Hour

// keepForSession is the value of the argument keep for a process that is not kept.
const keepForSession = "session"

func badKeep(text string) error {
	return fmt.Errorf("argument keep: want a duration such as 8h, from 1s to 7d, got %.100q", text)
}

// parseKeep returns the duration that the argument keep asks for, 0 for none.
func parseKeep(text string) (time.Duration, error) {
	if text == "" || text == keepForSession {
		return 0, nil
	}
	d, err := args.ParseDuration(text)
	if err != nil || d < time.Second || d > maxKeep {
		return 0, badKeep(text)
	}
	return d, nil
}

// CheckKeep returns an error unless text, an argument keep, is a duration for which a process
// can be kept.
func CheckKeep(text string) error {
	d, err := parseKeep(text)
	if err == nil && d == 0 {
		err = badKeep(text)
	}
	return err
}

// A keepError is returned for a start that asks for the daemon. Nothing was started. keep is for how long if the
// call does not say.
type keepError struct{ name, keep string }

// Error is shown where the daemon cannot be asked.
func (e *keepError) Error() string {
	return e.name + " was not started: only a session can ask the daemon to keep it"
}

// checkKeep returns nil for a start that this session performs, a keepError for one that the
// daemon is to perform, and a WindowError for a process that it keeps already. A process of
// a session keeps running, unless the caller wants a restart: then it is stopped. run is the latest
// one, and unread why it could not be read.
func (p *Project) checkKeep(ctx context.Context, a StartRequest, run Run, unread error) error {
	if a.Keep == "" && !p.o.Keep.Here && p.o.Store.isCommand() && unread == nil && !run.GoesOn() && run.Owner == nil {
		return startForPerson(run, a.Name)
	}
	d, err := parseKeep(a.Keep)
	if err == nil && a.Restart && p.keepsAgain(ctx, &run) {
		return &keepError{name: a.Name}
	}
	if err != nil || a.Keep == "" {
		return err
	}
	switch here := d == 0 || p.o.Keep.Here; {
	case here && a.Unnamed:
		return nil
	case here:
		return checkKeepElsewhere(&run, unread, d)
	case a.Unnamed:
		return errors.New("argument keep: a process that is kept needs a name")
	case unread != nil:
		return unread
	case p.o.Keep.Keeper == nil || p.received:
	case !run.State.Active():
	case run.Owner != nil && run.IsKept():
		return &WindowError{run: run}
	case a.IfRunning != process.RestartRunning:
		return fmt.Errorf("%s runs already and ends with its session; if_running: \"restart\" starts it again, kept", a.Name)
	default: // a cancelled call must not leave it stopped, nor one that the daemon cannot take
		if _, err := p.o.Keep.Keeper(ctx, ""); err != nil {
			return fmt.Errorf("%s was not restarted: %w", a.Name, err)
		}
		if err := p.stopForKeep(context.WithoutCancel(ctx), run); err != nil {
			return err
		}
	}
	return &keepError{name: a.Name}
}

// commandKeep is for how long the daemon keeps what a command of pmcp starts.
const commandKeep = "24h"

// startForPerson returns the error with which a command of pmcp, whose session starts nothing itself, starts a process:
// the live window that has run it last does that, else the daemon. run is the latest one.
func startForPerson(run Run, name string) error {
	if run.ran == nil {
		return &keepError{name, commandKeep}
	}
	run.Owner = run.ran
	return &WindowError{run: run}
}

// checkKeepElsewhere returns a WindowError for a run that another session of the daemon is to
// keep for d, and an error for a kept one that is to end with its session: it keeps running.
func checkKeepElsewhere(run *Run, unread error, d time.Duration) error {
	switch {
	case unread != nil || run.Owner == nil || !run.IsKept():
		return unread
	case d > 0:
		return &WindowError{run: *run}
	}
	return fmt.Errorf("%s goes on, kept for %s: only a new run can end with this session; stop_process and then start_process make one", run.Spec.Name, args.FormatAge(run.KeptFor()))
}

// keptBefore returns the time until which the run, the latest of its process, was to be kept, if it
// has ended before it, else the zero time.
func (r *Run) keptBefore() time.Time {
	if r.Owner != nil || !r.Idle() || !r.Spec.Until.After(time.Now()) {
		return time.Time{}
	}
	return r.Spec.Until
}

// keepsAgain reports whether the daemon is to restart the process of run, the latest one, because it
// has kept that. If the daemon cannot be asked, the session restarts the process, and the answer
// says that.
func (p *Project) keepsAgain(ctx context.Context, run *Run) bool {
	if p.o.Keep.Here || p.o.Keep.Keeper == nil || p.received || run.keptBefore().IsZero() {
		return false
	}
	_, err := p.o.Keep.Keeper(ctx, "")
	return err == nil
}

// noLongerKept adds to the hint that the new run ends with this session, if the one before it
// was to be kept until before and the call, with the argument keep, does not ask for that.
func (s *Started) noLongerKept(before time.Time, keep string) {
	if before.IsZero() || keep != "" || s.Already || !s.Run.Spec.Until.IsZero() {
		return
	}
	s.Hint = prose.Join("; ", s.Hint, `the run before was kept, and this one ends with its session; start_process with keep and if_running: "restart" keeps it`)
}

// stopForKeep stops a run of this session or of another window that the daemon is to start
// again.
func (p *Project) stopForKeep(ctx context.Context, run Run) (err error) {
	if run.Owner != nil {
		_, err = p.o.Store.stopAtOwner(ctx, run, process.StopOptions{Actor: p.by})
		return err
	}
	_, err = p.o.Manager.Stop(ctx, run.Spec.Name, process.StopOptions{Actor: p.by})
	return err
}

// keeperTries is how many keepers a call tries: one may end in the moment in which it is
// called.
const keeperTries = 3

// atDaemon has a session of the daemon perform a call that starts a process.
func (p *Project) atDaemon(ctx context.Context, tool string, given args.Given, e *keepError) (a OwnerAnswer, err error) {
	if p.o.Keep.Keeper == nil || p.received {
		return a, e
	}
	path, name := p.o.Store.split(p.name, e.name)
	rewritten, ok := rename(given, name)
	if e.keep != "" { // also of a restart
		tool = "start_process"
		rewritten, err = args.Give(map[string]any{"name": name, "keep": e.keep})
	}
	if !ok || err != nil {
		return a, e
	}
	call := OwnerCall{Tool: tool, Project: path, Process: name, Arguments: rewritten, Allowed: p.o.Manager.Allowed(), By: p.o.Store.Actor(p.by)}
	ctx, cancel := context.WithTimeout(ctx, ownerCallLimit)
	defer cancel()
	gone := ""
	for range keeperTries {
		session, err := p.o.Keep.Keeper(ctx, gone)
		if err != nil {
			return a, fmt.Errorf("%s was not started: %w", name, err)
		}
		err = p.o.Store.callWindow(ctx, session, startMethod, call, &a)
		switch {
		case errors.Is(err, socket.ErrUnavailable):
			gone = session
		case errors.Is(err, socket.ErrUnknownOutcome):
			return a, fmt.Errorf("%s: the session of the daemon ended or hung before it answered: %w, and the call was not repeated; list_processes shows what runs", name, socket.ErrUnknownOutcome)
		default:
			return a, err
		}
	}
	return a, fmt.Errorf("%s was not started: no session of the daemon can be reached", name)
}

// until returns the time until which a process that is started now is kept: what the call
// asks for, else what holds for the process already, else what holds for all.
func (p *Project) until(ctx context.Context, name, keep string, restart bool) time.Time {
	if !p.o.Keep.Here {
		return time.Time{}
	}
	now := time.Now().Round(0) // without the monotonic clock, which stands while the machine sleeps
	d, _ := parseKeep(keep)    // checked by Start
	if restart && keep == "" {
		if last, _ := p.Find(ctx, name); !last.keptBefore().IsZero() {
			return last.Spec.Until
		}
	}
	st, err := p.o.Manager.Status(name)
	switch {
	case keep == "" && err == nil && (st.GoesOn() || st.Spec.Until.After(now)):
		return st.Spec.Until
	case keep == "":
		d = p.o.Keep.For
	}
	if d == 0 {
		return time.Time{}
	}
	return now.Add(d)
}

// IsKept reports whether the run has not ended and outlives its session.
func (r *Run) IsKept() bool { return !r.Spec.Until.IsZero() && !r.Idle() }

// KeptFor returns how much longer the process is kept, rounded up: at least 1 s, and whole minutes
// if there are ten. It returns 0 if the process is not kept.
func (r *Run) KeptFor() time.Duration {
	if !r.IsKept() {
		return 0
	}
	left, unit := time.Until(r.Spec.Until), time.Second
	if left > 10*time.Minute {
		unit = time.Minute
	}
	return max(time.Second, (left + unit - 1).Truncate(unit))
}

// Kept returns the runs of every project that are kept, the one with the least time left
// first.
func (p *Project) Kept(ctx context.Context) ([]Run, error) { return Kept(ctx, p.o.Store) }

// Kept is Project.Kept without a project.
func Kept(ctx context.Context, s *Store) ([]Run, error) {
	rows, err := s.freshRuns(ctx, logstore.RunFilter{Current: true})
	if err != nil {
		return nil, fmt.Errorf("cannot list the runs: %w", err)
	}
	var runs []Run
	for i := range rows {
		if r := latestOf(&rows[i]); !rows[i].Lost && r.IsKept() {
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, func(a, b Run) int { return a.Spec.Until.Compare(b.Spec.Until) })
	return runs, nil
}

// recheckKept is how often the time is read while a process is kept. A timer does not count
// the time for which the machine sleeps.
const recheckKept = time.Minute

// EndKept stops each process, and what it has left, when it has been kept long enough, until ctx ends. It then
// returns when the stops have ended.
func (p *Project) EndKept(ctx context.Context) {
	var stops sync.WaitGroup
	defer stops.Wait()
	changes := p.o.Manager.Watch()
	for ctx.Err() == nil {
		now, next := time.Now(), time.Time{}
		list := p.o.Manager.List()
		for i := range list {
			switch st := &list[i]; {
			case st.Spec.Until.IsZero() || !st.GoesOn() || st.State == process.Stopping:
			case st.Spec.Until.After(now):
				if next.IsZero() || st.Spec.Until.Before(next) {
					next = st.Spec.Until
				}
			default:
				stops.Go(func() {
					_, _ = p.o.Manager.Stop(ctx, st.Spec.Name, process.StopOptions{By: process.ByTime})
					p.endStoppedWatches()
				})
			}
		}
		awaitChange(ctx, changes, next, recheckKept)
	}
}

// awaitChange waits for a change or until at, but no longer than most. A zero at is never.
func awaitChange(ctx context.Context, changes *process.Feed, at time.Time, most time.Duration) {
	if !at.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, min(time.Until(at), most))
		defer cancel()
	}
	_, _ = changes.Next(ctx) // the callers look at ctx, and the end of the Manager ends them
}

// Linger is called when the client of a session of the daemon is gone. It stops what is not
// kept and returns when nothing has been kept for Keep.Idle and busy returns false, or ctx
// ends.
func (p *Project) Linger(ctx context.Context, busy func() bool) {
	if p.o.Keep.Disconnect != nil {
		p.o.Keep.Disconnect()
	}
	changes := p.o.Manager.Watch()
	idle := time.Now()
	for ctx.Err() == nil {
		kept, busy := p.o.Manager.StopUnkept(ctx), busy()
		if kept || busy {
			idle = time.Now()
		}
		left := p.o.Keep.Idle - time.Since(idle)
		switch {
		case kept && !busy:
			awaitChange(ctx, changes, time.Time{}, 0)
		case left > 0:
			awaitChange(ctx, changes, time.Now().Add(left), left)
		default:
			return
		}
	}
}
