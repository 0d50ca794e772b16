package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// deadLauncher starts its arguments below a shell that executes them once their
// launcher, this script, is dead.
const deadLauncher = `exec 4<&0
sh -c 'while read -r pid comm state parent rest < /proc/$$/stat && [ "$parent" = "$0" ]; do sleep 0.01; done
exec "$@" <&4 4<&-' $$ "$@" &
exit`

// TestLaunchedByTheDead has the client die before pmcp can see who it was, while
// we hold its input open: it ends all the same, whoever inherits it, once the
// client that says nothing more may be pinged.
func TestLaunchedByTheDead(t *testing.T) {
	t.Parallel()
	binary(t)
	for heir, argv := range map[string][]string{
		"init":                     nil,
		"a process of the session": append([]string{self(t)}, program("reaper")...),
	} {
		t.Run(heir, func(t *testing.T) {
			t.Parallel()
			launchedByTheDead(t, append(argv, "/bin/sh", "-c", deadLauncher, "launcher"))
		})
	}
}

func launchedByTheDead(t *testing.T, argv []string) {
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
		_ = cmd.Wait() // how it ended does not matter
		close(v.exited)
	}()
	check(t, v.ask([]args{a.tree("web", "daemon", false)}))
	check(t, v.await(1))
	if !poll(endsWithin, func() bool { return len(a.reported()) == 2 }) {
		t.Errorf("the tree does not grow: %v", a.reported())
	}
	check(t, v.tell(nil))
	var left []string
	if !poll(endsWithin, func() bool { left = a.remains(); return len(left) == 0 }) {
		t.Errorf("left after %v: %q", endsWithin, left)
	}
	check(t, v.close())
}

// TestWrapperDies kills what stands between the client and pmcp, as npx may be.
// The client answers the ping, so the session goes on, and is as safe as before:
// SIGKILL of the server then still leaves nothing. On a busy machine we may once
// not get to answering within the 2 s that a client is given.
func TestWrapperDies(t *testing.T) {
	t.Parallel()
	for range 3 {
		if wrapperDies(t) {
			return
		}
	}
	t.Error("the server does not hear our answers")
}

// wrapperDies is one try; it tells whether our answer came in time.
func wrapperDies(t *testing.T) (answered bool) {
	t.Helper()
	w := newWorld(t)
	path := binary(t)
	s := w.launch(t, "/bin/sh", "-c", `exec 4<&0; "$@" <&4 4<&- & wait`, "wrapper", path)
	s.initialize(t)
	s.must(t, "start_process", args{"name": "tree", "command": "sh", "args": []string{"-c", "(setsid sleep 300 &); sleep 300"}})
	guardian, server := w.pmcps(t)
	s.signal(t, syscall.SIGKILL) // the wrapper
	s.exit(t)
	says := func(what string) bool { return strings.Contains(s.stderr.String(), what) }
	if !poll(endsWithin, func() bool { return says("the client lives") || says("the client does not answer") }) {
		t.Errorf("the server does not say that the client lives:\n%s", s.stderr)
	}
	if says("the client does not answer") {
		w.awaitEmpty(t)
		return false
	}
	s.must(t, "list_processes", args{})
	if g, i := w.pmcps(t); g != guardian || i != server {
		t.Errorf("guardian and server were %d and %d, are %d and %d", guardian, server, g, i)
	}
	check(t, syscall.Kill(server, syscall.SIGKILL))
	w.awaitEmpty(t)
	return true
}

// pmcps finds guardian and server.
func (w *world) pmcps(t testing.TB) (guardian, server int) {
	t.Helper()
	for _, p := range w.processes(t) {
		words := strings.Fields(p.command)
		switch {
		case words[0] != build.path:
		case len(words) > 1 && words[1] == "__serve":
			server = p.pid
		case len(words) == 1:
			guardian = p.pid
		}
	}
	if guardian == 0 || server == 0 {
		t.Fatalf("no guardian or no server among %v", w.processes(t))
	}
	return guardian, server
}

// TestGuardianDiesWhileClientIsSilent: the wrapper is gone and the client cannot
// be pinged, for it never said initialize. The server waits for it, and still
// sees the end of the guardian.
func TestGuardianDiesWhileClientIsSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.launch(t, "/bin/sh", "-c", `exec 4<&0; "$@" <&4 4<&- & wait`, "wrapper", binary(t))
	s.must(t, "start_process", args{"name": "tree", "command": "sleep", "args": []string{"300"}})
	guardian, _ := w.pmcps(t)
	s.signal(t, syscall.SIGKILL) // the wrapper
	s.exit(t)
	if !poll(endsWithin, func() bool { return strings.Contains(s.stderr.String(), "the parent has ended") }) {
		t.Errorf("the server does not say that the parent has ended:\n%s", s.stderr)
	}
	check(t, syscall.Kill(guardian, syscall.SIGKILL))
	w.awaitEmpty(t)
}
