package logstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/logstore/match"
	"pmcp/process/proctest"
)

// awaitFilters waits until every chunk in the file has its filter for searches.
func awaitFilters(t testing.TB, s *Store) {
	t.Helper()
	proctest.Await(t, "a filter of every chunk", func() bool {
		flush(t, s)
		missing, err := chunksWithoutFilter(t.Context(), s.file.ReadDB, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return len(missing) == 0
	})
}

// TestChunksAreStoredWithTheirFilters checks that a search needs no maintenance to skip chunks.
func TestChunksAreStoredWithTheirFilters(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	checkError(t, putAll(s, run, 1, 400_000))
	endRun(s, run)
	flush(t, s)
	missing, err := chunksWithoutFilter(t.Context(), s.file.ReadDB, 1)
	if err != nil || len(missing) > 0 {
		t.Errorf("got chunks %v without a filter, %v; want none", missing, err)
	}
	m, err := s.Search(t.Context(), SearchQuery{Text: "not in the log", MaxTime: time.Minute})
	if err != nil || m.Lines != 400_000 || m.ReadBytes > 2*chunkBytes {
		t.Errorf("got %d lines covered and %d bytes read, %v; want %d lines and at most %d bytes", m.Lines, m.ReadBytes, err, 400_000, 2*chunkBytes)
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
		m := &maintainer{storage: &storage{}, filters: &filterCache{limit: filterCacheBytes, searched: make(chan struct{}, 1)}}
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
