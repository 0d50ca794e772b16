package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHostilePeersOfBinary checks that the sockets of a session and of the daemon refuse with one
// line whoever comes and goes, says half, nothing, something else or too much, or is another user,
// and that their servers work on and have no more sockets than before.
func TestHostilePeersOfBinary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	c := w.open(t)
	c.ok(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h"))
	d := w.awaitDaemon(t)
	var late []func() // what takes the 5 s that a peer has for its first line
	for _, pid := range []int{c.serverPID(t), d.server} {
		path := w.socketOf(t, pid)
		wantRefused(t, path, "{}\n") // what is opened once is open now
		before := socketsOf(t, pid)
		silent, half := dialed(t, path), dialed(t, path)
		_, err := half.Write([]byte(`{"pmcp":1,`))
		check(t, err)
		for range 200 {
			check(t, dialed(t, path).Close())
		}
		for range 20 {
			open := dialed(t, path)
			check(t, open.(*net.UnixConn).CloseWrite())
			wantOneLine(t, open, "half open")
		}
		for _, line := range []string{"\n", "GET / HTTP/1.1\r\n", "\x00\xff\n", "null\n", `{"pmcp":99,"method":"call"}` + "\n", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n"} {
			wantRefused(t, path, line)
		}
		wantFloodRefused(t, path)
		wantStrangerRefused(t, path)
		late = append(late, func() {
			wantOneLine(t, silent, "silent")
			wantOneLine(t, half, "half a line")
			after := 0
			if !poll(endsWithin, func() bool { after = socketsOf(t, pid); return after <= before }) {
				t.Errorf("got %d sockets of %d, want at most the %d of before", after, pid, before)
			}
		})
	}
	for _, check := range late {
		check()
	}
	c.ok(t, "list_processes", nil).says(t, "web: running")
	w.open(t).ok(t, "start_process", sh("later", "exec sleep 1000").with("keep", "1h")).says(t, "kept for ")
}

// socketOf returns the path of the socket of a server, from its record.
func (w *world) socketOf(t testing.TB, pid int) string {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(w.registry, "*.json"))
	check(t, err)
	for _, path := range records {
		var record struct{ Server struct{ PID int } }
		content, err := os.ReadFile(path)
		check(t, err)
		check(t, json.Unmarshal(content, &record))
		if record.Server.PID == pid {
			return strings.TrimSuffix(path, ".json") + ".sock"
		}
	}
	t.Fatalf("the server %d has no record", pid)
	return ""
}

// socketsOf returns how many sockets a process has open. Its other descriptors come and go.
func socketsOf(t testing.TB, pid int) (n int) {
	t.Helper()
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	check(t, err)
	for _, fd := range open {
		if target, _ := os.Readlink(fd); strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// dialed returns a connection to a socket, which the test closes at its end.
func dialed(t testing.TB, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	check(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// wantOneLine checks that a connection is closed with one line that says why, and closes it.
func wantOneLine(t testing.TB, c net.Conn, what string) {
	t.Helper()
	answer, _ := io.ReadAll(c) // a connection that is reset has an answer all the same
	var r struct{ Error string }
	if json.Unmarshal(answer, &r) != nil || r.Error == "" || strings.Count(string(answer), "\n") != 1 {
		t.Errorf("%s: got %q, want one line with the reason", what, answer)
	}
	check(t, c.Close())
}

// wantRefused checks that a connection that opens with line is refused.
func wantRefused(t testing.TB, path, line string) {
	t.Helper()
	c := dialed(t, path)
	_, _ = io.WriteString(c, line)
	wantOneLine(t, c, fmt.Sprintf("%.60q", line))
}

// wantFloodRefused checks that no more is read of a line without an end than is allowed.
func wantFloodRefused(t testing.TB, path string) {
	t.Helper()
	c := dialed(t, path)
	const most = 32 << 20 // several times what is allowed, for the buffers of the kernel
	part, sent := make([]byte, 1<<20), 0
	for sent < 1<<30 {
		n, err := c.Write(part)
		if sent += n; err != nil {
			break
		}
	}
	if sent > most {
		t.Errorf("it took %d bytes without a line end, want at most %d", sent, most)
	}
	wantOneLine(t, c, "flood")
}

// wantStrangerRefused checks that a process of another user is refused, even if directory and socket
// let it connect.
func wantStrangerRefused(t *testing.T, path string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Log("no other user: only root can be one")
		return
	}
	for dir := filepath.Dir(path); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		check(t, os.Chmod(dir, 0o755))
	}
	check(t, os.Chmod(path, 0o777))
	type outcome struct {
		fd  int
		err error
	}
	done := make(chan outcome)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 { // of this thread alone
				err = errno
			} else {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
			}
		}
		done <- outcome{fd, err}
	}()
	o := <-done
	if errors.Is(o.err, unix.EACCES) || errors.Is(o.err, unix.EINVAL) {
		t.Logf("another user cannot reach %s: %v", path, o.err)
		check(t, unix.Close(o.fd))
		return
	}
	check(t, o.err)
	f := os.NewFile(uintptr(o.fd), path)
	c, err := net.FileConn(f)
	check(t, err)
	check(t, f.Close())
	wantOneLine(t, c, "another user")
}

// TestFalseSocketOfDaemonIsRefused checks that nothing is kept by way of a PM_DAEMON_SOCKET_PATH that is
// no socket of this user, and that what is there stays.
func TestFalseSocketOfDaemonIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := func(name string) string { return filepath.Join(w.project, name) }
	check(t, os.Mkdir(at("directory"), 0o700))
	check(t, os.Symlink(at("nowhere"), at("link")))
	cases := map[string]string{
		at("directory"):              "directory is not a socket",
		at("link"):                   "link is not a socket",
		at(strings.Repeat("x", 300)): "file name too long",
	}
	if os.Getuid() == 0 {
		l, err := net.Listen("unix", at("theirs"))
		check(t, err)
		defer l.Close()
		check(t, os.Chown(at("theirs"), 65534, 65534))
		cases[at("theirs")] = "belongs to user 65534"
	} else {
		t.Log("no socket of another user: only root can make one")
	}
	for path, want := range cases {
		asking := *w
		asking.env = append(append([]string{}, w.env...), "PM_DAEMON_SOCKET_PATH="+path)
		before, _ := os.Lstat(path)
		c := asking.open(t)
		r := c.refused(t, "start_process", sh("web", "exec sleep 1000").with("keep", "1h"), "web was not started", want)
		if strings.Count(strings.TrimSpace(r.Text), "\n") > 0 {
			t.Errorf("got %q, want one line", r.Text)
		}
		c.ok(t, "start_process", sh("own", "true").with("wait", "exit"))
		if after, _ := os.Lstat(path); before != nil && (after == nil || after.Mode() != before.Mode()) {
			t.Errorf("%.80s: got %v, want it untouched", path, after)
		}
	}
	if _, found := w.daemon(t); found {
		t.Error("got a daemon, want none")
	}
}
