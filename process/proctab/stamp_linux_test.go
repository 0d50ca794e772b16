package proctab

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStampSurvivesDaemonizing checks that a daemon that left its environment, session and parent
// still carries the stamp (the mark in the resource limits) of the child that started it, and that
// no other process carries the stamp.
func TestStampSurvivesDaemonizing(t *testing.T) {
	// Tests of package process scan the whole machine for runs of their own sessions.
	stamp := NewStamp(fmt.Sprint("stamped by ", os.Getpid()), 7)
	cmd := exec.Command("sh", "-c", `(exec env -i setsid sh -c 'echo $$; read -r line' <&3 &) 3<&0`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Stamped(stamp, cmd.Start); err != nil {
		t.Fatal(err)
	}
	var daemon int
	if _, err := fmt.Fscan(bufio.NewReader(out), &daemon); err != nil {
		t.Fatal(err)
	}
	if got := StampOf(daemon); got != stamp {
		t.Errorf("StampOf(daemon) = %d, want %d", got, stamp)
	}
	if got := StampOf(os.Getpid()); got == stamp {
		t.Error("this process carries its child's stamp, want none")
	}
	later := startCat(t)
	if got := StampOf(later.Process.Pid); got == stamp {
		t.Error("a later child carries an earlier one's stamp, want none")
	}
	_ = in.Close()
	_ = cmd.Wait()
}

// TestStampsAreDistinct checks that stamps (marks in the limit RLIMIT_LOCKS) of different sessions
// and runs differ, and that no stamp is a default value of the limit.
func TestStampsAreDistinct(t *testing.T) {
	a, b := NewStamp("a", 1), NewStamp("b", 1)
	if a == b || a == NewStamp("a", 2) || a == NewStamp("a", -1) || a.Session() == b.Session() {
		t.Errorf("got the stamps %d and %d, want runs and sessions to differ", a, b)
	}
	if a.Session() != SessionStamp("a") || NewStamp("a", -1).Session() != SessionStamp("a") || a.Session() == 0 {
		t.Errorf("the session of %d is %d, want %d", a, a.Session(), SessionStamp("a"))
	}
	if uint64(NewStamp("a", -1)) >= unix.RLIM_INFINITY>>1 {
		t.Error("got a stamp that means no limit, want a smaller one")
	}
	if StampOf(-1) != 0 {
		t.Error("StampOf(-1) is a stamp, want 0")
	}
}
