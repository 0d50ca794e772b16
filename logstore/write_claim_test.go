package logstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"

	"pmcp/process/proctest"
)

// TestRunNumbersAreUniqueAcrossServers starts runs of one process name in two servers, both in
// turns and concurrently, and checks that each run gets a number of its own.
func TestRunNumbersAreUniqueAcrossServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	stores := []*Store{openTest(t, Options{Path: path, Session: "one"}), openTest(t, Options{Path: path, Session: "two"})}
	for _, s := range stores {
		s.reserveWait = time.Minute
	}
	for want := 1; want <= 6; want++ {
		if _, n, _ := stores[want%2].NewRun("/p", "web"); n != want {
			t.Errorf("in turns: got number %d, want %d", n, want)
		}
	}
	const each = 10
	var mu sync.Mutex
	var got []int
	var starts sync.WaitGroup
	for _, s := range stores {
		for range each {
			starts.Go(func() {
				_, n, _ := s.NewRun("/p", "api")
				mu.Lock()
				defer mu.Unlock()
				got = append(got, n)
			})
		}
	}
	starts.Wait()
	slices.Sort(got)
	if all := slices.Compact(slices.Clone(got)); len(all) != 2*each {
		t.Errorf("at once: got %v, want %d different numbers", got, 2*each)
	}
}

// TestStartWithBlockedFileWaitsBriefly starts runs while the file cannot be written, and checks
// that a start waits only briefly and that run numbers continue.
func TestStartWithBlockedFileWaitsBriefly(t *testing.T) {
	s := openTest(t, Options{})
	if _, n, _ := s.NewRun("/p", "web"); n != 1 {
		t.Fatalf("got number %d, want 1", n)
	}
	s.reserveWait = time.Millisecond
	held, err := s.file.WriteDB.Conn(t.Context()) // the only connection: the flusher waits for it
	checkError(t, err)
	for want := 2; want <= 4; want++ {
		if _, n, _ := s.NewRun("/p", "web"); n != want {
			t.Errorf("got number %d, want %d", n, want)
		}
	}
	if s.reservePausedUntil.Load() == 0 {
		t.Error("got reservations in the file still on, want them off after a timeout")
	}
	checkError(t, held.Close())
	flush(t, s)
	s.reservePausedUntil.Store(0)
	s.reserveWait = time.Minute
	if _, n, _ := s.NewRun("/p", "web"); n != 5 {
		t.Errorf("after the block: got number %d, want 5", n)
	}
}

// TestConcurrentStartsShareOneTransaction starts many runs while the file is slow, and checks that
// one transaction stores the numbers of all, instead of one for each.
func TestConcurrentStartsShareOneTransaction(t *testing.T) {
	const starts = 20
	s := openTest(t, Options{})
	s.reserveWait = time.Minute
	held, err := s.file.WriteDB.Conn(t.Context()) // the only connection: the flusher waits for it
	checkError(t, err)
	var commits, partial atomic.Int64
	checkError(t, held.Raw(func(conn any) error {
		conn.(*sqlite3.SQLiteConn).RegisterCommitHook(func() int { // run by the flusher, which alone takes from the queue
			commits.Add(1)
			if left := len(s.reservations); left > 0 && left < starts-1 {
				partial.Add(1)
			}
			return 0
		})
		return nil
	}))
	var begun sync.WaitGroup
	for i := range starts {
		begun.Go(func() {
			if _, n, _ := s.NewRun("/p", fmt.Sprint("app", i)); n != 1 {
				t.Errorf("app%d: got number %d, want 1", i, n)
			}
		})
	}
	// The flusher has already taken the first reservation.
	proctest.Await(t, "the others to wait behind the first", func() bool { return len(s.reservations) >= starts-1 })
	checkError(t, held.Close())
	begun.Wait()
	if n := partial.Load(); n > 0 || commits.Load() == 0 {
		t.Errorf("got %d of %d transactions that left waiting starts to the next, want none", n, commits.Load())
	}
}

// TestStartBehindOthersWaitsNoLonger starts a run while other starts are waiting for the file, and
// checks that the new start waits no longer than the first of them.
func TestStartBehindOthersWaitsNoLonger(t *testing.T) {
	s := openTest(t, Options{})
	held, err := s.file.WriteDB.Conn(t.Context())
	checkError(t, err)
	defer held.Close()
	for range maxReservations + 1 { // starts that keep waiting fill the queue
		select {
		case s.reservations <- &reservation{key: processKey{"/p", "patient"}, answer: make(chan claim, 1)}:
		case <-time.After(proctest.Patience):
			proctest.TimedOut(t, "for the flusher to take a reservation")
		}
	}
	s.reserveWait = time.Millisecond
	if _, n, _ := s.NewRun("/p", "web"); n != 1 {
		t.Errorf("got number %d, want 1", n)
	}
	if s.reservePausedUntil.Load() == 0 {
		t.Error("got reservations in the file still on, want them off after a timeout")
	}
}

// TestAbandonedReservationMakesNoRun reserves a run number for a start that has stopped waiting,
// and checks that no run is created.
func TestAbandonedReservationMakesNoRun(t *testing.T) {
	s := openTest(t, Options{})
	r := &reservation{key: processKey{"/p", "web"}, answer: make(chan claim, 1)}
	r.done.Store(true)
	s.reservations <- r
	if got, ok := <-r.answer; ok {
		t.Errorf("got a run %+v, want none", got)
	}
	s.reserveWait = time.Minute
	if _, n, _ := s.NewRun("/p", "web"); n != 1 {
		t.Errorf("got number %d, want 1", n)
	}
}

