package e2e

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctest"
)

var (
	guardRuns    = flag.Int("guard.n", 3, "deaths in TestGuardLeavesNothing")
	guardBrowser = flag.Bool("guard.browser", false, "in TestGuardLeavesNothing: every command starts Chromium")
	guardBytes   = flag.Int64("guard.bytes", 16<<20, "bytes through the guard in TestGuardPassesBytes")
)

// guarded returns pmcp guard with a command, in the world's directories and environment.
func (w *world) guarded(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary(t), append([]string{"guard", "--"}, argv...)...)
	cmd.Dir, cmd.Env = w.project, w.env
	return cmd
}

// TestGuardIsTransparent checks that a guarded command gets arguments, stdin, directory and
// environment as they are, except for the mark of its session, and that its output and its exit
// code come back.
func TestGuardIsTransparent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	script := `cat; pwd; env | grep -v -e ^PMCP_SESSION= -e ^_= -e ^SHLVL= | sort; printf '%s|' "$@"; echo wrong >&2; exit 7`
	argv := []string{"sh", "-c", script, "sh", "a b", "", "--", "-x", "é\n"}
	run := func(cmd *exec.Cmd) (out, errors string, code int) {
		var stdout, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("in\x00\xff"), &stdout, &stderr
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !asExit(err, &exit) {
			t.Fatal(err)
		}
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	plain := exec.Command(argv[0], argv[1:]...)
	plain.Dir, plain.Env = w.project, w.env
	wantOut, wantErr, wantCode := run(plain)
	out, stderr, code := run(w.guarded(t, argv...))
	guarded := w.guarded(t, "env")
	guarded.Env = append(guarded.Env, "PM_DAEMON_TOKEN=hidden")
	if out, _, code := run(guarded); strings.Contains(out, "PM_DAEMON_TOKEN") || code != 0 {
		t.Errorf("got the environment\n%s, code %d, want it without the token of the daemon", out, code)
	}
	if out != wantOut || stderr != wantErr || code != wantCode {
		t.Errorf("got %q, %q, %d through the guard, want %q, %q, %d", out, stderr, code, wantOut, wantErr, wantCode)
	}
	for _, c := range []struct {
		script string
		want   int
	}{{"exit 0", 0}, {"exit 255", 255}, {"kill -TERM $$", 143}, {"kill -KILL $$", 137}, {"sleep 300 & exit 3", 3}} {
		if _, stderr, code := run(w.guarded(t, "sh", "-c", c.script)); code != c.want || stderr != "" {
			t.Errorf("%s: got code %d and %q, want %d and nothing", c.script, code, stderr, c.want)
		}
	}
	script = filepath.Join(w.home, "text")
	proctest.WriteProgram(t, script, []byte("not a program"), 0o755)
	for _, c := range []struct {
		argv   []string
		want   int
		report string
	}{
		{[]string{"guard", "--", "no such program"}, 127, "executable file not found"},
		{[]string{"guard", "--", "./no-such-program"}, 127, "no such file"},
		{[]string{"guard", "--", w.home}, 126, "is a directory"},
		{[]string{"guard", "--", script}, 126, "cannot start the command: execute " + script},
		{[]string{"guard", "--"}, 2, "usage: pmcp guard -- COMMAND"},
		{[]string{"guard", "--help"}, 2, "usage: pmcp guard -- COMMAND"},
		{[]string{"__hold", "id", "true"}, 2, "__hold is for pmcp itself"},
	} {
		cmd := exec.Command(binary(t), c.argv...)
		cmd.Dir, cmd.Env = w.project, w.env
		if out, stderr, code := run(cmd); code != c.want || out != "" || !strings.Contains(stderr, c.report) {
			t.Errorf("%q: got %q, %q and code %d, want %q and code %d", c.argv, out, stderr, code, c.report, c.want)
		}
	}
	if _, err := os.Stat(w.database); !os.IsNotExist(err) {
		t.Errorf("got %v for the database, want none", err)
	}
}

