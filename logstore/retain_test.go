package logstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fill captures about n bytes of lines with a time.
func fill(t testing.TB, s *Store, run int64, at time.Time, n int) (lines int64) {
	t.Helper()
	line := strings.Repeat("something to fill the log with ", 4)
	var b strings.Builder
	for b.Len() < n {
		lines++
		fmt.Fprintf(&b, "%s%d\n", line, lines)
		if b.Len() > 32<<10 {
			s.Capture(run, Stdout, at, []byte(b.String()))
			n -= b.Len()
			b.Reset()
			if s.Status().PendingBytes > runBound/2 { // over its bound lines would be dropped
				flush(t, s)
			}
		}
	}
	s.Capture(run, Stdout, at, []byte(b.String()))
	flush(t, s)
	return lines
}

// cutLog has the write-ahead log cut to nothing once no reader and no checkpointer is at it.
func cutLog(s *Store) error {
	for busy := 1; busy != 0; {
		var log, done int
		if err := s.file.write.QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &done); err != nil {
			return err
		}
	}
	return nil
}

// retain removes what is too old or too much, as the worker does.
func retain(t *testing.T, s *Store) {
	t.Helper()
	free, err := s.file.maint.take(t.Context())
	if err != nil || !free {
		t.Fatal(free, err)
	}
	defer s.file.maint.unlock()
	if err := s.retain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestOneRemovesAtATime has clear and retention of one server, which share the lock file, keep out of each other's way.
func TestOneRemovesAtATime(t *testing.T) {
	s := openTest(t, Options{})
	if free, err := s.file.maint.take(t.Context()); err != nil || !free {
		t.Fatal(free, err)
	}
	if free, err := s.file.maint.try(); err != nil || free {
		t.Errorf("the lock is held and can be taken: %v, %v", free, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if free, err := s.file.maint.take(ctx); err != nil || free {
		t.Errorf("the lock is held and can be taken: %v, %v", free, err)
	}
	s.file.maint.unlock()
	if free, err := s.file.maint.take(t.Context()); err != nil || !free {
		t.Error(free, err)
	}
	s.file.maint.unlock()
}

func TestRetentionByAge(t *testing.T) {
	s := openTest(t, Options{RetentionDays: 7})
	old, young := startRun(s, "/p", "old"), startRun(s, "/p", "young")
	oldLines := fill(t, s, old, time.Now().AddDate(0, 0, -8), 2<<20)
	youngLines := fill(t, s, young, time.Now().AddDate(0, 0, -6), 1<<20)
	s.EndCapture(old)
	s.SaveRun(old, time.Now().AddDate(0, 0, -9), time.Now().AddDate(0, 0, -8), nil)
	flush(t, s)
	retain(t, s)
	if got := readAll(t, s, Query{Names: []string{"old"}}); len(got) != 0 {
		t.Errorf("%d old lines are left", len(got))
	}
	if got := readAll(t, s, Query{Names: []string{"young"}, Limit: 10_000}); int64(len(got)) != youngLines {
		t.Errorf("%d young lines are left of %d", len(got), youngLines)
	}
	if runs, err := s.Runs(t.Context(), RunFilter{}); err != nil || len(runs) != 1 {
		t.Errorf("runs %+v, %v", runs, err)
	}
	if st := s.Status(); st.RetiredLines != oldLines {
		t.Errorf("%d lines retired, want %d", st.RetiredLines, oldLines)
	}
	if _, n := s.NewRun("/p", "old"); n != 2 {
		t.Errorf("the next run is number %d", n)
	}
}

func TestRetentionBySize(t *testing.T) {
	t.Parallel()
	const limit = 8 << 20
	s := openTest(t, Options{MaxBytes: limit})
	crash := startRun(s, "/p", "crashed")
	put(s, crash, 1, 1500)
	endRun(s, crash)
	flush(t, s)
	chatty := startRun(s, "/p", "watcher")
	at := time.Now()
	for i := range 6 {
		fill(t, s, chatty, at.Add(time.Duration(i)*time.Second), 6<<20)
		awaitFilters(t, s) // which take room too
		retain(t, s)
		used, err := usedBytes(t.Context(), s.file.read)
		if err != nil || used > limit {
			t.Fatalf("round %d: %d bytes are used, limit %d, %v", i, used, limit, err)
		}
	}
	wantNumbered(t, readAll(t, s, Query{Names: []string{"crashed"}, Limit: 5000}), 1, 1500)
	p, err := s.Read(t.Context(), Query{Names: []string{"watcher"}, After: CursorStart, Limit: 1})
	if err != nil || len(p.Lines) != 1 || len(p.Gaps) != 1 || p.Gaps[0].Lines != p.Lines[0].Number-1 || p.Gaps[0].Bytes <= 0 {
		t.Fatalf("gaps %+v, %v", p.Gaps, err)
	}
	st, err := s.RunStats(t.Context(), chatty)
	if err != nil || st.DroppedLines != p.Gaps[0].Lines || st.Lines < keptLines {
		t.Errorf("stats %+v, %v", st, err)
	}
	checkError(t, cutLog(s))
	if info, err := os.Stat(s.file.path); err != nil || info.Size() > limit*3/2 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
}

func TestReadsDuringRetention(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{MaxBytes: 4 << 20})
	run := startRun(s, "/p", "web")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20 {
			put(s, run, 1+i*10_000, (i+1)*10_000)
		}
	}()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		var last int64
		q := Query{After: CursorStart, Limit: 5000}
		for {
			p, err := s.Read(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			missing := make(map[int64]int64)
			for _, g := range p.Gaps {
				missing[g.After] = g.Lines
			}
			for _, l := range p.Lines {
				for missing[last] > 0 && l.Number != last+1 {
					last += missing[last]
				}
				if l.Number != last+1 {
					t.Fatalf("line %d follows line %d; gaps %+v", l.Number, last, p.Gaps)
				}
				last = l.Number
			}
			if !p.MoreAfter {
				break
			}
			q.After = p.Next()
		}
	}
}

func TestClear(t *testing.T) {
	s := openTest(t, Options{})
	run, other := startRun(s, "/p", "web"), startRun(s, "/p", "db")
	put(s, run, 1, 10_000)
	flush(t, s)
	put(s, run, 10_001, 12_000)
	put(s, other, 1, 10)
	lines, bytes, err := s.Clear(t.Context(), "/p", []string{"web"}, time.Time{})
	if err != nil || lines != 12_000 || bytes == 0 {
		t.Fatalf("%d lines, %d bytes, %v", lines, bytes, err)
	}
	if got := readAll(t, s, Query{Names: []string{"web"}}); len(got) != 0 {
		t.Fatalf("%d lines are left", len(got))
	}
	wantNumbered(t, readAll(t, s, Query{Names: []string{"db"}}), 1, 10)
	put(s, run, 12_001, 12_100)
	wantNumbered(t, readAll(t, s, Query{Names: []string{"web"}}), 12_001, 12_100)
}

// TestClearTakesTheNotes clears what errors were recognised in: nothing of them may be read any
// more, neither of one that was still being printed, while those of other processes and of later
// lines stay.
func TestClearTakesTheNotes(t *testing.T) {
	s := openTest(t, Options{})
	web, db := startRun(s, "/p", "web"), startRun(s, "/p", "db")
	now := time.Now()
	throwAt := func(run int64, at time.Time, what string) {
		s.Capture(run, Stderr, at, fmt.Appendf(nil, "/app/%s.js:12\n    throw\n    ^\n\nTypeError: secret %s\n    at f (/app/%s.js:12:11)\n", what, what, what))
	}
	for _, run := range []int64{web, db} {
		throwAt(run, now.Add(-time.Hour), "early")
		s.Capture(run, Stderr, now.Add(-time.Hour), nil)
		throwAt(run, now, "late")
		s.Capture(run, Stderr, now, nil)
	}
	s.SaveEvent("/p", "web", web, now.Add(-time.Hour), "web crashed: secret early")
	s.SaveEvent("/p", "web", web, now, "web crashed: secret late")
	s.SaveEvent("/p", "db", db, now.Add(-time.Hour), "db crashed: secret early")
	throwAt(web, now, "unfinished")
	want := func(faults, events int) {
		t.Helper()
		found, _, err := s.Faults(t.Context(), FaultQuery{Names: []string{"web"}})
		if err != nil || len(found) != faults {
			t.Errorf("%d faults, want %d: %+v, %v", len(found), faults, found, err)
		}
		noted, err := s.Events(t.Context(), "/p", []string{"web"}, 0)
		if err != nil || len(noted) != events {
			t.Errorf("%d events, want %d: %+v, %v", len(noted), events, noted, err)
		}
		var hours int
		err = s.file.read.QueryRow(`SELECT count(*) FROM fault_hour WHERE fault NOT IN (SELECT id FROM fault)`).Scan(&hours)
		if err != nil || hours != 0 {
			t.Errorf("%d rates without an error, %v", hours, err)
		}
	}
	if _, _, err := s.Clear(t.Context(), "/p", []string{"web"}, now.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	want(2, 1)
	throwAt(web, now, "unfinished again")
	if _, _, err := s.Clear(t.Context(), "/p", []string{"web"}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	s.Capture(web, Stderr, now, []byte("    at g (/app/g.js:1:1)\n"))
	s.EndCapture(web)
	want(0, 0)
	s.RunEnded(db, 0, "")
	if found, _, err := s.Faults(t.Context(), FaultQuery{}); err != nil || len(found) != 2 || found[0].Name != "db" {
		t.Errorf("of the other process: %+v, %v", found, err)
	}
}

func TestClearUntil(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range 1000 {
		s.Capture(run, Stdout, start.Add(time.Duration(i)*time.Second), fmt.Appendf(nil, "line %d of the run\n", i+1))
	}
	lines, _, err := s.Clear(t.Context(), "", nil, start.Add(400*time.Second))
	if err != nil || lines != 400 {
		t.Fatalf("%d lines, %v", lines, err)
	}
	left := readAll(t, s, Query{})
	wantNumbered(t, left, 401, 1000)
	for i, l := range left {
		if !l.At.Equal(start.Add(time.Duration(400+i) * time.Second)) {
			t.Fatalf("line %d is at %s", l.Number, l.At)
		}
	}
	p, err := s.Read(t.Context(), Query{After: CursorStart, Limit: 1})
	if err != nil || len(p.Gaps) != 1 || p.Gaps[0].Lines != 400 {
		t.Fatalf("gaps %+v, %v", p.Gaps, err)
	}
}

func TestDeadServersRunsAreSealed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	const dead = "11111111-1111-4111-8111-111111111111"
	h := startHelper(t, "write", path, dead, "web", "0")
	h.await("open")
	var killed atomic.Bool
	s := openTest(t, Options{Path: path, Alive: func(_, id string) bool { return id == dead && !killed.Load() }})
	if _, err := s.Follow(t.Context(), Query{After: CursorStart}); err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.cmd.Wait()
	killed.Store(true)
	if err := s.markLost(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := readAll(t, s, Query{Limit: 10_000})
	wantNumbered(t, lines, 1, len(lines))
	p, err := s.Read(t.Context(), Query{Newest: true, Limit: 10})
	if err != nil || len(p.Gaps) != 1 || p.Gaps[0].Lines != -1 || p.Gaps[0].After != int64(len(lines)) {
		t.Fatalf("gaps %+v, %v", p.Gaps, err)
	}
	if run := p.Runs[p.Gaps[0].Run]; !run.Lost || run.Session != dead {
		t.Fatalf("run %+v", run)
	}
}
