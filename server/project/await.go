package project

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pmcp/process"
	"pmcp/process/prose"
)

// untilConditions maps what a call can wait for to the condition on the status.
var untilConditions = map[string]func(process.Status) bool{
	UntilStarted: func(st process.Status) bool { return st.State != process.Starting },
	UntilReady: func(st process.Status) bool {
		if st.Ready == nil { // there is no rule, or that is not known yet
			return st.State != process.Starting
		}
		return *st.Ready || st.Refuses()
	},
	UntilExit: func(process.Status) bool { return false }, // a wait ends with the run anyway
}

// Await waits until a run of name ends or has come as far as until, for at most
// timeout, and returns the run. timedOut reports whether the time ran out first.
func (p *Project) Await(ctx context.Context, name string, run int64, until string, timeout time.Duration) (r Run, timedOut bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err = p.awaitRun(waiting, name, run, untilConditions[until])
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return r, true, nil
	}
	return r, false, err
}

// givenUpWait is how long AwaitStart waits for the end of an MCP server whose
// connection was given up: a server exits when its input is closed.
const givenUpWait = 2 * time.Second

// AwaitStart waits until what the start asked for has happened, for at most timeout,
// and returns the run. A start that asks for no more is watched, as
// process.Manager.WatchStart does, unless timeout is 0 or the process was running
// already; watched is how long it had lived by then, 0 if it was not watched. timedOut
// reports that the time ran out first, that an MCP server was given up, or that the run refuses
// to become ready.
func (p *Project) AwaitStart(ctx context.Context, s Started, timeout time.Duration) (r Run, timedOut bool, watched time.Duration, err error) {
	name := s.Run.Spec.Name
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, watched, err = p.awaitRunOf(ctx, waiting, s, timeout > 0)
	if timeout > 0 && err == nil && (len(r.Ports) > 0 || s.Wait == UntilReady) {
		p.awaitAssigned(waiting, &r)
	}
	if len(r.Survivors) > 0 && s.Wait != UntilExit && timeout > 0 && ctx.Err() == nil {
		p.awaitDaemon(ctx, &r)
	} else if len(r.Survivors) > 0 {
		r.Ports = p.treePorts(name)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		timedOut, err = watched == 0, nil
	}
	if err == nil && (timedOut || watched > 0) {
		p.setAsks(ctx, &r)
	}
	return r, timedOut, watched, err
}

// awaitRunOf waits for what s asked of its run. watch is set if a start that asks for no
// more is to be watched.
func (p *Project) awaitRunOf(ctx, waiting context.Context, s Started, watch bool) (r Run, watched time.Duration, err error) {
	name, id := s.Run.Spec.Name, s.Run.RunID
	switch {
	case watch && s.Wait == UntilStarted && !s.Already && s.Run.Ready == nil:
		var st process.Status
		st, err = p.o.Manager.WatchStart(waiting, name, id)
		r, watched = p.hereOf(&st), time.Since(st.StartedAt)
	case s.Wait == UntilReady && process.SpeaksMCP(s.Run.Spec.Stdio):
		r, err = p.awaitRun(waiting, name, id, func(st process.Status) bool { return untilConditions[UntilReady](st) || st.GivenUp() })
		switch {
		case err != nil || !r.GivenUp():
		case r.Spec.Stdio == process.StdioHTTP: // it keeps running without a connection
			err = context.DeadlineExceeded
		default:
			ending, cancel := context.WithTimeout(ctx, givenUpWait)
			defer cancel()
			r, err = p.awaitRun(ending, name, id, untilConditions[UntilReady])
		}
	case s.Wait == UntilReady:
		if r, err = p.awaitReady(waiting, name, id); err == nil && r.Refuses() {
			err = context.DeadlineExceeded
		}
	case s.Wait == UntilExit:
		r, err = p.awaitExit(waiting, name, id)
	default:
		r, err = p.awaitRun(waiting, name, id, untilConditions[s.Wait])
	}
	return r, watched, err
}

