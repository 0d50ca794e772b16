package logstore

import (
	"cmp"
	"context"
	"time"

	"pmcp/logstore/match"
)

const (
	defaultHits = 50
	// defaultSearchTime bounds a search that has to read everything.
	defaultSearchTime = 5 * time.Second
)

// MaxPattern is the maximum length of a search text, in bytes.
const MaxPattern = match.MaxPattern

// A SearchQuery selects the lines to find. Its Query restricts the search: Limit is the maximum number of
// hits (0 = 50), After and Before are cursors, Newest is ignored, and MaxBytes bounds the text of hits and
// context together.
type SearchQuery struct {
	Query
	// Text is a substring or, with Regexp, a regular expression (RE2 syntax) that is matched against each
	// line separately.
	Text   string
	Regexp bool
	// CaseSensitive makes the match case-sensitive. Otherwise a substring of ASCII folds ASCII letters, and
	// anything else folds by Unicode.
	CaseSensitive bool
	// Context is how many lines of the same run are returned around each hit, whatever their stream and
	// level.
	Context int
	// OldestFirst returns the oldest hits first. The default is newest first.
	OldestFirst bool
	// CountOnly counts all hits and returns no hits.
	CountOnly bool
	// LineBytes is how many bytes each line counts towards MaxBytes in addition to its text. If LineBytes is not
	// 0, twice the length of the process name is counted as well.
	LineBytes int
	// MaxTime bounds the duration of the search. After this time, Search returns the hits found so far,
	// with More set. 0 = 5 s.
	MaxTime time.Duration
}

// A Hit is a matching line with the lines around it. A line appears in a result only once: a line that is a hit
// itself, or that is context of a hit at an earlier line, is not repeated as context.
type Hit struct {
	Line
	// Offset is the byte offset of the first match in Text.
	Offset int
	// Preceding and Following are the context, each oldest first.
	Preceding, Following []Line
}

// Cursor returns the cursor right after the hit in its own process. A Query with this cursor as After continues
// after the hit; with it as Before it ends with the hit.
func (h *Hit) Cursor() string { return cursor{h.Run: h.Number}.String() }

// Matches is the result of a search.
type Matches struct {
	// Hits are ordered newest first, or oldest first if the query asked for that.
	Hits []Hit
	// Runs describes each run that appears in Hits.
	Runs map[int64]Run
	// Count is the number of hits. It equals len(Hits) unless the query was CountOnly.
	Count int64
	// Lines counts the lines that the search covered, including those that filters excluded. ReadBytes is
	// the size of the text that was read.
	Lines, ReadBytes int64
	// More means that the search ended before everything was covered: Limit, MaxBytes or MaxTime was
	// reached.
	More bool
	// ContextCut means that context is missing because MaxBytes was reached: the farthest lines of one hit,
	// and all context of the hits after it.
	ContextCut bool
	// Gaps are the damaged parts of the log that could not be searched.
	Gaps []Gap

	page *Page // only its positions are used
	back bool
}

// Next returns the cursor at which the search continues. Pass it as Before if the hits were newest first,
// otherwise as After.
func (m *Matches) Next() string {
	if m.back {
		return m.page.Prev()
	}
	return m.page.Next()
}

// Search finds lines. Its error wraps ErrPattern or ErrCursor if the pattern or a cursor of the query is
// invalid.
func (rd *reader) Search(ctx context.Context, q SearchQuery) (*Matches, error) {
	matcher, err := match.New(q.Text, q.Regexp, q.CaseSensitive)
	if err != nil {
		return nil, err
	}
	q.Limit = cmp.Or(max(q.Limit, 0), defaultHits)
	p, err := newPlan(q.Query)
	if err != nil {
		return nil, err
	}
	p.backward = !q.OldestFirst // a cursor bounds the search but does not change its direction
	deadline := time.Now().Add(cmp.Or(max(q.MaxTime, 0), defaultSearchTime))
	var result *Matches
	err = rd.withSnapshot(ctx, &p.scope, "search the log", func(uncut context.Context, snap *snapshot) error {
		m := newMerger(uncut, ctx, snap, p)
		m.matcher, m.deadline = matcher, deadline
		if q.CountOnly {
			m.counter = newBlockCounter()
			defer m.counter.running.Wait() // also after an error
		}
		result = &Matches{page: m.page, back: p.backward, Runs: m.page.Runs}
		return m.search(&q, result)
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// search reads a page of the lines that match, and makes hits of them.
func (m *merger) search(q *SearchQuery, result *Matches) error {
	runs, err := m.snap.runs(m.ctx, &m.scope)
	if err != nil {
		return err
	}
	for _, group := range runs {
		if err := m.addBetween(group, q.LineBytes); err != nil {
			return err
		}
	}
	if m.snap.q != nil && len(m.heap) > manyRuns {
		if m.tails, err = runsWithTail(m.ctx, m.snap.q); err != nil {
			return err
		}
	}
	if result.More, err = m.merge(); err != nil {
		return err
	}
	result.Lines, result.ReadBytes, result.Count = m.scanned, m.bytes, int64(len(m.page.Lines))
	if c := m.counter; c != nil {
		if err := c.finish(); err != nil {
			return err
		}
		result.Count, result.ReadBytes = c.n, c.bytes
	}
	for _, l := range m.page.Lines {
		result.Hits = append(result.Hits, Hit{Line: l, Offset: m.matcher.Offset(l.Text)})
	}
	if err := m.addContext(int64(min(q.Context, maxContext)), result); err != nil {
		return err
	}
	result.Gaps, _ = m.damagedGaps()
	err = m.page.describeRuns(m.ctx, m.snap)
	m.page.Lines = nil
	return err
}

// addBetween adds the runs of a process, bounded by both cursors and the times.
func (m *merger) addBetween(runs []*runMeta, lineBytes int) error {
	lower, upper := *m.plan, *m.plan
	lower.before, lower.backward = nil, false
	upper.after, upper.backward = nil, true
	starts, err := lower.positions(m.ctx, m.snap, runs)
	if err != nil {
		return err
	}
	ends, err := upper.positions(m.ctx, m.snap, runs)
	if err != nil {
		return err
	}
	for i, p := range starts {
		from, to := p.start, ends[i].end
		p.excluded = p.excluded || ends[i].excluded || to <= from
		if m.backward {
			p.start = to
		}
		p.end = p.start
		if p.excluded {
			continue
		}
		r := m.add(p, from, to)
		if lineBytes > 0 {
			r.overhead = lineBytes + 2*len(p.meta.key.name)
		}
	}
	m.page.positions = append(m.page.positions, starts)
	return nil
}
