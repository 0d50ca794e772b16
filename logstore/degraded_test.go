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

// helperFull fills the disk under a Store: the largest size of a file is set to what the database
// has, and later raised again. It prints "pass", or what was wrong.
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

// floodLines are more than a run may have pending.
const floodLines = 300_000

// usualTime is what it takes to capture as many lines where no file is in the way.
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
	if took := time.Since(start); took > roomWait+20*(usual+time.Second) {
		return fmt.Errorf("capturing took %s, and %s without a file", took, usual)
	}
	if err := s.Flush(ctx); err == nil {
		return errors.New("a flush to a full disk succeeded")
	}
	if st := s.Status(); st.State != StateDegraded || st.Reason == "" || st.DroppedLines == 0 || st.PendingBytes > runBound+chunkBytes {
		return fmt.Errorf("status %+v", st)
	}
	p, err := s.Read(ctx, Query{Newest: true, Limit: 10})
	if err != nil || len(p.Lines) != 10 || p.Lines[9].Number != floodLines {
		return fmt.Errorf("the last lines cannot be read: %w", errors.Join(err, errors.New("or are not those")))
	}
	if p, err = s.Read(ctx, Query{After: CursorStart, Limit: 1000}); err != nil || len(p.Lines) != 1000 || p.Lines[999].Number != 1000 {
		return fmt.Errorf("what was stored cannot be read: %w", errors.Join(err, errors.New("or are not those")))
	}
	return nil
}

func afterwards(ctx context.Context, s *Store, run int64) error {
	if err := s.Flush(ctx); err != nil {
		return err
	}
	if st := s.Status(); st.State != StateOK {
		return fmt.Errorf("status %+v", st)
	}
	put(s, run, floodLines+1, floodLines+100)
	endRun(s, run)
	if err := s.Close(); err != nil {
		return err
	}
	s, err := Open(ctx, Options{Path: s.file.path})
	if err != nil {
		return err
	}
	defer s.Close()
	return wholeButGaps(ctx, s, floodLines+100)
}

// wholeButGaps tells whether each line up to last is either there or in a gap.
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
			for missing[at] > 0 && l.Number != at+1 { // gaps of several drops may follow each other
				at += missing[at]
			}
			if l.Number != at+1 || l.Text != fmt.Sprintf("line %d of the run", l.Number) {
				return fmt.Errorf("line %d (%q) follows line %d; gaps %+v", l.Number, l.Text, at, p.Gaps)
			}
			at = l.Number
		}
		if !p.MoreAfter {
			break
		}
		q.After = p.Next()
	}
	if at != last || gaps == 0 {
		return fmt.Errorf("the last line is %d, want %d; %d gaps", at, last, gaps)
	}
	return nil
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	h := startHelper(t, "full", path)
	h.await("pass")
	checkFile(t, path)
}

func TestSlowStorageDropsTheOldestAndSaysSo(t *testing.T) {
	s := openTest(t, Options{})
	run, quiet := startRun(s, "/p", "web"), startRun(s, "/p", "quiet")
	flush(t, s)
	block, err := s.file.write.Conn(t.Context()) // the one connection: the flusher waits for it
	if err != nil {
		t.Fatal(err)
	}
	memory, err := Open(t.Context(), Options{}) // the same without anything to wait for
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	start := time.Now()
	put(memory, startRun(memory, "/p", "web"), 1, floodLines)
	work := time.Since(start)
	start = time.Now()
	put(s, run, 1, floodLines)
	if took := time.Since(start); took < roomWait || took > 20*(work+roomWait) {
		t.Errorf("capture took %s; it is to wait once for %s, and the work takes about %s", took, roomWait, work)
	}
	put(s, quiet, 1, 1000)
	r := s.ownRun(quiet)
	r.mu.Lock()
	waited := !r.roomUntil.IsZero()
	r.mu.Unlock()
	if waited {
		t.Error("a run with room waits for it")
	}
	if n := s.Status().PendingBytes; n > 2*(runBound+batchBytes) {
		t.Errorf("%d bytes are pending", n)
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
	again := openTest(t, Options{Path: s.file.path})
	if _, _, err := again.Clear(t.Context(), "/p", []string{"quiet"}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	p, err := again.Read(t.Context(), Query{Names: []string{"quiet"}, After: CursorStart})
	if err != nil || len(p.Lines) != 0 || len(p.Gaps) != 1 || p.Gaps[0].Lines != 1000 {
		t.Fatalf("%d lines, gaps %+v, %v", len(p.Lines), p.Gaps, err)
	}
	st, err := again.RunStats(t.Context(), run)
	if err != nil || st.Lines+st.DroppedLines != floodLines || st.DroppedLines == 0 {
		t.Fatalf("stats %+v, %v", st, err)
	}
}

func TestAllRunsTogetherAreBounded(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lines := make(map[int64]int64)
	for range 9 {
		run := startRun(s, "/p", "web")
		lines[run] = fill(t, s, run, time.Now(), 3_600_000) // about 3.9 MB with metadata: under a run's own bound
	}
	if st := s.Status(); st.PendingBytes > totalBound+chunkBytes || st.PendingBytes < totalBound/2 || st.DroppedLines == 0 {
		t.Fatalf("%d bytes are pending, %d lines were dropped", st.PendingBytes, st.DroppedLines)
	}
	runs, err := s.Runs(t.Context(), RunFilter{})
	if err != nil || len(runs) != len(lines) {
		t.Fatal(len(runs), err)
	}
	for _, r := range runs {
		st, err := s.RunStats(t.Context(), r.ID)
		if err != nil || st.Lines+st.DroppedLines != lines[r.ID] || st.Lines == 0 {
			t.Errorf("run %d: %+v, %v", r.Number, st, err)
		}
	}
}

// TestCapturesTakeTurns has more runs print at once than there are processors: no more of them are
// at work at a time, so that who waits for one waits for few.
func TestCapturesTakeTurns(t *testing.T) {
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var working, most atomic.Int64
	look := func(Line) bool { // runs while the line is captured
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
		w := &lineWaiter{match: look, found: make(chan Line, 1), ended: make(chan struct{})}
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
		t.Errorf("%d captures were at work at once on %d processors", n, runtime.GOMAXPROCS(0))
	}
}

// TestStatusWaitsForItsTurn: that all connections read at the moment is no fault of the file.
func TestStatusWaitsForItsTurn(t *testing.T) {
	s := openTest(t, Options{})
	s.file.read.SetMaxOpenConns(1)
	held, err := s.file.read.Conn(t.Context())
	checkError(t, err)
	if st := s.Status(); st.State != StateOK || st.Reason != "" {
		t.Errorf("%+v", st)
	}
	checkError(t, held.Close())
}
