package logstore

import (
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkRetain removes 100 MB of log and 10,000 short runs and gives the space back, while
// somebody asks for the writer again and again: how long it has to wait is how long retention holds
// it. No slice is to take more than 50 ms.
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
			crashAgain(b, s, runs)
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

// writerWaits takes the writer every few milliseconds, and gives how long it had to wait each time.
func writerWaits(b *testing.B, s *Store, stop <-chan struct{}) (all []time.Duration) {
	pace := time.NewTicker(3 * time.Millisecond)
	defer pace.Stop()
	for {
		start := time.Now()
		tx, err := s.file.write.Begin()
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
