package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"pmcp/server/jsonrpc"
)

// The bounds of a Shim.
const (
	maxMessage = 10 << 20 // bytes of a client's message, as of an ordinary session
	maxResults = 64 << 20 // bytes of a session's message
	maxPending = 4096     // requests that are waiting for an answer: a session takes fewer
	maxLosses  = 3        // sessions in a row that end before they have answered anything
)

// requestTime is how long a client that gets no session may take to ask for something.
const requestTime = 5 * time.Second

// codeLost is the code of the error for a request whose session has ended. It lies in the range
// that JSON-RPC reserves for servers, and MCP does not use it.
const codeLost = -32000

// A Shim connects a client to a session of the daemon. When the session or the daemon dies, it
// answers the calls in flight with an error and continues with a new session, which it initialises
// as the client did. All fields are required.
type Shim struct {
	// In and Out are the client's. In is read until its end, which may be later than the end
	// of Run.
	In  io.Reader
	Out io.Writer
	// Dial connects to the daemon.
	Dial  Dial
	Hello Hello
	Log   *slog.Logger

	said [][]byte // the client's messages that hold for the whole session; see remember

	mu      sync.Mutex
	pending map[string]json.RawMessage // guarded by mu; the ids of requests without an answer, by key
	moved   bool                       // guarded by mu; whether the session has answered something
}

// errClient means that the client is gone.
var errClient = errors.New("the client is gone")

// Run serves the client until it closes In, does not read any more, or ctx ends; then it waits
// until the session has answered what it can. The error says why there is no session.
func (s *Shim) Run(ctx context.Context) error {
	s.pending = make(map[string]json.RawMessage)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan []byte)
	go s.readClient(ctx, lines) // ends with In, or with ctx once it has read a line
	for lost := 0; ; {
		c, rest, err := s.connect(ctx)
		if err != nil {
			s.awaitRequest(ctx, lines)
			_ = s.answerPending(err.Error())
			return err
		}
		err = s.relay(ctx, c, rest, lines)
		_ = c.Close()
		switch {
		case err == nil || errors.Is(err, errClient) || ctx.Err() != nil:
			return nil
		case s.hasMoved():
			lost = 0
		}
		if lost++; lost == maxLosses {
			err = fmt.Errorf("%d sessions of the daemon have ended before they answered: %w", lost, err)
			_ = s.answerPending(err.Error())
			return err
		}
		s.Log.Warn("the session of the daemon has ended; going on with a new one", "error", err)
		if err := s.answerPending("the pmcp daemon, or the session in it, ended before it answered: the outcome of this call is unknown, list_processes shows what runs; a new session has begun"); err != nil {
			return nil //nolint:nilerr // the client is gone
		}
	}
}

