package project

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"pmcp/process"
	"pmcp/process/ports"
	"pmcp/process/prose"
)

// SecondTry returns the run that follows st, which has died, with other ports, or nil: only
// if another tree listens on an assigned port, and no process was started with that port. The
// Manager calls it.
func (p *Project) SecondTry(st process.Status) *process.SecondRun {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name, why := st.Spec.Name, ""
	p = p.of(name)
	for _, variable := range slices.Sorted(maps.Keys(st.Spec.Ports)) {
		port := st.Spec.Ports[variable].Port
		if slices.Contains(p.treePorts(name), port) { // a survivor, which is stopped before the next run
			continue
		}
		if held, _ := p.o.Manager.HeldPort(port, name, false); held != "" && why == "" {
			why = held
		}
	}
	p.assignments.mu.Lock()
	start, known := p.assignments.started[name]
	p.assignments.mu.Unlock()
	if why == "" || !known || len(start.def.Ports) != len(st.Spec.Ports) || p.hasPortUsers(name) {
		return nil
	}
	all, err := p.reservePorts(ctx, map[string]Definition{name: start.def})
	if err != nil {
		return nil
	}
	for variable, port := range all[name] {
		if port.Port != st.Spec.Ports[variable].Port {
			port.Why = fmt.Sprintf("%s is %d: run %d ended, since %s", variable, port.Port, st.Run, why)
			all[name][variable] = port
		}
	}
	def := start.def.expanded(all[name], func(other, variable string) (string, bool) {
		port, declared := p.portOf(ctx, other, variable)
		return strconv.Itoa(port), declared && port != 0
	})
	spec, err := p.Spec(name, def, !st.Spec.Stdin)
	spec.Stdin, spec.Service, spec.Unnamed = st.Spec.Stdin, st.Spec.Service, st.Spec.Unnamed
	if def.Ready == nil {
		spec.Ready = st.Spec.Ready
	}
	check, checkErr := def.healthSpec(def.dir(p.name), p.o.Manager.AllowsAny())
	if err = errors.Join(err, checkErr, p.o.Health.CheckSet(name, check)); err != nil {
		path, bare := p.o.Store.split(p.name, name)
		p.o.Store.ReleasePorts(ctx, path, bare)
		return nil
	}
	return &process.SecondRun{Spec: spec, Decided: func(starts bool) {
		if !starts {
			p.releasePorts(context.Background(), name, true)
		} else if err := p.o.Health.Set(name, check); err != nil {
			p.o.Log.Error("cannot check the health with another port", "process", name, "error", err)
		}
	}}
}

// PortURLs returns the address of each assigned port of the run, by variable: of those on
// which it listens, else, as long as it listens nowhere, of all.
func (r *Run) PortURLs() map[string]string {
	if !r.State.Live() || len(r.Spec.Ports) == 0 {
		return nil
	}
	urls := make(map[string]string)
	for variable, port := range r.Spec.Ports {
		if len(r.Ports) == 0 || slices.Contains(r.Ports, port.Port) {
			urls[variable] = ports.URL(port.Port)
		}
	}
	return urls
}

// listensAsTold reports whether the run listens on one of its assigned ports.
func (r *Run) listensAsTold() bool {
	for _, port := range r.Spec.Ports {
		if slices.Contains(r.Ports, port.Port) {
			return true
		}
	}
	return len(r.Spec.Ports) == 0
}

// PortNotes returns sentences on the assigned ports of r, which was started: who holds the
// preferred ports, where the program listens instead, and which templates stayed as they
// are. watched means that the call has waited for r, so that a program which does not listen
// should be named.
func (p *Project) PortNotes(r *Run, watched bool) (notes []string) {
	var told, silent []string
	for _, variable := range slices.Sorted(maps.Keys(r.Spec.Ports)) {
		port := r.Spec.Ports[variable]
		if told = append(told, fmt.Sprintf("%s %d", variable, port.Port)); port.Why != "" {
			notes = append(notes, port.Why)
		}
		if len(r.Ports) > 0 || !watched {
			continue
		}
		if held, _ := p.o.Manager.HeldPort(port.Port, r.Spec.Name, false); held != "" { // as of a container
			silent = append(silent, held)
		} else {
			silent = append(silent, "nothing listens on "+told[len(told)-1])
		}
	}
	switch {
	case r.listensAsTold() || !r.State.Live():
	case len(r.Ports) > 0:
		notes = append(notes, fmt.Sprintf("it listens on %s, not on %s as it was told: many programs need it as an argument, as in --port {%s}", prose.Ints(r.Ports), strings.Join(told, ", "), slices.Min(slices.Collect(maps.Keys(r.Spec.Ports)))))
	default:
		notes = append(notes, silent...)
	}
	for _, left := range r.leftTemplates() {
		notes = append(notes, left+" stays as it is: no such port is declared in ports")
	}
	return notes
}

// leftTemplates returns the names of ports in braces that the command line and the
// environment of the run still have: those with PORT as their last word, since other braces
// mean something else.
func (r *Run) leftTemplates() (left []string) {
	note := func(process, variable string) (string, bool) {
		if isPortName(variable) {
			left = append(left, "{"+strings.TrimPrefix(process+"."+variable, ".")+"}")
		}
		return "", false
	}
	for _, text := range slices.Concat([]string{r.Spec.Command}, r.Spec.Args, slices.Collect(maps.Values(r.Spec.Env))) {
		ports.Expand(text, note)
	}
	slices.Sort(left)
	return slices.Compact(left)
}

// awaitTold completes r with the ports on which it listens, once it listens as it was told,
// for at most toldTime: a program may open another port first.
func (p *Project) awaitTold(ctx context.Context, r *Run) {
	const toldTime, pause = time.Second, 50 * time.Millisecond
	waiting, cancel := context.WithTimeout(ctx, toldTime)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for r.State == process.Running && !r.listensAsTold() {
		if found := p.treePorts(r.Spec.Name); len(found) > 0 {
			r.Ports = found
		}
		st, err := p.o.Manager.Status(r.Spec.Name)
		if err != nil || st.RunID != r.RunID || st.State != process.Running {
			return
		}
		select {
		case <-tick.C:
		case <-waiting.Done():
			return
		}
	}
}
