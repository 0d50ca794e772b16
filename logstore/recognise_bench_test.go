package logstore

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pmcp/logstore/line"
)

// BenchmarkRecogniser measures what recognising errors costs: the same lines are stored with and
// without a Recogniser, in turns, so that a busy machine slows both alike. In the case "pipe" a
// child prints the lines, one by one or in blocks; in "capture" they are in memory.
func BenchmarkRecogniser(b *testing.B) {
	for _, way := range ways() {
		b.Run(way.name, func(b *testing.B) { compare(b, storeRecognising, way.fill) })
	}
}

// way is a way to fill a store with the benchmark lines.
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

// spent is the time for storing a line in nanoseconds: wall time and processor time.
type spent struct{ wall, cpu float64 }

// compare stores lines without and with a feature in turns and reports medians, so that one
// disturbed turn does not count.
func compare(b *testing.B, openStore func(b *testing.B, with bool) (*Store, int64), fill func(*testing.B, *Store, int64)) {
	var walls, cpus, wallLoss, cpuCost []float64
	for i := range b.N {
		var of [2]spent // the cost without and with the feature
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

// storeOnce fills a new Store once and returns the cost, including the commit.
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
		b.Fatalf("got %d lines stored, %v; want %d", st.Lines, err, recogniserLines)
	}
	return one
}

// storeRecognising opens a Store that recognises errors or does not.
func storeRecognising(b *testing.B, recognise bool) (*Store, int64) {
	s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
	run := startRun(s, "/p", "mixed")
	if !recognise {
		s.ownRun(run).faults = nil
	}
	return s, run
}

const (
	// mixedCount is the number of distinct lines.
	mixedCount = 5_000
	// recogniserLines is the number of lines stored each time.
	recogniserLines = 500_000
)

// mixedLines returns the lines of the other benchmarks, without the panics.
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

// capturePipe has a child print the benchmark lines and stores them.
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

// BenchmarkGuessLevel measures guessing the level of a line.
func BenchmarkGuessLevel(b *testing.B) {
	lines := bytes.Split(mixedLines(), []byte("\n"))[:mixedCount]
	start, n := cpu(), 0
	for b.Loop() {
		line.GuessLevel(lines[n%mixedCount], n&1 == 1)
		n++
	}
	b.ReportMetric(float64((cpu()-start).Nanoseconds())/float64(n), "cpu-ns/line")
}
