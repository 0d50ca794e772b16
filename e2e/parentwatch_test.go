package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// deadLauncher is a shell script that executes its arguments in the background, as soon as
// the script itself, their launcher, is dead.
const deadLauncher = `exec 4<&0
sh -c 'while read -r pid comm state parent rest < /proc/$$/stat && [ "$parent" = "$0" ]; do sleep 0.01; done
exec "$@" <&4 4<&-' $$ "$@" &
exit`

// TestServerExitsIfLauncherDiesBeforeStart lets the client die before pmcp can see the
// client's pid, while the test holds pmcp's stdin open. pmcp must exit as soon as it may
// ping the client, which does not answer, whatever its new parent is.
func TestServerExitsIfLauncherDiesBeforeStart(t *testing.T) {
	t.Parallel()
	binary(t)
	for heir, argv := range map[string][]string{
		"init":                     nil,
		"a process of the session": append([]string{self(t)}, program("reaper")...),
	} {
		t.Run(heir, func(t *testing.T) {
			t.Parallel()
			launcherDies(t, append(argv, "/bin/sh", "-c", deadLauncher, "launcher"))
		})
	}
}

func launcherDies(t *testing.T, argv []string) {
	a := newArena(t)
	if a.group == nil {
		t.Skip("finds pmcp by its cgroup")
	}
	cmd, stderr, err := a.command(argv)
	check(t, err)
	defer stderr.Close()
	in, input, err := os.Pipe()
	check(t, err)
	defer input.Close()
	output, out, err := os.Pipe()
	check(t, err)
	cmd.Stdin, cmd.Stdout = in, out
	check(t, cmd.Start())
	in.Close()
	out.Close()
	v := &victim{arena: a, cmd: cmd, in: input, out: output, answers: make(chan struct{}, 1000), wrong: make(chan string, 1), exited: make(chan struct{})}
	go v.read()
	go func() {
		_ = cmd.Wait() // the exit code does not matter
		close(v.exited)
	}()
	check(t, v.ask([]args{a.tree("web", "daemon", false)}))
	check(t, v.await(1))
	if !poll(endsWithin, func() bool { return len(a.reported()) == 2 }) {
		t.Errorf("got the processes %v, want a tree of 2", a.reported())
	}
	check(t, v.tell(nil))
	var left []string
	if !poll(endsWithin, func() bool { left = a.remains(); return len(left) == 0 }) {
		t.Errorf("got %q left after %v, want nothing", left, endsWithin)
	}
	check(t, v.close())
}

// waitingWrappers runs pmcp in the foreground of two shells, as npx does, with the script's
// standard input and output, and prints pmcp's pid.
const waitingWrappers = `sh -c 'sh -c "echo \$\$ >&3; exec \"\$@\" 3>&-" sh "$@"; exit' sh "$@"; exit`

// TestServerExitsIfClientAboveWrappersDies kills a client that has wrappers between itself and
// pmcp, while the test holds pmcp's stdin open. The wrappers live on, and wait for pmcp.
func TestServerExitsIfClientAboveWrappersDies(t *testing.T) {
	t.Parallel()
	binary(t)
	a := newArena(t)
	v, err := a.launchVictimOf([]string{"/bin/sh", "-c", waitingWrappers, "client"})
	check(t, err)
	check(t, v.tell([]args{a.tree("web", "daemon", false)}))
	check(t, v.await(1))
	if !poll(endsWithin, func() bool { return len(a.reported()) == 2 }) {
		t.Errorf("got the processes %v, want a tree of 2", a.reported())
	}
	check(t, v.cmd.Process.Kill())
	a.awaitEmpty(t)
	check(t, v.close())
}

// TestSessionSurvivesDeathOfWrapper kills a process between the client and pmcp, such as
// npx. The client answers the ping, so the session continues. SIGKILL of the server must
// still leave nothing. The test tries three times, because on a busy machine it may not
// answer within the 2 s that a client has.
func TestSessionSurvivesDeathOfWrapper(t *testing.T) {
	t.Parallel()
	for range 3 {
		if wrapperDies(t) {
			return
		}
	}
	t.Error("the server got no answer to a ping in time in 3 tries")
}

// wrapperDies is one try of TestSessionSurvivesDeathOfWrapper. It reports whether the
// server got the answer to its ping in time.
func wrapperDies(t *testing.T) (answered bool) {
	t.Helper()
	w := newWorld(t)
	path := binary(t)
	s := w.launch(t, "/bin/sh", "-c", `exec 4<&0; "$@" <&4 4<&- & wait`, "wrapper", path)
	s.initialize(t)
	s.must(t, "start_process", args{"name": "tree", "command": "sh", "args": []string{"-c", "(setsid sleep 300 &); sleep 300"}})
	guardian, server := w.pmcps(t)
	s.signal(t, syscall.SIGKILL) // kills the wrapper
	s.exit(t)
	logged := func(what string) bool { return strings.Contains(s.stderr.String(), what) }
	if !poll(endsWithin, func() bool { return logged("the client lives") || logged("the client does not answer") }) {
		t.Errorf("got a log without the result of the ping:\n%s", s.stderr)
	}
	if logged("the client does not answer") {
		w.awaitEmpty(t)
		return false
	}
	s.must(t, "list_processes", args{})
	var text string
	if !poll(endsWithin, func() bool {
		var code int
		var err error
		text, code, err = w.doctor()
		return err == nil && code == 0 && strings.Contains(text, "parent_alive=false") && strings.Contains(text, "client_answered_at=") &&
			strings.Contains(text, "stale_client=false") && !strings.Contains(text, "kill -TERM")
	}) {
		t.Errorf("got the report\n%s\nwant a client that has answered", text)
	}
	if g, i := w.pmcps(t); g != guardian || i != server {
		t.Errorf("got guardian %d and server %d, want %d and %d as before", g, i, guardian, server)
	}
	check(t, syscall.Kill(server, syscall.SIGKILL))
	w.awaitEmpty(t)
	return true
}

// pmcps returns the pids of pmcp's guardian and server.
func (w *world) pmcps(t testing.TB) (guardian, server int) {
	t.Helper()
	for _, p := range w.processes(t) {
		switch words := strings.Fields(p.command); {
		case words[0] != build.path:
		case len(words) == 3 && words[1] == "__serve": // a daemon has more
			server = p.pid
		case len(words) == 1:
			guardian = p.pid
		}
	}
	if guardian == 0 || server == 0 {
		t.Fatalf("got processes %v, want a guardian and a server", w.processes(t))
	}
	return guardian, server
}

// TestServerOfSilentClientNoticesGuardianDeath checks that a server exits when its
// guardian dies although the server can ping no client: the wrapper between client and
// pmcp is dead, and the client never sent initialize.
func TestServerOfSilentClientNoticesGuardianDeath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.launch(t, "/bin/sh", "-c", `exec 4<&0; "$@" <&4 4<&- & wait`, "wrapper", binary(t))
	s.must(t, "start_process", args{"name": "tree", "command": "sleep", "args": []string{"300"}})
	guardian, _ := w.pmcps(t)
	s.signal(t, syscall.SIGKILL) // kills the wrapper
	s.exit(t)
	if !poll(endsWithin, func() bool { return strings.Contains(s.stderr.String(), "the parent has ended") }) {
		t.Errorf("got a log without \"the parent has ended\":\n%s", s.stderr)
	}
	check(t, syscall.Kill(guardian, syscall.SIGKILL))
	w.awaitEmpty(t)
}
