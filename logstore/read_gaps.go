package logstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"pmcp/logstore/db"
)

const reasonRetired = "no longer kept"

// addGaps adds the gaps within the page.
func (m *merger) addGaps() error {
	damaged, holes := m.damagedGaps()
	var read []*runPosition
	for _, positions := range m.page.positions {
		for _, pos := range positions {
			if !pos.excluded || pos.exhausted {
				read = append(read, pos)
			}
		}
	}
	var stored map[int64]bool // the runs with gaps; nil: not queried
	if m.snap.q != nil && len(read) > manyRuns {
		var err error
		if stored, err = runsWithGaps(m.ctx, m.snap.q); err != nil {
			return err
		}
	}
	for _, pos := range read {
		from := m.snap.q
		if stored != nil && !stored[pos.meta.id] {
			from = nil
		}
		all, err := runGaps(m.ctx, from, pos, damaged, holes)
		if err != nil {
			return err
		}
		for _, g := range all {
			if m.includesGap(pos, g) {
				m.page.Gaps = append(m.page.Gaps, g)
			}
		}
	}
	return nil
}

// damagedGaps returns the gaps that damaged chunks and tail rows left in what was read, and the lines that were in no
// block.
func (m *merger) damagedGaps() (damaged, holes []Gap) {
	for _, r := range m.opened {
		if r.source != nil {
			damaged, holes = append(damaged, r.source.damaged...), append(holes, r.source.holes...)
		}
	}
	return damaged, holes
}

// includesGap reports whether a gap belongs to the page, so that exactly one of several consecutive pages
// shows it. The gap at the very end of a run belongs to the page that reaches that end.
func (p *plan) includesGap(pos *runPosition, g Gap) bool {
	if g.After >= pos.start && g.After < pos.end {
		return true
	}
	atEnd := pos.exhausted && len(p.after) == 0 || p.backward && p.before == nil
	return g.After == pos.end && (atEnd || pos.exhausted && pos.start < pos.end)
}

// runGaps returns the gaps of a run, in memory, among the damaged and, unless q is nil, in the file, ordered by line. A
// hole that none of them explains is one, too.
func runGaps(ctx context.Context, q db.Querier, pos *runPosition, damaged, holes []Gap) ([]Gap, error) {
	m := pos.meta
	all := ofRun(damaged, m.id)
	if m.mem != nil {
		all = append(all, m.mem.gaps...)
	}
	if q != nil {
		stored, err := storedGaps(ctx, q, m.id, max(pos.start, m.removedLines), pos.end)
		if err != nil {
			return nil, err
		}
		all = append(all, stored...)
	}
	if pos.start < m.removedLines {
		g := Gap{Run: m.id, After: pos.start, Lines: m.removedLines - pos.start, Bytes: -1, Reason: reasonRetired}
		if pos.start == 0 {
			g.Bytes = m.removedBytes
		}
		all = append(all, g)
	}
	for _, hole := range ofRun(holes, m.id) {
		explains := func(g Gap) bool { return g.After >= hole.After && g.After < hole.After+hole.Lines }
		if !slices.ContainsFunc(all, explains) {
			all = append(all, hole)
		}
	}
	// Of several gaps at the same line, the first is the newest.
	slices.SortStableFunc(all, func(a, b Gap) int { return cmp.Compare(a.After, b.After) })
	return slices.CompactFunc(all, func(a, b Gap) bool { return a.After == b.After }), nil
}

// ofRun returns the gaps of one run.
func ofRun(all []Gap, run int64) []Gap {
	return slices.DeleteFunc(slices.Clone(all), func(g Gap) bool { return g.Run != run })
}

// runsWithGaps returns the runs that have gaps in the file.
func runsWithGaps(ctx context.Context, q db.Querier) (map[int64]bool, error) {
	all, err := queryAll(ctx, q, "look for gaps", func(row *sql.Rows, run *strictNumber) error { return row.Scan(run) }, `SELECT DISTINCT run FROM gap`)
	runs := make(map[int64]bool)
	for _, run := range all {
		runs[int64(run)] = true
	}
	return runs, err
}

func storedGaps(ctx context.Context, q db.Querier, run, from, to int64) ([]Gap, error) {
	return queryAll(ctx, q, "read the gaps", func(row *sql.Rows, g *Gap) error {
		var at int64
		err := row.Scan(&g.After, &at, &g.Lines, &g.Bytes, &g.Reason)
		g.Run, g.At = run, time.Unix(0, at)
		return err
	}, `SELECT after_line, at, lines, bytes, reason FROM gap WHERE run = ? AND after_line BETWEEN ? AND ?`, run, from, to)
}

// manyRuns is the number of runs above which one query for all runs with tail rows pays off.
const manyRuns = 32
