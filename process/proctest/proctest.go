// Package proctest helps tests that start real processes. Its ports and files are
// safe from children that other tests start at the same moment and from other packages' tests. Its
// functions return no errors: a failure ends the test.
package proctest

import (
	"flag"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// FreePort returns a port of 127.0.0.1 on which a child can listen. Until the test ends, the system
// gives the port to no other process: FreePort binds a socket to it without listening, and both
// sockets set SO_REUSEADDR. Only Linux allows another socket to listen beside that one; elsewhere the
// port is merely free at the moment.
func FreePort(t testing.TB) int {
	t.Helper()
	syscall.ForkLock.RLock() // until the socket is marked close-on-exec
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	check(t, err)
	release := func() { check(t, syscall.Close(fd)) }
	if runtime.GOOS == "linux" {
		t.Cleanup(release)
	} else {
		defer release()
	}
	check(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	check(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := syscall.Getsockname(fd)
	check(t, err)
	return bound.(*syscall.SockaddrInet4).Port
}

// WriteProgram writes a file that can be executed at once. It holds a lock against forks: otherwise
// a child that another test forks during the write would hold the file open for writing until its
// own exec, and executing the file would fail with ETXTBSY.
func WriteProgram(t testing.TB, path string, content []byte, mode os.FileMode) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	check(t, os.WriteFile(path, content, 0o600))
	check(t, os.Chmod(path, mode))
}

// Interruptible lets the children of the tests be interrupted and hung up although nohup, or a shell
// that ran the tests as a job in the background, has these signals ignored: children do not inherit
// that a signal is handled.
func Interruptible() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// Overlap runs four tests a processor at the same time, of those that may: most wait most of the time. The
// flag -parallel overrides it. TestMain calls it.
func Overlap() {
	if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.NumCPU())); err != nil {
		panic(err)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
