package project

import (
	"context"
	"errors"

	"pmcp/groups"
	"pmcp/logstore"
	"pmcp/process"
)

// OnDemandPrefix is the prefix of the names of MCP servers that are started on
// demand.
const OnDemandPrefix = "mcp:"

// RunsElsewhere returns, for package groups, the runs of those names that other
// windows are running, or have run last. It returns nil if the store cannot be read.
func (t *RunTable) RunsElsewhere(ctx context.Context, names []string) map[string]groups.ForeignRun {
	latest, err := t.store.freshRuns(ctx, logstore.RunFilter{Project: t.project, Names: names, Current: true})
	if err != nil {
		return nil // the groups themselves could be read: their state stands
	}
	found := make(map[string]groups.ForeignRun)
	for i := range latest {
		switch run := latestOf(&latest[i]); {
		case run.Owner != nil && run.State.Active():
			found[run.Spec.Name] = groups.ForeignRun{Status: run.Status, Owner: run.Owner.String()}
		case latest[i].Live && !latest[i].Own:
			found[run.Spec.Name] = groups.ForeignRun{Status: run.Status}
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

func awaitRow(ctx context.Context, store *Store, id int64, until func(process.Status) bool) (Run, error) {
	row, err := store.WaitRun(ctx, id, func(row *logstore.Run) bool { return until(stored(row).Status) })
	return stored(&row), err
}

// StopElsewhere stops, for package groups, a run of another window, through that window.
func (t *RunTable) StopElsewhere(ctx context.Context, run groups.ForeignRun, o process.StopOptions) (process.Status, error) {
	latest, err := t.store.Runs(ctx, logstore.RunFilter{Project: t.project, Names: []string{run.Spec.Name}, Current: true})
	if err != nil {
		return run.Status, err
	}
	if len(latest) == 0 || latest[0].ID != run.RunID {
		return run.Status, &groups.ElsewhereError{ForeignRun: run}
	}
	before := latestOf(&latest[0])
	if before.Owner == nil {
		return before.Status, nil // it has ended
	}
	done, err := t.store.stopAtOwner(ctx, before, o)
	if errors.Is(err, errNoSocket) {
		err = &groups.ElsewhereError{ForeignRun: run}
	}
	return done.Run.Status, err
}

// measureElsewhere adds to the live runs of other windows, and to what dead ones have left, what their trees use now and
// where they listen, as meter measures it.
func measureElsewhere(meter *process.ElsewhereMeter, runs []Run) {
	var elsewhere []process.ElsewhereRun
	for i := range runs {
		if r := &runs[i]; r.isElsewhere() {
			elsewhere = append(elsewhere, r.elsewhere())
		}
	}
	if len(elsewhere) == 0 {
		return
	}
	used := meter.Measure(elsewhere)
	for i := range runs {
		if u, ok := used[runs[i].RunID]; ok && runs[i].isElsewhere() {
			runs[i].Usage, runs[i].Ports = u.Usage, u.Ports
		}
	}
}

// isElsewhere reports whether processes of the run of another window, which may be dead, may be found.
func (r *Run) isElsewhere() bool { return r.Owner != nil && r.PID > 0 || r.IsLeft() }

// elsewhere returns where they are found.
func (r *Run) elsewhere() process.ElsewhereRun {
	if r.Owner == nil {
		return process.ElsewhereRun{Run: r.RunID, Started: r.StartedAt, Left: r.Survivors}
	}
	return process.ElsewhereRun{Run: r.RunID, PID: r.PID, Started: r.StartedAt, Server: r.Owner.PID, Session: r.Owner.session}
}

func measured(run Run) Run {
	runs := []Run{run}
	measureElsewhere(new(process.ElsewhereMeter), runs) // that of a Project is for all its runs at once
	return runs[0]
}
