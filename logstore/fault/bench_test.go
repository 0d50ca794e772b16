package fault_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"pmcp/logstore/fault"
)

// ordinaryLines returns lines as servers print them, 110 bytes on average: access logs, JSON,
// logfmt, builds, queries. No line reports an error.
func ordinaryLines() (list []recordedLine) {
	rnd := rand.New(rand.NewPCG(1, 2))
	paths := []string{"/api/items/%d", "/static/app.%d.js", "/users/%d/orders?page=2", "/health", "/images/logo-%d.png"}
	for i := range 4096 {
		path := fmt.Sprintf(paths[rnd.IntN(len(paths))]+"", rnd.IntN(100000))
		var s string
		switch i % 6 {
		case 0, 1:
			s = fmt.Sprintf(`10.0.%d.%d - - [05/Jan/2026:10:00:%02d +0000] "GET %s HTTP/1.1" 200 %d "-" "Mozilla/5.0 (X11; Linux x86_64)"`, rnd.IntN(255), rnd.IntN(255), i%60, path, rnd.IntN(9999))
		case 2:
			s = fmt.Sprintf(`{"level":"info","ts":%d,"caller":"api/server.go:%d","msg":"request done","path":"%s","status":200,"took":%d}`, 1767607200+i, i%400, path, rnd.IntN(900))
		case 3:
			s = fmt.Sprintf(`time=2026-01-05T10:00:%02d.123Z level=INFO msg="cache refreshed" keys=%d took=%dms shard=%d`, i%60, rnd.IntN(9999), rnd.IntN(99), i%16)
		case 4:
			s = fmt.Sprintf(`2026-01-05 10:00:%02d.123 DEBUG [worker-%d] sql: SELECT id, name FROM orders WHERE customer = %d ORDER BY id LIMIT 50`, i%60, i%8, rnd.IntN(99999))
		case 5:
			s = fmt.Sprintf("  dist/assets/chunk-%d.js   %d.%d kB | gzip: %d kB", rnd.IntN(99999), rnd.IntN(900), i%10, rnd.IntN(300))
		}
		list = append(list, recordedLine{stream: uint8(i % 2), level: []uint8{0, 0, 3, 3, 2, 0}[i%6], text: []byte(s)})
	}
	return list
}

func benchmarkLines(b *testing.B, list []recordedLine) {
	size := 0
	for _, l := range list {
		size += len(l.text)
	}
	b.SetBytes(int64(size / len(list)))
	faults := 0
	rec := fault.New(func(fault.Fault) { faults++ })
	b.ReportAllocs()
	i, n, before := 0, int64(0), cpuTime(b)
	for b.Loop() {
		l := &list[i]
		n++
		rec.Line(n, l.stream, l.level, l.text)
		if i++; i == len(list) {
			i = 0
		}
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(n), "cpu-ns/line")
	b.ReportMetric(float64(faults)/float64(n), "faults/line")
}

// cpuTime returns the CPU time that the process has used so far. On a busy machine CPU time is more
// reliable than the wall clock.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkOrdinaryLines measures the time for a line that has nothing to do with an error: at most
// 150 ns.
func BenchmarkOrdinaryLines(b *testing.B) { benchmarkLines(b, ordinaryLines()) }

// BenchmarkMixed measures the time for ordinary lines with a stack trace after every 300 lines.
func BenchmarkMixed(b *testing.B) {
	list := ordinaryLines()
	stacks := recordings(b, "corpus")
	var mixed []recordedLine
	for i, l := range list {
		mixed = append(mixed, l)
		if i%300 == 299 {
			r := stacks[(i/300*11)%len(stacks)]
			mixed = append(mixed, r.lines[:min(len(r.lines), 40)]...)
		}
	}
	benchmarkLines(b, mixed)
}

// BenchmarkClean measures recorded output without errors that often mentions errors.
func BenchmarkClean(b *testing.B) {
	var list []recordedLine
	for _, r := range recordings(b, "clean") {
		list = append(list, r.lines...)
	}
	benchmarkLines(b, list)
}

// BenchmarkErrors measures recorded output of failed programs, where every line is part of an
// error.
func BenchmarkErrors(b *testing.B) {
	var list []recordedLine
	for _, r := range recordings(b, "corpus") {
		list = append(list, r.lines...)
	}
	benchmarkLines(b, list)
}

// TestBenchmarkLinesGiveNoFault checks that no line of ordinaryLines is recognised as an error.
func TestBenchmarkLinesGiveNoFault(t *testing.T) {
	rec := fault.New(func(f fault.Fault) { t.Errorf("got fault %v, want none", asExpected(f)) })
	for i, l := range ordinaryLines() {
		rec.Line(int64(i+1), l.stream, l.level, bytes.Clone(l.text))
	}
	rec.End(0, "")
}

// BenchmarkSuspects measures lines with a keyword that report no error.
func BenchmarkSuspects(b *testing.B) {
	for _, text := range []string{"read line %d", "%d errors_total", "main.go:12: read %d", "%d denied", "%d fails over"} {
		b.Run(text, func(b *testing.B) {
			var list []recordedLine
			for i := range 128 {
				list = append(list, recordedLine{text: fmt.Appendf(nil, "item %-20s abcdefghij klmnopqrst uvwxyz abcdefghij klmnopqrst uvwxyz abc", fmt.Sprintf(text, i))})
			}
			benchmarkLines(b, list)
		})
	}
}
