package logstore

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The benchmarks in this file measure queries of a full Store, each beside the same query of an SQL
// table with a row for each line. The lines are those of the other benchmarks.

func BenchmarkQuery(b *testing.B) {
	rs, s, runs := filled(b)
	rows := func(name, query string, args ...any) {
		b.Run(name+"/rows", func(b *testing.B) {
			for range b.N {
				r, err := rs.db.Query(query, args...)
				if err != nil {
					b.Fatal(err)
				}
				for r.Next() {
					var text sql.RawBytes
					if err := r.Scan(&text); err != nil {
						b.Fatal(err)
					}
				}
				_ = r.Close()
			}
		})
	}
	search := func(name string, q SearchQuery) {
		q.MaxTime = time.Minute
		b.Run(name+"/store", func(b *testing.B) {
			var count int64
			for range b.N {
				m, err := s.Search(b.Context(), q)
				if err != nil {
					b.Fatal(err)
				}
				count = m.Count
			}
			b.ReportMetric(float64(count), "hits")
		})
	}
	like := func(text string) string { return "%" + text + "%" }
	const byLike = `SELECT text FROM log WHERE text LIKE ? ORDER BY id DESC`
	for _, c := range []struct{ name, text string }{{"absent", absentText}, {"rare", rareText}} {
		rows(c.name, byLike, like(c.text))
		search(c.name, SearchQuery{Text: c.text, CaseSensitive: true})
		search(c.name+"-nocase", SearchQuery{Text: strings.ToUpper(c.text)})
	}
	rows("common-100", byLike+` LIMIT 100`, like(commonText))
	search("common-100", SearchQuery{Text: commonText, Query: Query{Limit: 100}})
	rows("common-count", `SELECT count(*) FROM log WHERE text LIKE ?`, like(commonText))
	search("common-count", SearchQuery{Text: commonText, CountOnly: true})
	rows("regexp-no-literal", `SELECT count(*) FROM log WHERE text REGEXP ?`, looseExpr)
	search("regexp-no-literal", SearchQuery{Text: looseExpr, Regexp: true, CaseSensitive: true, CountOnly: true})
	search("regexp-literal", SearchQuery{Text: `panic: .* address`, Regexp: true, CaseSensitive: true})

	rows("tail-100", `SELECT text FROM log WHERE id BETWEEN 3 << 40 AND 4 << 40 ORDER BY id DESC LIMIT 100`)
	b.Run("tail-100/store", func(b *testing.B) {
		for range b.N {
			if p, err := s.Read(b.Context(), Query{Project: "/p", Names: []string{"proc3"}, Latest: true, Newest: true}); err != nil || len(p.Lines) != 100 {
				b.Fatal(err)
			}
		}
	})
	b.Run("tail-100-of-all/store", func(b *testing.B) {
		for range b.N {
			if p, err := s.Read(b.Context(), Query{Newest: true}); err != nil || len(p.Lines) != 100 {
				b.Fatal(err)
			}
		}
	})
	var after int64
	b.Run("page-100/rows", func(b *testing.B) {
		for range b.N {
			after = rs.page(b, max(after, 3<<40), 4<<40)
		}
	})
	b.Run("page-100/store", func(b *testing.B) {
		q := Query{Names: []string{"proc3"}, After: CursorStart}
		for range b.N {
			p, err := s.Read(b.Context(), q)
			if err != nil {
				b.Fatal(err)
			}
			if q.After = p.Next(); !p.MoreAfter {
				q.After = CursorStart
			}
		}
	})
	rows("count-by-level", `SELECT level || ' ' || count(*) FROM log WHERE id BETWEEN 3 << 40 AND 4 << 40 GROUP BY level`)
	b.Run("count-by-level/store", func(b *testing.B) {
		for range b.N {
			if _, err := s.RunStats(b.Context(), runs[3]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("reopen/rows", func(b *testing.B) {
		path := filepath.Join(filepath.Dir(s.file.Path), "rows.db")
		for range b.N {
			again := openRows(b, path)
			again.page(b, 3<<40, 4<<40)
			b.StopTimer()
			_ = again.db.Close()
			b.StartTimer()
		}
	})
	b.Run("reopen/store", func(b *testing.B) {
		path := s.file.Path
		for range b.N {
			again := openBench(b, path)
			if p, err := again.Read(b.Context(), Query{Project: "/p", Names: []string{"proc3"}, Newest: true}); err != nil || len(p.Lines) != 100 {
				b.Fatal(err)
			}
			b.StopTimer()
			_ = again.Close()
			b.StartTimer()
		}
	})
}

// BenchmarkTenMillion measures queries of a file of ten million lines, ten times those of the other
// benchmarks. It takes a minute, so it runs only with LOGSTORE_BENCH_TENMILLION=1.
func BenchmarkTenMillion(b *testing.B) {
	if os.Getenv("LOGSTORE_BENCH_TENMILLION") == "" {
		b.Skip("LOGSTORE_BENCH_TENMILLION is not set")
	}
	s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
	b.Cleanup(func() { _ = s.Close() })
	for range 10 {
		for _, run := range ingest(b, s) {
			endRun(s, run)
		}
	}
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	buildFilters(b, s)
	ask := func(name string, q SearchQuery) {
		b.Run(name, func(b *testing.B) {
			if _, err := s.Search(b.Context(), q); err != nil { // the first search loads the chunks' filters
				b.Fatal(err)
			}
			b.ResetTimer()
			for range b.N {
				if _, err := s.Search(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	ask("absent", SearchQuery{Text: absentText})
	s.reader.filters.limit, s.reader.filters.bits = 16<<20, nil // the baseline: room for half of the filters
	ask("absent-small-cache", SearchQuery{Text: absentText})
	s.reader.filters.limit = filterCacheBytes
	ask("rare", SearchQuery{Text: rareText, Query: Query{Limit: 1000}})
	ask("common-100", SearchQuery{Text: commonText, Query: Query{Limit: 100}})
	b.Run("tail-100", func(b *testing.B) {
		for range b.N {
			if p, err := s.Read(b.Context(), Query{Project: "/p", Names: []string{"proc3"}, Latest: true, Newest: true}); err != nil || len(p.Lines) != 100 {
				b.Fatal(err)
			}
		}
	})
	b.Run("reopen", func(b *testing.B) {
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		for range b.N {
			again := openBench(b, s.file.Path)
			if p, err := again.Read(b.Context(), Query{Project: "/p", Names: []string{"proc3"}, Newest: true}); err != nil || len(p.Lines) != 100 {
				b.Fatal(err)
			}
			b.StopTimer()
			_ = again.Close()
			b.StartTimer()
		}
	})
}
