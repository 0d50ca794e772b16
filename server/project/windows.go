package project

import (
	"context"
	"fmt"

	"pmcp/groups"
	"pmcp/logstore"
	"pmcp/process"
)

// OnDemandPrefix is the prefix of the names of MCP servers that are started on
// demand.
const OnDemandPrefix = "mcp:"

// windowError is returned for a change to a process that another window is running.
type windowError struct{ run Run }

// Error names the window that owns the run.
func (e *windowError) Error() string {
	return fmt.Sprintf("%s belongs to another pmcp server (%s), which alone can change it; its log can be read from here", e.run.Spec.Name, e.run.Owner)
}

// RequireHere returns an error if another window owns the process: this session
// cannot change that process.
func (p *Project) RequireHere(ctx context.Context, name string) error {
	run, err := p.Find(ctx, name)
	if err == nil && run.Owner != nil {
		err = &windowError{run}
	}
	return err
}

// RunsElsewhere returns, for package groups, the runs of those names that other
// windows are running. It returns nil if the store cannot be read.
func (t *RunTable) RunsElsewhere(ctx context.Context, names []string) map[string]groups.ForeignRun {
	latest, err := t.store.Runs(ctx, logstore.RunFilter{Project: t.project, Names: names, Current: true})
	if err != nil {
		return nil // the groups themselves could be read: their state stands
	}
	found := make(map[string]groups.ForeignRun)
	for i := range latest {
		if run := stored(&latest[i]); run.Owner != nil {
			found[run.Spec.Name] = groups.ForeignRun{Status: run.Status, Owner: run.Owner.String()}
		}
	}
	return found
}

// AwaitElsewhere waits, for package groups, until the condition until holds for a
// run of another window or the run has ended. It returns the status of the run.
func (t *RunTable) AwaitElsewhere(ctx context.Context, id int64, until func(process.Status) bool) (process.Status, error) {
	run, err := awaitRow(ctx, t.store, id, until)
	return run.Status, err
}

// awaitRow waits until a stored run ends or until holds for it, and returns the run.
func awaitRow(ctx context.Context, store *Store, id int64, until func(process.Status) bool) (Run, error) {
	row, err := store.WaitRun(ctx, id, func(row *logstore.Run) bool { return until(stored(row).Status) })
	return stored(&row), err
}
