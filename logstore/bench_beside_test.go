package logstore

import (
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// BenchmarkReadBesideWriter measures how long the reads of tail_logs, get_logs and search_logs take beside a writer at
// full speed.
func BenchmarkReadBesideWriter(b *testing.B) {
	benchCorpus()
	reads := map[string]func(s *Store, after string) (string, error){
		"tail": func(s *Store, _ string) (string, error) {
			_, err := s.Read(b.Context(), Query{Project: "/p", Names: []string{"proc3"}, Newest: true})
			return "", err
		},
		"page": func(s *Store, after string) (string, error) {
			p, err := s.Read(b.Context(), Query{Project: "/p", Names: []string{"proc3"}, After: after})
			if err != nil {
				return "", err
			}
			return p.Next(), nil
		},
		"search": func(s *Store, _ string) (string, error) {
			_, err := s.Search(b.Context(), SearchQuery{Text: rareText})
			return "", err
		},
	}
	for name, read := range reads {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			var wall time.Duration
			for range b.N {
				s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
				stop := make(chan struct{})
				var reading sync.WaitGroup
				reading.Go(func() {
					pace := time.NewTicker(10 * time.Millisecond)
					defer pace.Stop()
					for after := CursorStart; ; {
						select {
						case <-stop:
							return
						case <-pace.C:
						}
						start := time.Now()
						next, err := read(s, after)
						if err != nil {
							b.Error(err)
							return
						}
						after = next
						took = append(took, time.Since(start))
					}
				})
				start := time.Now()
				ingest(b, s)
				wall += time.Since(start)
				close(stop)
				reading.Wait()
				_ = s.Close()
			}
			sortDurations(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(len(took)), "reads")
			b.ReportMetric(float64(benchCorpus().lines)*float64(b.N)/wall.Seconds(), "lines/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
