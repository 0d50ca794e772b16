package logstore

import (
	"testing"
	"time"
)

// TestTheWorkerFiltersEveryChunk writes more at once than the worker's queue takes, and waits until the file has all filters.
func TestTheWorkerFiltersEveryChunk(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 400_000)
	endRun(s, run)
	flush(t, s)
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
	m, err := s.Search(t.Context(), SearchQuery{Text: "not in the log"})
	if err != nil || m.Lines != 400_000 || m.ReadBytes > 2*chunkBytes {
		t.Errorf("covered %d lines, read %d bytes, %v", m.Lines, m.ReadBytes, err)
	}
}
