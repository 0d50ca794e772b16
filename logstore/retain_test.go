package logstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fill captures about n bytes of lines with the given time and returns the number of lines.
func fill(t testing.TB, s *Store, run int64, at time.Time, n int) (lines int64) {
	t.Helper()
	var b strings.Builder
	for b.Len() < n {
		lines++
		fmt.Fprintf(&b, "%s %d\n", noise(120), lines)
		if b.Len() > 32<<10 {
			s.Capture(run, Stdout, at, []byte(b.String()))
			n -= b.Len()
			b.Reset()
			if s.Status().PendingBytes > runBound/2 { // beyond the limit of pending bytes, lines are dropped
				flush(t, s)
			}
		}
	}
	s.Capture(run, Stdout, at, []byte(b.String()))
	flush(t, s)
	return lines
}

// noise returns n random characters, which hardly become smaller when they are packed.
func noise(n int) string {
	random := make([]byte, n)
	var bits uint64
	for i := range random {
		if i%10 == 0 { // ten characters of six bits, since the race detector makes each call dear
			bits = rand.Uint64()
		}
		random[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[bits%64]
		bits /= 64
	}
	return string(random)
}

// truncateLog truncates the write-ahead log of the database once no reader and no checkpointer uses
// the log.
func truncateLog(s *Store) error {
	for busy := 1; busy != 0; {
		var log, done int
		if err := s.file.WriteDB.QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &done); err != nil {
			return err
		}
	}
	return nil
}

