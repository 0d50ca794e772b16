package e2e

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFullDiskIsReportedAndLosesNothing makes every write of the server to its database
// fail for a while, by a limit of one page for the size of files. Everything except
// storage must keep working. get_server_info, the next answer and a log message must
// report the failure and its end, and no line may be lost.
func TestFullDiskIsReportedAndLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	if m := c.call(t, "logging/setLevel", args{"level": "notice"}); m.Error != nil {
		t.Fatalf("got %s, want a result", m.Raw)
	}
	c.ok(t, "start_process", own(t, "echo", "echo"))
	say := func(text string) {
		t.Helper()
		c.ok(t, "send_input", args{"process": "echo", "text": text})
		c.awaitLine(t, "echo", "got "+text+"$")
	}
	say("before")
	if r := c.ok(t, "get_server_info", nil); r.Data["health"] != "healthy" {
		t.Fatalf("got %s, want healthy", r.Text)
	}

	pid := c.serverPID(t)
	limitFiles(t, pid, 4096)
	say("during")
	c.awaitReport(t, "critical", "storage is degraded: ")
	c.ok(t, "get_server_info", nil).want(t, args{"health": "degraded", "storage": "degraded"}).says(t, "reason: storage is degraded: ", "storage degraded")
	if lines := c.ok(t, "tail_logs", args{"process": "echo"}).printed(); !slices.Contains(lines, "got during") {
		t.Errorf("got %q, want got during among them", lines)
	}

	limitFiles(t, pid, math.MaxUint64)
	c.awaitReport(t, "notice", "storage works again")
	c.ok(t, "get_server_info", nil).want(t, args{"health": "healthy", "storage": "ok"})
	say("after")
	c.closeInput(t)
	c.exitsCleanly(t)
	if lines := strings.Join(w.open(t).wholeLog(t, "echo"), "|"); !strings.Contains(lines, "got before|got during|got after") {
		t.Errorf("got the stored lines %s, want all three", lines)
	}
}

// TestPersonFollowsOverFullDisk checks that a person who reads or follows a log is told that its server
// cannot store it, and sees every line once it can.
func TestPersonFollowsOverFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	c := w.open(t)
	c.ok(t, "start_process", own(t, "echo", "echo"))
	say := func(text string) {
		t.Helper()
		c.ok(t, "send_input", args{"process": "echo", "text": text})
		c.awaitLine(t, "echo", "got "+text+"$")
	}
	say("before")
	cmd := w.commandIn(t, w.project, "logs", "echo", "-f", "-n", "all")
	out, err := cmd.StdoutPipe()
	check(t, err)
	said, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	stuck := time.AfterFunc(answersWithin, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	shows := func(text string) {
		t.Helper()
		if !lines.Scan() || !strings.HasSuffix(lines.Text(), text) {
			t.Fatalf("got %q, %v, want %s", lines.Text(), lines.Err(), text)
		}
	}
	shows("ready")
	shows("got before")
	pid := c.serverPID(t)
	limitFiles(t, pid, 4096)
	say("during")
	const want = "pmcp: a server holds its latest lines in memory, which are not shown: cannot store the log: "
	warnings := bufio.NewScanner(said)
	if !warnings.Scan() || !strings.HasPrefix(warnings.Text(), want) {
		t.Errorf("the follower says %q, %v, want %q", warnings.Text(), warnings.Err(), want)
	}
	for _, command := range []string{"logs", "ps"} {
		if _, text, code := w.command(t, w.project, command); code != 0 || !strings.HasPrefix(text, want) {
			t.Errorf("%s: got exit code %d and %q, want %q", command, code, text, want)
		}
	}
	limitFiles(t, pid, math.MaxUint64)
	shows("got during")
	say("after")
	shows("got after")
	if _, text, _ := w.command(t, w.project, "logs"); text != "" {
		t.Errorf("logs: got %q once the disk takes lines again, want nothing", text)
	}
}

// limitFiles limits the size to which a process may grow a file.
func limitFiles(t *testing.T, pid int, size uint64) {
	t.Helper()
	var limit unix.Rlimit
	check(t, unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &limit))
	limit.Cur = min(size, limit.Max)
	check(t, unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil))
}

// awaitReport waits for a log message that contains the text, and for an event with the
// same text in an answer.
func (c *caller) awaitReport(t *testing.T, level, text string) {
	t.Helper()
	c.note(t, "notifications/message", func(m message) bool {
		return m.Params["level"] == level && strings.Contains(fmt.Sprint(m.Params["data"]), text)
	})
	c.awaitEvent(t, text)
}
