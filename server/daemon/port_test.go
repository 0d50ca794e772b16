package daemon

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pmcp/process/sockets"
)

// TestListenTCPNamesHolder checks that the error for a port that is taken names the process that listens on it,
// whether at this address or at all.
func TestListenTCPNamesHolder(t *testing.T) {
	if l, err := ListenTCP(""); l != nil || err != nil {
		t.Errorf("no address: got %v and %v, want nothing", l, err)
	}
	for _, bind := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		l, err := net.Listen("tcp", bind)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		at := fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port)
		want := fmt.Sprintf("address already in use: pid %d (", os.Getpid())
		if _, err := ListenTCP(at); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", bind, err, want)
		}
	}
}

// TestCheckFindsForeignListener checks that the doctor reports a process that listens on the daemon's TCP
// address and is not the daemon, and a daemon that does not listen there.
func TestCheckFindsForeignListener(t *testing.T) {
	l, err := ListenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	foreign := fmt.Sprintf("pid %d (", os.Getpid())
	if _, err := Check(t.Context(), Options{Dir: t.TempDir(), Database: filepath.Join(t.TempDir(), "pmcp.db"), TCP: at}); err == nil || !strings.HasPrefix(err.Error(), foreign) || !strings.Contains(err.Error(), ") listens on the daemon's TCP address "+at) {
		t.Errorf("no daemon: got %v, want %q", err, foreign)
	}
	if err := checkTCP(at, os.Getppid()); err == nil || !strings.HasPrefix(err.Error(), foreign) {
		t.Errorf("another daemon: got %v, want %q", err, foreign)
	}
	if err := checkTCP(at, os.Getpid()); err != nil {
		t.Errorf("its own: got %v, want no error", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := checkTCP(at, 0); err != nil {
		t.Errorf("no listener and no daemon: got %v, want no error", err)
	}
	if err := checkTCP(at, os.Getpid()); err == nil || !strings.Contains(err.Error(), "the daemon does not listen on "+at) {
		t.Errorf("no listener: got %v, want an error", err)
	}
}

// TestHolderThatCannotBeSeenIsNamedByUser checks that a socket whose processes this user cannot examine is
// shown with its user, as far as the kernel gives that.
func TestHolderThatCannotBeSeenIsNamedByUser(t *testing.T) {
	l, err := ListenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s, procs, found := listener(l.Addr().(*net.TCPAddr).AddrPort(), 0)
	if !found {
		t.Fatal("got no listener")
	}
	if got, want := holders(s, procs), fmt.Sprintf("pid %d (", os.Getpid()); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want := fmt.Sprintf("a process of user %d", os.Getuid())
	if runtime.GOOS != "linux" {
		want = "a process of another user"
	}
	s.Holders = nil
	if got := holders(s, procs); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := holders(sockets.Socket{Key: 1 << 63}, procs); got != "a process of another user" {
		t.Errorf("got %q for a socket that is gone, want another user", got)
	}
}
