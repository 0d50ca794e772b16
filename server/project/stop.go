package project

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"pmcp/process"
	"pmcp/server/args"
)

// Stopped is the outcome of a stop of one process.
type Stopped struct {
	Run        Run
	WasRunning bool
	Left       string   // what is left of what was running: "nothing left, port 3000 closed"
	Hint       string   // what the state after the stop does not show
	Lines      []string // what another window has shown of the output since the stop began
	Err        error
}

// Running returns the names of the processes of p in this session that a stop of all
// processes stops, without those that have ended. started reports whether a process of
// p was started in this session at all.
func (p *Project) Running() (names []string, started bool) {
	own := p.o.Manager.List()
	for i := range own {
		if p.of(own[i].Spec.Name).name != p.name {
			continue
		}
		if started = true; own[i].GoesOn() {
			names = append(names, own[i].Spec.Name)
		}
	}
	return names, started
}

// Stop stops the named processes concurrently.
func (p *Project) Stop(ctx context.Context, names []string, o process.StopOptions) []Stopped {
	o.Actor = p.by
	results := make([]Stopped, len(names))
	var stops sync.WaitGroup
	for i, name := range names {
		stops.Go(func() { results[i] = p.stop(ctx, name, o) })
	}
	stops.Wait()
	return results
}

// stop stops the process that name stands for at the moment.
func (p *Project) stop(ctx context.Context, name string, o process.StopOptions) Stopped {
	before, err := p.Find(ctx, name)
	switch {
	case err != nil:
		return Stopped{Err: err}
	case before.Owner != nil && p.received:
		return Stopped{Err: &WindowError{run: before}}
	case before.Owner != nil:
		done, err := p.o.Store.stopAtOwner(ctx, before, o)
		done.Err = err
		return done
	case before.Stored:
		if p.o.Store.addLeft(ctx, &before); before.IsLeft() {
			return Stopped{Run: before} // which says who can stop it
		}
		return Stopped{Run: before, Hint: name + " was not running"}
	}
	ports := p.o.Manager.Ports(name)
	st, err := p.o.Manager.Stop(ctx, name, o)
	p.endStoppedWatches()
	if err != nil {
		return Stopped{Err: fmt.Errorf("cannot stop %s: %w", name, err)}
	}
	stopped := Stopped{Run: p.here(&st), WasRunning: before.Alive(), Hint: stopHint(&before, &st)}
	if stopped.WasRunning && !stopped.Run.Alive() {
		stopped.Left = strings.Join(append([]string{"nothing left"}, p.closedPorts(name, ports)...), ", ")
	}
	return stopped
}

// closedPorts returns what became of the ports of the process called name, which was stopped:
// "port 3000 closed", or which process holds the port now.
func (p *Project) closedPorts(name string, ports []int) (words []string) {
	for _, port := range ports {
		held, _ := p.o.Manager.HeldPort(port, name, true)
		words = append(words, cmp.Or(held, fmt.Sprintf("port %d closed", port)))
	}
	return words
}

// stopHint returns a hint about facts that the state after a stop does not show. It
// derives them from the states before and after the stop.
func stopHint(before *Run, after *process.Status) string {
	name := before.Spec.Name
	switch {
	case after.State.Active():
		return name + " was stopped, and " + process.StartedAgain
	case !before.State.Live() && len(before.Survivors) > 0:
		return fmt.Sprintf("%s had already ended; stopped what it left behind: %s", name, strings.Join(before.Left(), ", "))
	case !before.GoesOn():
		return name + " was not running"
	}
	return ""
}

// Remove deletes stopped processes with their definitions and health checks; their
// logs stay. It checks all of them before it removes anything.
func (p *Project) Remove(ctx context.Context, names []string) error {
	var started []string
	for _, name := range names {
		run, _, err := p.latest(ctx, name) // unlike Find, it fails if the store cannot be read
		if err == nil && run.Owner != nil {
			err = &WindowError{run: run}
		}
		if err != nil {
			return err
		}
		if _, err := p.o.Manager.Status(name); err == nil {
			started = append(started, name)
		}
	}
	if err := p.o.Manager.Remove(ctx, started...); err != nil {
		return err
	}
	p.endStoppedWatches()
	for _, name := range names {
		p.deleteDefinition(name)
		p.inputs.Delete(name)
		_ = p.o.Health.Set(name, nil) // removing a check cannot fail
		p.o.Changed(name, false)
	}
	return nil
}

// stopAtOwner stops a run that another window owns, through that window.
func (s *Store) stopAtOwner(ctx context.Context, run Run, o process.StopOptions) (Stopped, error) {
	_, name := s.split(run.Project, run.Spec.Name)
	arguments := map[string]any{"process": name}
	if o.Timeout > 0 {
		arguments["timeout_ms"] = o.Timeout.Milliseconds()
	}
	if o.Force {
		arguments["force"] = true
	}
	given, err := args.Give(arguments)
	if err != nil {
		return Stopped{Run: run}, err
	}
	a, err := s.atOwner(ctx, &run, OwnerCall{Tool: "stop_process", Arguments: given, By: o.Actor}) // a stop runs no executable
	if err == nil && a.IsError {
		err = errors.New(a.Text)
	}
	if err != nil {
		return Stopped{Run: run}, err
	}
	return stoppedFrom(run, a.Structured)
}

// stoppedFrom returns the outcome of a stop of run from the answer of stop_process.
func stoppedFrom(run Run, answer json.RawMessage) (Stopped, error) {
	var a struct {
		State      string   `json:"state"`
		Run        int      `json:"run"`
		EndedAt    string   `json:"ended_at"`
		DurationMS int64    `json:"duration_ms"`
		ExitCode   *int     `json:"exit_code"`
		Signal     string   `json:"signal"`
		EndedBy    string   `json:"ended_by"`
		Uncaught   bool     `json:"uncaught"`
		WasRunning bool     `json:"was_running"`
		Left       string   `json:"left"`
		Lines      []string `json:"lines"`
		Hint       string   `json:"hint"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return Stopped{Run: run}, fmt.Errorf("%s: invalid answer of its owner: %w", run.Spec.Name, err)
	}
	if run.IsKept() {
		run.Owner = nil // the daemon, as for its other answers
	}
	run.State, _ = process.ParseState(a.State)
	run.Status.Run, run.PID, run.Ready = a.Run, 0, nil
	if ended, err := time.Parse(time.RFC3339Nano, a.EndedAt); err == nil {
		run.EndedAt, run.StartedAt = ended, ended.Add(-time.Duration(a.DurationMS)*time.Millisecond)
	}
	if exit := exitOf(a.ExitCode, a.Signal, a.EndedBy, a.Uncaught); exit != nil {
		run.Exit = exit
	}
	return Stopped{Run: run, WasRunning: a.WasRunning, Left: a.Left, Hint: a.Hint, Lines: a.Lines}, nil
}
