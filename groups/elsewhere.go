package groups

import (
	"context"
	"fmt"
	"maps"

	"pmcp/process"
)

// Elsewhere gives groups access to the project's other servers.
type Elsewhere interface {
	// RunsElsewhere returns, by name, those runs of names that are the latest and are
	// of other live servers. One that has ended has no Owner. It omits runs that cannot
	// be read.
	RunsElsewhere(ctx context.Context, names []string) map[string]ForeignRun
	// AwaitElsewhere returns the run with that id once until returns true for the
	// run or the run has ended. If ctx ends first, it returns the run as last seen
	// and ctx's error.
	AwaitElsewhere(ctx context.Context, id int64, until func(process.Status) bool) (process.Status, error)
	// StopElsewhere has the owner of run stop it, and returns the status after that.
	// The error is an ElsewhereError if the owner cannot be asked.
	StopElsewhere(ctx context.Context, run ForeignRun, o process.StopOptions) (process.Status, error)
}

// ForeignRun is a run that another live server owns. Only that server changes
// the run, also for others. Within this package a ForeignRun without an Owner is a run of
// this server.
type ForeignRun struct {
	// Status is the status that the server has stored. Its Spec has the name,
	// and Ready if the run has readiness rules.
	process.Status
	// Owner names the server, as in "pid 7 editor". Elsewhere returns "" only for a run
	// that has ended.
	Owner string
}

// ElsewhereError is a Starter's error for a process that another server runs and
// that need not be restarted, or that its server has restarted, or the daemon has started, for us.
type ElsewhereError struct {
	ForeignRun
	Restarted bool
	Kept      bool // started by the daemon
}

// Error returns a text that names the process and the server that runs it.
func (e *ElsewhereError) Error() string {
	return e.Spec.Name + " runs " + inOtherServer(e.Owner)
}

// inOtherServer describes the location of a run that owner owns, to follow "it
// runs" or "already running".
func inOtherServer(owner string) string {
	return fmt.Sprintf("in another pmcp server (%s)", owner)
}

// runsElsewhere returns those of names that other servers run or have run last, and that
// do not run here. It sends one query for all of them, and none if all run here.
func (m *Manager) runsElsewhere(ctx context.Context, names ...string) map[string]ForeignRun {
	var notHere []string
	for _, name := range names {
		if st, err := m.o.Processes.Status(name); err != nil || !st.State.Active() {
			notHere = append(notHere, name)
		}
	}
	if m.o.Elsewhere == nil || len(notHere) == 0 {
		return nil
	}
	return m.o.Elsewhere.RunsElsewhere(ctx, notHere)
}

func (m *Manager) runningElsewhere(ctx context.Context, names ...string) map[string]ForeignRun {
	runs := m.runsElsewhere(ctx, names...)
	maps.DeleteFunc(runs, func(_ string, run ForeignRun) bool { return run.Owner == "" })
	return runs
}
