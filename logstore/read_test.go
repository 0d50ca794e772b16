package logstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pmcp/logstore/line"
)

// keys returns the run and the number of each line.
func keys(lines []Line) []string {
	all := make([]string, len(lines))
	for i, l := range lines {
		all[i] = fmt.Sprint(l.Run, ":", l.Number)
	}
	return all
}

// TestPagesContinueFromEveryLine checks that a page can be continued after and before each of its
// lines, over overlapping runs of several processes.
func TestPagesContinueFromEveryLine(t *testing.T) {
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
					t.Fatalf("after line %d: got %d lines, want %d", i, len(next), len(want))
				}
				before, err := s.Read(t.Context(), Query{Before: p.Cursor(i), Limit: 5})
				if want := all[max(at+i-4, 0) : at+i+1]; err != nil || !slices.Equal(keys(before.Lines), want) {
					t.Fatalf("before line %d: got %v, %v; want %v", i, keys(before.Lines), err, want)
				}
			}
			before, err := s.Read(t.Context(), Query{Before: p.Prev(), Limit: 10_000})
			if err != nil || !slices.Equal(keys(before.Lines), all[:at]) {
				t.Fatalf("before the page: got %d lines, %v; want %d", len(before.Lines), err, at)
			}
			if next := readAll(t, s, Query{After: p.Next()}); !slices.Equal(keys(next), all[at+len(p.Lines):]) {
				t.Fatalf("after the page: got %d lines, want %d", len(next), len(all)-at-len(p.Lines))
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
		"level":  {Query{MinLevel: line.LevelError}, func(l Line) bool { return l.Level >= line.LevelError }},
		"since":  {Query{Since: middle}, func(l Line) bool { return !l.At.Before(middle) }},
		"until":  {Query{Until: middle}, func(l Line) bool { return l.At.Before(middle) }},
		"all":    {Query{Since: middle, Streams: 1 << Stdout, MinLevel: line.LevelWarn, Project: "/p"}, func(l Line) bool { return !l.At.Before(middle) && l.Stream == Stdout && l.Level >= line.LevelWarn }},
	} {
		t.Run(name, func(t *testing.T) {
			want := keys(slices.DeleteFunc(slices.Clone(all), func(l Line) bool { return !c.takes(l) }))
			if len(want) == 0 || len(want) == len(all) {
				t.Fatalf("got %d of %d lines that pass the filter, want some but not all", len(want), len(all))
			}
			c.q.Limit = 333
			if got := keys(readAll(t, s, c.q)); !slices.Equal(got, want) {
				t.Errorf("forwards: got %d lines, want %d", len(got), len(want))
			}
			if got := keys(readBackwards(t, s, c.q)); !slices.Equal(got, want) {
				t.Errorf("backwards: got %d lines, want %d", len(got), len(want))
			}
			p, err := s.Read(t.Context(), c.q) // without a cursor, the page starts at the oldest line that passes the filters
			if err != nil || !slices.Equal(keys(p.Lines), want[:min(len(want), 333)]) {
				t.Errorf("first page: got %d lines, %v; want the first %d", len(p.Lines), err, min(len(want), 333))
			}
		})
	}
}

// TestCursorDoesNotLeadBackBeforeSince continues a page of a query with Since backwards, and checks
// that no earlier lines are returned.
func TestCursorDoesNotLeadBackBeforeSince(t *testing.T) {
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
		t.Fatalf("got %q, %v; want no lines", texts(p.Lines), err)
	}
	put(s, live, 101, 103)
	wantNumbered(t, readAll(t, s, Query{After: p.Next()}), 101, 103)
	before, err := s.Read(t.Context(), Query{Before: p.Prev(), Limit: 1000})
	if err != nil || len(before.Lines) != 200 {
		t.Fatalf("before the page: got %d lines, %v; want 200", len(before.Lines), err)
	}
}

