package logstore

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"
)

// TestNumbersAreSharedOut: servers that run one name, in turns or at once, give
// each run a number of its own.
func TestNumbersAreSharedOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	stores := []*Store{openTest(t, Options{Path: path, Session: "one"}), openTest(t, Options{Path: path, Session: "two"})}
	for _, s := range stores {
		s.reserveWait = time.Minute
	}
	for want := 1; want <= 6; want++ {
		if _, n := stores[want%2].NewRun("/p", "web"); n != want {
			t.Errorf("in turns: number %d, want %d", n, want)
		}
	}
	const each = 10
	var mu sync.Mutex
	var got []int
	var starts sync.WaitGroup
	for _, s := range stores {
		for range each {
			starts.Go(func() {
				_, n := s.NewRun("/p", "api")
				mu.Lock()
				defer mu.Unlock()
				got = append(got, n)
			})
		}
	}
	starts.Wait()
	slices.Sort(got)
	if all := slices.Compact(slices.Clone(got)); len(all) != 2*each {
		t.Errorf("at once: %v", got)
	}
}

// TestNumberWithoutTheFile: a writer that is stuck holds no start up for long,
// and the store goes on counting.
func TestNumberWithoutTheFile(t *testing.T) {
	s := openTest(t, Options{})
	if _, n := s.NewRun("/p", "web"); n != 1 {
		t.Fatalf("number %d", n)
	}
	s.reserveWait = time.Millisecond
	held, err := s.file.write.Conn(t.Context()) // the only one: the flusher waits for it
	checkError(t, err)
	for want := 2; want <= 4; want++ {
		if _, n := s.NewRun("/p", "web"); n != want {
			t.Errorf("number %d, want %d", n, want)
		}
	}
	if s.noReserve.Load() == 0 {
		t.Error("the file is asked although it does not answer")
	}
	checkError(t, held.Close())
	flush(t, s)
	s.noReserve.Store(0)
	s.reserveWait = time.Minute
	if _, n := s.NewRun("/p", "web"); n != 5 {
		t.Errorf("afterwards: number %d, want 5", n)
	}
}

// TestStartsAtOnceWaitTogether: starts that wait for a slow file wait for one transaction, not each for its own.
func TestStartsAtOnceWaitTogether(t *testing.T) {
	const starts = 20
	s := openTest(t, Options{})
	s.reserveWait = time.Minute
	held, err := s.file.write.Conn(t.Context()) // the only one: the flusher waits for it
	checkError(t, err)
	var commits atomic.Int64
	checkError(t, held.Raw(func(conn any) error {
		conn.(*sqlite3.SQLiteConn).RegisterCommitHook(func() int {
			commits.Add(1)
			return 0
		})
		return nil
	}))
	var begun sync.WaitGroup
	for i := range starts {
		begun.Go(func() {
			if _, n := s.NewRun("/p", fmt.Sprint("app", i)); n != 1 {
				t.Errorf("app%d: number %d, want 1", i, n)
			}
		})
	}
	for late := time.Now().Add(20 * time.Second); len(s.reserve) < starts-1 && time.Now().Before(late); { // the flusher has the first
		runtime.Gosched()
	}
	if n := len(s.reserve); n < starts-1 {
		t.Errorf("%d starts wait behind the first, want %d", n, starts-1)
	}
	checkError(t, held.Close())
	begun.Wait()
	if n := commits.Load(); n > 3 { // what is entered is being stored as well
		t.Errorf("%d transactions for %d starts", n, starts)
	}
}

// TestWaitForTheFileEnds: who waits behind others that start waits no longer than who comes first,
// also where the others go on waiting.
func TestWaitForTheFileEnds(t *testing.T) {
	s := openTest(t, Options{})
	held, err := s.file.write.Conn(t.Context())
	checkError(t, err)
	defer held.Close()
	for range maxReservations + 1 { // of starts that have time, and fill the queue
		select {
		case s.reserve <- &reservation{key: processKey{"/p", "patient"}, answer: make(chan reservedRun, 1)}:
		case <-time.After(20 * time.Second):
			t.Fatal("the flusher takes no reservation")
		}
	}
	s.reserveWait = time.Millisecond
	if _, n := s.NewRun("/p", "web"); n != 1 {
		t.Errorf("number %d, want 1", n)
	}
	if s.noReserve.Load() == 0 {
		t.Error("the file is asked although it does not answer")
	}
}

// TestNumberGivenTooLate: a number that nobody waits for any more makes no run.
func TestNumberGivenTooLate(t *testing.T) {
	s := openTest(t, Options{})
	r := &reservation{key: processKey{"/p", "web"}, answer: make(chan reservedRun, 1)}
	r.over.Store(true)
	s.reserve <- r
	if got, ok := <-r.answer; ok {
		t.Errorf("a run %+v", got)
	}
	s.reserveWait = time.Minute
	if _, n := s.NewRun("/p", "web"); n != 1 {
		t.Errorf("number %d, want 1", n)
	}
}
