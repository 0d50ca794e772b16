package socket

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAnotherUserIsRefused checks that a peer of another user is refused, even if the
// directory and the socket let it connect.
func TestAnotherUserIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	dir, err := os.MkdirTemp("/tmp", "socket")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	l := listen(t, dir, echo, nil)
	must(t, os.Chmod(l.Path(), 0o777))
	type outcome struct {
		file *os.File
		err  error
	}
	done := make(chan outcome)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			done <- outcome{err: err}
			return
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 { // of this thread alone
			err = errno
		} else {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: l.Path()})
		}
		done <- outcome{os.NewFile(uintptr(fd), "socket"), err}
	}()
	o := <-done
	must(t, o.err)
	defer func() { _ = o.file.Close() }()
	_, _ = o.file.WriteString(`{"pmcp":1,"method":"echo","params":"hi"}` + "\n")
	if got := refusal(t, o.file); !strings.Contains(got, "of user 65534") {
		t.Errorf("got %q, want the reason", got)
	}
}

// TestAnotherNamespaceIsRefused checks that a process in another namespace is refused, and
// itself refuses the listener.
func TestAnotherNamespaceIsRefused(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir, echo, nil)
	own := syscall.SysProcIDMap{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}
	for name, c := range map[string]struct {
		attributes syscall.SysProcAttr
		want       string
	}{
		"none":  {syscall.SysProcAttr{}, "hi <nil>"},
		"mount": {syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "another mnt namespace"},
		"pid":   {syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "another pid namespace"},
		"user":  {syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{own}}, "namespace"},
	} {
		cmd := exec.Command(os.Args[0], "call", dir)
		cmd.SysProcAttr = &c.attributes
		out, err := cmd.CombinedOutput()
		if err != nil && errors.Is(err, os.ErrPermission) {
			t.Logf("%s: skipped, not permitted here: %v", name, err)
			continue
		}
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: got %s and %v, want %q", name, out, err, c.want)
		}
	}
}
