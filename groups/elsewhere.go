package groups

import (
	"context"
	"fmt"

	"pmcp/process"
)

// Elsewhere is what groups need to know of the project's other servers.
type Elsewhere interface {
	// RunsElsewhere gives those of names that run in another live server, by
	// name. What cannot be read is not among them.
	RunsElsewhere(ctx context.Context, names []string) map[string]ForeignRun
	// AwaitElsewhere returns the run with that id as soon as until holds for it
	// or it has ended, or as it was seen last and ctx's error when that ends
	// first.
	AwaitElsewhere(ctx context.Context, id int64, until func(process.Status) bool) (process.Status, error)
}

// ForeignRun is a run that another live server owns, which alone can change it.
type ForeignRun struct {
	// Status is what that server has stored. Its Spec has the name, and Ready
	// where the run has readiness rules.
	process.Status
	// Owner names the server: "pid 7 editor". Never "".
	Owner string
}

// inServerOf says where a run is that owner owns.
func inServerOf(owner string) string {
	return fmt.Sprintf("in another pmcp server (%s), which alone can change it", owner)
}

// elsewhere gives those of names that run in another server and not here. It
// asks once for all of them, and nobody if all run here.
func (m *Manager) elsewhere(ctx context.Context, names ...string) map[string]ForeignRun {
	var away []string
	for _, name := range names {
		if st, err := m.o.Processes.Status(name); err != nil || !st.State.Active() {
			away = append(away, name)
		}
	}
	if m.o.Elsewhere == nil || len(away) == 0 {
		return nil
	}
	return m.o.Elsewhere.RunsElsewhere(ctx, away)
}

// awaitElsewhere is awaitCondition for a run of another server: it judges by
// what that server has stored.
func (m *Manager) awaitElsewhere(ctx context.Context, d Dependency, run ForeignRun) error {
	judge, condition := readiness, effective(d.Condition, run.Spec)
	switch condition {
	case Started:
		return nil
	case Healthy:
		return fmt.Errorf("whether %s is healthy is known only to the pmcp server that owns it (%s): depend on it with condition ready or started", d.Process, run.Owner)
	case ExitedOK:
		judge = cleanExit
	default:
		if !run.Spec.ChecksReady() {
			return errNoRule(d.Process)
		}
	}
	return awaitVerdict(ctx, d.Process, condition, judge, func(until func(process.Status) bool) (process.Status, error) {
		return m.o.Elsewhere.AwaitElsewhere(ctx, run.RunID, until)
	})
}
