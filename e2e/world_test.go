package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// endsWithin bounds the time until a session is gone with everything it started. It is
	// above the limits of pmcp, which for the tests are patience times as long.
	endsWithin = slow * 30 * time.Second
	// answersWithin bounds every other wait for what must come.
	answersWithin = slow * 30 * time.Second
	// longWait is the timeout_ms of calls that wait for what must happen.
	longWait = slow * 25_000
	// patience is how many times as long as in a release pmcp waits for what must end.
	patience = 2 * slow
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

// tails returns the ends of all that the sessions have written.
func (e *stderrs) tails() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var b strings.Builder
	for i, r := range e.all {
		text := r.String()
		fmt.Fprintf(&b, "session %d:\n%s\n", i+1, text[max(0, len(text)-maxTail):])
	}
	return b.String()
}

// maxTail is how much of a session's standard error a failed test shows, in bytes.
const maxTail = 32 << 10

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
		fmt.Sprint("PMCP_TEST_PATIENCE=", patience),
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
	before := time.Now()
	if !poll(endsWithin, func() bool { return len(w.records(t)) == 0 && len(w.processes(t)) == 0 }) { // the cheap check first
		t.Errorf("got left after %v, want nothing:\n%s", endsWithin, w.left(t))
		w.showHang(t)
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
// 10 ms between two calls, and a tenth of the time that has passed if that is more, 500 ms at most: many tests
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
		case <-time.After(min(max(10*time.Millisecond, time.Since(began)/10), 500*time.Millisecond)):
		case <-deadline.C:
			return ok()
		}
	}
}
