package project

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pmcp/process"
	"pmcp/process/ports"
	"pmcp/process/prose"
)

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

// listensOnAssigned reports whether the run listens on one of its assigned ports.
func (r *Run) listensOnAssigned() bool {
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
	var assigned, silent []string
	for _, variable := range slices.Sorted(maps.Keys(r.Spec.Ports)) {
		port := r.Spec.Ports[variable]
		if assigned = append(assigned, fmt.Sprintf("%s %d", variable, port.Port)); port.Why != "" {
			notes = append(notes, port.Why)
		}
		if len(r.Ports) > 0 || !watched {
			continue
		}
		if held, _ := p.o.Manager.HeldPort(port.Port, r.Spec.Name, false); held != "" { // as of a container
			silent = append(silent, held)
		} else {
			silent = append(silent, "nothing listens on "+assigned[len(assigned)-1])
		}
	}
	switch {
	case r.listensOnAssigned() || !r.State.Live():
	case len(r.Ports) > 0:
		notes = append(notes, fmt.Sprintf("it listens on %s, not on %s as it was told: many programs need it as an argument, as in --port {%s}", prose.Ints(r.Ports), strings.Join(assigned, ", "), slices.Min(slices.Collect(maps.Keys(r.Spec.Ports)))))
	default:
		notes = append(notes, silent...)
	}
	for _, left := range r.leftTemplates() {
		notes = append(notes, left+" stays as it is: no such port is declared in ports")
	}
	if r.Spec.EnvNote != "" {
		notes = append(notes, r.Spec.EnvNote)
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

// awaitAssigned completes r with the ports on which it listens, once it listens on one of its
// assigned ports, for at most assignedTime: a program may open another port first.
func (p *Project) awaitAssigned(ctx context.Context, r *Run) {
	const assignedTime, pause = time.Second, 50 * time.Millisecond
	waiting, cancel := context.WithTimeout(ctx, assignedTime)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for r.State == process.Running && !r.listensOnAssigned() {
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
