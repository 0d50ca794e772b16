package logstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// helperFull fills the disk under a Store: it sets the file size limit to the size of the database,
// and later raises the limit again. It prints "pass" or the failure.
func helperFull() int {
	signal.Ignore(unix.SIGXFSZ)
	if err := fullDisk(os.Args[1]); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("pass")
	return 0
}

func fullDisk(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	s, err := Open(ctx, Options{Path: path})
	if err != nil {
		return err
	}
	run := startRun(s, "/p", "web")
	put(s, run, 1, 1000)
	if err := s.Flush(ctx); err != nil {
		return err
	}
	info, err := os.Stat(path + "-wal")
	if err != nil {
		return err
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	small := unix.Rlimit{Cur: uint64(info.Size()), Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &small); err != nil {
		return err
	}
	if err := whileFull(ctx, s, run); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	return afterwards(ctx, s, run)
}

// floodLines is more lines than a run may have pending.
const floodLines = 300_000

// usualTime returns how long a Store in memory takes to capture floodLines lines.
func usualTime(ctx context.Context) (time.Duration, error) {
	s, err := Open(ctx, Options{})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	run := startRun(s, "/p", "a")
	start := time.Now()
	put(s, run, 1001, floodLines)
	return time.Since(start), nil
}

func whileFull(ctx context.Context, s *Store, run int64) error {
	usual, err := usualTime(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	put(s, run, 1001, floodLines)
	if took := time.Since(start); took > roomWait+20*(usual+5*time.Second) {
		return fmt.Errorf("capturing took %s, want about the %s it takes without a file", took, usual)
	}
	if err := s.Flush(ctx); err == nil {
		return errors.New("flush to a full disk: got no error, want one")
	}
	if st := s.Status(); st.State != StateDegraded || st.Reason == "" || st.DroppedLines == 0 || st.PendingBytes > runBound+chunkBytes {
		return fmt.Errorf("got status %+v, want degraded, with dropped lines and bounded pending bytes", st)
	}
	p, err := s.Read(ctx, Query{Newest: true, Limit: 10})
	if err != nil || len(p.Lines) != 10 || p.Lines[9].Number != floodLines {
		return fmt.Errorf("newest lines: got %+v, %w; want 10 up to line %d", p, err, floodLines)
	}
	if p, err = s.Read(ctx, Query{After: CursorStart, Limit: 1000}); err != nil || len(p.Lines) != 1000 || p.Lines[999].Number != 1000 {
		return fmt.Errorf("stored lines: got %+v, %w; want 1000", p, err)
	}
	return nil
}

func afterwards(ctx context.Context, s *Store, run int64) error {
	if err := s.Flush(ctx); err != nil {
		return err
	}
	if st := s.Status(); st.State != StateOK {
		return fmt.Errorf("got status %+v, want OK", st)
	}
	put(s, run, floodLines+1, floodLines+100)
	endRun(s, run)
	if err := s.Close(); err != nil {
		return err
	}
	s, err := Open(ctx, Options{Path: s.file.Path})
	if err != nil {
		return err
	}
	defer s.Close()
	return wholeButGaps(ctx, s, floodLines+100)
}

// wholeButGaps returns an error unless each line up to number last is either stored or in a gap,
// and there is at least one gap.
func wholeButGaps(ctx context.Context, s *Store, last int64) error {
	q := Query{After: CursorStart, Limit: 10_000}
	at, gaps := int64(0), 0
	for {
		p, err := s.Read(ctx, q)
		if err != nil {
			return err
		}
		missing := make(map[int64]int64)
		for _, g := range p.Gaps {
			missing[g.After] = g.Lines
			gaps++
		}
		for _, l := range p.Lines {
			for missing[at] > 0 && l.Number != at+1 { // several gaps may be adjacent
				at += missing[at]
			}
			if l.Number != at+1 || l.Text != fmt.Sprintf("line %d of the run", l.Number) {
				return fmt.Errorf("after line %d and gaps %+v: got line %d (%q), want the next", at, p.Gaps, l.Number, l.Text)
			}
			at = l.Number
		}
		if !p.MoreAfter {
			break
		}
		q.After = p.Next()
	}
	if at != last || gaps == 0 {
		return fmt.Errorf("got %d as the last line and %d gaps, want %d and some", at, gaps, last)
	}
	return nil
}

func TestFullDiskDropsLinesAndRecovers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	h := startHelper(t, "full", path)
	h.await("pass")
	checkFile(t, path)
}

// TestSlowStorageDropsOldestLines captures more than a run may have pending while the flusher is
// blocked, and checks that the run waits for room once, then drops its oldest lines and records how
// many. A run that has room does not wait.
func TestSlowStorageDropsOldestLines(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	run, quiet := startRun(s, "/p", "web"), startRun(s, "/p", "quiet")
	flush(t, s)
	block, err := s.file.WriteDB.Conn(t.Context()) // the only connection: the flusher waits for it
	if err != nil {
		t.Fatal(err)
	}
	memory, err := Open(t.Context(), Options{}) // for comparison: the same captures without storage
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	start := time.Now()
	put(memory, startRun(memory, "/p", "web"), 1, floodLines)
	work := time.Since(start)
	start = time.Now()
	put(s, run, 1, floodLines)
	if took := time.Since(start); took < roomWait || took > 40*(work+roomWait) {
		t.Errorf("capture took %s, want one wait of %s and about %s of work", took, roomWait, work)
	}
	put(s, quiet, 1, 1000)
	r := s.ownRun(quiet)
	r.mu.Lock()
	waited := !r.roomUntil.IsZero()
	r.mu.Unlock()
	if waited {
		t.Error("a run with room: got a wait, want none")
	}
	if n := s.Status().PendingBytes; n > 2*(runBound+batchBytes) {
		t.Errorf("got %d bytes pending, want at most %d", n, 2*(runBound+batchBytes))
	}
	if err := block.Close(); err != nil {
		t.Fatal(err)
	}
	endRun(s, run)
	flush(t, s)
	wantNumbered(t, readAll(t, s, Query{Names: []string{"quiet"}, Limit: 1000}), 1, 1000)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := openTest(t, Options{Path: s.file.Path})
	if _, _, err := again.Clear(t.Context(), "/p", []string{"quiet"}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	p, err := again.Read(t.Context(), Query{Names: []string{"quiet"}, After: CursorStart})
	if err != nil || len(p.Lines) != 0 || len(p.Gaps) != 1 || p.Gaps[0].Lines != 1000 {
		t.Fatalf("after Clear: got %d lines, gaps %+v, %v; want one gap of 1000 lines", len(p.Lines), p.Gaps, err)
	}
	st, err := again.RunStats(t.Context(), run)
	if err != nil || st.Lines+st.DroppedLines != floodLines || st.DroppedLines == 0 {
		t.Fatalf("got stats %+v, %v; want %d lines, some of them dropped", st, err, floodLines)
	}
}

func TestPendingBytesOfAllRunsAreBounded(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lines := make(map[int64]int64)
	for range 9 {
		run := startRun(s, "/p", "web")
		lines[run] = fill(t, s, run, time.Now(), 3_600_000) // about 3.9 MB with metadata: below the bound of one run
	}
	if st := s.Status(); st.PendingBytes > totalBound+chunkBytes || st.PendingBytes < totalBound/2 || st.DroppedLines == 0 {
		t.Fatalf("got %d bytes pending and %d lines dropped, want at most %d bytes and some lines", st.PendingBytes, st.DroppedLines, totalBound+chunkBytes)
	}
	runs, err := s.Runs(t.Context(), RunFilter{})
	if err != nil || len(runs) != len(lines) {
		t.Fatalf("got %d runs, %v; want %d", len(runs), err, len(lines))
	}
	for _, r := range runs {
		st, err := s.RunStats(t.Context(), r.ID)
		if err != nil || st.Lines+st.DroppedLines != lines[r.ID] || st.Lines == 0 {
			t.Errorf("run %d: got %+v, %v; want %d lines, dropped ones included", r.Number, st, err, lines[r.ID])
		}
	}
}

// TestConcurrentCapturesAreLimited captures lines of more runs at once than there are processors,
// and checks that at most as many captures run at a time as there are processors, so that a caller
// waits for few others.
func TestConcurrentCapturesAreLimited(t *testing.T) {
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var working, most atomic.Int64
	count := func(Line) bool { // called during the capture of the line
		n := working.Add(1)
		for most.Load() < n {
			most.Store(n)
		}
		for range 100 {
			runtime.Gosched()
		}
		working.Add(-1)
		return false
	}
	var capturing, waiting sync.WaitGroup
	for i := range 20 * runtime.GOMAXPROCS(0) {
		run := startRun(s, "/p", fmt.Sprint("web-", i))
		w := &lineWaiter{match: count, found: make(chan Line, 1), ended: make(chan struct{})}
		s.ownRun(run).addWaiter(w, 0)
		waiting.Go(func() { <-w.ended })
		capturing.Go(func() {
			put(s, run, 1, 50)
			endRun(s, run)
		})
	}
	capturing.Wait()
	waiting.Wait()
	if n := most.Load(); n > int64(runtime.GOMAXPROCS(0)) || n == 0 {
		t.Errorf("got %d captures at once, want 1 to %d", n, runtime.GOMAXPROCS(0))
	}
}

// TestStatusIsOKWhileConnectionsAreBusy asks for the Store's status while all connections are busy
// with reads, and checks that the status is still OK.
func TestStatusIsOKWhileConnectionsAreBusy(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	s.file.ReadDB.SetMaxOpenConns(1)
	held, err := s.file.ReadDB.Conn(t.Context())
	checkError(t, err)
	if st := s.Status(); st.State != StateOK || st.Reason != "" {
		t.Errorf("got %+v, want OK", st)
	}
	checkError(t, held.Close())
}
