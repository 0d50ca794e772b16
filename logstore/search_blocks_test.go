package logstore

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestSearchOfManyRunsFindsEveryLine searches more than manyRuns runs, of which some have chunks with filters and some are in memory,
// and checks that it finds what searches of the single runs find.
func TestSearchOfManyRunsFindsEveryLine(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	s.reader.filters.limit = 1 // room for no filter: each comes from the file
	var runs []int64
	for i := range 5 * manyRuns {
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

// TestSearchSeesEveryChangeOfALongRun searches a run of many chunks again and again while chunks are added, removed and
// shortened, also by another server.
func TestSearchSeesEveryChangeOfALongRun(t *testing.T) {
	t.Parallel()
	path, alive := filepath.Join(t.TempDir(), "pmcp.db"), func(string, string) bool { return true }
	s := openTest(t, Options{Path: path, MaxBytes: 1 << 20, Alive: alive})
	other := openTest(t, Options{Path: path, MaxBytes: 1 << 20, Alive: alive})
	run, began := startRun(s, "/p", "web"), time.Now().Add(-time.Hour)
	at := func(line int) time.Time { return began.Add(time.Duration(line) * time.Millisecond) }
	captured := 0
	capture := func(lines int) {
		for range lines {
			captured++
			s.Capture(run, Stdout, at(captured), fmt.Appendf(nil, "line %d of the run\n", captured))
		}
		flush(t, s)
	}
	check := func(oldest int) {
		t.Helper()
		for range 2 {
			m, err := s.Search(t.Context(), SearchQuery{Text: "of the run", CountOnly: true})
			if err != nil || m.Count != int64(captured-oldest+1) || m.Lines != m.Count {
				t.Fatalf("got %d of %d lines, %v; want %d", m.Count, m.Lines, err, captured-oldest+1)
			}
		}
	}
	clear := func(s *Store, before int) {
		_, _, err := s.Clear(t.Context(), "/p", nil, at(before))
		checkError(t, err)
	}
	capture(60_000)
	if n := len(chunkIDs(t, s, run)); n < 32 {
		t.Fatalf("got %d chunks, want at least 32", n)
	}
	check(1)
	capture(5_000) // more chunks, and lines in memory
	check(1)
	clear(other, 10) // the first chunk is shortened
	check(10)
	clear(s, 11)
	check(11)
	clear(other, 9_000)
	check(9_000)
	capture(5_000)
	check(9_000)
	endRun(s, run)
	flush(t, s)
	clear(s, 69_000) // few are left
	check(69_000)
}
