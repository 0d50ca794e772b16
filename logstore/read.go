package logstore

import (
	"context"
	"fmt"
	"slices"
)

// Read reads a page of lines. Its error wraps ErrCursor if a cursor is invalid.
func (rd *reader) Read(ctx context.Context, q Query) (*Page, error) {
	if q.After != "" && q.Before != "" {
		return nil, fmt.Errorf("%w: after and before are mutually exclusive", ErrCursor)
	}
	p, err := newPlan(q)
	if err != nil {
		return nil, err
	}
	var page *Page
	err = rd.withSnapshot(ctx, &p.scope, "read the log", func(uncut context.Context, snap *snapshot) error {
		m := newMerger(uncut, ctx, snap, p)
		page = m.page
		return m.readPage()
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// readPage reads a page: every line matches.
func (m *merger) readPage() error {
	runs, err := m.snap.runs(m.ctx, &m.scope)
	if err != nil {
		return err
	}
	page := m.page
	for _, group := range runs {
		positions, err := m.positions(m.ctx, m.snap, group)
		if err != nil {
			return err
		}
		page.positions = append(page.positions, positions)
		for _, pos := range positions {
			switch {
			case pos.excluded:
			case m.backward:
				m.add(pos, 0, pos.end)
			default:
				m.add(pos, pos.start, pos.last)
			}
		}
	}
	more, err := m.merge()
	if err != nil {
		return err
	}
	if m.backward {
		slices.Reverse(page.Lines)
		page.MoreBefore, page.MoreAfter = more, m.before != nil
	} else {
		page.MoreBefore, page.MoreAfter = page.mayHaveEarlier(), more
	}
	if err := m.addGaps(); err != nil {
		return err
	}
	return page.describeRuns(m.ctx, m.snap)
}

// mayHaveEarlier guesses whether lines precede the page.
func (p *Page) mayHaveEarlier() bool {
	return slices.ContainsFunc(slices.Concat(p.positions...), func(pos *runPosition) bool { return pos.start > pos.meta.removedLines })
}
