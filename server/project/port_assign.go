package project

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"pmcp/process"
)

func (p *Project) hasPortUsers(name string) bool {
	return slices.ContainsFunc(p.assignments.users(name), func(user string) bool {
		st, err := p.o.Manager.Status(user)
		return err == nil && st.GoesOn()
	})
}

// withLikelyPorts returns def as a start would have it, for checks and comparisons: with
// the ports of the latest run, else the preferred ones.
func (p *Project) withLikelyPorts(name string, def Definition) Definition {
	var assigned map[string]process.AssignedPort
	if len(def.Ports) > 0 {
		st, _ := p.o.Manager.Status(name) // without it, there was no run
		assigned = make(map[string]process.AssignedPort, len(def.Ports))
		for variable, preferred := range def.Ports {
			port := cmp.Or(st.Spec.Ports[variable].Port, preferred, anyPort)
			assigned[variable] = process.AssignedPort{Preferred: preferred, Port: port}
		}
	}
	return def.expanded(assigned, func(other, variable string) (string, bool) {
		port, declared := p.portOf(context.Background(), other, variable)
		return strconv.Itoa(cmp.Or(port, anyPort)), declared
	})
}

// sibling returns the address of a process that a template names: of one of the project,
// unless the name has a label.
func (p *Project) sibling(name string) string {
	path, name := p.o.Store.split(p.name, name)
	return p.o.Store.address(path, name)
}

// portOf returns the port that a process of the project has in a variable: the one that it
// is about to be started with, else that of its run; 0 if it has none now. declared reports
// whether its definition has that variable in ports.
func (p *Project) portOf(ctx context.Context, name, variable string) (port int, declared bool) {
	name = p.sibling(name)
	if pending, ok := p.assignments.find(name, variable); ok {
		return pending.Port, true
	}
	st, err := p.o.Manager.Status(name)
	if assigned, ok := st.Spec.Ports[variable]; ok && err == nil && st.GoesOn() {
		return assigned.Port, true
	}
	def, ok, err := p.Definition(ctx, name)
	_, declared = def.Ports[variable]
	return 0, declared && ok && err == nil
}

// assignPorts returns def with its ports and with its templates replaced, for a start of
// name, and the processes whose ports the templates name. A process that is running and is
// to be kept keeps its ports.
func (p *Project) assignPorts(ctx context.Context, name string, def Definition, ifRunning process.IfRunning) (withPorts Definition, uses []string, err error) {
	if err := def.checkPorts(p.name); err != nil {
		return def, nil, err
	}
	assigned := p.keptPorts(name, def, ifRunning)
	if assigned == nil && len(def.Ports) > 0 {
		if assigned = p.assignments.wanted(name, def.Ports); assigned == nil {
			all, err := p.reservePorts(ctx, map[string]Definition{name: def})
			if err != nil {
				return def, nil, err
			}
			assigned = all[name]
		}
	}
	var missing error
	expanded := def.expanded(assigned, func(other, variable string) (string, bool) {
		port, declared := p.portOf(ctx, other, variable)
		if !declared {
			return "", false
		}
		if port == 0 {
			missing = fmt.Errorf("{%s.%s}: %s is not running, so it has no port yet; start it first, or both as a group", other, variable, other)
		}
		uses = append(uses, p.sibling(other))
		return strconv.Itoa(port), true
	})
	if missing != nil {
		p.releasePorts(ctx, name, true)
		return def, nil, missing
	}
	return expanded, uses, nil
}

// keptPorts returns the ports of the run of name if it is live and is to be kept, or nil.
func (p *Project) keptPorts(name string, def Definition, ifRunning process.IfRunning) map[string]process.AssignedPort {
	st, err := p.o.Manager.Status(name)
	if err != nil || !st.State.Live() || ifRunning == process.RestartRunning || len(def.Ports) == 0 {
		return nil
	}
	kept := make(map[string]process.AssignedPort, len(def.Ports))
	for variable, preferred := range def.Ports {
		port, ok := st.Spec.Ports[variable]
		if !ok {
			return nil
		}
		port.Preferred = preferred
		kept[variable] = port
	}
	return kept
}

// releasePorts ends the reservation of the ports of a process: of one that was started
// without ports or, if failed is set, of one that was not started, unless it runs.
func (p *Project) releasePorts(ctx context.Context, name string, failed bool) {
	if st, err := p.o.Manager.Status(name); !failed || err != nil || !st.GoesOn() {
		path, name := p.o.Store.split(p.name, name)
		p.o.Store.ReleasePorts(context.WithoutCancel(ctx), path, name)
	}
}

// reserveGroup chooses the ports of all members of a group that are about to be started. It
// returns a function that releases those of members that this start has not started.
func (p *Project) reserveGroup(ctx context.Context, group string, restart bool) (release func(), err error) {
	g, err := p.o.Groups.Group(ctx, group)
	if err != nil {
		return func() {}, nil //nolint:nilerr // the start reports it
	}
	defs := make(map[string]Definition)
	for _, m := range g.Members {
		def, ok, err := p.Definition(ctx, m.Process)
		if err != nil || !ok || len(def.Ports) == 0 || def.checkPorts(p.name) != nil { // the start of the member reports it
			continue
		}
		if run, err := p.Find(ctx, m.Process); err == nil && (run.Owner != nil || run.State.Live() && !restart) {
			continue
		}
		defs[m.Process] = def
	}
	if len(defs) == 0 {
		return func() {}, nil
	}
	all, err := p.reservePorts(ctx, defs)
	if err != nil {
		return func() {}, err
	}
	of := p.assignments.add(all)
	return func() {
		for name := range defs {
			if p.assignments.remove(name, of) {
				p.releasePorts(ctx, name, true)
			}
		}
	}, nil
}