// retain applies the limits of age and size as the Store's worker does.
func retain(t *testing.T, s *Store) {
	t.Helper()
	free, err := s.file.MaintLock.Acquire(t.Context())
	if err != nil || !free {
		t.Fatalf("taking the maintenance lock: got %v, %v; want true", free, err)
	}
	defer s.file.MaintLock.Release()
	if err := s.retain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestMaintenanceLockIsExclusive checks that the lock file keeps Clear and retention of one Store
// from running at the same time.
func TestMaintenanceLockIsExclusive(t *testing.T) {
	s := openTest(t, Options{})
	if free, err := s.file.MaintLock.Acquire(t.Context()); err != nil || !free {
		t.Fatalf("Take: got %v, %v; want true", free, err)
	}
	if free, err := s.file.MaintLock.TryAcquire(); err != nil || free {
		t.Errorf("Try while it is held: got %v, %v; want false", free, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if free, err := s.file.MaintLock.Acquire(ctx); err != nil || free {
		t.Errorf("cancelled Take while it is held: got %v, %v; want false", free, err)
	}
	s.file.MaintLock.Release()
	if free, err := s.file.MaintLock.Acquire(t.Context()); err != nil || !free {
		t.Errorf("Take after Unlock: got %v, %v; want true", free, err)
	}
	s.file.MaintLock.Release()
}

func TestRetentionRemovesOldLines(t *testing.T) {
	s := openTest(t, Options{RetentionDays: 7})
	old, young := startRun(s, "/p", "old"), startRun(s, "/p", "young")
	oldLines := fill(t, s, old, time.Now().AddDate(0, 0, -8), 2<<20)
	youngLines := fill(t, s, young, time.Now().AddDate(0, 0, -6), 1<<20)
	s.EndCapture(old)
	s.SaveRun(old, time.Now().AddDate(0, 0, -9), time.Now().AddDate(0, 0, -8), nil)
	flush(t, s)
	retain(t, s)
	if got := readAll(t, s, Query{Names: []string{"old"}}); len(got) != 0 {
		t.Errorf("got %d old lines left, want none", len(got))
	}
	if got := readAll(t, s, Query{Names: []string{"young"}, Limit: 10_000}); int64(len(got)) != youngLines {
		t.Errorf("got %d young lines left, want %d", len(got), youngLines)
	}
	if runs, err := s.Runs(t.Context(), RunFilter{}); err != nil || len(runs) != 1 {
		t.Errorf("got runs %+v, %v; want the young one", runs, err)
	}
	if st := s.Status(); st.RetiredLines != oldLines {
		t.Errorf("got %d lines retired, want %d", st.RetiredLines, oldLines)
	}
	if _, n, _ := s.NewRun("/p", "old"); n != 2 {
		t.Errorf("next run: got number %d, want 2", n)
	}
}

func TestRetentionLimitsSize(t *testing.T) {
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
		awaitFilters(t, s) // filters take room too
		retain(t, s)
		used, err := usedBytes(t.Context(), s.file.ReadDB)
		if err != nil || used > limit {
			t.Fatalf("round %d: got %d bytes used, %v; want at most %d", i, used, err, limit)
		}
	}
	wantNumbered(t, readAll(t, s, Query{Names: []string{"crashed"}, Limit: 5000}), 1, 1500)
	p, err := s.Read(t.Context(), Query{Names: []string{"watcher"}, After: CursorStart, Limit: 1})
	if err != nil || len(p.Lines) != 1 || len(p.Gaps) != 1 || p.Gaps[0].Lines != p.Lines[0].Number-1 || p.Gaps[0].Bytes <= 0 {
		t.Fatalf("got gaps %+v, %v; want one before the first line", p.Gaps, err)
	}
	st, err := s.RunStats(t.Context(), chatty)
	if err != nil || st.DroppedLines != p.Gaps[0].Lines || st.Lines < keptLines {
		t.Errorf("got stats %+v, %v; want %d dropped and at least %d lines", st, err, p.Gaps[0].Lines, keptLines)
	}
	checkError(t, truncateLog(s))
	if info, err := os.Stat(s.file.Path); err != nil || info.Size() > limit*3/2 {
		t.Errorf("got a file of %d bytes, %v; want at most %d", info.Size(), err, limit*3/2)
	}
}

func TestReadsDuringRetentionSkipNoLine(t *testing.T) {
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
					t.Fatalf("after line %d and gaps %+v: got line %d, want the next", last, p.Gaps, l.Number)
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

func TestClearRemovesLinesOfName(t *testing.T) {
	s := openTest(t, Options{})
	run, other := startRun(s, "/p", "web"), startRun(s, "/p", "db")
	put(s, run, 1, 10_000)
	flush(t, s)
	put(s, run, 10_001, 12_000)
	put(s, other, 1, 10)
	lines, bytes, err := s.Clear(t.Context(), "/p", []string{"web"}, time.Time{})
	if err != nil || lines != 12_000 || bytes == 0 {
		t.Fatalf("got %d lines and %d bytes cleared, %v; want 12000 lines", lines, bytes, err)
	}
	if got := readAll(t, s, Query{Names: []string{"web"}}); len(got) != 0 {
		t.Fatalf("got %d lines left, want none", len(got))
	}
	wantNumbered(t, readAll(t, s, Query{Names: []string{"db"}}), 1, 10)
	put(s, run, 12_001, 12_100)
	wantNumbered(t, readAll(t, s, Query{Names: []string{"web"}}), 12_001, 12_100)
}

// TestClearRemovesErrorsAndEvents checks that clearing lines also removes the errors recognised in
// them, even an error that was still being printed. The errors of other processes and of later
// lines remain.
func TestClearRemovesErrorsAndEvents(t *testing.T) {
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
	s.SaveEvent(Event{At: now.Add(-time.Hour), Project: "/p", Name: "web", Run: web, Text: "web crashed: secret early"})
	s.SaveEvent(Event{At: now, Project: "/p", Name: "web", Run: web, Text: "web crashed: secret late"})
	s.SaveEvent(Event{At: now.Add(-time.Hour), Project: "/p", Name: "db", Run: db, Text: "db crashed: secret early"})
	throwAt(web, now, "unfinished")
	want := func(faults, wantEvents int) {
		t.Helper()
		found, _, err := s.Faults(t.Context(), FaultQuery{Names: []string{"web"}})
		if err != nil || len(found) != faults {
			t.Errorf("got %d errors %+v, %v; want %d", len(found), found, err, faults)
		}
		events, err := s.Events(t.Context(), "/p", []string{"web"}, 0)
		if err != nil || len(events) != wantEvents {
			t.Errorf("got %d events %+v, %v; want %d", len(events), events, err, wantEvents)
		}
		var hours int
		err = s.file.ReadDB.QueryRow(`SELECT count(*) FROM fault_hour WHERE fault NOT IN (SELECT id FROM fault)`).Scan(&hours)
		if err != nil || hours != 0 {
			t.Errorf("got %d hourly counts without an error, %v; want none", hours, err)
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
		t.Errorf("other process: got %+v, %v; want its 2 errors", found, err)
	}
}

func TestClearUntilKeepsLaterLines(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range 1000 {
		s.Capture(run, Stdout, start.Add(time.Duration(i)*time.Second), fmt.Appendf(nil, "line %d of the run\n", i+1))
	}
	lines, _, err := s.Clear(t.Context(), "", nil, start.Add(400*time.Second))
	if err != nil || lines != 400 {
		t.Fatalf("got %d lines cleared, %v; want 400", lines, err)
	}
	left := readAll(t, s, Query{})
	wantNumbered(t, left, 401, 1000)
	for i, l := range left {
		if !l.At.Equal(start.Add(time.Duration(400+i) * time.Second)) {
			t.Fatalf("line %d: got time %s, want it unchanged", l.Number, l.At)
		}
	}
	p, err := s.Read(t.Context(), Query{After: CursorStart, Limit: 1})
	if err != nil || len(p.Gaps) != 1 || p.Gaps[0].Lines != 400 {
		t.Fatalf("got gaps %+v, %v; want one of 400 lines", p.Gaps, err)
	}
}

func TestRunsOfKilledServerAreSealed(t *testing.T) {
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
		t.Fatalf("got gaps %+v, %v; want an open one after line %d", p.Gaps, err, len(lines))
	}
	if run := p.Runs[p.Gaps[0].Run]; !run.Lost || run.Session != dead {
		t.Fatalf("got run %+v, want it lost", run)
	}
}
