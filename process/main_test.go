package process

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pmcp/process/proctab"
)

// helperEnv names the program that the test binary is to be instead.
const helperEnv = "PROCESS_TEST_HELPER"

// helpers are the programs that tests run as children. Each gets the arguments
// behind argv[0] and returns its exit code.
var helpers map[string]func(args []string) int

func TestMain(m *testing.M) {
	helpers = map[string]func([]string) int{
		"block":   helperBlock,
		"tree":    helperTree,
		"daemon":  helperDaemon,
		"listen":  helperListen,
		"manager": helperManager,
		"ask":     helperAsk,
		"flags":   helperFlags,
		"spin":    helperSpin,
	}
	// The race detector would hold up the end of every helper for a second.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	if name := os.Getenv(helperEnv); name != "" {
		os.Exit(helpers[name](os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// helper is a Spec that runs a helper program.
func helper(name, program string, args ...string) Spec {
	return Spec{Name: name, Command: executablePath(), Args: args, Env: map[string]string{helperEnv: program}}
}

func executablePath() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// helperCommand is a helper program for exec, with env instead of ours.
func helperCommand(program string, attr *syscall.SysProcAttr, args ...string) *exec.Cmd {
	cmd := exec.Command(executablePath(), args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+program)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = attr
	return cmd
}

// sleepForEver blocks without the runtime taking that for a deadlock.
func sleepForEver() int {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR2)
	<-never
	return 0
}

// helperBlock says "up PID" and blocks; with "ignore" it takes no notice of
// SIGTERM, with "exit N" it exits instead of blocking.
func helperBlock(args []string) int {
	if slices.Contains(args, "ignore") {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	fmt.Println("up", os.Getpid())
	if i := slices.Index(args, "exit"); i >= 0 {
		code, _ := strconv.Atoi(args[i+1])
		return code
	}
	return sleepForEver()
}

// helperTree starts a child in its own group, one in a group of its own, one in
// a session of its own and a daemon, all of which do as "block" with the same
// arguments, and does so itself. With "leave" it exits at the first line that it
// is sent, by when all of them should be up.
func helperTree(args []string) int {
	r, w, err := os.Pipe()
	if err != nil {
		return 9
	}
	rest := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "leave" })
	for _, cmd := range []*exec.Cmd{
		helperCommand("block", nil, rest...),
		helperCommand("block", &syscall.SysProcAttr{Setpgid: true}, rest...),
		helperCommand("block", &syscall.SysProcAttr{Setsid: true}, rest...),
		helperCommand("daemon", nil, rest...),
	} {
		cmd.Stdin = nil
		cmd.ExtraFiles = []*os.File{w} // closed when all of them have gone
		daemon := slices.Contains(cmd.Env, helperEnv+"=daemon")
		if err := cmd.Start(); err != nil {
			fmt.Println("cannot start:", err)
			return 9
		}
		if daemon {
			_ = cmd.Wait() // the daemon is orphaned now
		}
	}
	_ = r.Close()
	if slices.Contains(args, "leave") {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return 0
	}
	return helperBlock(args)
}

// helperDaemon starts "block" in a session of its own and exits: a double fork.
// With "clear" the daemon's environment is empty but for what makes it block.
func helperDaemon(args []string) int {
	cmd := helperCommand("block", &syscall.SysProcAttr{Setsid: true}, args...)
	if slices.Contains(args, "clear") {
		cmd.Env = []string{helperEnv + "=block"}
	}
	if err := cmd.Start(); err != nil {
		fmt.Println("cannot start:", err)
		return 9
	}
	return 0
}

// memJournal keeps what runs print in memory.
type memJournal struct {
	mu     sync.Mutex
	runs   int64
	output map[int64]*[2]strings.Builder
	flush  map[int64]int // empty writes
	ended  map[int64]bool
	more   chan struct{}
	slow   func() // called in each Capture
}

func newMemJournal() *memJournal {
	return &memJournal{output: map[int64]*[2]strings.Builder{}, flush: map[int64]int{}, ended: map[int64]bool{}, more: make(chan struct{})}
}

func (j *memJournal) NewRun(string, string) (int64, int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.runs++
	j.output[j.runs] = new([2]strings.Builder)
	return j.runs, int(j.runs)
}

func (j *memJournal) Capture(run int64, stream uint8, _ time.Time, p []byte) {
	if j.slow != nil {
		j.slow()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.output[run][stream].Write(p)
	if len(p) == 0 {
		j.flush[run]++
	}
	j.changed()
}

func (j *memJournal) RunEnded(int64, int, string) {}

func (j *memJournal) EndCapture(run int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended[run] = true
	j.changed()
}

func (j *memJournal) changed() {
	close(j.more)
	j.more = make(chan struct{})
}

func (j *memJournal) text(run int64, stream uint8) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.output[run][stream].String()
}

// await returns once until holds; it is called with the journal locked.
func (j *memJournal) await(ctx context.Context, until func() bool) error {
	for {
		j.mu.Lock()
		ok, more := until(), j.more
		j.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitLine is Options.AwaitLine.
func (j *memJournal) awaitLine(ctx context.Context, run int64, match func(string) bool) (line string, err error) {
	err = j.await(ctx, func() bool {
		for _, stream := range []uint8{Stdout, Stderr} {
			for l := range strings.Lines(j.output[run][stream].String()) {
				if l = strings.TrimSpace(l); match(l) {
					line = l
					return true
				}
			}
		}
		return false
	})
	return line, err
}

// pids waits until n processes of run have said "up PID" and returns them.
func (j *memJournal) pids(ctx context.Context, run int64, n int) (pids []int, err error) {
	err = j.await(ctx, func() bool {
		pids = nil
		for l := range strings.Lines(j.output[run][Stdout].String()) {
			if text, ok := strings.CutPrefix(l, "up "); ok && strings.HasSuffix(l, "\n") {
				pid, _ := strconv.Atoi(strings.TrimSpace(text))
				pids = append(pids, pid)
			}
		}
		return len(pids) >= n
	})
	return pids, err
}

// patience bounds what tests wait for.
const patience = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newTestManager returns a Manager that is closed at the end of the test.
func newTestManager(t testing.TB, o Options) (*Manager, *memJournal) {
	t.Helper()
	j := newMemJournal()
	o.Journal, o.AwaitLine, o.Session = j, j.awaitLine, rand.Text()
	if o.Project == "" {
		o.Project = t.TempDir()
	}
	m := NewManager(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return m, j
}

// start starts spec and fails the test if that fails.
func start(t testing.TB, m *Manager, spec Spec) Status {
	t.Helper()
	st, _, err := m.Start(testContext(t), spec, KeepRunning)
	if err != nil {
		t.Fatalf("Start(%s): %v", spec.Name, err)
	}
	return st
}

// await waits until the status of name is as wished.
func await(t testing.TB, m *Manager, name string, what string, until func(Status) bool) Status {
	t.Helper()
	st, err := m.Await(testContext(t), name, until)
	if err != nil {
		t.Fatalf("waiting for %s to be %s: %v; it is %s (%+v)", name, what, err, st.State, st)
	}
	return st
}

// awaitEnd waits until name does not run any more.
func awaitEnd(t testing.TB, m *Manager, name string) Status {
	t.Helper()
	return await(t, m, name, "ended", func(st Status) bool { return !st.State.Live() })
}

// alive returns those of pids that are there, zombies left out.
func alive(pids []int) (left []int) {
	for _, pid := range pids {
		if p, err := proctab.Read(pid); err == nil && !p.Zombie {
			left = append(left, pid)
		}
	}
	return left
}
