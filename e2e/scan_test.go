package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process is a running process of a world.
type process struct {
	pid, parent int
	state       byte // as in /proc/PID/stat: Z is a zombie
	command     string
	home        string // its HOME, the mark of its world; "" for a zombie, which has no environment
}

func (p process) String() string {
	return fmt.Sprintf("%d (parent %d, state %c): %s", p.pid, p.parent, p.state, p.command)
}

// processes returns the world's guardians, its servers and all their descendants, however
// detached. It finds them by the HOME that they inherited, and zombies as children of the others.
func (w *world) processes(t testing.TB) (found []process) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("finds processes through /proc")
	}
	all := machine.scan()
	for _, p := range all {
		if p.home == w.home {
			p.command = commandOf(p)
			found = append(found, p)
		}
	}
	for _, z := range all {
		if z.state == 'Z' && slices.ContainsFunc(found, func(p process) bool { return p.pid == z.parent }) {
			found = append(found, z)
		}
	}
	return found
}

// machine reads the process table for all worlds: to do so for each test, as often as it polls, would be most of
// the load of the tests.
var machine processTable

// A processTable is the result of the latest scan of the machine's processes.
type processTable struct {
	mu    sync.Mutex
	began time.Time // when the scan began
	all   []process
}

// scanPause is the shortest time from one scan to the next.
const scanPause = 100 * time.Millisecond

// scan returns all processes as of a moment after the call. Concurrent callers share a scan.
func (m *processTable) scan() []process {
	asked := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.began.After(asked) {
		return m.all
	}
	<-time.After(time.Until(m.began.Add(scanPause)))
	m.began, m.all = time.Now(), nil
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProcess(pid); ok {
				m.all = append(m.all, p)
			}
		}
	}
	return m.all
}

// readProcess returns a process with its name as its command. ok is false if it has ended.
func readProcess(pid int) (p process, ok bool) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	text, _ := os.ReadFile(dir + "stat")
	open, end := bytes.IndexByte(text, '('), bytes.LastIndex(text, []byte(") "))
	s, ok := parseStat(string(text))
	if !ok {
		return p, false
	}
	p = process{pid: s.pid, parent: s.parent, state: s.state, command: string(text[open+1 : end])}
	environ, _ := os.ReadFile(dir + "environ") // of another user it cannot be read
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if home, ok := bytes.CutPrefix(entry, []byte("HOME=")); ok {
			p.home = string(home)
			break
		}
	}
	return p, true
}

// commandOf returns the command line of a process, or its name.
func commandOf(p process) string {
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)); err == nil && len(line) > 0 {
		return strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
	}
	return p.command
}

// showHang logs the goroutines of every pmcp of the world, which ends them, for a test that has waited for one
// without effect.
func (w *world) showHang(t testing.TB) {
	t.Helper()
	program := filepath.Base(build.path)
	for _, p := range w.processes(t) {
		if argv0, _, _ := strings.Cut(p.command, " "); p.state != 'Z' && build.path != "" && filepath.Base(argv0) == program {
			t.Logf("asking %s for its goroutines", p)
			_ = syscall.Kill(p.pid, syscall.SIGQUIT) // it may have ended
		}
	}
	poll(5*time.Second, func() bool { return strings.Contains(w.stderrs.tails(), "SIGQUIT: quit") })
	t.Logf("standard error:\n%s", w.stderrs.tails())
}
