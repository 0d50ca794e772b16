package e2e

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"pmcp/process/guard"
)

// treeScript starts nine processes in the background and waits for them, so that the tree
// has ten.
const treeScript = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; echo ready; wait"

// BenchmarkStopTree measures stop_process of a tree of ten processes, up to the answer. It
// compares that with signalling the process group of the same tree and waiting until the
// pipe that the processes share has no writer left. The benchmark reaps the orphans
// itself: thousands of zombies would slow down the later scans of /proc.
func BenchmarkStopTree(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		check(b, guard.Subreaper())
		var took []time.Duration
		for b.Loop() {
			b.StopTimer()
			cmd := exec.Command("sh", "-c", treeScript)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out, err := cmd.StdoutPipe()
			check(b, err)
			check(b, cmd.Start())
			_, err = io.ReadFull(out, make([]byte, len("ready\n")))
			check(b, err)
			b.StartTimer()
			begin := time.Now()
			check(b, syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM))
			_, err = io.Copy(io.Discard, out)
			check(b, err)
			_ = cmd.Wait()
			took = append(took, time.Since(begin))
			for err == nil { // loop until the group has no process left
				_, err = syscall.Wait4(-cmd.Process.Pid, nil, 0, nil)
			}
		}
		reportPercentiles(b, took)
	})
	b.Run("pmcp", func(b *testing.B) {
		c := unlimited(b)
		defer c.end(b)
		tree := args{"name": "tree", "command": "sh", "args": []string{"-c", treeScript}, "ready": args{"log": "ready"}}
		var took []time.Duration
		for b.Loop() {
			b.StopTimer()
			c.tool(b, "start_process", tree)
			request := toolLine(b, "stop_process", args{"process": "tree"})
			b.StartTimer()
			begin := time.Now()
			c.ask(b, request)
			took = append(took, time.Since(begin))
		}
		reportPercentiles(b, took)
	})
}

// These constants are the figures of BenchmarkFlood.
const (
	floodCount = 1_000_000
	floodWidth = 99 // without the newline
)

// BenchmarkFlood measures how fast a child can print a million lines. It measures the
// built binary, with everything that pmcp does to a line, until wait_for_process returns,
// and compares it with a reader that discards the lines.
func BenchmarkFlood(b *testing.B) {
	b.Run("discard", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command(self(b), program("flood", fmt.Sprint(floodCount), fmt.Sprint(floodWidth))...)
			out, err := cmd.StdoutPipe()
			check(b, err)
			check(b, cmd.Start())
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{out}, make([]byte, 32<<10))
			check(b, err)
			check(b, cmd.Wait())
			if n != floodCount*(floodWidth+1) {
				b.Fatalf("got %d bytes, want %d", n, floodCount*(floodWidth+1))
			}
		}
		reportFlood(b)
	})
	b.Run("pmcp", func(b *testing.B) {
		c := unlimited(b)
		defer c.end(b)
		child := own(b, "flood", "flood", fmt.Sprint(floodCount), fmt.Sprint(floodWidth)).with("timeout_ms", 0)
		for b.Loop() {
			c.tool(b, "start_process", child)
			c.tool(b, "wait_for_process", args{"process": "flood", "until": "exit"})
		}
		b.StopTimer()
		reportFlood(b)
		b.ReportMetric(peak(b, c.servers(b))/(1<<20), "peak-MiB")
	})
}

func reportFlood(b *testing.B) {
	b.ReportMetric(floodCount*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(0, "ns/op")
}

// peak returns the sum of the processes' peak resident memory, in bytes.
func peak(b *testing.B, pids []int) (bytes float64) {
	b.Helper()
	for _, pid := range pids {
		kib, err := strconv.ParseFloat(procField(b, pid, "status", "VmHWM:")[0], 64)
		check(b, err)
		bytes += kib * 1024
	}
	return bytes
}
