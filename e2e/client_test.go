package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// args are the arguments of a tool.
type args map[string]any

// A client speaks raw JSON lines and reports every byte of output that is not part of a
// JSON-RPC message. Its methods are safe for concurrent use.
type client struct {
	out    io.ReadCloser
	report func(format string, args ...any)
	hung   func(t testing.TB) // called before a test fails because no message came; set before use
	ended  chan struct{}      // closed when the server's output has ended
	modern bool               // send the _meta of 2026-07-28 with each request; set before use
	plain  bool               // do not ask for the structured form of answers; set before use
	logs   string             // the level of log messages that _meta asks for; "" for none; set before use

	writing sync.Mutex
	in      io.Writer

	mu      sync.Mutex
	lastID  int
	pending map[string]chan message
	notes   []message     // notifications that note has not returned yet
	arrived chan struct{} // closed and replaced at each notification
	strays  []message     // answers with the id null

	// responses are the results of the server's requests, by method; those of others are {}.
	// It is set before use.
	responses map[string]any
	asked     []message // the server's requests with a response in responses

	// spy, if not nil, is called with each message before any other use of the message.
	// Its second argument is the method of the request that the message answers, or "". It
	// is set before use.
	spy     func(method string, m message)
	methods map[string]string // methods of the requests by id; filled if there is a spy
}

