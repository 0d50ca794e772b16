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

const (
	// endsWithin bounds the time until a session is gone with everything it started. It is
	// above the limits of pmcp, which for the tests are six times as long, so that only what
	// hangs exceeds them: 60 s for a shutdown, 72 s until the guardian kills the server, and
	// 60 s for the clean-up after that.
	endsWithin = 3 * time.Minute
	// answersWithin bounds the time for an answer. It is far above what any answer takes,
	// and above longWait.
	answersWithin = 3 * time.Minute
	// longWait is the timeout_ms of calls that wait for what must happen.
	longWait = 120_000
)

// A world is the surroundings of pmcp servers in a test: directories and an environment of
// their own. All servers of a world share its database and its registry.
type world struct {
	home     string // HOME, and the mark of all processes of this world
	project  string // working directory of the servers, PM_PROJECT_DIR
	database string // PM_DATABASE_PATH
	registry string // PM_REGISTRY_DIR
	env      []string
	stderrs  *stderrs
}

// stderrs holds the standard error of every session of a world.
type stderrs struct {
	mu  sync.Mutex
	all []*record
}

func (e *stderrs) add(r *record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, r)
}

func (e *stderrs) checkEnds(t testing.TB) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.all {
		r.checkEnd(t)
	}
}

// newWorld returns a world. At the end of the test no process and no record may be left in
// the world.
func newWorld(t testing.TB) *world {
	t.Helper()
	home := t.TempDir()
	w := &world{
		home:     home,
		project:  filepath.Join(home, "project"),
		database: filepath.Join(home, "state", "pmcp.db"),
		registry: filepath.Join(home, "servers"),
		stderrs:  &stderrs{},
	}
	if err := os.MkdirAll(w.project, 0o755); err != nil {
		t.Fatal(err)
	}
	w.env = []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TMPDIR=" + os.TempDir(), "HOME=" + home,
		"XDG_RUNTIME_DIR=" + home,   // where no systemd answers
		"GORACE=atexit_sleep_ms=10", // otherwise each exit takes a second with -race
		"PM_DATABASE_PATH=" + w.database, "PM_REGISTRY_DIR=" + w.registry, "PM_PROJECT_DIR=" + w.project,
	}
	if dir := os.Getenv("GOCOVERDIR"); dir != "" {
		w.env = append(w.env, "GOCOVERDIR="+dir)
	}
	t.Cleanup(func() {
		w.awaitEmpty(t)
		w.killRest(t)
	})
	return w
}

// set sets an environment variable for the servers started from now on.
func (w *world) set(name, value string) { w.env = append(w.env, name+"="+value) }

// awaitEmpty fails the test if a process or a record of this world is left after
// endsWithin.
func (w *world) awaitEmpty(t testing.TB) {
	t.Helper()
	var left string
	before := time.Now()
	if !poll(endsWithin, func() bool { left = w.left(t); return left == "" }) {
		t.Errorf("got left after %v, want nothing:\n%s", endsWithin, left)
	}
	if took := time.Since(before); took > cleansUpWithin { // either a busy machine was slow, or a server hung and was killed
		t.Logf("everything is gone only after %v", took.Round(time.Millisecond))
		w.stderrs.checkEnds(t)
	}
}

// left returns a description of the processes and records that are left in the world, or
// "".
func (w *world) left(t testing.TB) string {
	var b strings.Builder
	for _, p := range w.processes(t) {
		fmt.Fprintf(&b, "process %s\n", p)
	}
	for _, r := range w.records(t) {
		fmt.Fprintf(&b, "record %s\n", r)
	}
	return b.String()
}

// records returns the names of the files in the world's registry directory.
func (w *world) records(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(w.registry)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A process is a running process whose HOME is that of a world.
type process struct {
	pid, parent int
	state       byte // as in /proc/PID/stat: Z is a zombie
	command     string
}

func (p process) String() string {
	return fmt.Sprintf("%d (parent %d, state %c): %s", p.pid, p.parent, p.state, p.command)
}

// processes returns the world's guardians, its servers and all their descendants, however
// detached. It finds them by the HOME that they inherited. A zombie has no environment;
// processes finds a zombie as a child of one of the other processes.
func (w *world) processes(t testing.TB) []process {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("finds processes through /proc")
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	mark := []byte("HOME=" + w.home + "\x00")
	var found, zombies []process
	for _, dir := range dirs {
		p, ok := readProcess(dir)
		if !ok {
			continue
		}
		if p.state == 'Z' {
			zombies = append(zombies, p)
			continue
		}
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && bytes.Contains(append([]byte{0}, environ...), append([]byte{0}, mark...)) {
			found = append(found, p)
		}
	}
	for _, z := range zombies {
		if slices.ContainsFunc(found, func(p process) bool { return p.pid == z.parent }) {
			found = append(found, z)
		}
	}
	return found
}

func readProcess(dir string) (process, bool) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return process{}, false // the process has ended
	}
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndex(stat, []byte(") "))
	if open < 0 || end < 0 {
		return process{}, false
	}
	fields := strings.Fields(string(stat[end+2:]))
	p := process{state: fields[0][0], command: string(stat[open+1 : end])}
	p.pid, _ = strconv.Atoi(filepath.Base(dir))
	p.parent, _ = strconv.Atoi(fields[1])
	if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && len(line) > 0 {
		p.command = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
	}
	return p, true
}

// killRest kills the processes that a failed test has left, so that they do not disturb
// other tests.
func (w *world) killRest(t testing.TB) {
	for _, p := range w.processes(t) {
		if p.state != 'Z' && p.pid != os.Getpid() {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}

// poll calls ok until it returns true or the time is over, and reports whether it returned true. It waits
// 10 ms between two calls, and a tenth of the time that has passed if that is more, 200 ms at most: many tests
// wait at the same time. It is for changes by other processes, which can only be polled.
func poll(within time.Duration, ok func() bool) bool {
	began := time.Now()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		if ok() {
			return true
		}
		select {
		case <-time.After(min(max(10*time.Millisecond, time.Since(began)/10), 200*time.Millisecond)):
		case <-deadline.C:
			return ok()
		}
	}
}
