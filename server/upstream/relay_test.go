package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// A fakeClient answers sampling with a result, and roots with an error. An elicitation stays
// unanswered until its context ends.
type fakeClient struct {
	pending chan string // the params of each elicitation that has arrived
	ended   chan string // the params of each elicitation whose context has ended
	notes   chan string
}

func (f *fakeClient) Capabilities() map[string]any {
	return map[string]any{"sampling": map[string]any{}, "roots": map[string]any{"listChanged": true}, "elicitation": map[string]any{}}
}

func (f *fakeClient) Request(ctx context.Context, name, method string, params json.RawMessage) (result, refusal json.RawMessage, err error) {
	switch method {
	case "sampling/createMessage":
		return fmt.Appendf(nil, `{"for":%q,"params":%s}`, name, params), nil, nil
	case "roots/list":
		return nil, json.RawMessage(`{"code":-1,"message":"no roots","data":[1]}`), nil
	}
	f.pending <- string(params)
	<-ctx.Done()
	f.ended <- string(params)
	return nil, nil, ctx.Err()
}

func (f *fakeClient) Notify(name string, run int64, method string, params json.RawMessage) {
	f.notes <- fmt.Sprintf("%s %d %s %s", name, run, method, params)
}

// A pipedServer is the server's end of a connection, played by the test.
type pipedServer struct {
	t   *testing.T
	hub *Hub
	in  *bufio.Reader
	out io.WriteCloser
}

// serveRelayed connects a server whose requests go to client, up to the end of the handshake.
func serveRelayed(t *testing.T, client Client) *pipedServer {
	t.Helper()
	hub := NewHub(Options{})
	hub.Relay(client)
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	hub.Take("docs", 7, nil, stdin, stdout)
	s := &pipedServer{t: t, hub: hub, in: bufio.NewReader(in), out: out}
	t.Cleanup(func() {
		_ = out.Close()
		hub.Close()
	})
	first := s.line()
	if want := `"capabilities":{"elicitation":{},"roots":{"listChanged":true},"sampling":{}}`; !strings.Contains(first, want) {
		t.Errorf("got %s, want %s", first, want)
	}
	s.send(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"d","version":"1"}}}`)
	s.want(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

func (s *pipedServer) line() string {
	s.t.Helper()
	line, err := s.in.ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (s *pipedServer) want(want string) {
	s.t.Helper()
	if got := s.line(); got != want {
		s.t.Errorf("the server got %s, want %s", got, want)
	}
}

func (s *pipedServer) send(format string, args ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.out, format+"\n", args...); err != nil {
		s.t.Fatal(err)
	}
}

// TestRequestsReachTheClient checks that requests of a server are answered by the client, with its
// result or its error, and log messages and levels are passed on.
func TestRequestsReachTheClient(t *testing.T) {
	client := &fakeClient{notes: make(chan string, 10)}
	s := serveRelayed(t, client)
	s.send(`{"jsonrpc":"2.0","id":"a","method":"sampling/createMessage","params":{"x":1}}`)
	s.want(`{"jsonrpc":"2.0","id":"a","result":{"for":"docs","params":{"x":1}}}`)
	s.send(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`)
	s.want(`{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no roots","data":[1]}}`)
	s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
	if got, want := <-client.notes, `docs 7 notifications/message {"level":"info"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s.hub.RootsChanged()
	s.want(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	s.hub.SetLevel("debug")
	s.want(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}`)
	s.send(`{"jsonrpc":"2.0","id":2,"result":{}}`)
}

// TestRelayedRequestsAreBounded checks that a server has at most maxRelayed requests, that it can
// cancel one, and that the others end with the connection.
func TestRelayedRequestsAreBounded(t *testing.T) {
	client := &fakeClient{pending: make(chan string, maxRelayed), ended: make(chan string, maxRelayed)}
	s := serveRelayed(t, client)
	for i := range maxRelayed {
		s.send(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"n":%[1]d}}`, i)
		<-client.pending
	}
	s.send(`{"jsonrpc":"2.0","id":"more","method":"elicitation/create"}`)
	if got := s.line(); !strings.Contains(got, `"id":"more","error":{"code":-32000,"message":"16 requests`) {
		t.Errorf("the server got %s, want that there are too many", got)
	}
	s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	if got := <-client.ended; got != `{"n":3}` {
		t.Errorf("got the end of %s, want that of the cancelled request", got)
	}
	if err := s.out.Close(); err != nil {
		t.Fatal(err)
	}
	for range maxRelayed - 1 {
		<-client.ended
	}
	s.hub.Close()
	if _, err := s.in.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Errorf("the server got more, want no answer to a cancelled request: %v", err)
	}
}

// TestChangedListIsReportedOnce checks that the client hears of a changed list only once after the
// list was requested.
func TestChangedListIsReportedOnce(t *testing.T) {
	client := &fakeClient{notes: make(chan string, 10)}
	s := serveRelayed(t, client)
	const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	s.send(changed) // before any list
	listed := make(chan error, 1)
	go func() {
		_, _, err := s.hub.Conn("docs").Tools(t.Context())
		listed <- err
	}()
	s.want(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	s.send(`{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}`)
	if err := <-listed; err != nil {
		t.Fatal(err)
	}
	s.send(changed)
	s.send(changed)
	s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
	for _, want := range []string{"docs 7 notifications/tools/list_changed ", "docs 7 notifications/message {}"} {
		if got := <-client.notes; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
