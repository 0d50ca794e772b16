package groups

import (
	"context"
	"errors"
	"fmt"

	"pmcp/process"
)

// awaitCondition returns nil when what d demands holds of the run with the id
// run, or of a later one by which the restart policy replaced it; otherwise why
// it does not and will not, or ctx's cause.
func (m *Manager) awaitCondition(ctx context.Context, d Dependency, run int64) error {
	st, err := m.o.Processes.Status(d.Process)
	if err != nil {
		return err
	}
	switch condition := effective(d.Condition, st.Spec); condition {
	case Started:
		return nil
	case Ready:
		if !st.Spec.ChecksReady() {
			return errNoRule(d.Process)
		}
		return m.awaitVerdict(ctx, d.Process, condition, readiness)
	case ExitedOK:
		return m.awaitVerdict(ctx, d.Process, condition, cleanExit)
	default:
		return m.awaitHealthy(ctx, d.Process, run)
	}
}

func errNoRule(name string) error {
	return fmt.Errorf("%s has no readiness rule, so it never counts as ready: give it ready, or depend on it with condition started", name)
}

// effective is c with its default: what a readiness rule, or its absence, makes
// of it.
func effective(c Condition, spec process.Spec) Condition {
	switch {
	case c != IfReady:
		return c
	case spec.ChecksReady():
		return Ready
	default:
		return Started
	}
}

// verdict is whether a condition holds of a process, or cannot hold any more.
type verdict uint8

const (
	undecided verdict = iota
	holds
	impossible
)

// readiness judges the condition ready.
func readiness(st process.Status) verdict {
	switch st.State {
	case process.Running:
		if st.Ready != nil && *st.Ready {
			return holds
		}
		return undecided
	case process.Starting, process.Backoff: // the policy will try again
		return undecided
	default:
		return impossible
	}
}

// cleanExit judges the condition exited_ok.
func cleanExit(st process.Status) verdict {
	ended := st.State == process.Exited || st.State == process.Backoff
	switch {
	case ended && st.Exit != nil && st.Exit.Clean():
		return holds
	case st.State == process.Running || st.State == process.Starting || st.State == process.Backoff:
		return undecided
	default:
		return impossible
	}
}

// alive judges only whether the process may still come to something.
func alive(st process.Status) verdict {
	switch st.State {
	case process.Running, process.Starting, process.Backoff:
		return undecided
	default:
		return impossible
	}
}

// awaitVerdict waits until judge has decided on a process of this server.
func (m *Manager) awaitVerdict(ctx context.Context, name string, condition Condition, judge func(process.Status) verdict) error {
	return awaitVerdict(ctx, name, condition, judge, func(until func(process.Status) bool) (process.Status, error) {
		return m.o.Processes.Await(ctx, name, until)
	})
}

// awaitVerdict waits until judge has decided; await, which ends with ctx, is how
// the process is waited for.
func awaitVerdict(
	ctx context.Context, name string, condition Condition, judge func(process.Status) verdict,
	await func(until func(process.Status) bool) (process.Status, error),
) error {
	seen := undecided
	st, err := await(func(st process.Status) bool {
		seen = judge(st)
		return seen != undecided
	})
	switch {
	case ctx.Err() != nil && seen == undecided:
		return gaveUp(ctx, st, condition)
	case err != nil:
		return err
	case seen == holds:
		return nil
	default:
		return fmt.Errorf("%s is not %s: %s", name, condition, ending(st))
	}
}

// awaitHealthy waits for the health check, as long as the process may live.
func (m *Manager) awaitHealthy(ctx context.Context, name string, run int64) error {
	if m.o.Health == nil {
		return errors.New("health checks are not available")
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	died := make(chan error, 1)
	go func() { // ends with both at the latest, and is waited for below
		err := m.awaitVerdict(both, name, Healthy, alive)
		cancel()
		died <- err
	}()
	err := m.o.Health.AwaitHealthy(both, name, run)
	ended := both.Err() != nil && ctx.Err() == nil
	cancel()
	switch why := <-died; {
	case err == nil:
		return nil
	case ended: // by the end of the process
		return why
	case ctx.Err() != nil:
		st, _ := m.o.Processes.Status(name)
		return gaveUp(ctx, st, Healthy)
	default:
		return err
	}
}

// gaveUp says that a wait ended before there was an answer.
func gaveUp(ctx context.Context, st process.Status, condition Condition) error {
	text := fmt.Sprintf("%s was not %s yet (%s)", st.Spec.Name, condition, st.State)
	if st.NotReady != "" && condition == Ready {
		text = fmt.Sprintf("%s was not ready yet: %s", st.Spec.Name, st.NotReady)
	}
	return fmt.Errorf("%w: %s", context.Cause(ctx), text)
}

// ending says how a process came to what it is, in a few words.
func ending(st process.Status) string {
	switch st.State {
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
