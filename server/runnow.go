package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

// runNow is how far one run has come: as the manager knows it or, of an earlier
// session or another server, as it is stored.
type runNow struct {
	processResult
	id       int64
	over     bool   // it has ended
	bad      bool   // not as it should: an answer about it carries its errors
	wasReady bool   // before it ended
	notReady string // what it is, or was, still waited for to be ready
	since    string // what has become of the process since, if that is more than the end
	stored   bool   // the manager does not know it
}

// never holds for no status.
func never(process.Status) bool { return false }

// runNow is how a run of name is at this moment.
func (s *Server) runNow(ctx context.Context, name string, run int64) (runNow, error) {
	st, err := s.o.Manager.AwaitRun(ctx, name, run, func(process.Status) bool { return true })
	if !errors.Is(err, process.ErrUnknown) {
		return s.ownRunNow(&st), err
	}
	stored, err := s.o.Store.Run(ctx, run)
	return storedRunNow(&stored), err
}

// awaitEnd waits until a run of name ends, or reached holds for it; of another
// server's it knows what that one has stored. When ctx ends first it gives the
// run as it is then, and ctx's error.
func (s *Server) awaitEnd(ctx context.Context, name string, run int64, reached func(process.Status) bool) (runNow, error) {
	st, err := s.o.Manager.AwaitRun(ctx, name, run, reached)
	if !errors.Is(err, process.ErrUnknown) {
		return s.ownRunNow(&st), err
	}
	stored, err := s.o.Store.WaitRun(ctx, run, func(run *logstore.Run) bool { return reached(statusOfRun(run)) })
	return storedRunNow(&stored), err
}

// ownRunNow describes a run of this session, also if the process has gone on
// since.
func (s *Server) ownRunNow(st *process.Status) runNow {
	now := runNow{
		processResult: s.ofStatus(st), id: st.RunID, over: !st.EndedAt.IsZero(), bad: endedBadly(st), wasReady: !st.ReadyAt.IsZero(), notReady: st.NotReady,
	}
	if !now.over {
		return now
	}
	current, err := s.o.Manager.Status(st.Spec.Name)
	if err == nil && current.RunID == st.RunID && !betweenRuns(&current) {
		return now
	}
	now.State, now.NextRetryAt, now.Survivors = stateOfRun(st).String(), "", nil
	if err == nil && current.RunID != st.RunID {
		now.since = fmt.Sprintf("run %d has been started since", current.Run)
	}
	return now
}

// storedRunNow describes a run of an earlier session or of another server.
func storedRunNow(run *logstore.Run) runNow {
	now := runNow{processResult: ofRun(run), id: run.ID, over: !run.Ended.IsZero() || run.Lost, stored: true}
	now.bad = slices.Contains([]string{process.Crashed.String(), process.Failed.String(), process.Lost.String()}, now.State)
	return now
}

// endBeforeReady says that a run which was waited for to become ready has ended,
// and what it was still waited for: a port that another holds, say.
func (r *runNow) endBeforeReady() string {
	const ended = "ended before it was ready"
	switch {
	case r.stored:
		return "has ended"
	case r.wasReady:
		return "was ready, and has ended since"
	case r.notReady != "":
		return ended + " (" + r.notReady + ")"
	default:
		return ended
	}
}

// runToAwait is the run of name that a wait is about: the one that runs, here or
// in another server, else the latest.
func (s *Server) runToAwait(ctx context.Context, name string, patience time.Duration) (runNow, error) {
	spawned := func(st process.Status) bool { return st.State != process.Starting } // the number of a run comes with its spawn
	waiting, cancel := context.WithTimeout(ctx, patience)
	st, err := s.o.Manager.Await(waiting, name, spawned)
	cancel()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return runNow{}, fmt.Errorf("%s is still being started", name)
	case err != nil && !errors.Is(err, process.ErrUnknown):
		return runNow{}, err
	case err == nil && st.RunID != 0 && st.State.Active():
		return s.ownRunNow(&st), nil
	}
	foreign, lookErr := s.foreignRun(ctx, name)
	switch {
	case lookErr != nil:
		return runNow{}, lookErr
	case foreign != nil:
		return storedRunNow(foreign), nil
	case err == nil && st.RunID != 0:
		return s.ownRunNow(&st), nil
	}
	run, ok, err := s.latestRun(ctx, name)
	if err == nil && !ok {
		err = fmt.Errorf("%s has not run yet; start_process starts it", name)
	}
	return storedRunNow(&run), err
}
