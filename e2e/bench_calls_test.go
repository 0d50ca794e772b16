package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// benchLines is how many lines the benchmarks of this file print; bench -quick sets fewer.
func benchLines() int {
	if n, err := strconv.Atoi(os.Getenv("LOGSTORE_BENCH_LINES")); err == nil {
		return n
	}
	return floodCount
}

// A pair is pmcp and a bare mcp-go server with the same tools.
type pair struct {
	dir        string
	pmcp, bare *plain
}

func newPair(b *testing.B) *pair {
	b.Helper()
	p := &pair{dir: b.TempDir(), pmcp: unlimited(b)}
	b.Cleanup(func() { p.pmcp.end(b) })
	file := filepath.Join(p.dir, "tools")
	check(b, os.WriteFile(file, p.pmcp.exchange(b, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), 0o600))
	p.bare = newWorld(b).plain(b, append([]string{self(b)}, program("mcpgo", file)...))
	b.Cleanup(func() { p.bare.end(b) })
	p.bare.exchange(b, initializeLine)
	return p
}

// timed returns how long a server takes to answer a request.
func (p *plain) timed(b *testing.B, line string) time.Duration {
	b.Helper()
	begin := time.Now()
	p.ask(b, line)
	return time.Since(begin)
}

// floor returns the request of a tool call for the bare server, whose answer is the one
// that pmcp gives now.
func (p *pair) floor(b *testing.B, tool string, arguments args) string {
	b.Helper()
	file := filepath.Join(p.dir, tool)
	check(b, os.WriteFile(file, p.pmcp.ask(b, toolLine(b, tool, arguments)), 0o600))
	return toolLine(b, tool, args{"answer": file})
}

// compare measures a call of both servers by turns.
func (p *pair) compare(b *testing.B, tool string, arguments args) {
	floor := p.floor(b, tool, arguments)
	var took, bare []time.Duration
	for b.Loop() {
		bare = append(bare, p.bare.timed(b, floor))
		took = append(took, p.pmcp.timed(b, toolLine(b, tool, arguments)))
	}
	reportPercentiles(b, took)
	b.ReportMetric(median(bare), "bare-p50-µs")
}

// BenchmarkCalls measures calls while ten processes are running. Its floor is a bare
// server that gives the same answers.
func BenchmarkCalls(b *testing.B) {
	p := newPair(b)
	for i := range 10 {
		p.pmcp.tool(b, "start_process", args{"name": fmt.Sprintf("p%d", i), "command": "sleep", "args": []string{"1000"}, "timeout_ms": 0})
	}
	for tool, arguments := range map[string]args{
		"list_processes": {}, "get_process_info": {"process": "p3"}, "get_server_info": {}, "get_system_stats": {},
	} {
		b.Run(tool, func(b *testing.B) { p.compare(b, tool, arguments) })
	}
}

// BenchmarkStartStop measures start_process and stop_process of one process. Their floors
// are exec, and a signal and a wait, each with one call of a bare server that gives the
// same answer.
func BenchmarkStartStop(b *testing.B) {
	p := newPair(b)
	begin := args{"name": "bench", "command": "sleep", "args": []string{"1000"}, "timeout_ms": 0}
	end := args{"process": "bench"}
	bareBegin, bareEnd := p.floor(b, "start_process", begin), p.floor(b, "stop_process", end)
	var starts, stops, bareStarts, bareStops []time.Duration
	for b.Loop() {
		cmd := exec.Command("sleep", "1000")
		at := time.Now()
		check(b, cmd.Start())
		p.bare.ask(b, bareBegin)
		bareStarts = append(bareStarts, time.Since(at))
		at = time.Now()
		check(b, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait()
		p.bare.ask(b, bareEnd)
		bareStops = append(bareStops, time.Since(at))
		starts = append(starts, p.pmcp.timed(b, toolLine(b, "start_process", begin)))
		stops = append(stops, p.pmcp.timed(b, toolLine(b, "stop_process", end)))
	}
	b.ReportMetric(median(starts), "start-p50-µs")
	b.ReportMetric(median(stops), "stop-p50-µs")
	b.ReportMetric(median(bareStarts), "bare-start-p50-µs")
	b.ReportMetric(median(bareStops), "bare-stop-p50-µs")
}

// BenchmarkFlooded measures searches and a page at once after a million lines. The floor
// of a search is a ping, that of the page a bare server that gives the same answer.
func BenchmarkFlooded(b *testing.B) {
	p := newPair(b)
	flood := own(b, "flood", "flood", strconv.Itoa(benchLines()), strconv.Itoa(floodWidth)).with("timeout_ms", 0)
	for search, query := range map[string]string{"absent": "line 99999999", "rare": fmt.Sprintf("%07d", benchLines()*3/4)} {
		b.Run(search, func(b *testing.B) {
			p.pmcp.tool(b, "start_process", flood)
			p.pmcp.tool(b, "wait_for_process", args{"process": "flood", "until": "exit"})
			var took, bare []time.Duration
			for b.Loop() {
				bare = append(bare, p.bare.timed(b, `{"jsonrpc":"2.0","id":1,"method":"ping"}`))
				took = append(took, p.pmcp.timed(b, toolLine(b, "search_logs", args{"query": query})))
			}
			reportPercentiles(b, took)
			b.ReportMetric(median(bare), "bare-p50-µs")
		})
	}
	b.Run("page", func(b *testing.B) {
		p.compare(b, "get_logs", args{"process": "flood", "after": "start", "limit": 10_000, "max_bytes": 8 << 20})
	})
}

// BenchmarkManyNames measures the session after one in which a thousand names ran.
func BenchmarkManyNames(b *testing.B) {
	names := min(1000, benchLines()/100)
	w := newWorld(b)
	w.set("PM_RATE_LIMIT", "0")
	first := w.plain(b, []string{binary(b)})
	first.exchange(b, initializeLine)
	for i := range names {
		first.tool(b, "start_process", args{"name": fmt.Sprintf("n%d", i), "command": "true", "wait": "exit"})
	}
	first.end(b)
	next := w.plain(b, []string{binary(b)})
	defer next.end(b)
	next.exchange(b, initializeLine)
	var lists, tails []time.Duration
	for b.Loop() {
		lists = append(lists, next.timed(b, toolLine(b, "list_processes", args{})))
		tails = append(tails, next.timed(b, toolLine(b, "tail_logs", args{"process": "n7"})))
	}
	b.ReportMetric(median(lists), "list-p50-µs")
	b.ReportMetric(median(tails), "tail-p50-µs")
}
