package sockets

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"pmcp/process/proctab"

	"golang.org/x/sys/unix"
)

// TestListeningFindsOpenSockets checks that both ways of listing sockets find the sockets that the test opens.
func TestListeningFindsOpenSockets(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err)
			continue
		}
		t.Cleanup(func() { _ = l.Close() })
		want := l.Addr().(*net.TCPAddr).AddrPort()
		want = netip.AddrPortFrom(want.Addr().WithZone(""), want.Port())
		for name, list := range map[string]func() ([]Socket, error){
			"diag": func() ([]Socket, error) {
				found, err := diagListening()
				if err != nil {
					t.Skipf("no sock_diag here: %v", err)
				}
				return found, nil
			},
			"proc":      procListening,
			"listening": Listening,
		} {
			sockets, err := list()
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(sockets, func(s Socket) bool {
				return s.Port() == int(want.Port()) && s.Addr.Addr().Unmap() == want.Addr().Unmap()
			})
			if i < 0 {
				t.Errorf("%s: no socket for %s in %v", name, want, sockets)
				continue
			}
			AddHolders(sockets, []proctab.Proc{{ID: proctab.ID{PID: os.Getpid()}}})
			if !slices.Equal(sockets[i].Holders, []int{os.Getpid()}) {
				t.Errorf("%s: holders %v, want %d", name, sockets[i].Holders, os.Getpid())
			}
			conn, err := net.Dial("tcp", sockets[i].Dial())
			if err != nil {
				t.Errorf("%s: cannot dial %s: %v", name, sockets[i].Dial(), err)
				continue
			}
			_ = conn.Close()
		}
	}
}

func TestClientsFindsConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	port, want := l.Addr().(*net.TCPAddr).Port, client.LocalAddr().(*net.TCPAddr).AddrPort()
	held := func() (listed, held bool) {
		found, err := Clients(port)
		if err != nil {
			t.Fatal(err)
		}
		AddHolders(found, []proctab.Proc{{ID: proctab.ID{PID: os.Getpid()}}})
		for _, s := range found {
			if s.Addr == want {
				listed, held = true, held || len(s.Holders) > 0
			}
		}
		return listed, held
	}
	if listed, held := held(); !listed || !held {
		t.Errorf("got listed %v, held %v; want the open connection of %s, held", listed, held, want)
	}
	_, _ = server.Close(), client.Close()
	if listed, held := held(); !listed || held {
		t.Errorf("got listed %v, held %v; want the closed connection of %s, not held", listed, held, want)
	}
}

func FuzzParseDiag(f *testing.F) {
	f.Add(diagRequest())
	f.Add([]byte{16, 0, 0, 0, unix.NLMSG_DONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, p []byte) {
		var found []Socket
		_, _ = parseDiag(p, &found)
	})
}

func BenchmarkListening(b *testing.B) {
	for b.Loop() {
		if _, err := Listening(); err != nil {
			b.Fatal(err)
		}
	}
}
