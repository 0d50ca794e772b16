package process

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListening holds the two ways of asking for listening sockets, and the
// truth, against one another.
func TestListening(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err)
			continue
		}
		t.Cleanup(func() { _ = l.Close() })
		want := l.Addr().(*net.TCPAddr).AddrPort()
		want = netip.AddrPortFrom(want.Addr().WithZone(""), want.Port())
		for name, list := range map[string]func() ([]socket, error){
			"diag": func() ([]socket, error) {
				v4, err := diagListening(unix.AF_INET)
				if err != nil {
					t.Skipf("no sock_diag here: %v", err)
				}
				v6, _ := diagListening(unix.AF_INET6)
				return append(v4, v6...), nil
			},
			"proc":      procListening,
			"listening": listening,
		} {
			sockets, err := list()
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(sockets, func(s socket) bool {
				return s.port() == int(want.Port()) && s.addr.Addr().Unmap() == want.Addr().Unmap()
			})
			if i < 0 {
				t.Errorf("%s: no socket for %s in %v", name, want, sockets)
				continue
			}
			addHolders(sockets, []int{os.Getpid()})
			if !slices.Equal(sockets[i].holders, []int{os.Getpid()}) {
				t.Errorf("%s: held by %v, want %d", name, sockets[i].holders, os.Getpid())
			}
			conn, err := net.Dial("tcp", sockets[i].dial())
			if err != nil {
				t.Errorf("%s: cannot dial %s: %v", name, sockets[i].dial(), err)
				continue
			}
			_ = conn.Close()
		}
	}
}

func FuzzParseDiag(f *testing.F) {
	f.Add(diagRequest(unix.AF_INET))
	f.Add([]byte{16, 0, 0, 0, unix.NLMSG_DONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, p []byte) {
		var found []socket
		_, _ = parseDiag(p, &found)
	})
}

func BenchmarkListening(b *testing.B) {
	for b.Loop() {
		if _, err := listening(); err != nil {
			b.Fatal(err)
		}
	}
}
