package logstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"pmcp/logstore/fault"
)

// onlyAfter leaves the faults that have occurred behind a cursor. The runs stand where they do for
// a reader of the lines: those of one process follow each other as they started, whichever server
// ran them, and say nothing of another process.
func (s *Store) onlyAfter(ctx context.Context, q *FaultQuery, after cursor, faults []Fault) ([]Fault, error) {
	if len(faults) == 0 {
		return faults, nil
	}
	places, err := s.placesAfter(ctx, &scope{project: q.Project, names: q.Names}, after)
	if errors.Is(err, errFoundDamage) { // from memory then
		places, err = s.placesAfter(ctx, &scope{project: q.Project, names: q.Names}, after)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(faults, func(f Fault) bool { return !places.before(&f, after) }), nil
}

// runPlaces are the runs that are kept, at the position of a cursor.
type runPlaces struct {
	byRun    map[int64]*runPlace
	covered  map[processKey]bool // the processes with a run in the cursor
	coverage *coverage
}

func (s *Store) placesAfter(ctx context.Context, c *scope, after cursor) (places runPlaces, err error) {
	places = runPlaces{byRun: make(map[int64]*runPlace), covered: make(map[processKey]bool), coverage: s.coverageOf(after)}
	views := s.memory(c)
	defer func() {
		for i := range views {
			views[i].release()
		}
	}()
	err = s.withRead(ctx, func(ctx context.Context, tx querier) error {
		byProcess, err := s.runsInScope(ctx, tx, c, views)
		if err != nil {
			return err
		}
		p, servers := &plan{after: after, coverage: places.coverage}, newServers(s, tx)
		if err := p.coverage.complete(ctx, tx); err != nil {
			return err
		}
		for _, runs := range byProcess {
			of, err := p.place(ctx, servers, runs)
			if err != nil {
				return err
			}
			places.add(of, after)
		}
		return nil
	})
	if err != nil {
		return places, fmt.Errorf("cannot read the runs: %w", err)
	}
	return places, nil
}

func (p *runPlaces) add(of []*runPlace, after cursor) {
	for _, place := range of {
		p.byRun[place.meta.id] = place
		if _, ok := after[place.meta.id]; ok {
			p.covered[place.meta.key] = true
		}
	}
}

// before tells whether the position is before the latest occurrence of a fault. A bad end comes
// after all lines of its run; where the position is at the last of them it may be either, and the
// end is told once more rather than never. Of a run that is not kept the runs of the process that
// are were later; of a process that the cursor does not cover it is the time that tells.
func (p *runPlaces) before(f *Fault, after cursor) bool {
	at, named := after[f.LastRun]
	if place := p.byRun[f.LastRun]; place != nil {
		if place.over {
			return false
		}
		at, named = place.begin, true
	}
	if !named {
		return !p.covered[processKey{f.Project, f.Name}] && !f.LastSeen.Before(moment(p.coverage.started))
	}
	return f.LastLine > at || at != everything && fault.AtEnd(f.Type, f.Message)
}
