package logstore

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// sizeOf returns the size of all files in the directory.
func sizeOf(t testing.TB, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // on an error, the file was removed
			n += info.Size()
		}
	}
	return n
}

// flood lets several runs of each server print as fast as they can until they have printed the
// given number of bytes. It returns the peak size of the directory, measured after every thousand
// lines.
func flood(t *testing.T, bytes int64, servers ...*Store) int64 {
	t.Helper()
	dir := filepath.Dir(servers[0].opts.Path)
	var printed, peak atomic.Int64
	measure := func() {
		for size := sizeOf(t, dir); ; {
			if most := peak.Load(); size <= most || peak.CompareAndSwap(most, size) {
				return
			}
		}
	}
	var floods sync.WaitGroup
	for _, s := range servers {
		for i := range 2 {
			run := startRun(s, "/p", fmt.Sprintf("chatty%d", i))
			floods.Go(func() {
				for printed.Load() < bytes {
					lines := []byte(noise(21_000))
					for i := 20; i < len(lines); i += 21 {
						lines[i] = '\n'
					}
					s.Capture(run, Stdout, time.Now(), lines)
					printed.Add(int64(len(lines)))
					measure()
				}
			})
		}
	}
	floods.Wait()
	for _, s := range servers {
		flush(t, s)
		measure()
	}
	return peak.Load()
}

// TestSizeLimitHoldsInFlood checks that the directory stays within the size limit during a flood of
// lines, after it and at rest, with any number of servers, and that the newest lines are kept.
func TestSizeLimitHoldsInFlood(t *testing.T) {
	proctest.Long(t, "load")
	for _, c := range []struct {
		mb      int64
		servers int
	}{{1, 1}, {2, 1}, {5, 1}, {5, 2}, {10, 1}} {
		t.Run(fmt.Sprintf("%d MB, %d servers", c.mb, c.servers), func(t *testing.T) {
			size := c.mb * 1e6
			path := filepath.Join(t.TempDir(), "pmcp.db")
			var servers []*Store
			for range c.servers {
				servers = append(servers, openTest(t, Options{Path: path, MaxBytes: size, Alive: func(string, string) bool { return true }}))
			}
			peak := flood(t, 5e6+size*3/2, servers...)
			if limit := size + size/10; peak > limit {
				t.Errorf("got a peak of %d bytes, want at most %d", peak, limit)
			}
			t.Log("peak", peak)
			// Lines of the flood may have been dropped in memory. The following lines are not.
			fill(t, servers[0], startRun(servers[0], "/p", "steady"), time.Now(), int(size*3/2))
			run := startRun(servers[0], "/p", "last")
			put(servers[0], run, 1, 500)
			endRun(servers[0], run)
			flush(t, servers[0])
			quiet := startRun(servers[0], "/p", "quiet")
			for n := range 50 { // many small transactions must not take extra room
				put(servers[0], quiet, n+1, n+1)
				flush(t, servers[0])
			}
			if c.mb > 1 { // below, empty tables leave room for two chunks only
				wantNumbered(t, readAll(t, servers[0], Query{Runs: []int64{run}}), 1, 500)
			}
			for _, s := range servers {
				checkError(t, s.Close())
			}
			rest := sizeOf(t, filepath.Dir(path))
			t.Log("rest", rest)
			if rest > size || rest < size/2 {
				t.Errorf("after Close: got a directory of %d bytes, want %d to %d", rest, size/2, size)
			}
		})
	}
}

// TestSmallerSizeLimitShrinksDatabase reopens a database with a smaller size limit, and checks that
// retention brings the database within that limit.
func TestSmallerSizeLimitShrinksDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	fill(t, s, startRun(s, "/p", "web"), time.Now(), 12e6)
	checkError(t, s.Close())
	const size = 5e6
	if got := sizeOf(t, filepath.Dir(path)); got < 2*size {
		t.Fatalf("got a directory of %d bytes before the change, want at least %d", got, int64(2*size))
	}
	s = openTest(t, Options{Path: path, MaxBytes: size})
	retain(t, s)
	checkError(t, s.file.EnsureReserve()) // the Store's worker does this next
	checkError(t, s.Close())
	if got := sizeOf(t, filepath.Dir(path)); got > size {
		t.Errorf("got a directory of %d bytes, want at most %d", got, int64(size))
	}
}
