package logstore

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
)

// awaitFilters waits until every chunk in the file has its filter for searches.
func awaitFilters(t testing.TB, s *Store) {
	t.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(2 * time.Minute)
	for {
		flush(t, s)
		missing, err := chunksWithoutFilter(t.Context(), s.file.ReadDB, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(missing) == 0 {
			break
		}
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("got %d chunks without a filter after two minutes, want none", len(missing))
		}
	}
}

// TestWorkerBuildsEveryFilter stores more chunks of lines at once than the queue for building
// search filters holds, and checks that every chunk still gets its filter.
func TestWorkerBuildsEveryFilter(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	checkError(t, putAll(s, run, 1, 400_000))
	endRun(s, run)
	flush(t, s)
	awaitFilters(t, s)
	m, err := s.Search(t.Context(), SearchQuery{Text: "not in the log", MaxTime: time.Minute})
	if err != nil || m.Lines != 400_000 || m.ReadBytes > 2*chunkBytes {
		t.Errorf("got %d lines covered and %d bytes read, %v; want %d lines and at most %d bytes", m.Lines, m.ReadBytes, err, 400_000, 2*chunkBytes)
	}
}

func TestChunkFilterIsBuiltByCallerWhenQueueIsFull(t *testing.T) {
	m := &maintainer{
		storage: &storage{}, flushQueue: newFlushQueue(), captures: &captureTable{}, filters: &filterCache{limit: filterCacheBytes}, filterJobs: make(chan filterJob),
	}
	c := newChunk(0, 1, 0)
	c.append(bytes.Repeat([]byte("x"), match.FilterMinText), 0, 0, &m.captures.pool)
	m.queueFilter(1, c, &match.FilterBuilder{})
	first, _ := db.RowRange(1)
	if m.filters.bits[first] == nil || len(m.drainFilters()) != 1 || m.filterBacklog.Load() {
		t.Fatal("got no filter of the chunk, want one built at once")
	}
	if n := c.refs.Load(); n != 1 {
		t.Fatalf("got %d references to the chunk, want 1", n)
	}
}

// TestBuiltFilterReplacesOne puts a filter that was just built into a cache that a search has filled beyond the bound
// for built ones.
func TestBuiltFilterReplacesOne(t *testing.T) {
	c := &filterCache{limit: 5 * match.FilterBytes}
	for id := range int64(7) {
		c.put(id, []byte{1}, c.limit)
	}
	for id := int64(7); id < 10; id++ {
		if c.put(id, []byte{1}, 2*match.FilterBytes); len(c.bits) != 5 || c.get(id) == nil {
			t.Fatalf("got filters %v after filter %d, want 5 with it", c.bits, id)
		}
	}
}

func TestFiltersAreForgottenAfterSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m := &maintainer{storage: &storage{}, flushQueue: newFlushQueue(), filters: &filterCache{limit: filterCacheBytes, searched: make(chan struct{}, 1)}}
		go m.run(ctx)
		const most = builtCacheBytes / match.FilterBytes
		want := func(n int) {
			t.Helper()
			synctest.Wait()
			m.filters.mu.Lock()
			defer m.filters.mu.Unlock()
			if len(m.filters.bits) != n {
				t.Fatalf("got %d filters, want %d", len(m.filters.bits), n)
			}
		}
		for id := range int64(3 * most) {
			m.filters.put(id, nil, filterCacheBytes)
		}
		for range 3 {
			m.filters.prune(nil, []uint32{1})
			time.Sleep(filterIdle - time.Nanosecond)
			want(3 * most)
		}
		time.Sleep(time.Nanosecond)
		want(most)
	})
}