func asExit(err error, exit **exec.ExitError) bool { return errors.As(err, exit) }

// TestGuardPassesBytes pumps random bytes through a guarded cat and compares them.
func TestGuardPassesBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := w.guarded(t, "cat")
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	sent, got := sha256.New(), sha256.New()
	written := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(in, sent), rand.NewChaCha8([32]byte{1}), *guardBytes)
		written <- errors.Join(err, in.Close())
	}()
	n, err := io.Copy(got, out)
	check(t, errors.Join(err, <-written, cmd.Wait()))
	if n != *guardBytes || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("got %d bytes, hash %x, want %d bytes, hash %x", n, got.Sum(nil), *guardBytes, sent.Sum(nil))
	}
	t.Logf("%d bytes", n)
}

// A guardFault is a way to end a guarded command.
type guardFault struct {
	name   string
	client string // a shell script that starts pmcp guard; "" if the test does
	strike func(v *victim) error
}

// wrapperScript starts its arguments below another shell, as npx and `sh -c` do. The pid of pmcp
// goes to descriptor 3, and the shell that the test kills is between test and pmcp.
const wrapperScript = `exec 4<&0
sh -c '"$@" <&4 4<&- 3>&- & echo $! >&3; exec 3>&-; wait' sh "$@" &
exec 3>&-
wait`

func guardFaults() []guardFault {
	killParent := func(v *victim) error {
		s, ok := readStat(v.launched)
		if !ok || s.parent <= 1 {
			return fmt.Errorf("the guard %d has no parent: %v", v.launched, s)
		}
		return syscall.Kill(s.parent, syscall.SIGKILL)
	}
	return []guardFault{
		{name: "SIGKILL guard", strike: func(v *victim) error { return v.signal(syscall.SIGKILL) }},
		{name: "SIGKILL second guard", strike: killServer},
		{name: "SIGKILL guard's group", strike: func(v *victim) error { return syscall.Kill(-v.launched, syscall.SIGKILL) }},
		{name: "SIGTERM", strike: func(v *victim) error { return v.signal(syscall.SIGTERM) }},
		{name: "SIGKILL client", client: clientScript, strike: func(v *victim) error { return v.cmd.Process.Kill() }},
		{name: "SIGKILL wrapper", client: wrapperScript, strike: killParent},
		{name: "the command ends", strike: func(v *victim) error { return v.in.Close() }},
	}
}

// TestGuardLeavesNothing kills guards, clients and wrappers at random moments while the guarded
// command grows a process tree, and checks that no process and no record is left.
func TestGuardLeavesNothing(t *testing.T) {
	t.Parallel()
	binary(t)
	chromium, err := exec.LookPath("chromium")
	if *guardBrowser && err != nil {
		t.Skip("there is no chromium")
	}
	faults := guardFaults()
	seed := cmp.Or(*chaosSeed, uint64(time.Now().UnixNano()))
	t.Logf("-chaos.seed=%d", seed)
	outcomes := inArenas(t, *guardRuns, func(a *arena, i int) outcome {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		// The command reads its input to the end, beside the tree.
		kind := treeKinds[rnd.IntN(len(treeKinds))]
		argv := []string{"sh", "-c", `sh "$@" & cat; exit 0`, "sh", filepath.Join(a.home, "tree"), kind, a.report}
		if *guardBrowser {
			argv = append([]string{"sh", "-c", `"$0" --headless --no-sandbox --disable-gpu --remote-debugging-port=0 --user-data-dir="$HOME/$$" about:blank 2>/dev/null & sh "$@" & cat; exit 0`, chromium}, argv[4:]...)
		}
		delay := time.Duration(rnd.Int64N(int64(60 * time.Millisecond)))
		if *guardBrowser {
			delay = time.Duration(rnd.Int64N(int64(2 * time.Second)))
		}
		return a.strikeGuard(faults[i%len(faults)], rnd.IntN(3) > 0, delay, argv)
	})
	processes := 0
	for i, l := range outcomes {
		processes += l.processes
		if !l.clean() {
			t.Errorf("death %d: got %v, want nothing left", i, l)
		}
	}
	if *guardRuns >= 10 && processes == 0 {
		t.Error("no process was started: the test proves nothing")
	}
	for _, f := range faults {
		var took []time.Duration
		for _, l := range outcomes {
			if l.fault == f.name {
				took = append(took, l.cleanup)
			}
		}
		slices.Sort(took)
		if n := len(took); n > 0 {
			t.Logf("%-22s %4d, gone after p50 %v, p99 %v", f.name, n, took[n/2].Round(time.Millisecond), took[n*99/100].Round(time.Millisecond))
		}
	}
}

