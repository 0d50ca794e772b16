package groups

import (
	"context"
	"errors"
	"fmt"

	"pmcp/process"
)

// awaitCondition returns nil once the condition of d holds for run. For a run of
// this server it also returns nil once the condition holds for a later run by
// which the restart policy replaced the run. It returns an error if the condition
// cannot hold any more, or ctx's cause.
func (m *Manager) awaitCondition(ctx context.Context, d Dependency, run ForeignRun) error {
	switch condition := resolveCondition(d.Condition, run.Spec); {
	case condition == Started:
		return nil
	case condition == Ready && !run.Spec.ChecksReady():
		return fmt.Errorf("%s has no readiness rule, so it never counts as ready: give it ready, or depend on it with condition started", d.Process)
	case condition != Healthy:
		return m.awaitState(ctx, d.Process, condition, run)
	case run.Owner != "":
		return fmt.Errorf("whether %s is healthy is known only to the pmcp server that owns it (%s): depend on it with condition ready or started", d.Process, run.Owner)
	default:
		return m.awaitHealthy(ctx, d.Process, run)
	}
}

// resolveCondition returns c, with IfReady replaced by Ready or Started
// depending on whether spec has a readiness rule.
func resolveCondition(c Condition, spec process.Spec) Condition {
	switch {
	case c != IfReady:
		return c
	case spec.ChecksReady():
		return Ready
	default:
		return Started
	}
}

// holdsFor reports whether the condition, Ready or ExitedOK, holds for a process
// with the status st. Healthy is not visible in a status.
func (c Condition) holdsFor(st process.Status) bool {
	switch c {
	case Ready:
		return st.State == process.Running && st.Ready != nil && *st.Ready
	case ExitedOK:
		ended := st.State == process.Exited || st.State == process.Backoff
		return ended && st.Exit != nil && st.Exit.Clean()
	default:
		return false
	}
}

// awaitState waits until the condition holds for run, a run of the process called
// name, or until the process has ended for good. A run of another server is judged
// by the status that the server has stored.
func (m *Manager) awaitState(ctx context.Context, name string, condition Condition, run ForeignRun) error {
	holds, over := false, false
	until := func(st process.Status) bool {
		holds = condition.holdsFor(st)
		over = st.State != process.Running && st.State != process.Starting && st.State != process.Backoff || condition == Ready && st.Refuses()
		return holds || over
	}
	var st process.Status
	var err error
	if run.Owner == "" {
		st, err = m.o.Processes.Await(ctx, name, until)
	} else {
		st, err = m.o.Elsewhere.AwaitElsewhere(ctx, run.RunID, until)
	}
	switch {
	case ctx.Err() != nil && !holds && !over:
		return waitError(ctx, st, condition)
	case err != nil:
		return err
	case holds:
		return nil
	default:
		return &endedError{name, condition, describeEnd(st), st.State.Live()}
	}
}

// An endedError is returned when a process has ended before a condition held.
type endedError struct {
	name      string
	condition Condition
	end       string // describeEnd
	live      bool   // it is running, but does not become ready
}

func (e *endedError) Error() string {
	return fmt.Sprintf("%s is not %s: %s", e.name, e.condition, e.end)
}

// ownReason returns err, of a wait for the member itself, without its name.
func ownReason(err error) string {
	var ended *endedError
	switch {
	case !errors.As(err, &ended):
		return err.Error()
	case ended.live:
		return "not ready: " + ended.end
	case ended.condition == Ready:
		return ended.end + " before it was ready"
	default:
		return ended.end
	}
}

// awaitHealthy waits until the health check of a process of this server succeeds,
// as long as the process may still live.
func (m *Manager) awaitHealthy(ctx context.Context, name string, run ForeignRun) error {
	if m.o.Health == nil {
		return errors.New("health checks are not available")
	}
	checkCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	processEnd := make(chan error, 1)
	go func() { // ends when checkCtx ends; awaited below
		err := m.awaitState(checkCtx, name, Healthy, run)
		cancel()
		processEnd <- err
	}()
	err := m.o.Health.AwaitHealthy(checkCtx, name, run.RunID)
	ended := checkCtx.Err() != nil && ctx.Err() == nil
	cancel()
	switch why := <-processEnd; {
	case err == nil:
		return nil
	case ended: // the process ended before a check succeeded
		return why
	case ctx.Err() != nil:
		st, _ := m.o.Processes.Status(name)
		return waitError(ctx, st, Healthy)
	default:
		return err
	}
}

// waitError returns the error of a wait for condition that ctx ended. st is the
// last status that the wait saw.
func waitError(ctx context.Context, st process.Status, condition Condition) error {
	text := fmt.Sprintf("%s was not %s yet (%s)", st.Spec.Name, condition, st.StateText())
	if st.NotReady != "" && condition == Ready {
		text = fmt.Sprintf("%s was not ready yet: %s", st.Spec.Name, st.NotReady)
	}
	return fmt.Errorf("%w: %s", context.Cause(ctx), text)
}

// describeEnd describes in a few words how a process came to its state.
func describeEnd(st process.Status) string {
	switch st.State {
	case process.Running:
		return st.NotReady
	case process.Failed:
		if st.Reason != "" {
			return st.Reason
		}
	case process.Crashed, process.Exited:
		if st.Exit != nil {
			return fmt.Sprintf("it ended with %s", st.Exit)
		}
	case process.Stopping, process.Stopped:
		return "it was stopped"
	}
	return "it is " + st.State.String()
}
