package project

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/process/ports"
)

// reservePorts chooses and reserves the ports of several processes of the project in one
// transaction.
func (p *Project) reservePorts(ctx context.Context, defs map[string]Definition) (map[string]map[string]process.AssignedPort, error) {
	var wishes []logstore.PortWish
	for _, address := range slices.Sorted(maps.Keys(defs)) {
		_, name := p.o.Store.split(p.name, address)
		for _, variable := range slices.Sorted(maps.Keys(defs[address].Ports)) {
			wishes = append(wishes, logstore.PortWish{Project: p.name, Name: name, Variable: variable, Preferred: defs[address].Ports[variable]})
		}
	}
	slices.SortStableFunc(wishes, func(a, b logstore.PortWish) int { // a chosen port must not be one that is preferred
		return cmp.Compare(min(b.Preferred, 1), min(a.Preferred, 1))
	})
	c := portChoice{Project: p, chooser: ports.NewChooser(), session: p.portsOfSession(defs), refusals: make(map[string]ports.Refusal)}
	c.own = sync.OnceValue(func() (listening []int) {
		for address := range defs {
			listening = append(listening, p.treePorts(address)...)
		}
		return listening
	})
	chosen, err := p.o.Store.ReservePorts(ctx, wishes, c.choose)
	if err != nil {
		return nil, err
	}
	all := make(map[string]map[string]process.AssignedPort, len(defs))
	for i, w := range wishes {
		address, assigned := p.o.Store.address(p.name, w.Name), process.AssignedPort{Preferred: w.Preferred, Port: chosen[i]}
		if w.Preferred != 0 && assigned.Port != w.Preferred {
			assigned.Why = fmt.Sprintf("%s is %d: %s", w.Variable, assigned.Port, p.describeRefusal(ctx, address, w.Preferred, c.refusals[portKey(w)]))
		}
		if all[address] == nil {
			all[address] = make(map[string]process.AssignedPort)
		}
		all[address][w.Variable] = assigned
	}
	return all, nil
}

// portsOfSession returns the active processes of the session, also those that wait for their
// next run, by their assigned ports. It leaves out those in except.
func (p *Project) portsOfSession(except map[string]Definition) map[int]string {
	of := make(map[int]string)
	for _, st := range p.o.Manager.List() {
		if _, is := except[st.Spec.Name]; is || !st.GoesOn() {
			continue
		}
		for _, assigned := range st.Spec.Ports {
			of[assigned.Port] = st.Spec.Name
		}
	}
	return of
}

// A portChoice chooses the ports of one transaction.
type portChoice struct {
	*Project
	chooser  *ports.Chooser
	session  map[int]string           // see portsOfSession
	own      func() []int             // the ports on which the processes listen now
	refusals map[string]ports.Refusal // of preferred ports, by portKey
}

// portKey identifies a port: the same key gets the same port, as far as it is free.
func portKey(w logstore.PortWish) string {
	return strings.Join([]string{w.Project, w.Name, w.Variable}, "\x00")
}

// choose is the logstore.ChoosePort of the transaction.
func (c *portChoice) choose(w logstore.PortWish, taken map[int]logstore.PortHolder) (int, error) {
	want := ports.Want{
		Key: portKey(w), Preferred: w.Preferred, Last: w.Last,
		Own: func(port int) bool { return slices.Contains(c.own(), port) },
		Reserved: func(port int) string {
			holder, ok := taken[port]
			if !ok {
				return c.session[port]
			}
			return c.describeHolder(holder)
		},
	}
	address := c.o.Store.address(c.name, w.Name)
	if st, err := c.o.Manager.Status(address); err == nil && st.GoesOn() && c.hasPortUsers(address) { // they would not learn another port
		want.Preferred = cmp.Or(st.Spec.Ports[w.Variable].Port, w.Preferred)
	}
	port, refusal, err := c.chooser.Choose(want)
	if err != nil {
		err = fmt.Errorf("argument ports: %s of %s: %w", w.Variable, address, err)
	}
	c.refusals[portKey(w)] = refusal
	return port, err
}

// describeHolder returns who has reserved a port.
func (p *Project) describeHolder(h logstore.PortHolder) string {
	name := p.o.Store.address(h.Project, h.Name)
	if name == h.Name && h.Project != p.name {
		name += " of " + h.Project
	}
	if !h.Own {
		name += " in another window"
	}
	return name
}

// describeRefusal returns why a port that the process called name prefers was not free, as a sentence.
func (p *Project) describeRefusal(ctx context.Context, name string, port int, r ports.Refusal) string {
	if held, pids := p.o.Manager.HeldPort(port, name, true); held != "" {
		return held + p.windowOf(ctx, pids)
	}
	switch {
	case r.ReservedBy != "":
		return fmt.Sprintf("port %d is reserved for %s", port, r.ReservedBy)
	case r.Bind != nil:
		return r.Bind.Error()
	}
	return fmt.Sprintf("port %d was held by a process that has just ended", port)
}
