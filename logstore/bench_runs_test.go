package logstore

import (
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkManyRuns reads the lines after a cursor of a process that has run many times, and the
// end of its log. Both reads list all runs of the process.
func BenchmarkManyRuns(b *testing.B) {
	for _, runs := range []int{1, 10_000} {
		s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
		b.Cleanup(func() { _ = s.Close() })
		storeShortRuns(b, s, runs)
		end, err := s.End(b.Context(), "/p", []string{"crashing"})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint("after/", runs), func(b *testing.B) {
			for b.Loop() {
				if p, err := s.Read(b.Context(), Query{Project: "/p", Names: []string{"crashing"}, After: end}); err != nil || len(p.Lines) != 0 {
					b.Fatalf("%+v, %v", p, err)
				}
			}
		})
		b.Run(fmt.Sprint("end/", runs), func(b *testing.B) {
			for b.Loop() {
				if again, err := s.End(b.Context(), "/p", []string{"crashing"}); err != nil || again != end {
					b.Fatal(again, err)
				}
			}
		})
	}
}
