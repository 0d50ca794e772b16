// Package proctest helps tests that start real processes, in whichever package. It guarantees that
// what it gives is not disturbed by another test's child that is born at the same moment, or by
// another package's tests. It refuses nothing: what cannot be done ends the test.
package proctest

import (
	"os"
	"runtime"
	"syscall"
	"testing"
)

// FreePort gives a port of 127.0.0.1 on which a child can listen, and which nobody else is given
// until the test ends: a socket is bound to it that does not listen, and both set SO_REUSEADDR. Only
// Linux lets another listen beside that; elsewhere the port is free, no more.
func FreePort(t testing.TB) int {
	t.Helper()
	syscall.ForkLock.RLock() // until it is closed on exec
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

// WriteProgram makes a file that can be executed at once: another test's child that is born
// meanwhile would have it open for writing until its own exec, and executing it would be ETXTBSY.
func WriteProgram(t testing.TB, path string, content []byte, mode os.FileMode) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	check(t, os.WriteFile(path, content, 0o600))
	check(t, os.Chmod(path, mode))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
