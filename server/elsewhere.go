package server

import (
	"context"

	"pmcp/groups"
	"pmcp/logstore"
	"pmcp/process"
)

// isForeign says whether another live server owns a run that has not ended.
func isForeign(run *logstore.Run) bool { return !run.Own && run.Live && run.Ended.IsZero() }

// RunsElsewhere gives those of names that run in another live server, for
// groups. What cannot be read is not among them.
func (t *RunTable) RunsElsewhere(ctx context.Context, names []string) map[string]groups.ForeignRun {
	latest, err := t.store.Runs(ctx, logstore.RunFilter{Project: t.project, Names: names, Limit: 1})
	if err != nil {
		return nil // the groups themselves could be read: what they say stands
	}
	found := make(map[string]groups.ForeignRun)
	for i := range latest {
		if run := &latest[i]; isForeign(run) {
			found[run.Name] = groups.ForeignRun{Status: statusOfRun(run), Owner: decodeRunInfo(run.Info).Owner.String()}
		}
	}
	return found
}

// AwaitElsewhere returns a run of another server as soon as until holds for it
// or it has ended, for groups.
func (t *RunTable) AwaitElsewhere(ctx context.Context, id int64, until func(process.Status) bool) (process.Status, error) {
	run, err := t.store.WaitRun(ctx, id, func(run *logstore.Run) bool { return until(statusOfRun(run)) })
	return statusOfRun(&run), err
}

// statusOfRun is what is stored of a run of another server, as far as groups and
// those who wait for it look at it.
func statusOfRun(run *logstore.Run) process.Status {
	info := decodeRunInfo(run.Info)
	st := process.Status{
		Spec: process.Spec{Name: run.Name}, Run: run.Number, RunID: run.ID, PID: info.PID, Ready: info.Ready,
		StartedAt: run.Started, EndedAt: run.Ended,
	}
	st.State, _ = process.ParseState(stateOfRow(run, &info))
	if info.Ready != nil {
		st.Spec.Ready = new(process.Ready)
	}
	if !run.Ended.IsZero() {
		st.Exit = &process.Exit{Code: -1, Signal: info.Signal, By: process.EndedBy(info.EndedBy)}
		if info.ExitCode != nil {
			st.Exit.Code = *info.ExitCode
		}
	}
	return st
}
