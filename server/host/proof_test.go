package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

const secret = "a secret that is long"

// serveTCP serves sessions over TCP until the test ends, and returns how to dial it.
func serveTCP(t *testing.T, token string, change func(*Host)) Dial {
	t.Helper()
	h, _ := serve(t, token, change)
	l := listenTCP(t)
	t.Cleanup(h.ServeTCP(context.Background(), l))
	return dialTCP(l)
}

func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	return l
}

func dialTCP(l net.Listener) Dial {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}
}

// say opens a connection on which text is sent.
func say(t *testing.T, dial Dial, text string) net.Conn {
	t.Helper()
	c, err := dial(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, text)
	must(t, err)
	return c
}

// slowStrangers lets strangers take an hour.
func slowStrangers(h *Host) { h.proof = time.Hour }

// secretHello is a Hello with a token and an environment that must not be seen.
func secretHello(token string) Hello {
	h := hello("/", "SECRET=of the environment")
	h.Token, h.Version = token, "2"
	return h
}

// TestTCPNeedsTheToken checks that a TCP connection gets a session only with the token of a
// host that has one, whatever version the caller has, and that the end of the host ends the others.
func TestTCPNeedsTheToken(t *testing.T) {
	for _, c := range []struct{ own, given, want string }{
		{"", "", "PM_DAEMON_TOKEN, which is not set"}, {"", "any", "TCP needs PM_DAEMON_TOKEN"},
		{secret, "", "PM_DAEMON_TOKEN, which is not set"}, {secret, "a secret", "PM_DAEMON_TOKEN is missing or not the daemon's"},
		{secret, secret, ""},
	} {
		dial := serveTCP(t, c.own, func(h *Host) { slowStrangers(h); h.o.Version = "1" })
		id, err := keep(t, dial, secretHello(c.given), "")
		if c.want == "" && (err != nil || id == "") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("token %q at a host with %q: got %q and %v, want %q", c.given, c.own, id, err, c.want)
		}
		say(t, dial, "") // is silent
	}
}

