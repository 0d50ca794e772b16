package logstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// keys names lines by run and number.
func keys(lines []Line) []string {
	all := make([]string, len(lines))
	for i, l := range lines {
		all[i] = fmt.Sprint(l.Run, ":", l.Number)
	}
	return all
}

// TestEveryCursorOfAPage continues a page behind each of its lines, and before it, with runs of
// several processes that overlap.
func TestEveryCursorOfAPage(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	corpus(t, s, corpusWords, 300, 5)
	all := keys(readAll(t, s, Query{}))
	for name, q := range map[string]Query{
		"oldest first": {After: CursorStart, Limit: 1000},
		"newest":       {Newest: true, Limit: 1000},
		"some":         {After: CursorStart, Limit: len(all) / 2},
		"newest some":  {Newest: true, Limit: len(all) / 2},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := s.Read(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			at := slices.Index(all, keys(p.Lines)[0])
			for i := range p.Lines {
				next := readAll(t, s, Query{After: p.Cursor(i), Limit: 37})
				if want := all[at+i+1:]; !slices.Equal(keys(next), want) {
					t.Fatalf("after line %d: %d lines, want %d", i, len(next), len(want))
				}
				before, err := s.Read(t.Context(), Query{Before: p.Cursor(i), Limit: 5})
				if want := all[max(at+i-4, 0) : at+i+1]; err != nil || !slices.Equal(keys(before.Lines), want) {
					t.Fatalf("before line %d: %v, want %v, %v", i, keys(before.Lines), want, err)
				}
			}
			before, err := s.Read(t.Context(), Query{Before: p.Prev(), Limit: 10_000})
			if err != nil || !slices.Equal(keys(before.Lines), all[:at]) {
				t.Fatalf("before the page: %d lines, want %d, %v", len(before.Lines), at, err)
			}
			if next := readAll(t, s, Query{After: p.Next()}); !slices.Equal(keys(next), all[at+len(p.Lines):]) {
				t.Fatalf("after the page: %d lines, want %d", len(next), len(all)-at-len(p.Lines))
			}
		})
	}
}

func TestQueryFilters(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	corpus(t, s, corpusWords, 3000, 6)
	all := readAll(t, s, Query{Limit: 5000})
	middle := all[len(all)/2].At
	for name, c := range map[string]struct {
		q     Query
		takes func(Line) bool
	}{
		"stream": {Query{Streams: 1 << Stderr}, func(l Line) bool { return l.Stream == Stderr }},
		"level":  {Query{MinLevel: LevelError}, func(l Line) bool { return l.Level >= LevelError }},
		"since":  {Query{Since: middle}, func(l Line) bool { return !l.At.Before(middle) }},
		"until":  {Query{Until: middle}, func(l Line) bool { return l.At.Before(middle) }},
		"all":    {Query{Since: middle, Streams: 1 << Stdout, MinLevel: LevelWarn, Project: "/p"}, func(l Line) bool { return !l.At.Before(middle) && l.Stream == Stdout && l.Level >= LevelWarn }},
	} {
		t.Run(name, func(t *testing.T) {
			want := keys(slices.DeleteFunc(slices.Clone(all), func(l Line) bool { return !c.takes(l) }))
			if len(want) == 0 || len(want) == len(all) {
				t.Fatal("the filter is not tested")
			}
			c.q.Limit = 333
			if got := keys(readAll(t, s, c.q)); !slices.Equal(got, want) {
				t.Errorf("forward: %d lines, want %d", len(got), len(want))
			}
			if got := keys(readBackwards(t, s, c.q)); !slices.Equal(got, want) {
				t.Errorf("backward: %d lines, want %d", len(got), len(want))
			}
			p, err := s.Read(t.Context(), c.q) // without a cursor: from the oldest that passes
			if err != nil || !slices.Equal(keys(p.Lines), want[:min(len(want), 333)]) {
				t.Errorf("first page: %d lines, %v", len(p.Lines), err)
			}
		})
	}
}

