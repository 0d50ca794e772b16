package guard

import (
	"fmt"
	"runtime"
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

// TestHeldCommandEndsWithWrapper checks that the command ends when a process above the guardian is
// killed, the parent or the one above the parent, while its stdin stays open, with and without pidfd.
func TestHeldCommandEndsWithWrapper(t *testing.T) {
	for _, wrappers := range [][]string{{"wrapper"}, {"wrapper", "wrapper"}, {"wrapper", "wrapper", "wrapper"}} {
		for _, how := range []string{"handle", "polling"} {
			if runtime.GOOS != "linux" && len(wrappers) > 1 {
				continue // the wrappers above the parent are not seen
			}
			t.Run(fmt.Sprint(len(wrappers), how), func(t *testing.T) {
				s := start(t, []string{"hold", how, asked}, func(o *sessionOptions) { o.front = wrappers })
				s.wantLine("up")
				must(t, s.cmd.Process.Kill()) // the topmost wrapper
				s.wantLine("asked")
				s.wantGone()
			})
		}
	}
}