func TestQueryCanSelectRuns(t *testing.T) {
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
		t.Fatalf("latest run: got %v, %v; want 10 lines of run 3", keys(p.Lines), err)
	}
	before, err := s.Read(t.Context(), Query{Names: []string{"web"}, Before: p.Prev(), Limit: 15})
	if err != nil || len(before.Lines) != 15 || before.Lines[14].Run != ids[1] || before.Lines[0].Run != ids[0] {
		t.Fatalf("before it: got %v, %v; want 15 lines of runs 1 and 2", keys(before.Lines), err)
	}
	p, err = s.Read(t.Context(), Query{Runs: ids[:1], Newest: true, Limit: 3})
	if err != nil || !slices.Equal(keys(p.Lines), []string{fmt.Sprint(ids[0], ":8"), fmt.Sprint(ids[0], ":9"), fmt.Sprint(ids[0], ":10")}) {
		t.Fatalf("first run: got %v, %v; want lines 8 to 10", keys(p.Lines), err)
	}
	if !p.MoreBefore {
		t.Error("first run: got MoreBefore false, want true")
	}
	for what, q := range map[string]Query{"from the start": {After: CursorStart}, "without a cursor": {}} {
		q.UpTo = ids[1]
		p, err = s.Read(t.Context(), q)
		if err != nil || len(p.Lines) != 20 || p.Lines[19].Run != ids[1] {
			t.Fatalf("up to run 2, %s: got %v, %v; want 20 lines", what, keys(p.Lines), err)
		}
		for _, limit := range []int64{ids[0], ids[1]} { // the run of the cursor may be later
			if on, err := s.Read(t.Context(), Query{After: p.Next(), UpTo: limit}); err != nil || len(on.Lines) != 0 || on.Next() != p.Next() {
				t.Fatalf("up to a run, after it: got %v, %v; want no lines and the same cursor", keys(on.Lines), err)
			}
		}
		if on, err := s.Read(t.Context(), Query{After: p.Next()}); err != nil || len(on.Lines) != 10 || on.Lines[0].Run != ids[2] {
			t.Fatalf("after a page up to run 2: got %v, %v; want 10 lines of run 3", keys(on.Lines), err)
		}
	}
	other, err := s.Read(t.Context(), Query{Project: "/other", After: CursorStart})
	if err != nil || len(other.Lines) != 0 {
		t.Fatalf("other project: got %v, %v; want no lines", keys(other.Lines), err)
	}
}

func TestPageIsBoundedByMaxBytes(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 100)
	p, err := s.Read(t.Context(), Query{After: CursorStart, MaxBytes: 51})
	if err != nil || len(p.Lines) != 3 || !p.MoreAfter {
		t.Fatalf("got %q, %v; want 3 lines and more after", texts(p.Lines), err)
	}
	if p, err = s.Read(t.Context(), Query{Newest: true, MaxBytes: 1}); err != nil || len(p.Lines) != 1 || p.Lines[0].Number != 100 || !p.MoreBefore {
		t.Fatalf("newest: got %q, %v; want line 100 and more before", texts(p.Lines), err)
	}
}

func TestReadRefusesInvalidCursors(t *testing.T) {
	s := openTest(t, Options{})
	for _, q := range []Query{{After: "x"}, {Before: "AAAA"}, {After: "!!"}, {After: CursorStart, Before: CursorStart}} {
		if _, err := s.Read(t.Context(), q); !errors.Is(err, ErrCursor) {
			t.Errorf("%+v: got %v, want ErrCursor", q, err)
		}
	}
}

// TestTwoStoresWriteOneFile lets two Stores in one program write to one file at full speed, and
// checks that no line is lost.
func TestTwoStoresWriteOneFile(t *testing.T) {
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

// TestCursorsLeadBeyondTimesOfPage checks that the cursors of a page bound by Since and Until lead
// to the lines beyond these times: in a later run, in a later chunk of the same run, and likewise
// towards the start.
func TestCursorsLeadBeyondTimesOfPage(t *testing.T) {
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
		r.sealLocked()
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
				t.Errorf("%s: until line %d: got %v, then %v; want %v, then %v", where, i, got, next, want[:i], want[i:])
			}
			p, got = read(Query{Before: end, Since: at})
			if !slices.Equal(got, want[i:]) {
				t.Errorf("%s: since line %d: got %v, want %v", where, i, got, want[i:])
			}
			if i == 0 {
				continue
			}
			if _, previous := read(Query{Before: p.Prev()}); !slices.Equal(previous, want[:i]) {
				t.Errorf("%s: before line %d: got %v, want %v", where, i, previous, want[:i])
			}
			p, got = read(Query{Since: at, Until: at.Add(time.Second)})
			if _, next := read(Query{After: p.Next()}); len(got) != 0 || !slices.Equal(next, want[i:]) {
				t.Errorf("%s: between two lines at %d: got %v, then %v; want none, then %v", where, i, got, next, want[i:])
			}
		}
		flush(t, s)
	}
}
