package logstore

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkRecogniser is what the recogniser of errors costs: the same lines stored with it and
// without it, in turns, so that a busy machine slows both alike. The lines are the mixture of the
// other benchmarks; "pipe" has a child print them line by line or in blocks, "capture" has them at
// hand.
func BenchmarkRecogniser(b *testing.B) {
	for _, way := range ways() {
		b.Run(way.name, func(b *testing.B) { compare(b, storeRecognising, way.fill) })
	}
}

// way is how the mixture comes into a store.
type way struct {
	name string
	fill func(b *testing.B, s *Store, run int64)
}

func ways() []way {
	mixed := mixedLines()
	return []way{
		{"capture", func(_ *testing.B, s *Store, run int64) {
			for range recogniserLines / mixedCount {
				for part := mixed; len(part) > 0; {
					n := min(len(part), 32<<10)
					s.Capture(run, Stdout, time.Now(), part[:n])
					part = part[n:]
				}
			}
		}},
		{"pipe-line-by-line", func(b *testing.B, s *Store, run int64) { capturePipe(b, s, run, 0) }},
		{"pipe-64K-blocks", func(b *testing.B, s *Store, run int64) { capturePipe(b, s, run, 64<<10) }},
	}
}

// spent is what storing a line took, in nanoseconds: on the clock and on the processors.
type spent struct{ wall, cpu float64 }

// compare measures a store without and with something, and gives medians: one turn that something
// else has disturbed does not count.
func compare(b *testing.B, openStore func(b *testing.B, with bool) (*Store, int64), fill func(*testing.B, *Store, int64)) {
	var walls, cpus, wallLoss, cpuCost []float64
	for i := range b.N {
		var of [2]spent // without, with
		for turn := range of {
			with := (turn + i) % 2
			of[with] = storeOnce(b, openStore, with == 1, fill)
		}
		walls, cpus = append(walls, of[1].wall), append(cpus, of[1].cpu)
		wallLoss = append(wallLoss, 100*(1-of[0].wall/of[1].wall))
		cpuCost = append(cpuCost, of[1].cpu-of[0].cpu)
	}
	b.ReportMetric(1e9/median(walls), "lines/s")
	b.ReportMetric(median(wallLoss), "%-lines/s-lost")
	b.ReportMetric(median(cpus), "cpu-ns/line")
	b.ReportMetric(median(cpuCost), "cpu-ns/line-of-it")
	b.ReportMetric(0, "ns/op")
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// storeOnce measures one filling of a new store, up to the commit.
func storeOnce(b *testing.B, openStore func(*testing.B, bool) (*Store, int64), with bool, fill func(*testing.B, *Store, int64)) spent {
	s, run := openStore(b, with)
	defer func() { _ = s.Close() }()
	wall, used := time.Now(), cpu()
	fill(b, s, run)
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	one := spent{float64(time.Since(wall)) / recogniserLines, float64(cpu()-used) / recogniserLines}
	if st, err := s.RunStats(b.Context(), run); err != nil || st.Lines != recogniserLines {
		b.Fatalf("%d lines are stored, %v", st.Lines, err)
	}
	return one
}

// storeRecognising opens a store that recognises errors, or does not.
func storeRecognising(b *testing.B, recognise bool) (*Store, int64) {
	s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
	run := startRun(s, "/p", "mixed")
	if !recognise {
		s.ownRun(run).faults = nil
	}
	return s, run
}

const (
	// mixedCount is how many different lines the mixture has.
	mixedCount = 5_000
	// recogniserLines is how many are stored each time.
	recogniserLines = 500_000
)

// mixedLines is the mixture of the other benchmarks, without its panics.
func mixedLines() []byte {
	var b []byte
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range mixedCount {
		b = benchLine(b, rnd, i+1, 1<<30)
	}
	if n := bytes.Count(b, []byte("\n")); n != mixedCount {
		panic(n)
	}
	return b
}

// capturePipe has a child print the mixture and stores it.
func capturePipe(b *testing.B, s *Store, run int64, size int) {
	r, wait := startFlood(b, recogniserLines, size, "mixed")
	defer wait()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		s.Capture(run, Stdout, time.Now(), buf[:n])
		if err != nil {
			return
		}
	}
}
