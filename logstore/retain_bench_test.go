package logstore

import (
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkRetain measures how long retention holds the database's write lock at a time, at most
// about 50 ms, while it removes 100 MB of log and 10,000 short runs and frees their space. Another
// goroutine takes the lock again and again and measures its waits.
func BenchmarkRetain(b *testing.B) {
	const runs = 10_000
	for _, step := range []struct {
		name string
		fill func(b *testing.B, s *Store)
	}{
		{"chunks", func(b *testing.B, s *Store) {
			run := startRun(s, "/p", "chatty")
			fill(b, s, run, time.Now(), 100<<20)
			endRun(s, run)
		}},
		{"short-runs", func(b *testing.B, s *Store) {
			storeShortRuns(b, s, runs)
		}},
	} {
		b.Run(step.name, func(b *testing.B) {
			var waits []time.Duration
			for range b.N {
				b.StopTimer()
				s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
				step.fill(b, s)
				flush(b, s)
				stop, done := make(chan struct{}), make(chan []time.Duration)
				go func() { done <- writerWaits(b, s, stop) }()
				b.StartTimer()
				if err := s.removeOld(b.Context(), time.Now().Add(time.Hour).UnixNano()); err != nil {
					b.Fatal(err)
				}
				if err := s.vacuum(b.Context(), wasteful); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				close(stop)
				waits = append(waits, <-done...)
				_ = s.Close()
			}
			sortDurations(waits)
			b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "writer-waits-ms-p99")
			b.ReportMetric(float64(waits[len(waits)-1].Microseconds())/1000, "writer-waits-ms-max")
		})
	}
}

// writerWaits takes the database's write lock every few milliseconds and returns how long each
// attempt waited.
func writerWaits(b *testing.B, s *Store, stop <-chan struct{}) (all []time.Duration) {
	pace := time.NewTicker(3 * time.Millisecond)
	defer pace.Stop()
	for {
		start := time.Now()
		tx, err := s.file.WriteDB.Begin()
		if err != nil {
			b.Error(err)
			return append(all, 0)
		}
		all = append(all, time.Since(start))
		_ = tx.Rollback()
		select {
		case <-stop:
			return all
		case <-pace.C:
		}
	}
}
