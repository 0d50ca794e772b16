package logstore

import (
	"context"
	"slices"

	"pmcp/logstore/fault"
)

// faultsAfter returns the faults whose latest occurrence is after a cursor. In each run the cursor stands for
// the same position as for a reader of lines: the runs of one process follow each other in the order of their
// starts, whichever server ran them, and do not affect other processes.
func (s *Store) faultsAfter(ctx context.Context, q *FaultQuery, after cursor, faults []Fault) ([]Fault, error) {
	if len(faults) == 0 {
		return faults, nil
	}
	var positions faultPositions
	c := scope{project: q.Project, names: q.Names, after: after}
	err := s.withSnapshot(ctx, &c, "read the runs", func(ctx context.Context, snap *snapshot) error {
		positions = faultPositions{byRun: make(map[int64]*runPosition), covered: make(map[processKey]bool), cursorScope: snap.cursorScope}
		byProcess, err := snap.runs(ctx, &c)
		if err == nil {
			err = snap.cursorScope.load(ctx, snap.q)
		}
		if err != nil {
			return err
		}
		p := &plan{after: after}
		for _, runs := range byProcess {
			group, err := p.positions(ctx, snap, runs)
			if err != nil {
				return err
			}
			for _, pos := range group {
				positions.byRun[pos.meta.id] = pos
				if _, ok := after[pos.meta.id]; ok {
					positions.covered[pos.meta.key] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(faults, func(f Fault) bool { return !positions.isBefore(&f, after) }), nil
}

// A faultPositions holds the positions of the stored runs at a cursor.
type faultPositions struct {
	byRun       map[int64]*runPosition
	covered     map[processKey]bool // the processes with a run in the cursor
	cursorScope *cursorScope
}

// isBefore reports whether the cursor is before the latest occurrence of a fault. A bad exit comes after all
// lines of its run. If the cursor is at the last line, it may be before or after the exit; isBefore then
// returns true, because an exit is better reported twice than never. If the run of the fault is no longer
// stored, the stored runs of its process are later than that run. If the cursor does not cover the process, the
// time of the fault decides.
func (p *faultPositions) isBefore(f *Fault, after cursor) bool {
	at, named := after[f.LastRun]
	if pos := p.byRun[f.LastRun]; pos != nil {
		if pos.excluded {
			return false
		}
		at, named = pos.start, true
	}
	if !named {
		return !p.covered[processKey{f.Project, f.Name}] && !f.LastSeen.Before(timeFromNanos(p.cursorScope.started))
	}
	return f.LastLine > at || at != unknownLine && fault.AtEnd(f.Type, f.Message)
}
