package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
)

// These constants are the figures of BenchmarkFifty.
const (
	benchProcesses = 50
	benchOthers    = 400              // processes on the machine that are not pmcp's
	idleSpan       = 12 * time.Second // what is idle is measured over this span, and left alone for as long before
)

// BenchmarkFifty runs fifty processes beside four hundred that pmcp did not start. It
// measures pmcp's guardian and server together, idle and under calls, and compares them
// with a bare mcp-go server. It also measures the end of the session, and compares that
// with sending SIGTERM to fifty of the other processes.
func BenchmarkFifty(b *testing.B) {
	if len(procField(b, os.Getpid(), "smaps_rollup", "Pss:")) == 0 {
		b.Skip("needs /proc")
	}
	started := others(b, benchOthers)
	w := newWorld(b)
	w.set("PM_RATE_LIMIT", "0")
	bare := w.plain(b, append([]string{self(b)}, program("mcpgo")...))
	defer bare.end(b)
	bare.exchange(b, initializeLine)
	c := w.plain(b, []string{binary(b)})
	c.exchange(b, initializeLine)
	servers, bares := c.servers(b), []int{bare.cmd.Process.Pid}
	span := idleSpan
	if benchLines() < floodCount { // bench -quick
		span = time.Second
	}
	wakeups(b, span, servers) // until the start has settled
	idleWakeups := wakeups(b, span, servers)
	alone := pss(b, servers)
	for i := range benchProcesses {
		c.tool(b, "start_process", own(b, fmt.Sprintf("p%02d", i), "sleep").with("ready", args{"log": "ready"}))
	}
	idle, bareIdle := cpu(b, span, servers, bares)
	awake := wakeups(b, span, servers)
	memory := pss(b, servers)
	var took []time.Duration
	size, before := 0, used(b, servers)
	for b.Loop() {
		request := toolLine(b, "list_processes", args{})
		begin := time.Now()
		size = len(c.ask(b, request))
		took = append(took, time.Since(begin))
	}
	b.ReportMetric((used(b, servers)-before)*1e6/float64(len(took)), "CPU-µs/call")
	reportPercentiles(b, took)
	b.ReportMetric(float64(size), "bytes")
	b.ReportMetric(idleWakeups, "idle-wakeups/s")
	b.ReportMetric(awake, "wakeups/s")
	b.ReportMetric(alone/(1<<20), "idle-PSS-MiB")
	b.ReportMetric(memory/(1<<20), "PSS-MiB")
	b.ReportMetric((memory-alone)/benchProcesses/(1<<10), "PSS-KiB/process")
	b.ReportMetric(idle*100, "idle-CPU-%")
	b.ReportMetric(idle*1e6/benchProcesses, "idle-µs/s/process")
	b.ReportMetric(pss(b, bares)/(1<<20), "bare-PSS-MiB")
	b.ReportMetric(bareIdle*100, "bare-idle-CPU-%")
	begin := time.Now()
	c.end(b)
	b.ReportMetric(milliseconds(begin), "end-ms")
	begin = time.Now()
	for _, cmd := range started[:benchProcesses] {
		check(b, cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, cmd := range started[:benchProcesses] {
		_ = cmd.Wait()
	}
	b.ReportMetric(milliseconds(begin), "bare-end-ms")
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

// others runs n processes outside of pmcp until the benchmark ends, and returns them.
func others(b *testing.B, n int) (started []*exec.Cmd) {
	b.Helper()
	for range n {
		cmd := exec.Command("sleep", "1000")
		check(b, cmd.Start())
		started = append(started, cmd)
		b.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	return started
}

// toolLine returns the request of a tool call, with a unique id.
func toolLine(b *testing.B, name string, arguments args) string {
	b.Helper()
	line, err := json.Marshal(args{"jsonrpc": "2.0", "id": uuid.NewString(), "method": "tools/call", "params": withStructured(args{"name": name, "arguments": arguments})})
	check(b, err)
	return string(line)
}

// ask sends a request and returns the answer, and skips the notifications that come before
// the answer.
func (p *plain) ask(b *testing.B, line string) []byte {
	b.Helper()
	answer := p.exchange(b, line)
	for bytes.HasPrefix(answer, []byte(`{"jsonrpc":"2.0","method"`)) {
		var err error
		answer, err = p.out.ReadBytes('\n')
		check(b, err)
	}
	return answer
}

// tool calls a tool that must succeed, and returns the structured content.
func (p *plain) tool(b *testing.B, name string, arguments args) map[string]any {
	b.Helper()
	m, err := parse(string(p.ask(b, toolLine(b, name, arguments))))
	check(b, err)
	r := asResult(b, name, m)
	if r.Error {
		b.Fatal(r.Text)
	}
	return r.Data
}

// servers returns the pids of pmcp's guardian and server.
func (p *plain) servers(b *testing.B) []int {
	b.Helper()
	return []int{p.cmd.Process.Pid, int(p.tool(b, "get_server_info", args{})["current_pid"].(float64))}
}

// pss returns the total memory (PSS) of processes in bytes. A shared page is divided
// equally among the processes that share it.
func pss(b *testing.B, pids []int) (bytes float64) {
	b.Helper()
	for _, pid := range pids {
		kib, err := strconv.ParseFloat(procField(b, pid, "smaps_rollup", "Pss:")[0], 64)
		check(b, err)
		bytes += kib * 1024
	}
	return bytes
}

// cpu returns the share of one core that each of two sets of processes uses during span.
func cpu(b *testing.B, span time.Duration, one, other []int) (ofOne, ofOther float64) {
	b.Helper()
	begin, ones, others := time.Now(), used(b, one), used(b, other)
	<-time.After(span)
	took := time.Since(begin).Seconds()
	return (used(b, one) - ones) / took, (used(b, other) - others) / took
}

// used returns the processor time that the running threads of processes have used, in
// seconds.
func used(b *testing.B, pids []int) (seconds float64) {
	b.Helper()
	for _, pid := range pids {
		for _, task := range tasksOf(b, pid) {
			// schedstat counts nanoseconds, where stat counts ticks of 10 ms.
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, task))
			if err != nil {
				continue // a thread that has ended
			}
			ns, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
			check(b, err)
			seconds += ns / 1e9
		}
	}
	return seconds
}

// wakeups returns how often a second the threads of processes went to sleep during span.
func wakeups(b *testing.B, span time.Duration, pids []int) float64 {
	b.Helper()
	count := func() (n float64) {
		for _, pid := range pids {
			for _, task := range tasksOf(b, pid) {
				fields := procField(b, pid, fmt.Sprintf("task/%d/status", task), "voluntary_ctxt_switches:")
				if len(fields) == 0 {
					continue // a thread that has ended
				}
				switches, err := strconv.ParseFloat(fields[0], 64)
				check(b, err)
				n += switches
			}
		}
		return n
	}
	begin, before := time.Now(), count()
	<-time.After(span)
	return (count() - before) / time.Since(begin).Seconds()
}

func tasksOf(b *testing.B, pid int) (tasks []int) {
	b.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	check(b, err)
	for _, e := range entries {
		task, err := strconv.Atoi(e.Name())
		check(b, err)
		tasks = append(tasks, task)
	}
	return tasks
}

// procField returns the fields after a word at the start of a line in a file of /proc,
// or nil if there is no such line.
func procField(b *testing.B, pid int, file, word string) []string {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return nil
	}
	lines := bytes.Split(text, []byte("\n"))
	i := slices.IndexFunc(lines, func(l []byte) bool { return bytes.HasPrefix(l, []byte(word)) })
	if i < 0 {
		return nil
	}
	return strings.Fields(string(lines[i][len(word):]))
}
