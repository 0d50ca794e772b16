package logstore

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/line"
)

func TestFollowWaitsForALine(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 5)
	end, err := s.End(t.Context(), "/p", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *Page)
	go func() {
		p, err := s.Follow(t.Context(), Query{After: end, MinLevel: line.LevelError})
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	s.Capture(run, Stdout, time.Now(), []byte("nothing\n"))
	s.Capture(run, Stdout, time.Now(), []byte("ERROR now\n"))
	p := <-got
	if len(p.Lines) != 1 || p.Lines[0].Text != "ERROR now" {
		t.Fatalf("got lines %q, want the error alone", texts(p.Lines))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	q := Query{After: p.Next()}
	p, err = s.Follow(ctx, q)
	if err != nil || len(p.Lines) != 0 {
		t.Fatalf("at the deadline: got lines %q, %v; want none", texts(p.Lines), err)
	}
	put(s, run, 8, 8)
	p, err = s.Follow(t.Context(), Query{After: p.Next()})
	if err != nil || len(p.Lines) != 1 || p.Lines[0].Number != 8 {
		t.Fatalf("after the deadline: got lines %q, %v; want line 8", texts(p.Lines), err)
	}
}

// TestCancelledFollowReturnsExistingLines cancels the context before Follow can have read anything,
// and checks that Follow still returns the existing lines and the cursor.
func TestCancelledFollowReturnsExistingLines(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 5)
	flush(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := s.Follow(ctx, Query{After: "start"})
	if err != nil || len(p.Lines) != 5 {
		t.Fatalf("got %+v, %v; want 5 lines", p, err)
	}
	end := p.Next()
	p, err = s.Follow(ctx, Query{After: end})
	if err != nil || len(p.Lines) != 0 || p.Next() != end {
		t.Errorf("at the end: got %+v, %v; want no lines and the same cursor", p, err)
	}
}

func TestFollowReturnsLinesOfLaterRuns(t *testing.T) {
	s := openTest(t, Options{})
	end, err := s.End(t.Context(), "/p", []string{"web"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		got := make(chan *Page)
		go func() {
			p, err := s.Follow(t.Context(), Query{Project: "/p", Names: []string{"web"}, After: end})
			if err != nil {
				t.Error(err)
			}
			got <- p
		}()
		put(s, startRun(s, "/p", "other"), 1, 1)
		run := startRun(s, "/p", "web")
		put(s, run, 1, 1)
		p := <-got
		if len(p.Lines) != 1 || p.Lines[0].Run != run {
			t.Fatalf("round %d: got %q, want a line of run %d", n, texts(p.Lines), run)
		}
		end = p.Next()
		endRun(s, run)
		flush(t, s)
	}
}

// TestLineWakesAllFollowers checks that a new line ends every waiting Follow, also if the run that
// prints the line began after the wait.
func TestLineWakesAllFollowers(t *testing.T) {
	s := openTest(t, Options{})
	var watchers []*watcher
	for range 3 {
		w := s.watch(func(r *runLog) bool { return r.matches("/p", []string{"web"}, nil) })
		defer s.unwatch(w)
		watchers = append(watchers, w)
	}
	run := startRun(s, "/p", "web")
	for _, w := range watchers {
		<-w.signal
	}
	put(s, run, 1, 1)
	for i, w := range watchers {
		select {
		case <-w.signal:
		default:
			t.Errorf("follower %d: got no signal, want one", i)
		}
	}
}

func TestWaitLineFindsStoredAndLaterLines(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 5000)
	flush(t, s)
	has := func(text string) func(Line) bool {
		return func(l Line) bool { return strings.Contains(l.Text, text) }
	}
	l, err := s.WaitLine(t.Context(), run, 0, has("line 77 "))
	if err != nil || l.Number != 77 {
		t.Fatalf("got %+v, %v; want line 77", l, err)
	}
	found := make(chan Line)
	go func() {
		l, err := s.WaitLine(t.Context(), run, 77, has("ready"))
		if err != nil {
			t.Error(err)
		}
		found <- l
	}()
	s.Capture(run, Stderr, time.Now(), []byte("not yet\nserver ready"))
	s.Capture(run, Stderr, time.Now(), nil)
	if l := <-found; l.Number != 5002 || l.Stream != Stderr || !l.Partial {
		t.Fatalf("got %+v, want the partial line 5002 of stderr", l)
	}
	ended := make(chan error)
	go func() {
		_, err := s.WaitLine(t.Context(), run, 0, has("never"))
		ended <- err
	}()
	endRun(s, run)
	if err := <-ended; !errors.Is(err, ErrEnded) {
		t.Fatalf("waiting at the end: got %v, want ErrEnded", err)
	}
	flush(t, s)
	if _, err := s.WaitLine(t.Context(), run, 0, has("never")); !errors.Is(err, ErrEnded) {
		t.Fatalf("waiting after the end: got %v, want ErrEnded", err)
	}
	if l, err := s.WaitLine(t.Context(), run, 0, has("server")); err != nil || l.Number != 5002 {
		t.Fatalf("after the end: got %+v, %v; want line 5002", l, err)
	}
	if _, err := s.WaitLine(t.Context(), 12345, 0, has("x")); !errors.Is(err, ErrUnknownRun) {
		t.Fatalf("unknown run: got %v, want ErrUnknownRun", err)
	}
}

func TestWaitLineFindsLineOfOtherServersRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	const other = "22222222-2222-4222-8222-222222222222"
	h := startHelper(t, "write", path, other, "b", "0")
	h.await("open")
	s := openTest(t, Options{Path: path, Alive: func(_, id string) bool { return id == other }})
	p, err := s.Follow(t.Context(), Query{After: CursorStart})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.WaitLine(t.Context(), p.Lines[0].Run, 0, func(l Line) bool { return l.Number == 1500 })
	if err != nil || l.Text != "line 1500 of the run" {
		t.Fatalf("got %+v, %v; want line 1500", l, err)
	}
	_ = h.stdin.Close()
	h.await("done")
	if _, err := s.WaitLine(t.Context(), l.Run, 0, func(Line) bool { return false }); !errors.Is(err, ErrEnded) {
		t.Fatalf("after the end: got %v, want ErrEnded", err)
	}
}

func TestCloseEndsWaitsAndReads(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 1)
	end, err := s.End(t.Context(), "/p", nil)
	if err != nil {
		t.Fatal(err)
	}
	errs, waits := make(chan error), make(chan struct{})
	go func() {
		_, err := s.Follow(context.Background(), Query{After: end})
		errs <- err
	}()
	go func() {
		_, err := s.WaitLine(context.Background(), run, 0, func(Line) bool {
			close(waits) // WaitLine has read the existing lines and is the first to see the end of the capture
			return false
		})
		errs <- err
	}()
	<-waits
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	// Close also ends a read that begins afterwards.
	if err := s.withRead(t.Context(), func(context.Context, db.Querier) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("read: got %v, want ErrClosed", err)
	}
}
