package logstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

const reasonRetired = "no longer kept"

// gaps collects what is missing within the page.
func (p *plan) gaps(ctx context.Context, q querier) error {
	var read []*runPlace
	for _, places := range p.page.places {
		for _, place := range places {
			if !place.over || place.dry {
				read = append(read, place)
			}
		}
	}
	var stored map[int64]bool // the runs with gaps; nil: not looked for
	if q != nil && len(read) > manyRuns {
		var err error
		if stored, err = runsWithGaps(ctx, q); err != nil {
			return err
		}
	}
	for _, place := range read {
		from := q
		if stored != nil && !stored[place.meta.id] {
			from = nil
		}
		all, err := p.gapsOf(ctx, from, place)
		if err != nil {
			return err
		}
		for _, g := range all {
			if p.shows(place, g) {
				p.page.Gaps = append(p.page.Gaps, g)
			}
		}
	}
	return nil
}

// shows tells whether a gap lies within the page, so that of pages that follow each other one shows
// it. The gap at a run's very end belongs to the page that comes to that end.
func (p *plan) shows(place *runPlace, g Gap) bool {
	if g.After >= place.begin && g.After < place.end {
		return true
	}
	atEnd := place.dry && len(p.after) == 0 || p.backward && p.before == nil
	return g.After == place.end && (atEnd || place.dry && place.begin < place.end)
}

// gapsOf gives the gaps of a run, in memory and in the file if there is a q, ordered by line.
func (p *plan) gapsOf(ctx context.Context, q querier, place *runPlace) ([]Gap, error) {
	m := place.meta
	var all []Gap
	if place.begin < m.gone {
		g := Gap{Run: m.id, After: place.begin, Lines: m.gone - place.begin, Bytes: -1, Reason: reasonRetired}
		if place.begin == 0 {
			g.Bytes = m.goneBytes
		}
		all = append(all, g)
	}
	if q != nil {
		stored, err := storedGaps(ctx, q, m.id, max(place.begin, m.gone), place.end)
		if err != nil {
			return nil, err
		}
		all = append(all, stored...)
	}
	for i := range p.views {
		if p.views[i].run.id == m.id {
			all = append(all, p.views[i].gaps...)
		}
	}
	slices.SortStableFunc(all, func(a, b Gap) int { return cmp.Compare(a.After, b.After) })
	return latestOfEach(all), nil
}

// latestOfEach keeps of gaps at the same line the last: memory's is newer than the file's.
func latestOfEach(gaps []Gap) []Gap {
	kept := gaps[:0]
	for i, g := range gaps {
		if i+1 < len(gaps) && gaps[i+1].After == g.After {
			continue
		}
		kept = append(kept, g)
	}
	return kept
}

// runsWithGaps gives the runs that have gaps in the file.
func runsWithGaps(ctx context.Context, q querier) (map[int64]bool, error) {
	rows, err := q.QueryContext(ctx, `SELECT DISTINCT run FROM gap`)
	if err != nil {
		return nil, fmt.Errorf("cannot look for gaps: %w", err)
	}
	defer rows.Close()
	runs := make(map[int64]bool)
	for rows.Next() {
		var run number
		if err := rows.Scan(&run); err != nil {
			return nil, fmt.Errorf("cannot look for gaps: %w", err)
		}
		runs[int64(run)] = true
	}
	return runs, rows.Err()
}

func storedGaps(ctx context.Context, q querier, run, from, to int64) ([]Gap, error) {
	rows, err := q.QueryContext(ctx, `SELECT after_line, at, lines, bytes, reason FROM gap WHERE run = ? AND after_line BETWEEN ? AND ?`, run, from, to)
	if err != nil {
		return nil, fmt.Errorf("cannot read the gaps: %w", err)
	}
	defer rows.Close()
	var all []Gap
	for rows.Next() {
		g := Gap{Run: run}
		var at int64
		if err := rows.Scan(&g.After, &at, &g.Lines, &g.Bytes, &g.Reason); err != nil {
			return nil, fmt.Errorf("cannot read the gaps: %w", err)
		}
		g.At = time.Unix(0, at)
		all = append(all, g)
	}
	return all, rows.Err()
}
