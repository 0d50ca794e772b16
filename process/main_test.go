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
	"pmcp/process/proctest"
)

// helperEnv is the environment variable that names the helper program that the test binary runs
// instead of the tests.
const helperEnv = "PROCESS_TEST_HELPER"

// helpers are the programs that tests run as children. Each receives the arguments
// after argv[0] and returns its exit code.
var helpers map[string]func(args []string) int

func TestMain(m *testing.M) {
	helpers = map[string]func([]string) int{
		"block":   helperBlock,
		"tree":    helperTree,
		"daemon":  helperDaemon,
		"listen":  helperListen,
		"watcher": helperWatcher,
		"manager": helperManager,
		"ask":     helperAsk,
		"flags":   helperFlags,
		"spin":    helperSpin,
		"drain":   helperDrain,
		"wrap":    helperWrap,
	}
	killTimeout = testTimeout // killed processes need a core to die
	// The race detector would delay the exit of every helper by a second.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	if name := os.Getenv(helperEnv); name != "" {
		os.Exit(helpers[name](os.Args[1:]))
	}
	proctest.Overlap()
	goleak.VerifyTestMain(m)
}

// helper returns a Spec that runs a helper program.
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

// helperCommand returns a command that runs a helper program and writes to the streams of this
// process.
func helperCommand(program string, attr *syscall.SysProcAttr, args ...string) *exec.Cmd {
	cmd := exec.Command(executablePath(), args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+program)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = attr
	return cmd
}

// runUnstamped runs a command that belongs to no run: if a Manager of another test started a run at
// the same moment, the command would carry the stamp of that run.
func runUnstamped(cmd *exec.Cmd) error {
	if err := proctab.Stamped(0, cmd.Start); err != nil {
		return err
	}
	return cmd.Wait()
}

// sleepForEver blocks in a way that the runtime does not report as a deadlock.
func sleepForEver() int {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR2)
	<-never
	return 0
}

// helperBlock prints "up PID" and blocks. With "ignore" it ignores SIGTERM; with
// "exit N" it exits with code N instead of blocking.
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

// helperTree starts a child in its own group, one in a group of its own, one in a session of its
// own and a daemon. Each of these processes runs "block" with the same arguments, and so does
// helperTree itself. With "leave" helperTree exits at the first line of input, by which time all of
// them should be up.
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
		cmd.ExtraFiles = []*os.File{w} // closed once all these processes have exited
		daemon := slices.Contains(cmd.Env, helperEnv+"=daemon")
		if err := cmd.Start(); err != nil {
			fmt.Println("cannot start:", err)
			return 9
		}
		if daemon {
			_ = cmd.Wait() // the daemon has lost its parent now
		}
	}
	_ = r.Close()
	if slices.Contains(args, "leave") {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return 0
	}
	return helperBlock(args)
}

// helperDaemon starts "block" in a session of its own and exits: a double fork. With "clear" the
// daemon's environment contains only the name of the helper. With "limits" the daemon has the
// resource limits of a process that pmcp did not start.
func helperDaemon(args []string) int {
	cmd := helperCommand("block", &syscall.SysProcAttr{Setsid: true}, args...)
	if slices.Contains(args, "clear") {
		cmd.Env = []string{helperEnv + "=block"}
	}
	if slices.Contains(args, "limits") {
		if err := dropStamp(); err != nil {
			fmt.Println("cannot drop the stamp:", err)
			return 9
		}
	}
	if err := cmd.Start(); err != nil {
		fmt.Println("cannot start:", err)
		return 9
	}
	return 0
}

// memJournal is a Journal in memory.
type memJournal struct {
	mu     sync.Mutex
	runs   int64
	output map[int64]*[2]strings.Builder
	flush  map[int64]int // number of empty writes by run
	ended  map[int64]bool
	more   chan struct{}
	slow   func()       // called in each Capture
	claim  func() error // called in each NewRun
}

func newMemJournal() *memJournal {
	return &memJournal{output: map[int64]*[2]strings.Builder{}, flush: map[int64]int{}, ended: map[int64]bool{}, more: make(chan struct{})}
}

func (j *memJournal) NewRun(string, string) (int64, int, error) {
	j.mu.Lock()
	claim := j.claim
	j.mu.Unlock()
	if claim != nil {
		if err := claim(); err != nil {
			return 0, 0, err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.runs++
	j.output[j.runs] = new([2]strings.Builder)
	return j.runs, int(j.runs), nil
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

func (j *memJournal) StopBegan(int64) {}

func (j *memJournal) RunEnded(int64, int, string) bool { return false }

// Failing reports whether boom was printed last.
func (j *memJournal) Failing(run int64) (failing bool, last int64) {
	text := j.text(run, Stdout)
	return strings.HasSuffix(text, "boom\n"), int64(len(text))
}

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

// await blocks until the callback until returns true. The journal is locked during
// the callback.
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

// awaitReadyLine is awaitLine for Options.AwaitLine, with the number of bytes of standard output as the
// number of a line. It calls match once for each line.
func (j *memJournal) awaitReadyLine(ctx context.Context, run, after int64, match func(uint8, string) bool) (line string, err error) {
	seen := [2]int{int(after), 0}
	err = j.await(ctx, func() bool {
		for _, stream := range []uint8{Stdout, Stderr} {
			text := j.output[run][stream].String()
			whole := strings.LastIndexByte(text, '\n') + 1
			for l := range strings.Lines(text[seen[stream]:max(whole, seen[stream])]) {
				seen[stream] += len(l)
				if l = strings.TrimRight(l, "\r\n"); match(stream, l) {
					line = l
					return true
				}
			}
		}
		return false
	})
	return line, err
}

// awaitLine blocks until the run has printed a line that matches.
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

// pids blocks until n processes of run have printed "up PID" and returns their
// ids.
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

// testTimeout bounds every wait of the tests.
const testTimeout = proctest.Patience

var testContext = proctest.Context

// newTestManager returns a Manager and its Journal. The Manager is closed at the end of the test.
func newTestManager(t testing.TB, o Options) (*Manager, *memJournal) {
	t.Helper()
	j := newMemJournal()
	o.Journal, o.AwaitLine, o.Session = j, j.awaitReadyLine, rand.Text()
	if o.Project == "" {
		o.Project = t.TempDir()
	}
	m := NewManager(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return m, j
}

// start starts spec and fails the test on an error.
func start(t testing.TB, m *Manager, spec Spec) Status {
	t.Helper()
	st, _, err := m.Start(testContext(t), spec, KeepRunning)
	if err != nil {
		t.Fatalf("Start(%s): %v", spec.Name, err)
	}
	return st
}

// await blocks until the callback until returns true for the status of the named
// process.
func await(t testing.TB, m *Manager, name string, what string, until func(Status) bool) Status {
	t.Helper()
	st, err := m.Await(testContext(t), name, until)
	if err != nil {
		t.Fatalf("waiting for %s to be %s: %v; it is %s (%+v)", name, what, err, st.State, st)
	}
	return st
}

// awaitEnd blocks until the named process has ended.
func awaitEnd(t testing.TB, m *Manager, name string) Status {
	t.Helper()
	return await(t, m, name, "ended", func(st Status) bool { return !st.State.Live() })
}

// alive returns those of pids that are alive. A zombie is not alive.
func alive(pids []int) (left []int) {
	for _, pid := range pids {
		if p, err := proctab.Read(pid); err == nil && !p.Zombie {
			left = append(left, pid)
		}
	}
	return left
}
