package logstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	defaultHits = 50
	// defaultSearchTime bounds a search that has to read everything.
	defaultSearchTime = 5 * time.Second
)

// SearchQuery says what to look for. Query limits where: Query.Limit is the largest number of hits
// (0 = 50), After and Before are cursors, Newest is ignored, and MaxBytes bounds the text of hits
// and context together.
type SearchQuery struct {
	Query
	// Text is a substring or, with Regexp, a regular expression (RE2 syntax) that is matched
	// against each line by itself.
	Text   string
	Regexp bool
	// CaseSensitive makes case matter. Without it a substring of ASCII folds ASCII letters,
	// anything else folds by Unicode.
	CaseSensitive bool
	// Context is how many lines of the same run around each hit are given, whatever their stream and level.
	Context int
	// OldestFirst gives the hits from the oldest on. The default is newest first.
	OldestFirst bool
	// CountOnly counts all hits and gives none.
	CountOnly bool
	// LineBytes is what a line counts for MaxBytes beside its text and, if it is not 0, twice the name of
	// its process.
	LineBytes int
	// MaxTime bounds the search; when it is over, what was found so far is given, with More set. 0 = 5 s.
	MaxTime time.Duration
}

// Hit is a line that was looked for, with the lines around it. A line stands in a result once: what
// is a hit itself, or context of an earlier line's hit, is not context again.
type Hit struct {
	Line
	// Offset is where in Text the first match begins.
	Offset int
	// Preceding and Following are its context, each oldest first.
	Preceding, Following []Line
}

// Cursor gives the cursor right behind the hit in its own process. As After it continues there; as
// Before it gives the hit and what precedes it.
func (h *Hit) Cursor() string { return cursor{h.Run: h.Number}.String() }

// Matches is the result of a search.
type Matches struct {
	// Hits come newest first, or oldest first if that was asked for.
	Hits []Hit
	// Runs describes each run that Hits name.
	Runs map[int64]Run
	// Count is the number of hits, the same as len(Hits) unless only the count was asked for.
	Count int64
	// Lines counts the lines that the search covered, those that filters proved not to match
	// included; ReadBytes the text that was read.
	Lines, ReadBytes int64
	// More tells that the search ended before everything was covered: Limit, MaxBytes or MaxTime was reached.
	More bool
	// ContextCut tells that lines around hits are missing, since MaxBytes was reached: the farthest
	// of one hit, and all of those that come after it.
	ContextCut bool

	page *Page // places only
	back bool
}

// Next gives the cursor where the search goes on: for Before when newest came first, else for After.
func (m *Matches) Next() string {
	if m.back {
		return m.page.Prev()
	}
	return m.page.Next()
}

// Search looks for lines. Its error wraps ErrPattern or ErrCursor for what it cannot use.
func (s *Store) Search(ctx context.Context, q SearchQuery) (*Matches, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	h, err := newHunt(s, q)
	if err != nil {
		return nil, err
	}
	h.coverage, h.views = s.coverageOf(h.after), s.memory(&h.scope)
	defer h.release()
	err = s.withRead(ctx, func(uncut context.Context, tx querier) error { return h.run(uncut, ctx, tx) })
	if errors.Is(err, errFoundDamage) {
		return s.Search(ctx, q)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot search the log: %w", err)
	}
	return h.result, nil
}

func newHunt(s *Store, q SearchQuery) (*hunt, error) {
	m, err := newMatcher(q.Text, q.Regexp, q.CaseSensitive)
	if err != nil {
		return nil, err
	}
	q.Newest = !q.OldestFirst
	q.Limit = cmp.Or(max(q.Limit, 0), defaultHits)
	p, err := newPlan(q.Query)
	if err != nil {
		return nil, err
	}
	p.backward = q.Newest // a cursor bounds the search, it does not turn it
	return &hunt{
		plan: p, store: s, query: q, matcher: m, around: make(map[int64]int),
		deadline: time.Now().Add(cmp.Or(max(q.MaxTime, 0), defaultSearchTime)),
		result:   &Matches{page: p.page, back: p.backward, Runs: p.page.Runs},
	}, nil
}
