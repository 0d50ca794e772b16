package logstore

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
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
