package project

import (
	"context"
	"time"

	"pmcp/process"
	"pmcp/registry"
	"pmcp/server/args"
)

// IsLeft reports whether the run is lost and processes of it still run: its server and the guardian were killed at once,
// and no start of pmcp has cleaned up since. Only List, Details and AddLeft look for them.
func (r *Run) IsLeft() bool { return r.State == process.Lost && len(r.Survivors) > 0 }

// addLeft adds to the lost ones among runs the processes that still run.
func (s *Store) addLeft(ctx context.Context, runs ...*Run) {
	var sessions []string
	for _, r := range runs {
		if r.session != "" && s.dir != "" {
			sessions = append(sessions, r.session)
		}
	}
	left, err := registry.LeftBy(s.dir, sessions)
	if err != nil {
		return // the doctor reports what is wrong
	}
	for _, r := range runs {
		for _, l := range left {
			if l.Session == r.session && (l.ID.PID == r.main || l.IsOf(r.RunID)) {
				r.Survivors = append(r.Survivors, l.Proc())
			}
		}
		if r.IsLeft() {
			r.Reason = s.notOwned(ctx, r)
		}
	}
}

// notOwned returns the Reason of a lost run of which processes still run.
func (s *Store) notOwned(ctx context.Context, r *Run) string {
	who := "nobody owns it"
	if last, err := s.LastSign(ctx, r.RunID); err == nil {
		who = "nobody has owned it for about " + args.FormatAge(time.Since(last))
	}
	return who + "; pmcp --doctor --cleanup-stale-records ends it"
}

// AddLeft adds to a lost run the processes that still run; see IsLeft.
func (p *Project) AddLeft(ctx context.Context, r *Run) { p.o.Store.addLeft(ctx, r) }

// endLeft ends what the latest run of a process that is to be started has left if that is lost, with all else that dead
// servers have left, as the start of a server does. It reports whether there was something.
func (p *Project) endLeft(ctx context.Context, last *Run) bool {
	if p.AddLeft(ctx, last); !last.IsLeft() {
		return false
	}
	if _, err := registry.Sweep(ctx, p.o.Store.dir, p.o.Log); err != nil {
		p.o.Log.Warn("cannot clean up after dead servers", "error", err)
	}
	return true
}
