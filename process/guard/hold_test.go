package guard

import (
	"strings"
	"syscall"
	"testing"
)

// asked is a shell script that prints "up" and, when it gets SIGTERM, "asked". It polls, because a
// shell may miss a signal that arrives just before it waits.
const asked = `trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.02; done`

// TestHeldCommandMayEndItself checks that SIGTERM of the guardian reaches the command, and that the
// command's exit code comes back.
func TestHeldCommandMayEndItself(t *testing.T) {
	s := start(t, []string{"hold", strings.Replace(asked, "exit 0", "exit 9", 1)})
	s.wantLine("up")
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	s.wantLine("asked")
	if got := s.exitCode(); got != 9 {
		t.Errorf("got exit code %d, want 9", got)
	}
	s.wantGone()
}

// TestWhatHeldCommandLeavesMayEndItself checks that a process that a command leaves gets SIGTERM,
// and that a process below it does not before its parent has ended.
func TestWhatHeldCommandLeavesMayEndItself(t *testing.T) {
	const script = `
"$SHELL_COPY" -c 'trap "echo parent; exit" TERM
	"$SHELL_COPY" -c "trap \"echo child; exit\" TERM; echo up; while :; do sleep 0.02; done" & while :; do sleep 0.02; done' &
read -r line; exit 3`
	s := start(t, []string{"hold", script})
	s.wantLine("up")
	s.order("end")
	s.wantLine("parent")
	s.wantLine("child")
	if got := s.exitCode(); got != 3 {
		t.Errorf("got exit code %d, want 3", got)
	}
	s.wantGone()
}

// TestHeldCommandEndsWithLauncher checks that the command ends when the process above the guardian
// does, while its stdin stays open, with and without pidfd.
func TestHeldCommandEndsWithLauncher(t *testing.T) {
	for _, how := range []string{"handle", "polling"} {
		t.Run(how, func(t *testing.T) {
			s := start(t, []string{"hold", how, asked}, func(o *sessionOptions) { o.front = []string{"wrapper"} })
			s.wantLine("up")
			must(t, s.cmd.Process.Kill()) // the wrapper
			s.wantLine("asked")
			s.wantGone()
		})
	}
}