// A message is one message from the server.
type message struct {
	Raw    string          `json:"-"`
	JSON   string          `json:"jsonrpc"`
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params map[string]any  `json:"params"`
	Result map[string]any  `json:"result"`
	Error  *struct {
		Code    *int            `json:"code"`
		Message *string         `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

func newClient(in io.Writer, out io.ReadCloser, report func(string, ...any)) *client {
	c := &client{in: in, out: out, report: report, hung: func(testing.TB) {}, ended: make(chan struct{}),
		pending: map[string]chan message{}, arrived: make(chan struct{})}
	go c.read()
	return c
}

func (c *client) read() {
	defer close(c.ended)
	defer c.out.Close()
	r := bufio.NewReader(c.out)
	for {
		line, err := r.ReadString('\n')
		if err == nil {
			c.take(line)
			continue
		}
		if line != "" {
			c.report("the output ends inside a message: %q", line)
		}
		break
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, answer := range c.pending {
		close(answer)
	}
	c.pending = nil
}

func (c *client) closeOutput() { c.out.Close() }

func (c *client) take(line string) {
	m, err := parse(line)
	if err != nil {
		c.report("on standard output: %v: %q", err, line)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spy != nil {
		c.spy(c.methods[string(m.ID)], m)
	}
	switch {
	case m.Method != "" && m.ID != nil:
		result := []byte("{}") // the answer to a ping
		if response := c.responses[m.Method]; response != nil {
			result, _ = json.Marshal(response)
			c.asked = append(c.asked, m)
		}
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		go func() { _ = c.write(answer) }() // in a goroutine, because reading must not wait for the write
	case m.Method != "":
		c.notes = append(c.notes, m)
		close(c.arrived)
		c.arrived = make(chan struct{})
	case string(m.ID) == "null":
		c.strays = append(c.strays, m)
	default:
		answer := c.pending[string(m.ID)]
		if answer == nil {
			c.report("an unexpected answer: %s", line)
			return
		}
		delete(c.pending, string(m.ID))
		answer <- m
	}
}

// parse returns the JSON-RPC message in a line. It returns an error for anything else.
func parse(line string) (message, error) {
	m := message{Raw: strings.TrimSuffix(line, "\n")}
	if !utf8.ValidString(line) {
		return m, fmt.Errorf("not UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		return m, err
	}
	kinds := 0
	for name := range fields {
		switch name {
		case "jsonrpc", "id", "params":
		case "method", "result", "error":
			kinds++
		default:
			return m, fmt.Errorf("unknown member %q", name)
		}
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		return m, err
	}
	switch {
	case m.JSON != "2.0":
		return m, fmt.Errorf("not JSON-RPC 2.0")
	case kinds != 1:
		return m, fmt.Errorf("neither request, notification, result nor error")
	case m.Error != nil && (m.Error.Code == nil || m.Error.Message == nil):
		return m, fmt.Errorf("incomplete error")
	case m.Method == "" && m.ID == nil:
		return m, fmt.Errorf("answer without an id")
	case string(m.ID) == "null" && m.Error == nil:
		return m, fmt.Errorf("null id")
	}
	return m, nil
}

func (c *client) write(line string) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := io.WriteString(c.in, line+"\n")
	return err
}

// send writes a line unchanged.
func (c *client) send(t testing.TB, line string) {
	t.Helper()
	if err := c.write(line); err != nil {
		t.Fatalf("cannot send: %v", err)
	}
}

// request sends a request and returns the request's id and the channel of the answer. The
// channel is closed if the output ends first.
func (c *client) request(t testing.TB, method string, params args) (id string, answer <-chan message) {
	t.Helper()
	if c.modern {
		params = withMeta(params)
		if meta, ok := params["_meta"].(map[string]any); ok && c.logs != "" {
			meta["io.modelcontextprotocol/logLevel"] = c.logs
		}
	}
	if method == "tools/call" && !c.plain {
		params = withStructured(params)
	}
	ch := make(chan message, 1)
	c.mu.Lock()
	c.lastID++
	id = fmt.Sprint(c.lastID)
	if c.pending == nil {
		c.mu.Unlock()
		t.Fatalf("%s: the server has closed its output", method)
	}
	c.pending[id] = ch
	if c.spy != nil {
		if c.methods == nil {
			c.methods = map[string]string{}
		}
		c.methods[id] = method
	}
	c.mu.Unlock()
	body := map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "method": method}
	if params != nil {
		body["params"] = params
	}
	line, err := json.Marshal(body)
	check(t, err)
	c.send(t, string(line))
	return id, ch
}

func withMeta(params args) args {
	all := args{"_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "e2e", "version": "1"},
	}}
	maps.Copy(all, params)
	return all
}

// withStructured returns the parameters of a call that asks for the structured form of its
// answer.
func withStructured(params args) args {
	meta := map[string]any{"pmcp/structured": true}
	switch given := params["_meta"].(type) {
	case args:
		maps.Copy(meta, given)
	case map[string]any:
		maps.Copy(meta, given)
	}
	return params.with("_meta", meta)
}

// cancel cancels a request, which the server then must not answer.
func (c *client) cancel(t testing.TB, id string) {
	t.Helper()
	c.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
}

// call sends a request and returns the answer.
func (c *client) call(t testing.TB, method string, params args) message {
	t.Helper()
	_, answer := c.request(t, method, params)
	return c.wait(t, method, answer)
}

func (c *client) wait(t testing.TB, what string, answer <-chan message) message {
	t.Helper()
	timer := time.NewTimer(answersWithin)
	defer timer.Stop()
	select {
	case m, ok := <-answer:
		if !ok {
			t.Fatalf("%s: the server closed its output before it answered", what)
		}
		return m
	case <-timer.C:
		c.hung(t)
		t.Fatalf("%s: no answer within %v", what, answersWithin)
	}
	panic("unreachable")
}

// initialize performs the handshake of MCP versions before 2026-07-28 and returns the
// server's answer.
func (c *client) initialize(t testing.TB) message {
	t.Helper()
	return c.initializeWith(t, args{})
}

// initializeWith is initialize with capabilities.
func (c *client) initializeWith(t testing.TB, capabilities args) message {
	t.Helper()
	m := c.call(t, "initialize", args{"protocolVersion": "2025-11-25", "capabilities": capabilities,
		"clientInfo": args{"name": "e2e", "version": "1"}})
	if m.Error != nil {
		t.Fatalf("initialize: got %s, want a result", m.Raw)
	}
	c.send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return m
}

// A result is the result of a tool call.
type result struct {
	message
	Text  string         // all text content, joined by newlines
	Data  map[string]any // structuredContent
	Error bool           // isError
}

// tool calls a tool. A JSON-RPC error ends the test; an isError result does not.
func (c *client) tool(t testing.TB, name string, arguments args) result {
	t.Helper()
	m := c.call(t, "tools/call", args{"name": name, "arguments": arguments})
	return asResult(t, name, m)
}

func asResult(t testing.TB, name string, m message) result {
	t.Helper()
	if m.Error != nil {
		t.Fatalf("%s: got %s, want a result", name, m.Raw)
	}
	r := result{message: m}
	r.Error, _ = m.Result["isError"].(bool)
	r.Data, _ = m.Result["structuredContent"].(map[string]any)
	content, _ := m.Result["content"].([]any)
	var texts []string
	for _, item := range content {
		if fields, ok := item.(map[string]any); ok && fields["type"] == "text" {
			texts = append(texts, fmt.Sprint(fields["text"]))
		}
	}
	r.Text = strings.Join(texts, "\n")
	return r
}

// must calls a tool that must succeed, and returns the result.
func (c *client) must(t testing.TB, name string, arguments args) result {
	t.Helper()
	r := c.tool(t, name, withTimeout(name, arguments))
	if r.Error {
		t.Fatalf("%s failed: %s", name, r.Text)
	}
	return r
}

// note returns the next notification of the method for which ok holds. A nil ok accepts
// any.
func (c *client) note(t testing.TB, method string, ok func(message) bool) message {
	t.Helper()
	timer := time.NewTimer(answersWithin)
	defer timer.Stop()
	for {
		m, found, arrived := c.takeNote(method, ok)
		if found {
			return m
		}
		select {
		case <-arrived:
		case <-c.ended:
			t.Fatalf("the server closed its output before it sent %s", method)
		case <-timer.C:
			c.hung(t)
			t.Fatalf("got no %s within %v, want one", method, answersWithin)
		}
	}
}

func (c *client) takeNote(method string, ok func(message) bool) (m message, found bool, arrived <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, n := range c.notes {
		if n.Method == method && (ok == nil || ok(n)) {
			c.notes = append(c.notes[:i:i], c.notes[i+1:]...)
			return n, true, nil
		}
	}
	return message{}, false, c.arrived
}

// stray waits for the next answer whose id is null, and returns the answer.
func (c *client) stray(t testing.TB) message {
	t.Helper()
	var m message
	if !poll(answersWithin, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.strays) == 0 {
			return false
		}
		m, c.strays = c.strays[0], c.strays[1:]
		return true
	}) {
		t.Fatal("got no answer with the id null, want one")
	}
	return m
}