// TestCursorAfterSince checks that a cursor of a page that began at a time does not lead back behind that time.
func TestCursorAfterSince(t *testing.T) {
	s := openTest(t, Options{})
	old, live := startRun(s, "/p", "old"), startRun(s, "/p", "live")
	hourAgo := time.Now().Add(-time.Hour)
	for i := range 100 {
		s.Capture(old, Stdout, hourAgo, fmt.Appendf(nil, "line %d of the run\n", i+1))
		s.Capture(live, Stdout, hourAgo, fmt.Appendf(nil, "line %d of the run\n", i+1))
	}
	endRun(s, old)
	flush(t, s)
	p, err := s.Read(t.Context(), Query{Since: time.Now().Add(-time.Minute)})
	if err != nil || len(p.Lines) != 0 {
		t.Fatal(texts(p.Lines), err)
	}
	put(s, live, 101, 103)
	wantNumbered(t, readAll(t, s, Query{After: p.Next()}), 101, 103)
	before, err := s.Read(t.Context(), Query{Before: p.Prev(), Limit: 1000})
	if err != nil || len(before.Lines) != 200 {
		t.Fatalf("%d lines before, %v", len(before.Lines), err)
	}
}

func TestLatestAndRuns(t *testing.T) {
	s := openTest(t, Options{})
	var ids []int64
	for range 3 {
		id := startRun(s, "/p", "web")
		put(s, id, 1, 10)
		endRun(s, id)
		ids = append(ids, id)
	}
	flush(t, s)
	p, err := s.Read(t.Context(), Query{Names: []string{"web"}, Latest: true})
	if err != nil || len(p.Lines) != 10 || p.Lines[0].Run != ids[2] || p.Runs[ids[2]].Number != 3 {
		t.Fatalf("%v, %v", keys(p.Lines), err)
	}
	before, err := s.Read(t.Context(), Query{Names: []string{"web"}, Before: p.Prev(), Limit: 15})
	if err != nil || len(before.Lines) != 15 || before.Lines[14].Run != ids[1] || before.Lines[0].Run != ids[0] {
		t.Fatalf("%v, %v", keys(before.Lines), err)
	}
	p, err = s.Read(t.Context(), Query{Runs: ids[:1], Newest: true, Limit: 3})
	if err != nil || !slices.Equal(keys(p.Lines), []string{fmt.Sprint(ids[0], ":8"), fmt.Sprint(ids[0], ":9"), fmt.Sprint(ids[0], ":10")}) {
		t.Fatalf("%v, %v", keys(p.Lines), err)
	}
	if !p.MoreBefore {
		t.Error("nothing is said of the lines before")
	}
	for what, q := range map[string]Query{"from the start": {After: CursorStart}, "without a cursor": {}} {
		q.UpTo = ids[1]
		p, err = s.Read(t.Context(), q)
		if err != nil || len(p.Lines) != 20 || p.Lines[19].Run != ids[1] {
			t.Fatalf("up to a run, %s: %v, %v", what, keys(p.Lines), err)
		}
		for _, limit := range []int64{ids[0], ids[1]} { // the cursor's own run may be later
			if on, err := s.Read(t.Context(), Query{After: p.Next(), UpTo: limit}); err != nil || len(on.Lines) != 0 || on.Next() != p.Next() {
				t.Fatalf("up to a run, behind it: %v, %v", keys(on.Lines), err)
			}
		}
		if on, err := s.Read(t.Context(), Query{After: p.Next()}); err != nil || len(on.Lines) != 10 || on.Lines[0].Run != ids[2] {
			t.Fatalf("behind a page up to a run: %v, %v", keys(on.Lines), err)
		}
	}
	other, err := s.Read(t.Context(), Query{Project: "/other", After: CursorStart})
	if err != nil || len(other.Lines) != 0 {
		t.Fatalf("%v, %v", keys(other.Lines), err)
	}
}

