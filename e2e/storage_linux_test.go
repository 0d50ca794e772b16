package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFullDisk has every write of the server to its database fail for a while:
// no file may grow beyond a page. Everything goes on but storing, and the client
// is told: by get_server_info, by the next answer and by a log message, of the
// trouble and of its end. No line is lost.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	if m := c.call(t, "logging/setLevel", args{"level": "notice"}); m.Error != nil {
		t.Fatal(m.Raw)
	}
	c.ok(t, "start_process", own(t, "echo", "echo"))
	say := func(text string) {
		t.Helper()
		c.ok(t, "send_input", args{"process": "echo", "text": text})
		c.ok(t, "wait_for_process", args{"process": "echo", "until": "log", "pattern": "got " + text + "$"})
	}
	say("before")
	if r := c.ok(t, "get_server_info", nil); r.Data["health"] != "healthy" {
		t.Fatalf("%s", r.Text)
	}

	pid := c.serverPID(t)
	limitFiles(t, pid, 4096)
	say("meanwhile")
	c.told(t, "critical", "storage is degraded: ")
	c.ok(t, "get_server_info", nil).want(t, args{"health": "degraded", "storage": "degraded"}).says(t, "reason: storage is degraded: ", "storage degraded")
	if lines := c.ok(t, "tail_logs", args{"process": "echo"}).printed(); !slices.Contains(lines, "got meanwhile") {
		t.Errorf("%q", lines)
	}

	limitFiles(t, pid, math.MaxUint64)
	c.told(t, "notice", "storage works again")
	c.ok(t, "get_server_info", nil).want(t, args{"health": "healthy", "storage": "ok"})
	say("after")
	c.closeInput(t)
	c.exitsWithin(t, endsWithin)
	if lines := strings.Join(w.open(t).wholeLog(t, "echo"), "|"); !strings.Contains(lines, "got before|got meanwhile|got after") {
		t.Errorf("stored: %s", lines)
	}
}

// limitFiles sets how large a process may make a file.
func limitFiles(t *testing.T, pid int, size uint64) {
	t.Helper()
	var limit unix.Rlimit
	check(t, unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &limit))
	limit.Cur = min(size, limit.Max)
	check(t, unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil))
}

// told waits for a log message and for an answer that has the same as an event.
func (c *caller) told(t *testing.T, level, text string) {
	t.Helper()
	c.note(t, "notifications/message", func(m message) bool {
		return m.Params["level"] == level && strings.Contains(fmt.Sprint(m.Params["data"]), text)
	})
	c.awaitEvent(t, text)
}