// TestSessionOverTCPIsWhole checks that nothing of what follows the proof is lost, and that the token does
// not cross the connection.
func TestSessionOverTCPIsWhole(t *testing.T) {
	dial := serveTCP(t, secret, nil)
	l := listenTCP(t)
	var sent, answered bytes.Buffer // complete once relaying is done
	var relaying sync.WaitGroup
	relaying.Go(func() {
		caller, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		daemon, err := dial(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		relaying.Go(func() {
			_, _ = io.Copy(daemon, io.TeeReader(caller, &sent))
			_ = daemon.(*net.TCPConn).CloseWrite()
		})
		_, _ = io.Copy(caller, io.TeeReader(daemon, &answered))
		_ = errors.Join(caller.Close(), daemon.Close())
	})
	c, _, rest, err := begin(t.Context(), dialTCP(l), secretHello(secret))
	must(t, err)
	line(t, rest, "/ m    23")
	must(t, c.SetDeadline(time.Time{}))
	_, err = io.WriteString(c, "one\n")
	must(t, err)
	line(t, rest, "one")
	must(t, errors.Join(c.Close(), l.Close()))
	relaying.Wait()
	if all := sent.String() + answered.String(); !strings.Contains(all, "of the environment") || strings.Contains(all, secret) {
		t.Errorf("got %q, want the environment without the token", all)
	}
}

// TestStrangerOverTCPIsRefused checks that a caller that sends anything but a proof, a Hello with the token
// included, gets one line with the reason, at 1 KiB at the latest.
func TestStrangerOverTCPIsRefused(t *testing.T) {
	dial := serveTCP(t, secret, slowStrangers)
	old, err := json.Marshal(secretHello(secret))
	must(t, err)
	huge, err := json.Marshal(hello("/", "MORE="+strings.Repeat("x", 100_000)))
	must(t, err)
	for name, c := range map[string]struct{ says, want string }{
		"older pmcp":            {string(old) + "\n", "which an older pmcp does not send"},
		"older pmcp, long":      {string(huge) + "\n", "which an older pmcp does not send"},
		"browser":               {"GET / HTTP/1.1\r\n", "a TCP connection begins with a proof"},
		"no nonce":              {`{"pmcp":1,"nonce":""}` + "\n", "a TCP connection begins with a proof"},
		"another protocol":      {`{"pmcp":2,"nonce":"` + newNonce() + `"}` + "\n", "a TCP connection begins with a proof"},
		"too long":              {strings.Repeat(" ", maxProof), "no line end within 1024 bytes"},
		"more than was allowed": {`{"pmcp":1,"nonce":"` + newNonce() + `"}` + "\n{}\n", "a TCP connection begins with a proof"},
	} {
		if got := refusal(t, say(t, dial, c.says)); !strings.Contains(got, c.want) || strings.Contains(got, "secret") {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	for name, proof := range map[string]string{"too long": strings.Repeat(" ", maxProof), "of nothing": `{"proof":""}` + "\n"} {
		c := say(t, dial, `{"pmcp":1,"nonce":"`+newNonce()+`"}`+"\n")
		line(t, bufio.NewReader(c), `"nonce"`)
		_, err := io.WriteString(c, proof)
		must(t, err)
		if got := refusal(t, c); !strings.Contains(got, "PM_DAEMON_TOKEN is missing or not the daemon's") {
			t.Errorf("a proof that is %s: got %q, want a refusal", name, got)
		}
	}
}

// TestSilentStrangerIsRefused checks that a caller must prove that it knows the token in time.
func TestSilentStrangerIsRefused(t *testing.T) {
	dial := serveTCP(t, secret, func(h *Host) { h.proof = time.Millisecond })
	if got := refusal(t, say(t, dial, "")); !strings.Contains(got, "PM_DAEMON_TOKEN was not proved within 1ms") {
		t.Errorf("got %q, want a refusal", got)
	}
}

// TestStrangersDoNotDelayCallers checks that 200 connections that send the beginning of a line, and could stay
// for ever, take no room from a caller with the token: the oldest are closed.
func TestStrangersDoNotDelayCallers(t *testing.T) {
	const all, most = 200, 8
	dial := serveTCP(t, secret, func(h *Host) { slowStrangers(h); h.strangers = most })
	var strangers []net.Conn
	for range all {
		strangers = append(strangers, say(t, dial, "{"))
	}
	if id, err := keep(t, dial, secretHello(secret), ""); err != nil || id == "" {
		t.Errorf("got %q and %v, want a session", id, err)
	}
	for _, c := range strangers[:all-most] {
		if text, _ := io.ReadAll(c); len(text) > 0 && !strings.Contains(string(text), `"busy":true`) {
			t.Errorf("got %q, want no room", text)
		}
	}
}

// TestCallersBeyondTheLimitAreBusy checks that one caller too many that knows the token is asked to try
// again, and gets a session once there is room.
func TestCallersBeyondTheLimitAreBusy(t *testing.T) {
	dial := serveTCP(t, secret, slowStrangers)
	var callers []net.Conn
	for range maxTCP { // each has yet to send its Hello
		c, err := dial(t.Context())
		must(t, err)
		must(t, prove(t.Context(), c, secret))
		callers = append(callers, c)
	}
	c, err := dial(t.Context())
	must(t, err)
	if err := prove(t.Context(), c, secret); !errors.Is(err, errBusy) {
		t.Errorf("got %v, want no room", err)
	}
	must(t, c.Close())
	for _, c := range callers {
		must(t, c.Close())
	}
	if id, err := keep(t, dial, secretHello(secret), ""); err != nil || id == "" {
		t.Errorf("got %q and %v, want a session", id, err)
	}
}

// TestListenerThatDoesNotKnowTheTokenGetsNothing checks that another program on the daemon's port gets neither
// the token nor the environment, whatever it answers, and that the error names its address and what is wrong.
func TestListenerThatDoesNotKnowTheTokenGetsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		answers []string // to each line; then it closes the connection
		want    string
	}{
		"closes":     {nil, "the pmcp daemon did not answer: it closed the connection"},
		"older pmcp": {[]string{`{"error":"PM_DAEMON_TOKEN is missing or not the daemon's"}`}, "it is a pmcp older than this one, or another program"},
		"session":    {[]string{`{"session":"1"}`}, "it is a pmcp older than this one, or another program"},
		"web server": {[]string{"HTTP/1.1 400 Bad Request"}, "it is not a line of pmcp's proof"},
		"flood":      {[]string{strings.Repeat("x", maxProof)}, "no line end within 1024 bytes"},
		"no proof":   {[]string{`{"nonce":"` + newNonce() + `"}`, `{"session":"1"}`}, "its proof is wrong"},
		"wrong":      {[]string{`{"nonce":"` + newNonce() + `"}`, `{"proof":"` + newNonce() + `"}`}, "its proof is wrong"},
		"echo":       {nil, "its proof is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			l := listenTCP(t)
			var received strings.Builder // all that it gets; complete once serving is done
			var serving sync.WaitGroup
			serving.Go(func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					from := bufio.NewReader(io.TeeReader(conn, &received))
					for i := 0; name == "echo" || i < len(c.answers); i++ {
						asked, err := from.ReadString('\n')
						if err != nil {
							break
						}
						if name != "echo" {
							asked = c.answers[i] + "\n"
						}
						_, _ = io.WriteString(conn, asked)
					}
					if tcp := conn.(*net.TCPConn); tcp.CloseWrite() == nil {
						_, _ = io.Copy(io.Discard, from)
					}
					_ = conn.Close()
				}
			})
			_, err := keep(t, dialTCP(l), secretHello(secret), "")
			must(t, l.Close())
			serving.Wait()
			want := fmt.Sprintf("the program that listens on %s did not prove that it knows PM_DAEMON_TOKEN: ", l.Addr())
			if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s and %s", err, want, c.want)
			}
			if got := received.String(); !strings.HasPrefix(got, `{"pmcp":1,"nonce":"`) || strings.Contains(got, "secret") || strings.Contains(got, "of the environment") || strings.Contains(got, "PATH") {
				t.Errorf("it got %q, want only what the proof needs", got)
			}
		})
	}
}

// TestSilentListenerIsLeft checks that a caller waits for the proof only as long as its context allows.
func TestSilentListenerIsLeft(t *testing.T) {
	l := listenTCP(t)
	defer func() { _ = l.Close() }()
	c, err := dialTCP(l)(t.Context()) // the system accepts it
	must(t, err)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := prove(ctx, c, secret); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "did not prove that it knows PM_DAEMON_TOKEN") {
		t.Errorf("got %v, want that it took too long", err)
	}
}
