package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"pmcp/server/stdio/stdiotest"
)

// TestConnectionsThatKeepAPortAreNamed checks that the answer to a start that could not listen on a port on which
// no process listens has the process with a connection on it, and after that is closed the seconds of TIME_WAIT.
func TestConnectionsThatKeepAPortAreNamed(t *testing.T) {
	t.Parallel()
	s := hello(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	stdiotest.NoErr(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	client, err := net.Dial("tcp", listener.Addr().String())
	stdiotest.NoErr(t, err)
	server, err := listener.Accept()
	stdiotest.NoErr(t, err)
	stdiotest.NoErr(t, listener.Close())
	check := func(want string) {
		t.Helper()
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		stdiotest.NoErr(t, err)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("got %v without SO_REUSEADDR, want EADDRINUSE", err)
		}
		stdiotest.NoErr(t, unix.Close(fd))
		text, failed := s.startText("api", fmt.Sprintf(": %d; echo 'OSError: [Errno 98] Address already in use' >&2; exit 1", port), map[string]any{"wait": "exit"})
		if want = fmt.Sprintf("no process listens on port %d now, but ", port) + want; failed || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	check(fmt.Sprintf(`pid %d \(.*\) in .*, started elsewhere at .* has a connection on it \(ESTABLISHED\)`, os.Getpid()))
	stdiotest.NoErr(t, server.Close())
	stdiotest.NoErr(t, client.Close())
	check(`a closed connection keeps it in TIME_WAIT for another [56][0-9]? s; a program that sets SO_REUSEADDR need not wait`)
}
