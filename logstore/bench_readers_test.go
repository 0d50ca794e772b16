package logstore

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	benchReaders = 4
	// readerPairs is the number of pairs of measurements: the writer alone and beside readers.
	readerPairs = 5
)

// BenchmarkReadersAndWriter measures a writer at full speed, alone and beside four searching
// readers. The two measurements take turns at being first, so that a busy machine slows both alike.
// The result is the median loss of speed.
func BenchmarkReadersAndWriter(b *testing.B) {
	benchCorpus()
	var walls, losses, cpus, searches []float64
	for i := range readerPairs * b.N {
		var of [2]spent // the writer's cost alone and beside readers
		for turn := range of {
			with := (turn + i) % 2
			one, slowest := writeBeside(b, with*benchReaders)
			of[with] = one
			if with == 1 {
				searches = append(searches, slowest)
			}
		}
		walls, cpus = append(walls, of[1].wall), append(cpus, of[1].cpu-of[0].cpu)
		losses = append(losses, 1-of[0].wall/of[1].wall)
	}
	wall, lost := median(walls), median(losses)
	b.ReportMetric(1e9/wall, "lines/s")
	b.ReportMetric(1e9/(wall*(1-lost)), "alone-lines/s")
	b.ReportMetric(100*lost, "%-lines/s-lost")
	b.ReportMetric(median(cpus), "cpu-ns/line-of-readers")
	b.ReportMetric(slices.Max(searches), "search-ms-max")
	b.ReportMetric(0, "ns/op")
}

// writeBeside stores the benchmark lines while the given number of readers search. slowest is the
// slowest search in ms.
func writeBeside(b *testing.B, readers int) (one spent, slowest float64) {
	s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
	defer func() { _ = s.Close() }()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range readers {
		wg.Go(func() {
			ms := searchUntil(b, s, stop)
			mu.Lock()
			defer mu.Unlock()
			slowest = max(slowest, ms)
		})
	}
	lines := float64(benchCorpus().lines)
	wall, used := time.Now(), cpu()
	ingest(b, s)
	one = spent{float64(time.Since(wall)) / lines, float64(cpu()-used) / lines}
	close(stop)
	wg.Wait()
	return one, slowest
}

// searchUntil searches ten times a second until stop is closed, and returns the time of the slowest
// search in ms.
func searchUntil(b *testing.B, s *Store, stop <-chan struct{}) (slowest float64) {
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-stop:
			return slowest
		case <-pace.C:
		}
		start := time.Now()
		if _, err := s.Search(b.Context(), SearchQuery{Text: rareText}); err != nil {
			b.Error(err)
			return slowest
		}
		slowest = max(slowest, float64(time.Since(start).Microseconds())/1000)
	}
}