// readClient sends the client's lines until In ends. Each has its line end.
func (s *Shim) readClient(ctx context.Context, lines chan<- []byte) {
	defer close(lines)
	in := jsonrpc.NewReader(s.In, maxMessage)
	for {
		line, err := in.Next()
		var text []byte
		switch {
		case line.TooLarge(): // its session refuses what has this size, whatever it holds
			text = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"the message has %d bytes, more than the %d that are allowed"}`, orNull(line.ID()), line.Size, maxMessage)
		case len(line.Text) > 0:
			text = append([]byte(nil), line.Text...)
		}
		if len(text) > 0 {
			select {
			case lines <- append(text, '\n'):
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// orNull returns the id of a message, null for none.
func orNull(id json.RawMessage) string {
	if id == nil {
		return "null"
	}
	return string(id)
}

// awaitRequest waits for the first request of a client that has sent nothing yet, so that it can be answered with
// the reason why there is no session: many clients show nothing else.
func (s *Shim) awaitRequest(ctx context.Context, lines <-chan []byte) {
	if len(s.said) > 0 {
		return
	}
	limit := time.After(requestTime)
	for len(s.pending) == 0 { // no other goroutine is left that could change it
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			s.note(line)
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
	}
}

// connect begins a session and initialises it as the client has initialised the one before.
func (s *Shim) connect(ctx context.Context) (net.Conn, *bufio.Reader, error) {
	c, _, rest, err := begin(ctx, s.Dial, s.Hello)
	if err != nil {
		return nil, nil, err
	}
	if err := s.replay(ctx, c, rest); err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, rest, nil
}

// replay sends what the client has said that holds for its whole session to a new one, and drops
// the answers. rest has the size of a jsonrpc.Reader's buffer, which therefore takes nothing else
// from it.
func (s *Shim) replay(ctx context.Context, c net.Conn, rest *bufio.Reader) error {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	in := jsonrpc.NewReader(rest, maxResults)
	for _, line := range s.said {
		if _, err := c.Write(line); err != nil {
			return fmt.Errorf("%w: %w", errNoAnswer, err)
		}
		asked, _ := jsonrpc.Parse(line)
		for answered := asked.Kind != jsonrpc.Request; !answered; {
			line, err := in.Next()
			if err != nil {
				return fmt.Errorf("%w: %w", errNoAnswer, err)
			}
			m, _ := jsonrpc.Parse(line.Text)
			answered = m.Kind == jsonrpc.Response && m.Key == asked.Key
		}
	}
	return nil
}

// relay copies messages in both directions. It returns nil when the client has closed its input
// and the session has ended, errClient when the client does not read, and otherwise why the
// session was lost.
func (s *Shim) relay(ctx context.Context, c net.Conn, rest *bufio.Reader, lines <-chan []byte) error {
	s.mu.Lock()
	s.moved = false
	s.mu.Unlock()
	var copying sync.WaitGroup
	defer copying.Wait()
	ended := make(chan error, 1)
	copying.Go(func() { ended <- s.copyAnswers(rest) })
	defer func() { _ = c.Close() }() // ends the copying
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	for {
		select {
		case err := <-ended:
			return err
		case line, ok := <-lines:
			if !ok {
				if half, can := c.(interface{ CloseWrite() error }); can {
					_ = half.CloseWrite() // the session answers what it can, and ends
				}
				if err := <-ended; errors.Is(err, errClient) {
					return err
				}
				return nil
			}
			s.note(line)
			if _, err := c.Write(line); err != nil {
				if end := <-ended; errors.Is(end, errClient) {
					return end
				}
				return fmt.Errorf("cannot write to the session: %w", err)
			}
		}
	}
}

// maxSaid bounds what is sent again to a new session.
const maxSaid = 1000

// remember keeps the handshake, the latest level of the log and the subscriptions of the client.
func (s *Shim) remember(m jsonrpc.Message, line []byte) {
	drop := func(method string, params []byte) {
		s.said = slices.DeleteFunc(s.said, func(line []byte) bool {
			said, _ := jsonrpc.Parse(line)
			return said.Method == method && (params == nil || bytes.Equal(said.Params, params))
		})
	}
	switch m.Method {
	case "initialize":
		s.said = nil
	case "logging/setLevel":
		drop(m.Method, nil)
	case "resources/unsubscribe":
		drop("resources/subscribe", m.Params)
		return
	case "notifications/initialized", "resources/subscribe":
	default:
		return
	}
	if len(s.said) < maxSaid {
		s.said = append(s.said, line)
	}
}

// note remembers what a message of the client means for later sessions and answers.
func (s *Shim) note(line []byte) {
	m, bad := jsonrpc.Parse(line)
	if bad != nil {
		return // the session answers it
	}
	s.remember(m, line)
	if m.Kind != jsonrpc.Request {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) < maxPending {
		s.pending[m.Key] = append(json.RawMessage(nil), m.ID...)
	}
}

// copyAnswers copies the session's messages to the client until the session ends.
func (s *Shim) copyAnswers(rest *bufio.Reader) error {
	in := jsonrpc.NewReader(rest, maxResults)
	for {
		line, err := in.Next()
		if err == nil && len(line.Text) > 0 { // what has no line end was cut off
			s.forget(line.Text)
			if _, err := s.Out.Write(append(line.Text, '\n')); err != nil {
				return fmt.Errorf("%w: %w", errClient, err)
			}
		}
		if err != nil {
			return fmt.Errorf("the session ended: %w", err)
		}
	}
}

// headBytes is how much of a message of a session is looked at first for its id.
const headBytes = 4 << 10

// forget drops the request that a message of the session answers.
func (s *Shim) forget(line []byte) {
	id := jsonrpc.Line{Head: line[:min(len(line), headBytes)]}.ID()
	if id == nil {
		m, _ := jsonrpc.Parse(line)
		id = m.ID
	}
	key, ok := jsonrpc.IDKey(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		delete(s.pending, key)
	}
	s.moved = true
}

func (s *Shim) hasMoved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved
}

// answerPending answers every request that has no answer with an error.
func (s *Shim) answerPending(why string) error {
	s.mu.Lock()
	pending := s.pending
	s.pending = make(map[string]json.RawMessage)
	s.mu.Unlock()
	for _, id := range pending {
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": codeLost, "message": why}})
		if err == nil {
			_, err = s.Out.Write(append(line, '\n'))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
