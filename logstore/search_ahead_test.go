package logstore

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestSearchOfManyRunsFindsEveryLine searches many runs, of which some have chunks with filters and some are in memory,
// and checks that it finds what searches of the single runs find.
func TestSearchOfManyRunsFindsEveryLine(t *testing.T) {
	s := openTest(t, Options{})
	s.reader.filters.limit = 1 // room for no filter: each comes from the file
	var runs []int64
	for i := range 5 * aheadRuns {
		run := startRun(s, "/p", []string{"web", "api"}[i%2])
		runs = append(runs, run)
		put(s, run, 1, 3)
		if i%40 == 7 {
			put(s, run, 4, 30_000) // several chunks
		}
		if i%10 == 3 {
			s.Capture(run, Stderr, time.Now(), fmt.Appendf(nil, "needle %d\n", i))
		}
		if i%50 != 49 {
			endRun(s, run)
		}
		if i%20 == 0 {
			flush(t, s)
		}
	}
	flush(t, s)
	buildFilters(t, s)
	put(s, runs[49], 4, 5)
	for _, q := range []SearchQuery{
		{Text: "needle", CaseSensitive: true},
		{Text: "needle", OldestFirst: true},
		{Text: "^line 2 of", Regexp: true},
		{Text: "line 29999 of"},
		{Text: "e", Query: Query{Streams: 1 << Stderr}},
		{Text: absentText},
	} {
		var want []Line
		for _, run := range runs {
			q := q
			q.Runs, q.Limit = []int64{run}, 1000
			m, err := s.Search(t.Context(), q)
			checkError(t, err)
			for _, h := range m.Hits {
				want = append(want, h.Line)
			}
		}
		var got []Line
		for q.Project, q.Limit = "/p", 7; ; {
			m, err := s.Search(t.Context(), q)
			checkError(t, err)
			for _, h := range m.Hits {
				got = append(got, h.Line)
			}
			if !m.More {
				break
			}
			if q.OldestFirst {
				q.After = m.Next()
			} else {
				q.Before = m.Next()
			}
		}
		byRun := func(a, b Line) int { return int(a.Run-b.Run)<<20 + int(a.Number-b.Number) }
		slices.SortFunc(got, byRun)
		slices.SortFunc(want, byRun)
		if !slices.Equal(got, want) {
			t.Errorf("%+v: got %d lines, want the %d of the single runs", q, len(got), len(want))
		}
	}
}

func TestProcessNames(t *testing.T) {
	memory, err := Open(t.Context(), Options{})
	checkError(t, err)
	defer memory.Close()
	for name, s := range map[string]*Store{"file": openTest(t, Options{}), "memory": memory} {
		s.SaveDefinition("/p", "stored", []byte(`{}`))
		s.SaveDefinition("/p", "deleted", []byte(`{}`))
		s.SaveDefinition("/q", "other", []byte(`{}`))
		s.SaveGroup("/p", "group", []byte(`{}`))
		run := startRun(s, "/p", "ran")
		flush(t, s)
		s.SaveDefinition("/p", "deleted", nil)
		s.SaveDefinition("/p", "unsaved", []byte(`{}`))
		startRun(s, "/p", "running")
		for _, c := range []struct{ names, want []string }{
			{nil, []string{"ran", "running", "stored", "unsaved"}},
			{[]string{"stored", "other", "deleted", "running"}, []string{"running", "stored"}},
			{[]string{"group"}, nil},
		} {
			got, err := s.ProcessNames(t.Context(), "/p", c.names)
			if slices.Sort(got); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: names among %v: got %v, %v; want %v", name, c.names, got, err, c.want)
			}
		}
		endRun(s, run)
	}
}