// strikeGuard guards a command, ends it by the fault and returns what is left. If grown is set, the
// fault comes once a process of the tree has reported itself, else during the start.
func (a *arena) strikeGuard(fault guardFault, grown bool, delay time.Duration, argv []string) (l outcome) {
	l.fault = fault.name
	before := len(a.reported())
	var client []string
	if fault.client != "" {
		client = []string{"/bin/sh", "-c", fault.client, "client"}
	}
	v, err := a.launchVictimOf(client, append([]string{"guard", "--"}, argv...)...)
	if err != nil {
		l.err = err
		return l
	}
	if grown && !poll(answersWithin, func() bool { return len(a.reported()) > before }) {
		l.err = errors.New("the command starts no tree")
	}
	<-time.After(delay)
	struck := time.Now()
	l.err = errors.Join(l.err, fault.strike(v))
	poll(endsWithin, func() bool {
		l.files = a.records(a.t)
		if len(l.files) == 0 {
			l.left = a.remains()
		}
		return len(l.files)+len(l.left) == 0
	})
	l.cleanup = time.Since(struck)
	l.left = a.remains()
	l.processes = len(a.reported()) - before
	a.killRemains()
	l.err = errors.Join(l.err, v.close())
	return l
}

// guardTree guards a tree of two processes and returns when the tree is up.
func (a *arena) guardTree() (v *victim, holder int) {
	a.t.Helper()
	v, err := a.launchVictimOf(nil, "guard", "--", "sh", filepath.Join(a.home, "tree"), "daemon", a.report)
	check(a.t, err)
	holder, err = v.awaitServer()
	check(a.t, err)
	if !poll(answersWithin, func() bool { return len(a.reported()) == 2 }) {
		a.t.Fatalf("got processes %v, want a tree of 2", a.reported())
	}
	return v, holder
}

// killGuards kills both guards at once and checks that the doctor's clean-up ends what they leave.
func (a *arena) killGuards(v *victim, holder int) {
	a.t.Helper()
	freeze(a.t, v.launched)
	freeze(a.t, holder)
	check(a.t, errors.Join(syscall.Kill(holder, syscall.SIGKILL), syscall.Kill(v.launched, syscall.SIGKILL)))
	var text string
	if !poll(endsWithin, func() bool {
		var code int
		var err error
		text, code, err = a.doctor("--cleanup-stale-records")
		return err == nil && code == 0 && len(a.records(a.t)) == 0
	}) {
		a.t.Errorf("got no clean-up:\n%s", text)
	}
	a.awaitEmpty(a.t)
	check(a.t, v.close())
}

// TestGuardWithoutRecordIsCleanedUp kills both guards of a command that has lost its record: the lock and
// the mark of its processes are enough to end what is left.
func TestGuardWithoutRecordIsCleanedUp(t *testing.T) {
	t.Parallel()
	binary(t)
	a := newArena(t)
	v, holder := a.guardTree()
	for _, name := range a.records(t) {
		if filepath.Ext(name) != ".lock" {
			check(t, os.Remove(filepath.Join(a.registry, name)))
		}
	}
	a.killGuards(v, holder)
}