// TestNameOfOtherServersRunIsRefused checks that NewRun refuses a name while a run of that name in
// another, live server has not ended, even if a later run has ended. The error has that run. If two
// servers claim a name at the same time, only one gets it.
func TestNameOfOtherServersRunIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	var dead atomic.Bool
	open := func(session string) *Store {
		s := openTest(t, Options{Path: path, Session: session, Alive: func(string, string) bool { return !dead.Load() }})
		s.reserveWait = time.Minute
		s.SetNewInfo([]byte(`{"owner":"` + session + `"}`))
		return s
	}
	one, two := open("one"), open("two")
	refused := func(s *Store, run int64, number int) {
		t.Helper()
		var elsewhere *RunsElsewhereError
		if _, _, err := s.NewRun("/p", "web"); !errors.As(err, &elsewhere) || elsewhere.Run.ID != run || elsewhere.Run.Number != number {
			t.Errorf("got %v, want the name refused for run %d", err, number)
		} else if elsewhere.Run.Name != "web" || elsewhere.Run.Own || !elsewhere.Run.Live || string(elsewhere.Run.Info) == "" {
			t.Errorf("got run %+v, want a live one of another server", elsewhere.Run)
		}
	}
	first, _, err := one.NewRun("/p", "web")
	checkError(t, err)
	refused(two, first, 1) // refused although only the name is stored so far
	one.SaveRun(first, time.Now(), time.Time{}, []byte(`{"state":"running"}`))
	flush(t, one)
	refused(two, first, 1)
	two.reservePausedUntil.Store(time.Now().Add(time.Hour).UnixNano()) // a server that cannot reserve numbers in the file still reads the file
	refused(two, first, 1)
	two.reservePausedUntil.Store(0)
	for n, s := range []*Store{one, two} {
		if _, got, err := s.NewSharedRun("/shared", "tool"); got != n+1 || err != nil {
			t.Errorf("shared name: got number %d, %v; want %d", got, err, n+1)
		}
	}
	if _, n, err := two.NewRun("/other", "web"); n != 1 || err != nil {
		t.Errorf("other project: got number %d, %v; want 1", n, err)
	}
	later, n, err := one.NewRun("/p", "web") // NewRun does not guard against runs of the same server; the process manager does
	checkError(t, err)
	endRun(one, later)
	flush(t, one)
	refused(two, first, 1)
	runs, err := two.Runs(t.Context(), RunFilter{Project: "/p", Current: true})
	if err != nil || len(runs) != 1 || runs[0].ID != first || n != 2 {
		t.Errorf("current: got %+v, %v; want run %d", runs, err, first)
	}
	endRun(one, first)
	flush(t, one)
	if runs, err := two.Runs(t.Context(), RunFilter{Project: "/p", Current: true}); err != nil || len(runs) != 1 || runs[0].ID != later {
		t.Errorf("current, after all have ended: got %+v, %v; want run %d", runs, err, later)
	}
	third, n, err := two.NewRun("/p", "web")
	if n != 3 || err != nil {
		t.Fatalf("after its end: got number %d, %v; want 3", n, err)
	}
	refused(one, third, 3)
	dead.Store(true)
	if _, n, err := one.NewRun("/p", "web"); n != 4 || err != nil {
		t.Errorf("after the death of its server: got number %d, %v; want 4", n, err)
	}
	dead.Store(false)

	for i := range 20 {
		var got atomic.Int64
		var starts sync.WaitGroup
		for _, s := range []*Store{one, two} {
			starts.Go(func() {
				if _, _, err := s.NewRun("/p", fmt.Sprint("app", i)); err == nil {
					got.Add(1)
				}
			})
		}
		starts.Wait()
		if n := got.Load(); n != 1 {
			t.Errorf("got %d servers with the name, want 1", n)
		}
	}
}

// TestLateClaimLeavesNoRun commits a claim of a name after its start has stopped waiting, and
// checks that no run is left.
func TestLateClaimLeavesNoRun(t *testing.T) {
	s := openTest(t, Options{})
	r := &reservation{key: processKey{"/p", "web"}, answer: make(chan claim, 1)}
	held, err := s.file.WriteDB.Conn(t.Context()) // the only connection
	checkError(t, err)
	checkError(t, held.Raw(func(conn any) error {
		c, claimed := conn.(*sqlite3.SQLiteConn), false // claimed is set by the claim alone, because other transactions commit too
		c.RegisterUpdateHook(func(op int, _, table string, _ int64) {
			claimed = claimed || op == sqlite3.SQLITE_INSERT && table == "run"
		})
		c.RegisterCommitHook(func() int {
			if claimed {
				r.done.Store(true) // from now on, NewRun does not wait for the claim
			}
			return 0
		})
		return nil
	}))
	checkError(t, held.Close())
	s.reservations <- r
	c, ok := <-r.answer
	if !ok || c.id == 0 {
		t.Fatalf("got claim %+v, %v; want one", c, ok)
	}
	flush(t, s)
	if runs, err := s.Runs(t.Context(), RunFilter{Project: "/p"}); err != nil || len(runs) != 0 {
		t.Errorf("got %+v, %v; want no runs", runs, err)
	}
}
