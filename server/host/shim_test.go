package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A shimClient is the client of a Shim, whose sessions the test plays.
type shimClient struct {
	t        *testing.T
	in       *io.PipeWriter
	out      *bufio.Reader
	sessions chan net.Conn // the far ends of the connections that the Shim dials
	ended    chan error
}

// startShim starts a Shim that ends with the test.
func startShim(t *testing.T) *shimClient {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &shimClient{t, inW, bufio.NewReader(outR), make(chan net.Conn, 8), make(chan error, 1)}
	dial := func(context.Context) (net.Conn, error) {
		var ends [2]net.Conn
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		for i, fd := range fds {
			unix.CloseOnExec(fd)
			f := os.NewFile(uintptr(fd), "session")
			if err == nil {
				ends[i], err = net.FileConn(f)
			}
			_ = f.Close()
		}
		c.sessions <- ends[1]
		return ends[0], err
	}
	s := &Shim{In: inR, Out: outW, Dial: dial, Hello: hello("/"), Log: slog.New(slog.DiscardHandler)}
	go func() {
		err := s.Run(context.Background())
		_ = outW.Close()
		c.ended <- err
	}()
	return c
}

// session begins the next session, and returns it with what the Shim sends.
func (c *shimClient) session() (net.Conn, *bufio.Reader) {
	c.t.Helper()
	s := <-c.sessions
	from := bufio.NewReader(s)
	line(c.t, from, `"pmcp":1`)
	c.write(s, `{"session":"x"}`)
	return s, from
}

func (c *shimClient) write(to io.Writer, message string) {
	c.t.Helper()
	_, err := io.WriteString(to, message+"\n")
	must(c.t, err)
}

// line returns the next line, which must contain want.
func line(t *testing.T, from *bufio.Reader, want string) string {
	t.Helper()
	got, err := from.ReadString('\n')
	must(t, err)
	if !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	return got
}

const (
	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// TestShimGoesOnWithNewSession checks that a request whose session ends gets an error, that
// an answer that was cut off is dropped, and that the new session is initialised.
func TestShimGoesOnWithNewSession(t *testing.T) {
	c := startShim(t)
	first, from := c.session()
	c.write(c.in, initialize)
	line(t, from, "initialize")
	c.write(first, `{"jsonrpc":"2.0","id":0,"result":{}}`)
	line(t, c.out, `"result"`)
	c.write(c.in, initialized)
	line(t, from, "initialized")
	for _, said := range []string{
		`{"jsonrpc":"2.0","id":"a","method":"resources/subscribe","params":{"uri":"processes://list"}}`,
		`{"jsonrpc":"2.0","id":"b","method":"resources/subscribe","params":{"uri":"groups://list"}}`,
		`{"jsonrpc":"2.0","id":"c","method":"resources/unsubscribe","params":{"uri":"groups://list"}}`,
	} {
		c.write(c.in, said)
		id := line(t, from, "subscribe")[17:25]
		c.write(first, `{"jsonrpc":"2.0",`+id+`,"result":{}}`)
		line(t, c.out, id)
	}
	c.write(c.in, `{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{}}`)
	line(t, from, "tools/call")
	_, err := io.WriteString(first, `{"jsonrpc":"2.0","id":"call","res`)
	must(t, err)
	must(t, first.Close())
	var lost struct {
		ID    string
		Error struct{ Code int }
	}
	must(t, json.Unmarshal([]byte(line(t, c.out, "outcome of this call is unknown")), &lost))
	if lost.ID != "call" || lost.Error.Code != codeLost {
		t.Errorf("got %+v, want the error of the call", lost)
	}

	second, from := c.session()
	line(t, from, "initialize")
	c.write(second, `{"jsonrpc":"2.0","id":0,"result":{"the client":"does not see it"}}`)
	line(t, from, "initialized")
	line(t, from, "processes://list")
	c.write(second, `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
	c.write(second, `{"jsonrpc":"2.0","id":"a","result":{}}`)
	c.write(c.in, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	line(t, from, "ping")
	c.write(second, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	line(t, c.out, `"id":2`)
	must(t, c.in.Close())
	if _, err := from.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the client's messages", err)
	}
	must(t, second.Close())
	if err := <-c.ended; err != nil {
		t.Errorf("got %v, want the end of the client", err)
	}
}

// TestShimGivesUp checks that sessions that end without an answer are not begun for ever, and
// that the client is informed.
func TestShimGivesUp(t *testing.T) {
	c := startShim(t)
	for range maxLosses {
		s, from := c.session()
		c.write(c.in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		line(t, from, "ping")
		must(t, s.Close())
		line(t, c.out, `"error"`)
	}
	if err := <-c.ended; err == nil {
		t.Error("got no error, want the reason")
	}
	must(t, c.in.Close())
}

// TestShimWithoutDaemonFails checks that a Shim that gets no session answers the first request of
// its client with the reason, and ends with it.
func TestShimWithoutDaemonFails(t *testing.T) {
	refused := Refusal("no room")
	for said, want := range map[string]string{
		"":                                     "",
		initialized + "\n" + initialize + "\n": `{"error":{"code":-32000,"message":"the pmcp daemon refused: no room"},"id":0,"jsonrpc":"2.0"}` + "\n",
	} {
		var out bytes.Buffer
		in, client := io.Pipe()
		go func() { // ends with the pipe
			_, _ = io.WriteString(client, said)
			if said == "" {
				_ = client.Close()
			}
		}()
		s := &Shim{In: in, Out: &out, Hello: hello("/"), Log: slog.New(slog.DiscardHandler),
			Dial: func(context.Context) (net.Conn, error) { return nil, refused }}
		if err := s.Run(t.Context()); !errors.Is(err, refused) || out.String() != want {
			t.Errorf("after %q: got %v and %s, want the refusal and %s", said, err, &out, want)
		}
		_ = client.Close()
	}
}
