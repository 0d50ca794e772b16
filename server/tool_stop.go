package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

type stopProcessArgs struct {
	Process   string `json:"process" jsonschema:"names with commas, or *"`
	TimeoutMS int    `json:"timeout_ms,omitempty" min:"1" max:"600000"`
	Force     bool   `json:"force,omitempty"`
}

// stopResult is the answer of stop_process: the process, or each of several.
type stopResult struct {
	processResult
	WasRunning bool            `json:"was_running"`
	Processes  []processResult `json:"processes,omitempty"`
	NextCursor string          `json:"next_cursor,omitempty"`
	Hint       string          `json:"hint,omitempty"`
}

func (r stopResult) about() []told {
	if len(r.Processes) == 0 {
		return []told{r.told()}
	}
	var all []told
	for i := range r.Processes {
		all = append(all, r.Processes[i].told())
	}
	return all
}

func (r stopResult) text() string {
	var b strings.Builder
	if len(r.Processes) == 0 {
		b.WriteString(r.line() + "\n")
	}
	for _, p := range r.Processes {
		b.WriteString(p.line() + "\n")
	}
	if r.NextCursor != "" {
		fmt.Fprintf(&b, "next_cursor: %s\n", r.NextCursor)
	}
	if r.Hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", r.Hint)
	}
	return b.String()
}

func stopProcessTool() tool {
	return define(tool{
		name: "stop_process", title: "Stop process", toolset: setLifecycle,
		description: "Stops a process with all it started. No error if it has ended.",
		hints:       hints{destructive: true, idempotent: true},
		waits:       func(json.RawMessage) bool { return true },
	}, stopProcess)
}

func stopProcess(ctx context.Context, s *Server, a stopProcessArgs) (stopResult, error) {
	names, err := s.resolveNames(ctx, a.Process)
	if err != nil {
		return stopResult{}, err
	}
	everything, stop := names == nil, s.stopOne
	var before []process.Status
	if everything {
		before, stop = s.o.Manager.List(), s.stopOwn
		for i := range before {
			names = append(names, before[i].Spec.Name)
		}
	}
	defer report(ctx, func() string {
		lines := make([]string, len(names))
		for i, name := range names {
			lines[i] = s.nowLine(name)
		}
		return strings.Join(lines, "; ")
	})()
	o := process.StopOptions{Timeout: time.Duration(a.TimeoutMS) * time.Millisecond, Force: a.Force}
	results, err := stopAll(names, func(name string) (stopResult, error) { return stop(ctx, name, o) })
	if err != nil {
		return stopResult{}, err
	}
	if everything {
		results = s.withoutOthers(ctx, before, results)
	}
	if len(results) == 1 {
		return results[0], nil
	}
	all := stopResult{processResult: processResult{Name: a.Process, State: process.Stopped.String()}}
	var hints []string
	for _, r := range results {
		all.Processes = append(all.Processes, r.processResult)
		all.WasRunning = all.WasRunning || r.WasRunning
		if !everything { // else all is listed that ever ran
			hints = append(hints, r.Hint)
		}
	}
	all.Hint = joinHints(hints...)
	if len(results) == 0 {
		all.Hint = "nothing of this session runs"
		if len(names) == 0 {
			all.Hint = "nothing was started in this session"
		}
	}
	return all, nil
}

// withoutOthers leaves out of the results of a stop of everything what had ended
// before and runs in another server now. It asks when all is stopped: no stop
// waits for storage.
func (s *Server) withoutOthers(ctx context.Context, before []process.Status, results []stopResult) []stopResult {
	runs, err := s.latestRuns(ctx, "project")
	if err != nil {
		return results // they are told as this session knows them
	}
	latest := make(map[string]*logstore.Run, len(runs))
	for i := range runs {
		latest[runs[i].Name] = &runs[i]
	}
	var own []stopResult
	for i := range before {
		if run := latest[before[i].Spec.Name]; run == nil || !meansOther(&before[i], run) {
			own = append(own, results[i])
		}
	}
	return own
}

// stopAll stops the named processes, all at once.
func stopAll(names []string, stop func(name string) (stopResult, error)) ([]stopResult, error) {
	results, errs := make([]stopResult, len(names)), make([]error, len(names))
	var stops sync.WaitGroup
	for i, name := range names {
		stops.Go(func() { results[i], errs[i] = stop(name) })
	}
	stops.Wait()
	err := errors.Join(errs...)
	if err == nil || len(names) == 1 {
		return results, err
	}
	for i := range results { // the others were stopped all the same
		if errs[i] == nil {
			err = fmt.Errorf("%w\n%s", err, results[i].line())
		}
	}
	return results, err
}

// stopOne stops what name means now.
func (s *Server) stopOne(ctx context.Context, name string, o process.StopOptions) (stopResult, error) {
	if _, own := s.ownNow(ctx, name); !own { // known, but not of this session
		return s.stopOfOther(ctx, name)
	}
	return s.stopOwn(ctx, name, o)
}

// stopOwn stops a process of this session.
func (s *Server) stopOwn(ctx context.Context, name string, o process.StopOptions) (stopResult, error) {
	before, err := s.o.Manager.Status(name)
	if err != nil { // it was removed meanwhile
		return s.stopOfOther(ctx, name)
	}
	r := stopResult{WasRunning: before.Alive()}
	st, err := s.o.Manager.Stop(ctx, name, o)
	if err != nil {
		return r, fmt.Errorf("cannot stop %s: %w", name, err)
	}
	r.processResult, r.Hint = s.ofStatus(&st), stopHint(&before, &st)
	r.NextCursor, err = s.o.Store.End(ctx, s.o.Manager.Project(), []string{name})
	unread, err := unreadHint(err)
	r.Hint = joinNonEmpty(r.Hint, unread)
	return r, err
}

// stopHint says what the state after a stop does not, of a process that was as
// before.
func stopHint(before, after *process.Status) string {
	name := before.Spec.Name
	switch {
	case after.State.Active():
		return name + " was stopped, and " + process.StartedAgain
	case !before.State.Live() && len(before.Survivors) > 0:
		return fmt.Sprintf("%s had ended before; stopped what it left: %s", name, strings.Join(ofStatus(before).Survivors, ", "))
	case !before.GoesOn():
		return name + " was not running"
	}
	return ""
}

// stopOfOther answers a stop of what this session does not run.
func (s *Server) stopOfOther(ctx context.Context, name string) (stopResult, error) {
	if err := s.ownOnly(ctx, name); err != nil {
		return stopResult{}, err
	}
	r := stopResult{processResult: processResult{Name: name, State: process.Stopped.String()}, Hint: name + " was not running"}
	run, ok, err := s.latestRun(ctx, name)
	if err != nil {
		return r, err
	}
	if ok {
		r.processResult = ofRun(&run)
	}
	return r, nil
}
