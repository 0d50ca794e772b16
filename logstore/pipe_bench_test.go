package logstore

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// helperFlood prints lines of about 100 bytes. Its arguments are the number of lines and the size
// of its writes, 0 for one write for each line. With a third argument it prints the lines of the
// other benchmarks.
func helperFlood() int {
	n, _ := strconv.Atoi(os.Args[1])
	size, _ := strconv.Atoi(os.Args[2])
	var out io.Writer = os.Stdout
	if size > 0 {
		w := bufio.NewWriterSize(os.Stdout, size)
		defer func() { _ = w.Flush() }() // the test fails if the reader has exited
		out = w
	}
	if len(os.Args) > 3 {
		return floodMixed(out, n)
	}
	line := []byte("2026-01-05T10:00:00.000000Z INFO  worker-00000000 processed a job of the batch in some milliseconds req=00\n")
	for i := range n {
		copy(line[40:], fmt.Appendf(nil, "%08d", i))
		if _, err := out.Write(line); err != nil {
			return 1
		}
	}
	return 0
}

func floodMixed(out io.Writer, n int) int {
	lines := bytes.SplitAfter(mixedLines(), []byte("\n"))[:mixedCount]
	for i := range n {
		if _, err := out.Write(lines[i%mixedCount]); err != nil {
			return 1
		}
	}
	return 0
}

// BenchmarkPipe measures reading a million lines that a child prints through a pipe: lines only
// split, and lines stored and committed.
func BenchmarkPipe(b *testing.B) {
	const lines = 1_000_000
	for _, size := range []int{0, 64 << 10} {
		name := "line-by-line"
		if size > 0 {
			name = "64K-blocks"
		}
		b.Run(name+"/split", func(b *testing.B) {
			pipe(b, lines, size, func(p []byte) (n int) {
				for {
					i := bytes.IndexByte(p, '\n')
					if i < 0 {
						return n
					}
					p, n = p[i+1:], n+1
				}
			}, func() {})
		})
		b.Run(name+"/store", func(b *testing.B) {
			s := openBench(b, filepath.Join(b.TempDir(), "pmcp.db"))
			defer s.Close()
			run := startRun(s, "/p", "flood")
			pipe(b, lines, size, func(p []byte) int {
				s.Capture(run, Stdout, time.Now(), p)
				return 0
			}, func() {
				if err := s.Flush(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
			b.StopTimer()
			st, err := s.RunStats(b.Context(), run)
			if err != nil || st.Lines != int64(lines*b.N) {
				b.Fatalf("got %d lines stored, %v; want %d", st.Lines, err, lines*b.N)
			}
			b.ReportMetric(float64(peakRSS())/(1<<20), "MB-peak")
		})
	}
}

// pipe starts a child that prints lines, passes them to take, and calls done when the child has
// ended.
func pipe(b *testing.B, lines, size int, take func([]byte) int, done func()) {
	buf := make([]byte, 32<<10)
	start := cpu()
	for range b.N {
		r, wait := startFlood(b, lines, size)
		for {
			n, err := r.Read(buf)
			take(buf[:n])
			if err != nil {
				break
			}
		}
		done()
		wait()
	}
	n := float64(lines * b.N)
	b.ReportMetric(n/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(float64((cpu()-start).Nanoseconds())/n, "cpu-ns/line")
	b.ReportMetric(0, "ns/op")
}

// startFlood starts the helper program flood and returns its output and a function to call at the
// end.
func startFlood(b *testing.B, lines, size int, more ...string) (out *os.File, wait func()) {
	cmd := exec.Command(os.Args[0], append([]string{strconv.Itoa(lines), strconv.Itoa(size)}, more...)...)
	cmd.Env = append(os.Environ(), helperEnv+"=flood")
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	_ = w.Close()
	return r, func() {
		_ = r.Close()
		_ = cmd.Wait()
	}
}

// peakRSS returns the largest resident size of this process so far.
func peakRSS() (n int64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		var kb int64
		if _, err := fmt.Sscanf(string(line), "VmHWM: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	return 0
}
