package ports

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// newTestChooser returns a Chooser for which the ports in listening have a listener, and
// of which all others can be bound.
func newTestChooser(ranges []span, listening ...int) *Chooser {
	c := &Chooser{listening: make(map[int]bool), bind: func(int) error { return nil }, ranges: ranges}
	for _, port := range listening {
		c.listening[port] = true
	}
	return c
}

func TestChooseTakesPreferredThenLastThenKeyed(t *testing.T) {
	wide := []span{{20000, 29999}}
	keyed, _, err := newTestChooser(wide).Choose(Want{Key: "web"})
	if err != nil || keyed < 20000 || keyed > 29999 {
		t.Fatalf("got port %d, error %v, want one from 20000 to 29999", keyed, err)
	}
	none := func(int) string { return "" }
	for _, test := range []struct {
		name    string
		want    Want
		listen  []int
		port    int
		refused Refusal
	}{
		{"preferred", Want{Key: "web", Preferred: 3000, Reserved: none}, nil, 3000, Refusal{}},
		{"preferred before last", Want{Key: "web", Preferred: 3000, Last: 21000}, nil, 3000, Refusal{}},
		{"last", Want{Key: "web", Preferred: 3000, Last: 21000}, []int{3000}, 21000, Refusal{Listens: true}},
		{"last is taken", Want{Key: "web", Last: 21000}, []int{21000}, keyed, Refusal{}},
		{"the same key", Want{Key: "web", Preferred: 3000}, []int{3000}, keyed, Refusal{Listens: true}},
		{"next to a taken one", Want{Key: "web"}, []int{keyed}, 20000 + (keyed-20000+1)%10000, Refusal{}},
		{"own listener", Want{Key: "web", Preferred: 3000, Own: func(port int) bool { return port == 3000 }}, []int{3000}, 3000, Refusal{}},
		{"reserved", Want{Key: "web", Preferred: 3000, Reserved: func(port int) string {
			if port == 3000 {
				return "api"
			}
			return ""
		}}, nil, keyed, Refusal{ReservedBy: "api"}},
	} {
		port, refused, err := newTestChooser(wide, test.listen...).Choose(test.want)
		if err != nil || port != test.port || refused != test.refused {
			t.Errorf("%s: got port %d, refusal %v, error %v, want %d, %v", test.name, port, refused, err, test.port, test.refused)
		}
	}
}

func TestChooseReportsMissingRightsAndPorts(t *testing.T) {
	c := newTestChooser([]span{{20000, 20001}}, 20000, 20001)
	if _, _, err := c.Choose(Want{Key: "web"}); !errors.Is(err, ErrNone) {
		t.Errorf("all ports in use: got error %v, want ErrNone", err)
	}
	c.bind = func(int) error { return fmt.Errorf("cannot bind: %w", syscall.EACCES) }
	if _, _, err := c.Choose(Want{Key: "web", Preferred: 80}); err == nil || !strings.Contains(err.Error(), "port 80 needs rights") {
		t.Errorf("a privileged port: got error %v, want one about rights", err)
	}
}

// TestChoosableAvoidsEphemeralRange checks which ports are chosen for ephemeral ranges as
// systems have them.
func TestChoosableAvoidsEphemeralRange(t *testing.T) {
	for _, test := range []struct {
		ephemeral span
		want      []span
	}{
		{span{32768, 60999}, []span{{10000, 32767}, {61000, 65535}}},
		{span{49152, 65535}, []span{{10000, 49151}}},
		{span{10000, 65535}, []span{{1024, 9999}}},
		{span{1024, 65535}, []span{{10000, 65535}}},
		{span{15000, 64999}, []span{{10000, 14999}, {65000, 65535}}},
	} {
		if got := choosable(test.ephemeral); !slices.Equal(got, test.want) {
			t.Errorf("ephemeral %v: got %v, want %v", test.ephemeral, got, test.want)
		}
	}
	for _, s := range choosable(ephemeral()) {
		if e := ephemeral(); s.first <= e.last && s.last >= e.first && len(choosable(e)) > 1 {
			t.Errorf("%v overlaps the ephemeral range %v of this machine", s, e)
		}
	}
}

// TestChooseSeesListeners checks a preferred port against real listeners, each of one
// family, and against a socket that is bound and does not listen.
func TestChooseSeesListeners(t *testing.T) {
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Logf("%s: %v", network, err)
			continue
		}
		t.Cleanup(func() { _ = l.Close() })
		taken := l.Addr().(*net.TCPAddr).Port
		c := NewChooser()
		port, refused, err := c.Choose(Want{Key: "web", Preferred: taken})
		if err != nil || port == taken || !refused.Listens {
			t.Errorf("%s: got port %d, refusal %+v, error %v, want another port than %d, whose listener is seen", network, port, refused, err, taken)
		}
		c.listening = nil // as where the list of sockets cannot be read
		port, refused, err = c.Choose(Want{Key: "web", Preferred: taken})
		if err != nil || port == taken || !errors.Is(refused.Bind, syscall.EADDRINUSE) {
			t.Errorf("%s, unlisted: got port %d, refusal %+v, error %v, want another port than %d, which cannot be bound", network, port, refused, err, taken)
		}
	}
}

// TestChooseTakesPortInTimeWait checks that the connections of an earlier run, which the
// kernel keeps for a minute, do not keep its port.
func TestChooseTakesPortInTimeWait(t *testing.T) {
	for range 5 { // another program may get the port in between
		was := portInTimeWait(t)
		port, refused, err := NewChooser().Choose(Want{Key: "web", Preferred: was})
		if err == nil && port == was {
			return
		}
		t.Logf("got port %d, refusal %+v, error %v, want %d", port, refused, err, was)
	}
	t.Error("no port in TIME_WAIT was taken")
}

// portInTimeWait returns a port on which nothing listens, with a connection in TIME_WAIT.
func portInTimeWait(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = server.Close() // the side that closes first waits
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Fatal("the connection is still open")
	}
	_, _ = client.Close(), l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestExpandReplacesOnlyKnownNames(t *testing.T) {
	value := func(process, variable string) (string, bool) {
		known := map[string]string{".PORT": "3000", "api.PORT": "4000", "a.b.PORT": "5000"}
		text, ok := known[process+"."+variable]
		return text, ok
	}
	for text, want := range map[string]string{
		"vite --port {PORT}":             "vite --port 3000",
		"{PORT}{PORT}":                   "30003000",
		"http://localhost:{api.PORT}/v1": "http://localhost:4000/v1",
		"{a.b.PORT}":                     "5000",
		"{OTHER} {web.PORT} {port}":      "{OTHER} {web.PORT} {port}",
		`{"port": {PORT}}`:               `{"port": 3000}`,
		"${PORT} {{PORT}} {}":            "${PORT} {{PORT}} {}",
		"{a,b} {1..3} {PORT":             "{a,b} {1..3} {PORT",
		"none":                           "none",
	} {
		if got := Expand(text, value); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