func TestPageBytes(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 100)
	p, err := s.Read(t.Context(), Query{After: CursorStart, MaxBytes: 51})
	if err != nil || len(p.Lines) != 3 || !p.MoreAfter {
		t.Fatalf("%q, %v", texts(p.Lines), err)
	}
	if p, err = s.Read(t.Context(), Query{Newest: true, MaxBytes: 1}); err != nil || len(p.Lines) != 1 || p.Lines[0].Number != 100 || !p.MoreBefore {
		t.Fatalf("%q, %v", texts(p.Lines), err)
	}
}

func TestBadCursors(t *testing.T) {
	s := openTest(t, Options{})
	for _, q := range []Query{{After: "x"}, {Before: "AAAA"}, {After: "!!"}, {After: CursorStart, Before: CursorStart}} {
		if _, err := s.Read(t.Context(), q); !errors.Is(err, ErrCursor) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestTwoStoresAtFullSpeed has two servers in one process write to one file.
func TestTwoStoresAtFullSpeed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	const n = 50_000
	alive := func(string, string) bool { return true }
	a := openTest(t, Options{Path: path, Session: "11111111-1111-4111-8111-111111111111", Alive: alive})
	b := openTest(t, Options{Path: path, Session: "22222222-2222-4222-8222-222222222222", Alive: alive})
	ended := make(chan struct{})
	for name, s := range map[string]*Store{"a": a, "b": b} {
		run := startRun(s, "/p", name)
		go func() {
			put(s, run, 1, n)
			endRun(s, run)
			ended <- struct{}{}
		}()
	}
	<-ended
	<-ended
	flush(t, a)
	flush(t, b)
	for _, s := range []*Store{a, b} {
		for _, name := range []string{"a", "b"} {
			wantNumbered(t, readAll(t, s, Query{Names: []string{name}, Limit: 5000}), 1, n)
		}
	}
}

// TestCursorBehindTimes checks that the cursors of a page that times bound lead on to what lies beyond
// them: in a later run, in a later chunk of the same, and likewise towards the start.
func TestCursorBehindTimes(t *testing.T) {
	s := openTest(t, Options{})
	start := time.Now()
	first, second := startRun(s, "/p", "web"), startRun(s, "/p", "web")
	for i := range 10 { // each line is a chunk of its own
		run := first
		if i >= 6 {
			run = second
		}
		s.Capture(run, Stdout, start.Add(time.Duration(i)*time.Hour), []byte("x\n"))
		r := s.ownRun(run)
		r.mu.Lock()
		r.seal()
		r.mu.Unlock()
	}
	want := []string{}
	for n := range 6 {
		want = append(want, fmt.Sprint(first, ":", n+1))
	}
	for n := range 4 {
		want = append(want, fmt.Sprint(second, ":", n+1))
	}
	endRun(s, first)
	endRun(s, second)
	read := func(q Query) (*Page, []string) {
		t.Helper()
		p, err := s.Read(t.Context(), q)
		checkError(t, err)
		return p, keys(p.Lines)
	}
	for _, where := range []string{"in memory", "in the file"} {
		end, err := s.End(t.Context(), "", nil)
		checkError(t, err)
		for i := range 11 {
			at := start.Add(time.Duration(i)*time.Hour - time.Minute)
			p, got := read(Query{Until: at})
			_, next := read(Query{After: p.Next()})
			if !slices.Equal(got, want[:i]) || !slices.Equal(next, want[i:]) {
				t.Errorf("%s: until line %d: %v, then %v", where, i, got, next)
			}
			p, got = read(Query{Before: end, Since: at})
			if !slices.Equal(got, want[i:]) {
				t.Errorf("%s: since line %d: %v", where, i, got)
			}
			if i == 0 {
				continue
			}
			if _, previous := read(Query{Before: p.Prev()}); !slices.Equal(previous, want[:i]) {
				t.Errorf("%s: since line %d: before it %v", where, i, previous)
			}
			p, got = read(Query{Since: at, Until: at.Add(time.Second)})
			if _, next := read(Query{After: p.Next()}); len(got) != 0 || !slices.Equal(next, want[i:]) {
				t.Errorf("%s: between two lines at %d: %v, then %v", where, i, got, next)
			}
		}
		flush(t, s)
	}
}