// awaitExit waits until a run of name ends, or serves instead: then Run.Serves says so.
func (p *Project) awaitExit(ctx context.Context, name string, run int64) (Run, error) {
	st, silent, err := p.o.Manager.AwaitExit(ctx, name, run)
	if errors.Is(err, process.ErrUnknown) {
		return p.awaitRun(ctx, name, run, untilConditions[UntilExit])
	}
	r := p.hereOf(&st)
	if !silent.IsZero() {
		r.Serves = fmt.Sprintf("listens on %s, silent for %s", prose.Ints(st.Ports), time.Since(silent).Round(time.Second))
	}
	return r, err
}

// awaitReady waits until a run of name is ready, refuses readiness or ends for good: if its restart policy will try
// again, the wait is for the next run.
func (p *Project) awaitReady(ctx context.Context, name string, run int64) (Run, error) {
	for {
		r, err := p.awaitRun(ctx, name, run, untilConditions[UntilReady])
		if err != nil || !r.Over() || r.Stored {
			return r, err
		}
		st, err := p.o.Manager.Await(ctx, name, func(st process.Status) bool {
			return !st.State.Active() || st.RunID != run && st.State != process.Starting
		})
		switch {
		case errors.Is(err, process.ErrUnknown):
			return r, nil
		case err != nil || st.RunID == run:
			return p.hereOf(&st), err
		}
		run = st.RunID
	}
}

// awaitDaemon completes a run that has put processes into the background with their
// ports. It waits for these for at most daemonTime after the end of the run.
func (p *Project) awaitDaemon(ctx context.Context, r *Run) {
	const daemonTime, pause = time.Second, 50 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		r.Ports = p.treePorts(r.Spec.Name)
		st, err := p.o.Manager.Status(r.Spec.Name)
		if err != nil || st.RunID != r.RunID || st.State.Live() { // started again since
			return
		}
		if r.Survivors = st.Survivors; len(r.Ports) > 0 || len(r.Survivors) == 0 || time.Since(r.EndedAt) >= daemonTime {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// treePorts returns the ports on which the living processes of name listen now.
func (p *Project) treePorts(name string) (ports []int) {
	members, _ := p.o.Manager.Tree(name) // an error leaves out what only completes the answer
	for _, m := range members {
		ports = append(ports, m.Ports...)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// How many bytes of a body HTTPAnswers returns: of one that made a process ready, and
// of one that did not.
const (
	goodBody = 200
	badBody  = 300
)

// HTTPAnswers returns the last answers to the requests of the readiness rule of r. It
// masks and cuts their bodies.
func (p *Project) HTTPAnswers(r *Run) []process.HTTPAnswer {
	answers := slices.Clone(r.HTTP)
	for i := range answers {
		a, most := &answers[i], badBody
		if a.OK() {
			most = goodBody
		}
		a.Body = prose.Cut(p.o.Mask.Part(a.Body, a.More || a.Bytes > int64(len(a.Body))), most)
	}
	return answers
}

// awaitRun waits until a run of name ends or until holds for it, and returns the
// run. For a run of another window, awaitRun sees what that window has stored, and measures the rest. If ctx
// ends first, awaitRun returns the run at that moment and ctx's error.
func (p *Project) awaitRun(ctx context.Context, name string, run int64, until func(process.Status) bool) (Run, error) {
	st, err := p.o.Manager.AwaitRun(ctx, name, run, until)
	if !errors.Is(err, process.ErrUnknown) {
		return p.hereOf(&st), err
	}
	r, err := awaitRow(ctx, p.o.Store, run, until)
	return measured(r), err
}

// backoffWait is the longest time to the next automatic restart for which
// AwaitSettled waits.
const backoffWait = 5 * time.Second

// AwaitSettled returns a process of this session once its state will not change soon:
// the process is not starting, and its restart policy will not restart it within
// backoffWait.
func (p *Project) AwaitSettled(ctx context.Context, name string) (Run, error) {
	if err := p.requireHere(ctx, name); err != nil {
		return Run{}, err
	}
	st, err := p.o.Manager.Await(ctx, name, func(st process.Status) bool {
		return st.State != process.Starting && (st.State != process.Backoff || time.Until(st.NextRetry) > backoffWait)
	})
	return p.here(&st), err
}
