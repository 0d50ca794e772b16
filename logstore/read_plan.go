package logstore

import (
	"cmp"
	"context"
	"math"

	"pmcp/logstore/db"
)

// A plan is a prepared Query.
type plan struct {
	q        Query
	scope    scope
	filter   lineFilter
	after    cursor // nil: none
	before   cursor
	backward bool
	limit    int
	maxBytes int
}

func newPlan(q Query) (*plan, error) {
	p := &plan{q: q, filter: q.filter()}
	var err error
	if p.after, err = parseCursor(q.After); err != nil {
		return nil, err
	}
	if p.before, err = parseCursor(q.Before); err != nil {
		return nil, err
	}
	p.backward = p.before != nil || q.Newest
	p.limit = cmp.Or(max(q.Limit, 0), defaultLimit)
	p.maxBytes = cmp.Or(max(q.MaxBytes, 0), defaultPageBytes)
	p.scope = scope{project: q.Project, names: q.Names, runs: q.Runs, after: p.after, latest: q.Latest && q.Runs == nil && p.after == nil && p.before == nil}
	return p, nil
}

// positions returns the position of each run of a process at the near end of the page, according to the
// cursor if the query has one.
func (p *plan) positions(ctx context.Context, snap *snapshot, runs []*runMeta) ([]*runPosition, error) {
	at := p.after
	if p.before != nil {
		at = p.before
	}
	positions := make([]*runPosition, len(runs))
	frontier := -1          // index of the latest run in the cursor
	newest := len(runs) - 1 // index of the latest run that is selected
	for i, m := range runs {
		positions[i] = &runPosition{meta: m, last: unknownLine, latest: math.MaxInt64, finished: m.sealed}
		if m.sealed || m.mem != nil {
			positions[i].last, positions[i].latest = m.lines, m.lastAt
		} else {
			server, err := snap.server(ctx, m.id)
			if err != nil {
				return nil, err
			}
			positions[i].finished = !server.alive
		}
		if _, ok := at[m.id]; ok {
			frontier = i
		}
		if m.id == p.q.UpTo {
			newest = i
		}
	}
	if frontier < 0 && len(p.after) > 0 && p.before == nil {
		if err := snap.excludeEarlier(ctx, positions); err != nil {
			return nil, err
		}
	}
	for i, pos := range positions {
		line, named := at[pos.meta.id]
		switch {
		case at == nil:
			line = p.startWithoutCursor(pos)
		case named:
		case pos.excluded:
			line = pos.last
		case i < frontier && p.before != nil:
			line = pos.last
		case i < frontier && pos.finished: // the run was over when the cursor was made
			line, pos.excluded = pos.last, true
		case i > frontier && p.before != nil: // the run came after the cursor
			pos.excluded = true
		}
		pos.start, pos.end = line, line
		pos.excluded = pos.excluded || i > newest
	}
	return positions, nil
}

func (p *plan) startWithoutCursor(pos *runPosition) int64 {
	before := pos.meta.sealed && pos.latest < p.filter.since
	empty := pos.last == 0
	pos.excluded, pos.exhausted = before || empty, empty && !before
	if p.backward || before {
		return pos.last
	}
	return 0
}

// excludeEarlier excludes the runs that were over when the cursor was made, if the cursor does not cover their
// process. Of two runs of one server the run with the larger id is later, whatever the clock says.
func (s *snapshot) excludeEarlier(ctx context.Context, positions []*runPosition) error {
	c := s.cursorScope
	if err := c.load(ctx, s.q); err != nil {
		return err
	}
	for _, pos := range positions {
		m := pos.meta
		later := db.SessionOf(m.id) == db.SessionOf(c.run) && m.id > c.run
		if c.processes[m.key] || later || !m.sealed || max(m.started, m.ended, pos.latest) >= c.started {
			continue
		}
		server, err := s.server(ctx, m.id)
		if err != nil {
			return err
		}
		pos.excluded = m.ended > 0 || !server.alive // otherwise the end of the run is still to be recorded
	}
	return nil
}