// TestGuardIsListed checks that the doctor lists a guard with its command, that a server does not
// count it as a server, and that the doctor's clean-up ends what is left if both guards are killed
// at once.
func TestGuardIsListed(t *testing.T) {
	t.Parallel()
	binary(t)
	a := newArena(t)
	v, holder := a.guardTree()
	text, code, err := a.doctor()
	check(t, err)
	for _, want := range []string{"0 live, 0 stale, 1 guarding a command", fmt.Sprintf("pid=%d state=live", holder), "guards=\"sh " + a.home, fmt.Sprintf("guardian=%d", v.launched), "sleep (running)"} {
		if !strings.Contains(text, want) {
			t.Errorf("got a report without %q:\n%s", want, text)
		}
	}
	if code != 0 {
		t.Errorf("got code %d, want 0:\n%s", code, text)
	}
	c := a.open(t)
	if info := c.ok(t, "get_server_info", nil).Text; strings.Contains(info, fmt.Sprint(holder)) {
		t.Errorf("got %s, want one server and not the guard", info)
	}
	c.closeInput(t)
	c.exit(t)
	a.killGuards(v, holder)
}

// TestGuardWorksWithNpm guards a command that npm runs, and lets npm, which is killed, run the guard.
func TestGuardWorksWithNpm(t *testing.T) {
	proctest.Long(t, "npm")
	t.Parallel()
	needs(t, "npm")
	w := newWorld(t)
	cmd := w.guarded(t, "npm", "exec", "--offline", "-c", "cat; exit 7")
	cmd.Stdin = strings.NewReader("in\x00\xff")
	out, err := cmd.Output()
	if string(out) != "in\x00\xff" || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("got %q and %v, want the input and exit code 7", out, err)
	}

	npm := exec.Command("npm", "exec", "--offline", "-c", build.path+` guard -- sh -c '(setsid sleep 300 &); echo up; sleep 300'`)
	npm.Dir, npm.Env = w.project, w.env
	stdin, err := npm.StdinPipe() // stays open
	check(t, err)
	defer stdin.Close()
	stdout, err := npm.StdoutPipe()
	check(t, err)
	check(t, npm.Start())
	if _, err := stdout.Read(make([]byte, 2)); err != nil {
		t.Errorf("the command below npm has not started: %v", err)
	}
	check(t, npm.Process.Kill())
	_ = npm.Wait() // it was killed
	w.awaitEmpty(t)
}

// TestGuardIsPidOne runs the guard as the first process of a pid namespace, as in a container.
func TestGuardIsPidOne(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs pid namespaces")
	}
	if out, err := exec.Command("unshare", "-pf", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("cannot create a pid namespace: %v: %s", err, out)
	}
	w := newWorld(t)
	cmd := exec.Command("unshare", "-pf", "--mount-proc", "--kill-child", binary(t), "guard", "--",
		"sh", "-c", `(setsid sleep 300 &) ; read -r line; echo $PPID "$line"; exit 5`)
	cmd.Dir, cmd.Env, cmd.Stdin = w.project, w.env, strings.NewReader("in\n")
	out, err := cmd.Output()
	if got, want := string(out), "in\n"; !strings.HasSuffix(got, want) || cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("got %q, code %d, %v, want %q, code 5", got, cmd.ProcessState.ExitCode(), err, want)
	}
}

// BenchmarkGuard measures the time from the start to the first byte of a command, with and without
// the guard.
func BenchmarkGuard(b *testing.B) {
	w := newWorld(b)
	binary(b) // not in the first round
	first := func(b *testing.B, cmd *exec.Cmd) {
		out, err := cmd.StdoutPipe()
		check(b, err)
		check(b, cmd.Start())
		_, err = out.Read(make([]byte, 1))
		b.StopTimer()
		check(b, errors.Join(err, cmd.Wait()))
		b.StartTimer()
	}
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			first(b, exec.Command("echo", "a"))
		}
	})
	b.Run("guard", func(b *testing.B) {
		for b.Loop() {
			first(b, w.guarded(b, "echo", "a"))
		}
	})
}
