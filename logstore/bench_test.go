package logstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/logstore/line"
)

// The benchmarks compare a Store with an SQL database that has a row for each line: a prepared
// statement, 1000 rows in a transaction, LIKE. LOGSTORE_BENCH_LINES changes the number of lines.

const (
	rareText   = "invalid memory address" // in 10 lines
	commonText = "GET /api/"              // in a tenth of the lines
	absentText = "segfault in libssl.so"
	looseExpr  = `[0-9]+ms req=[0-9a-f]{8}$` // has no literal that is selective enough to search for
)

// benchRead is the result of one read of a process's output.
type benchRead struct {
	process int
	data    []byte
}

// benchCorpus returns the input of all benchmarks, generated once.
var benchCorpus = sync.OnceValue(func() (c struct {
	reads []benchRead
	lines int
	bytes int64
}) {
	c.lines = 1_000_000
	if n, err := strconv.Atoi(os.Getenv("LOGSTORE_BENCH_LINES")); err == nil {
		c.lines = n
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for made := 0; made < c.lines; {
		p := int(rnd.ExpFloat64()*4) % 20
		var b []byte
		for range min(1+rnd.IntN(40), c.lines-made) {
			b = benchLine(b, rnd, made, c.lines)
			made++
		}
		c.reads = append(c.reads, benchRead{p, b})
		c.bytes += int64(len(b))
	}
	return c
})

func benchLine(b []byte, rnd *rand.Rand, i, lines int) []byte {
	if i%(lines/10) == lines/20 {
		return append(b, "panic: runtime error: "+rareText+" or nil pointer dereference\n"...)
	}
	switch k := rnd.IntN(100); {
	case k < 10:
		return fmt.Appendf(b, "127.0.0.1 - - [05/Jan/2026:10:00:%02d] \"%susers/%d HTTP/1.1\" 200 %d \"-\" \"curl/8.5.0 (x86_64-pc-linux-gnu)\"\n", i%60, commonText, rnd.IntN(1e6), rnd.IntN(9000))
	case k < 40:
		return fmt.Appendf(b, `{"level":"info","time":%d,"msg":"request completed","method":"POST","status":%d,"id":"%08x"}`+"\n", 1767600000000+i, 200+rnd.IntN(5), rnd.Uint32())
	case k < 70:
		return fmt.Appendf(b, "2026-01-05T10:00:00.%06dZ INFO  worker-%d processed job %d of batch %d in %dms req=%08x\n", i%1e6, rnd.IntN(32), rnd.IntN(1e6), rnd.IntN(1000), rnd.IntN(900), rnd.Uint32())
	case k < 90:
		return fmt.Appendf(b, "[vite] hmr update /src/components/Panel%d.tsx, /src/styles/main.css?direct x%d (%d modules transformed)\n", rnd.IntN(100), rnd.IntN(9), rnd.IntN(2000))
	case k < 95:
		return fmt.Appendf(b, "    at Object.handler%d (/home/user/project/node_modules/express/lib/router/layer.js:%d:%d)\n", rnd.IntN(100), rnd.IntN(300), rnd.IntN(80))
	default:
		return fmt.Appendf(b, "\x1b[33mWARN\x1b[0m deprecated option \x1b[1m--legacy-%d\x1b[22m used by plugin %d, it will be removed in the next major version\n", rnd.IntN(10), rnd.IntN(100))
	}
}

// cpu returns the processor time that this process has used so far.
func cpu() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ingest stores the benchmark lines once and returns their runs.
func ingest(b *testing.B, s *Store) []int64 {
	runs := make([]int64, 20)
	for i := range runs {
		runs[i] = startRun(s, "/p", fmt.Sprintf("proc%d", i))
	}
	for _, r := range benchCorpus().reads {
		s.Capture(runs[r.process], Stdout, time.Now(), r.data)
	}
	if err := s.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	return runs
}

const benchMax = 8 << 30

func openBench(b *testing.B, path string) *Store {
	s, err := Open(b.Context(), Options{Path: path, MaxBytes: benchMax})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func reportIngest(b *testing.B, wall, used time.Duration, bytes int64) {
	n := float64(benchCorpus().lines) * float64(b.N)
	b.ReportMetric(n/wall.Seconds(), "lines/s")
	b.ReportMetric(float64(used.Nanoseconds())/n, "cpu-ns/line")
	b.ReportMetric(float64(bytes)/float64(benchCorpus().lines), "B/line")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkIngest(b *testing.B) {
	benchCorpus()
	b.Run("rows", func(b *testing.B) {
		var size int64
		start := cpu()
		for range b.N {
			path := filepath.Join(b.TempDir(), "rows.db")
			rs := openRows(b, path)
			rs.ingest(b)
			if _, err := rs.db.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
				b.Fatal(err)
			}
			_ = rs.db.Close()
			info, err := os.Stat(path)
			if err != nil {
				b.Fatal(err)
			}
			size = info.Size()
		}
		reportIngest(b, b.Elapsed(), cpu()-start, size)
	})
	for _, c := range []struct {
		name string
		max  int64
	}{{"store", benchMax}, {"capped", defaultMaxBytes}} {
		b.Run(c.name, func(b *testing.B) {
			var size int64
			start := cpu()
			for range b.N {
				s, err := Open(b.Context(), Options{Path: filepath.Join(b.TempDir(), "pmcp.db"), MaxBytes: c.max})
				if err != nil {
					b.Fatal(err)
				}
				ingest(b, s)
				if s.budget.lost.lines.Load() > 0 {
					b.Fatalf("%d lines were dropped", s.budget.lost.lines.Load())
				}
				_ = s.Close()
				size = s.file.Size()
			}
			reportIngest(b, b.Elapsed(), cpu()-start, size)
		})
	}
	b.Run("split", func(b *testing.B) { // the lower bound: lines are cleaned and split but not stored
		start := cpu()
		for range b.N {
			var sink countSink
			var cleaners [20]line.Cleaner
			for _, r := range benchCorpus().reads {
				cleaners[r.process].Feed(r.data, &sink)
			}
		}
		reportIngest(b, b.Elapsed(), cpu()-start, 0)
	})
}

type countSink int

func (c *countSink) Line([]byte, bool, bool) { *c++ }

// filled returns a rowStore and a Store that contain the benchmark lines, and the runs in the
// Store.
func filled(b *testing.B) (*rowStore, *Store, []int64) {
	dir := b.TempDir()
	rs := openRows(b, filepath.Join(dir, "rows.db"))
	rs.ingest(b)
	s := openBench(b, filepath.Join(dir, "pmcp.db"))
	s.reader.filters.limit = 1 << 30
	runs := ingest(b, s)
	for _, r := range runs {
		endRun(s, r)
	}
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	buildFilters(b, s)
	b.Cleanup(func() {
		_ = rs.db.Close()
		_ = s.Close()
	})
	return rs, s, runs
}

// buildFilters builds the filters of all chunks at once, without waiting for the Store's worker.
func buildFilters(t testing.TB, s *Store) {
	t.Helper()
	ids, err := chunksWithoutFilter(t.Context(), s.file.ReadDB, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&missingFilters{storage: s.storage}).buildStored(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkFlush measures flushes of few lines: 100 lines of 20 processes in each flush.
func BenchmarkFlush(b *testing.B) {
	text := []byte(strings.Repeat("x", 100) + "\n")
	b.Run("rows", func(b *testing.B) {
		rs := openRows(b, filepath.Join(b.TempDir(), "rows.db"))
		defer rs.db.Close()
		sink := &rowSink{b: b, db: rs.db}
		var cleaners [20]line.Cleaner
		var all []time.Duration
		for range b.N {
			start := time.Now()
			for i := range 100 {
				sink.process = int64(i % 20)
				cleaners[i%20].Feed(text, sink)
			}
			sink.commit()
			all = append(all, time.Since(start))
		}
		reportQuantiles(b, all)
	})
	b.Run("store", func(b *testing.B) {
		s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
		defer s.Close()
		var runs []int64
		for i := range 20 {
			runs = append(runs, startRun(s, "/p", fmt.Sprintf("proc%d", i)))
		}
		var all []time.Duration
		for range b.N {
			for i := range 100 {
				s.Capture(runs[i%20], Stdout, time.Now(), text)
			}
			start := time.Now()
			if err := s.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			all = append(all, time.Since(start))
		}
		reportQuantiles(b, all)
	})
}

// BenchmarkCapture measures how long Capture of one read keeps the reader of a process's output.
func BenchmarkCapture(b *testing.B) {
	s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
	defer s.Close()
	run := startRun(s, "/p", "web")
	line := []byte(strings.Repeat("some text ", 10) + "\n")
	b.SetBytes(int64(len(line)))
	for range b.N {
		s.Capture(run, Stdout, time.Now(), line)
	}
}

func reportQuantiles(b *testing.B, all []time.Duration) {
	sortDurations(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "ms-p99")
}
