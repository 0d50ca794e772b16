package logstore

import (
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkGrowth measures reads of a Store that has much of one thing, beside the same reads of a Store that has
// little of it, which are the baseline.
func BenchmarkGrowth(b *testing.B) {
	for _, runs := range []int{100, 10_000} {
		s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
		b.Cleanup(func() { _ = s.Close() })
		storeShortRuns(b, s, runs)
		search := func(name string, q SearchQuery) {
			b.Run(fmt.Sprintf("search-%s/runs-%d", name, runs), func(b *testing.B) {
				for b.Loop() {
					if _, err := s.Search(b.Context(), q); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		search("absent", SearchQuery{Text: absentText, Query: Query{Project: "/p"}})
		search("regexp", SearchQuery{Text: "^no", Regexp: true, Query: Query{Project: "/p", Names: []string{"crashing"}}})
		search("all", SearchQuery{Text: "li", CountOnly: true, Query: Query{Project: "/p"}})
	}
	for _, names := range []int{10, 1000} {
		s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
		b.Cleanup(func() { _ = s.Close() })
		storeNames(b, s, names)
		measure := func(name string, do func() error) {
			b.Run(fmt.Sprintf("%s/names-%d", name, names), func(b *testing.B) {
				for b.Loop() {
					if err := do(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		measure("list", func() error {
			_, err := s.Runs(b.Context(), RunFilter{Project: "/p", Current: true})
			return err
		})
		measure("one", func() error {
			_, err := s.Runs(b.Context(), RunFilter{Project: "/p", Names: []string{"name3"}, Current: true})
			return err
		})
		measure("known", func() error {
			_, err := s.ProcessNames(b.Context(), "/p", []string{"name3"})
			return err
		})
		measure("tail", func() error {
			_, err := s.Read(b.Context(), Query{Project: "/p", Names: []string{"name3"}, Latest: true, Newest: true})
			return err
		})
	}
}

// storeNames stores processes, each with a definition and a run of a few lines.
func storeNames(t testing.TB, s *Store, names int) {
	t.Helper()
	for i := range names {
		name := fmt.Sprint("name", i)
		s.SaveDefinition("/p", name, []byte(`{"command":"sleep"}`))
		run := startRun(s, "/p", name)
		put(s, run, 1, 3)
		endRun(s, run)
		if i%500 == 0 {
			flush(t, s)
		}
	}
	flush(t, s)
}
