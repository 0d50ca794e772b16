package logstore

import (
	"bytes"
	"testing"
	"time"
)

// awaitFilters waits until every chunk in the file has its filter.
func awaitFilters(t testing.TB, s *Store) {
	t.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(20 * time.Second)
	for {
		flush(t, s)
		missing, err := chunksWithoutFilter(t.Context(), s.file.read)
		if err != nil {
			t.Fatal(err)
		}
		if len(missing) == 0 {
			break
		}
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("%d chunks are without a filter", len(missing))
		}
	}
}

// TestTheWorkerFiltersEveryChunk writes more at once than the worker's queue takes, and waits until
// the file has all filters.
func TestTheWorkerFiltersEveryChunk(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	checkError(t, putAll(s, run, 1, 400_000))
	endRun(s, run)
	flush(t, s)
	awaitFilters(t, s)
	m, err := s.Search(t.Context(), SearchQuery{Text: "not in the log", MaxTime: time.Minute})
	if err != nil || m.Lines != 400_000 || m.ReadBytes > 2*chunkBytes {
		t.Errorf("covered %d lines, read %d bytes, %v", m.Lines, m.ReadBytes, err)
	}
}

func TestAFilterIsBuiltAtOnceWhenTheWorkerDoesNotKeepUp(t *testing.T) {
	s := &Store{filters: filterCache{limit: filterCacheBytes}, kick: make(chan struct{}, 1), filterJobs: make(chan filterJob)}
	c := newChunk(0, 1, 0)
	c.append(bytes.Repeat([]byte("x"), filterMinText), 0, 0, &s.pool)
	s.offerFilter(1, c)
	first, _ := rowRange(1)
	if s.filters.bits[first] == nil || len(s.takeFilters()) != 1 || s.filterBacklog.Load() {
		t.Fatal("the chunk has no filter, so every search reads it")
	}
	if n := c.refs.Load(); n != 1 {
		t.Fatalf("the chunk is held by %d", n)
	}
}
