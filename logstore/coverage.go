package logstore

import (
	"context"
	"fmt"
	"time"
)

// maxCoverage bounds the runs of a cursor that are looked up: more than any of ours has, and fewer
// than the parameters that SQLite takes.
const maxCoverage = 10_000

// coverage is what a cursor says of the processes that it does not cover: it was made when the
// latest of its runs had started, and what was over by then is not behind it. A read looks its
// cursor up once, and only if it meets such a process.
type coverage struct {
	known     bool
	stored    []int64             // those of its runs that were not in memory
	processes map[processKey]bool // those that the cursor covers
	run       int64               // the latest of its runs
	started   int64               // when that one did; 0: not known, as one of the runs is not kept
}

// coverageOf looks the runs of a cursor up in memory. It must be called before the file is read,
// which shows what leaves memory after that.
func (s *Store) coverageOf(at cursor) *coverage {
	c := &coverage{processes: make(map[processKey]bool)}
	if c.known = len(at) == 0 || len(at) > maxCoverage; !c.known {
		c.stored = c.addMemory(s, at)
	}
	return c
}

// complete looks the others up in the file. q may be nil: then there is none.
func (c *coverage) complete(ctx context.Context, q querier) error {
	if c.known {
		return nil
	}
	c.known = true
	stored := c.stored
	if len(stored) > 0 && q != nil {
		metas, err := storedMetas(ctx, q, &scope{runs: stored})
		if err != nil {
			return fmt.Errorf("cannot read the runs of a cursor: %w", err)
		}
		for _, m := range metas {
			c.add(m.id, m.key, m.started)
		}
		stored = stored[len(metas):]
	}
	if len(stored) > 0 || c.started > time.Now().UnixNano() { // later than now: the clock was set back
		c.started = 0
	}
	return nil
}

// addMemory adds the runs in memory and gives the others.
func (c *coverage) addMemory(s *Store, at cursor) (others []int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id := range at {
		r := s.runs[id]
		if r == nil {
			others = append(others, id)
			continue
		}
		r.mu.Lock()
		started := r.row.started
		r.mu.Unlock()
		c.add(id, r.key, started)
	}
	return others
}

func (c *coverage) add(run int64, key processKey, started int64) {
	c.processes[key] = true
	if started > c.started {
		c.run, c.started = run, started
	}
}

// passEarlier leaves out the runs that were over when the cursor was made, where it does not cover
// their process. Which of a server's runs is the later one their ids say, whatever the clock.
func (p *plan) passEarlier(ctx context.Context, servers *servers, places []*runPlace) error {
	c := p.coverage
	if err := c.complete(ctx, servers.q); err != nil {
		return err
	}
	for _, place := range places {
		m := place.meta
		later := sessionOf(m.id) == sessionOf(c.run) && m.id > c.run
		if c.processes[m.key] || later || !m.sealed || max(m.started, m.ended, place.latest) >= c.started {
			continue
		}
		server, err := servers.of(ctx, m.id)
		if err != nil {
			return err
		}
		place.over = m.ended > 0 || !server.lives // else its end is still to be noted
	}
	return nil
}
