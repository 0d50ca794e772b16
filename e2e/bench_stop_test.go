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

// treeScript starts nine processes in the background and stays: a tree of ten.
const treeScript = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; echo ready; wait"

// BenchmarkStopTree measures stop_process of a tree of ten, up to the answer,
// beside a signal to the same tree's process group and waiting until all are
// gone: until the pipe that they share has no writer left. The orphans of that
// are taken here: thousands that the machine's init has not taken yet slow down
// whoever looks through /proc after.
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
			for err == nil { // until nothing of the group is left
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

// Figures of BenchmarkFlood.
const (
	floodCount = 1_000_000
	floodWidth = 99 // and the newline
)

// BenchmarkFlood has a child print a million lines as fast as it can: to the
// built binary with all that it does to a line, up to the answer that the child
// has exited, and to a reader that throws them away.
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
				b.Fatalf("%d bytes", n)
			}
		}
		reportFlood(b)
	})
	b.Run("pmcp", func(b *testing.B) {
		c := unlimited(b)
		defer c.end(b)
		child := own(b, "flood", "flood", fmt.Sprint(floodCount), fmt.Sprint(floodWidth))
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

// peak is the most memory that processes have had resident so far, together,
// in bytes.
func peak(b *testing.B, pids []int) (bytes float64) {
	b.Helper()
	for _, pid := range pids {
		kib, err := strconv.ParseFloat(procField(b, pid, "status", "VmHWM:")[0], 64)
		check(b, err)
		bytes += kib * 1024
	}
	return bytes
}
