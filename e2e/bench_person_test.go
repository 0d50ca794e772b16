package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// lineTime returns the time of a line of the program clock, and whether it is one.
func lineTime(line string) (at time.Time, ok bool) {
	_, text, found := strings.Cut(line, "clock ")
	ns, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return time.Unix(0, ns), found && err == nil
}

// newPerson starts a session in a project, in which a person may run commands.
func newPerson(b *testing.B) (*world, *plain) {
	b.Helper()
	w := newWorld(b)
	w.set("PM_RATE_LIMIT", "0")
	check(b, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	p := w.plain(b, []string{binary(b)})
	b.Cleanup(func() { p.end(b) })
	p.exchange(b, initializeLine)
	return w, p
}

// firstByte runs a command and returns the time until its first output.
func (w *world) firstByte(b *testing.B, arguments ...string) time.Duration {
	b.Helper()
	cmd := w.commandIn(b, w.project, arguments...)
	out, err := cmd.StdoutPipe()
	check(b, err)
	begin := time.Now()
	check(b, cmd.Start())
	_, err = out.Read(make([]byte, 1))
	took := time.Since(begin)
	check(b, err)
	_, _ = io.Copy(io.Discard, out)
	check(b, cmd.Wait())
	return took
}

// BenchmarkCommands measures the time from exec to the first output of commands that a person
// runs beside a session of ten processes, and of `pmcp --version`, a bare start.
func BenchmarkCommands(b *testing.B) {
	w, p := newPerson(b)
	for i := range 10 {
		p.tool(b, "start_process", own(b, fmt.Sprintf("p%d", i), "sleep").with("ready", args{"log": "ready"}))
	}
	for name, arguments := range map[string][]string{"ps": {"ps"}, "logs": {"logs", "p3"}} {
		b.Run(name, func(b *testing.B) {
			var took, bare, beyond []time.Duration
			for b.Loop() {
				alone := w.firstByte(b, "--version")
				whole := w.firstByte(b, arguments...)
				took, bare, beyond = append(took, whole), append(bare, alone), append(beyond, whole-alone)
			}
			reportPercentiles(b, took)
			b.ReportMetric(median(bare), "bare-p50-µs")
			b.ReportMetric(median(beyond), "beyond-p50-µs")
		})
	}
}

// BenchmarkFollow measures the time from the write of a line until a person who follows the
// log has it, and compares that with `tail -f` of a file.
func BenchmarkFollow(b *testing.B) {
	w, p := newPerson(b)
	file := filepath.Join(w.home, "clock.log")
	out, err := os.Create(file)
	check(b, err)
	defer out.Close()
	bare := exec.Command(self(b), program("clock")...)
	bare.Stdout = out
	check(b, bare.Start())
	defer func() { _ = bare.Process.Kill(); _ = bare.Wait() }()
	p.tool(b, "start_process", own(b, "clock", "clock").with("ready", args{"log": "clock"}))
	for name, cmd := range map[string]*exec.Cmd{
		"pmcp": w.commandIn(b, w.project, "logs", "clock", "-f", "-n", "0"), "tail": exec.Command("tail", "-n", "0", "-f", file),
	} {
		b.Run(name, func(b *testing.B) {
			follower := exec.Command(cmd.Path, cmd.Args[1:]...)
			follower.Dir, follower.Env = cmd.Dir, cmd.Env
			read, err := follower.StdoutPipe()
			check(b, err)
			check(b, follower.Start())
			defer func() { _ = follower.Process.Kill(); _ = follower.Wait() }()
			lines := bufio.NewScanner(read)
			var took []time.Duration
			for b.Loop() {
				if !lines.Scan() {
					b.Fatal("the follower ended: ", lines.Err())
				}
				if at, ok := lineTime(lines.Text()); ok {
					took = append(took, time.Since(at))
				}
			}
			reportPercentiles(b, took)
		})
	}
}

// BenchmarkPage measures the page of pmcp open in Chromium beside a session of fifty processes
// that print 2,000 lines a second together: the processor time of all of pmcp, and the longest
// task of the page. It needs what TestPersonUsesPageInBrowser needs.
func BenchmarkPage(b *testing.B) {
	chromium, modules := browserOf(b)
	w, p := newPerson(b)
	for i := range benchProcesses {
		p.tool(b, "start_process", own(b, fmt.Sprintf("p%02d", i), "clock", strconv.Itoa(int(time.Second)/(2000/benchProcesses))).with("timeout_ms", 0))
	}
	servers := p.servers(b)
	span := idleSpan
	if benchLines() < floodCount { // bench -quick
		span = time.Second
	}
	cpu(b, span/4, servers, nil) // until the starts have settled
	without, _ := cpu(b, span, servers, nil)
	address, pids, end := w.openPage(b)
	browser := exec.Command("node", "testdata/page/flood.cjs", modules, chromium, address)
	in, err := browser.StdinPipe()
	check(b, err)
	read, err := browser.StdoutPipe()
	check(b, err)
	browser.Stderr = os.Stderr
	check(b, browser.Start())
	out := bufio.NewReader(read)
	if line, err := out.ReadString('\n'); err != nil || line != "following\n" {
		b.Fatalf("got %q, %v, want a page that follows", line, err)
	}
	var seen struct {
		Longest, LongestCPU float64
		Tasks, Lines        int
	}
	for b.Loop() {
		with, open := cpu(b, span, servers, pids)
		b.ReportMetric(100*open, "page-CPU-%")
		b.ReportMetric(100*(with+open), "CPU-%")
	}
	b.ReportMetric(100*without, "bare-CPU-%")
	check(b, in.Close())
	check(b, json.NewDecoder(out).Decode(&seen))
	check(b, browser.Wait())
	end()
	if seen.Tasks == 0 {
		b.Fatal("the browser has traced no task of the page")
	}
	b.ReportMetric(seen.Longest, "longest-ms")
	b.ReportMetric(seen.LongestCPU, "longest-CPU-ms")
	b.ReportMetric(float64(seen.Lines), "shown-lines")
}
