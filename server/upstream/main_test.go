package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pmcp/process/proctest"
)

// serverEnv is the environment variable that makes the test binary an MCP server of
// the named kind.
const serverEnv = "UPSTREAM_TEST_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(serverEnv); kind != "" {
		os.Exit(runServer(kind))
	}
	goleak.VerifyTestMain(m)
}

// A server is an MCP server for tests. Its kind selects what it does wrong.
type server struct {
	kind  string
	out   *os.File
	mu    sync.Mutex
	lists int             // how many tool lists the server has sent
	first json.RawMessage // the id of initialize, until initialize is answered
}

func runServer(kind string) int {
	if strings.HasPrefix(kind, "mcp-go") {
		return runMCPGo(kind)
	}
	s := &server{kind: kind, out: os.Stdout}
	switch kind {
	case "exit":
		fmt.Fprintln(os.Stderr, "no database")
		return 7
	case "deaf":
		return stay()
	case "rubbish":
		s.print("Server started on stdio!\n")
	}
	lines := bufio.NewReader(os.Stdin)
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			return 0
		}
		var m message
		if json.Unmarshal([]byte(text), &m) != nil {
			fmt.Fprintln(os.Stderr, "cannot read", text)
			return 9
		}
		if code := s.handle(m, text); code >= 0 {
			return code
		}
	}
}

// stay blocks until the process is killed, for 3 minutes at most.
func stay() int {
	<-time.After(10 * time.Minute)
	return 0
}

func (s *server) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.WriteString(text)
}

func (s *server) send(format string, args ...any) { s.print(fmt.Sprintf(format, args...) + "\n") }

func (s *server) result(id json.RawMessage, result string) {
	s.send(`{"result":%s,"jsonrpc":"2.0","id":%s}`, result, id)
}

func (s *server) fail(id json.RawMessage, code int, text string) {
	s.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, text)
}

func (s *server) answerInitialize(id json.RawMessage) {
	s.result(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1.2"},"instructions":"be kind"}`)
}

// handle processes a message. It returns the code to exit with, or -1 to continue.
func (s *server) handle(m message, text string) int {
	modern := strings.Contains(text, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`)
	switch {
	case m.ID == nil:
		fmt.Fprintln(os.Stderr, "notified", strings.TrimSpace(text))
	case m.Method == "" && m.Error != nil:
		s.mu.Lock()
		id := os.Getenv("ASKED")
		s.mu.Unlock()
		s.result(json.RawMessage(id), fmt.Sprintf(`{"told":%q}`, m.Error.Message))
	case m.Method == "":
		s.result(json.RawMessage(os.Getenv("ASKED")), `{"told":"a result"}`)
	case s.kind == "silent":
	case s.kind == "refuses":
		s.fail(m.ID, -32000, "come back later")
	case s.kind == "modern" && !modern:
		s.fail(m.ID, -32022, "unsupported protocol version")
	case m.Method == "initialize" && s.kind == "only modern":
	case m.Method == "initialize" && s.kind == "slow": // answers after server/discover has come
		s.first = m.ID
	case m.Method == "server/discover" && s.kind == "slow":
		s.answerInitialize(s.first)
	case m.Method == "initialize":
		s.answerInitialize(m.ID)
	case m.Method == "server/discover" && strings.Contains(s.kind, "modern"):
		s.result(m.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"serverInfo":{"name":"fake","version":"2"}}`)
	case m.Method == "tools/list":
		s.list(m)
	case m.Method == "tools/call":
		return s.call(m)
	}
	return -1 // ignore any other message, as some servers do
}

// list sends a tool list of three pages, or a different list each time with kind
// "changing".
func (s *server) list(m message) {
	if s.kind == "changing" {
		s.lists++
		s.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		s.result(m.ID, fmt.Sprintf(`{"tools":[{"name":"v%d"}]}`, s.lists))
		return
	}
	var p struct{ Cursor string }
	_ = json.Unmarshal(m.Params, &p)
	next := map[string]string{"": "a", "a": "b"}[p.Cursor]
	s.result(m.ID, fmt.Sprintf(`{"tools":[{"name":"tool%s","description":"d","inputSchema":{"type":"object"},"x":1}],"nextCursor":%q}`, p.Cursor, next))
}

func (s *server) call(m message) int {
	var p struct {
		Name      string
		Arguments json.RawMessage
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &p)
	word, size, _ := strings.Cut(p.Name, " ")
	n := 0
	_, _ = fmt.Sscan(size, &n)
	switch word {
	case "echo":
		s.result(m.ID, fmt.Sprintf(`{"content":[{"type":"odd","v":12345678901234567890}],"arguments":%s,"extra":{"z":null}}`, p.Arguments))
	case "params":
		s.result(m.ID, string(m.Params))
	case "error":
		s.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such tool","data":{"tools":["echo"]}}}`, m.ID)
	case "progress":
		for i := range n {
			s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"m"}}`, p.Meta.ProgressToken, i)
		}
		s.result(m.ID, `{}`)
	case "naive": // uses the id of the call as the progress token that it lacks
		for i := range n {
			s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.ID, i)
		}
		s.result(m.ID, `{"naive":true}`)
	case "latin1":
		s.send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"message\":\"caf\xe9\"}}", p.Meta.ProgressToken)
		s.result(m.ID, "{\"text\":\"caf\xe9 \xff\xfe 1\"}")
	case "stuck":
		s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, p.Meta.ProgressToken)
	case "never":
	case "crash":
		fmt.Fprintln(os.Stderr, "panic: out of cheese")
		return 3
	case "big": // the id comes last, as in servers of the TypeScript SDK
		s.result(m.ID, `{"text":"`+strings.Repeat("x", n)+`"}`)
	case "bighead": // the id comes first, as in mcp-go
		s.send(`{"jsonrpc":"2.0","id":%s,"result":{"text":"%s"}}`, m.ID, strings.Repeat("x", n))
	case "half":
		s.print(`{"jsonrpc":"2.0","id":`)
	case "wrong":
		s.send(`{"jsonrpc":"2.0","id":999999,"result":{}}`)
		s.send(`{"jsonrpc":"2.0","id":"%s","result":{}}`, m.ID)
	case "noise":
		s.print("debug: called\n\n[1]\n{\"a\":1}\n\xff\xfe\n")
		s.result(m.ID, `{}`)
	case "close":
		_ = s.out.Close()
		return stay()
	case "ask":
		_ = os.Setenv("ASKED", string(m.ID))
		s.send(`{"jsonrpc":"2.0","id":"q1","method":%q,"params":{}}`, string(p.Arguments[1:len(p.Arguments)-1]))
	case "block":
		return stay()
	}
	return -1
}

// A memLog records what a connection captures and when it becomes ready.
type memLog struct {
	mu    sync.Mutex
	lines []string
	ready []string
	more  chan struct{}
}

func newMemLog() *memLog { return &memLog{more: make(chan struct{})} }

func (l *memLog) capture(_ int64, _ time.Time, line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	l.changed()
}

func (l *memLog) onReady(name string, run int64, ready bool, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = append(l.ready, fmt.Sprintf("%s %d %t %s", name, run, ready, why))
	l.changed()
}

func (l *memLog) changed() {
	close(l.more)
	l.more = make(chan struct{})
}

// await waits for a captured line or a readiness that contains text.
func (l *memLog) await(t *testing.T, text string) {
	t.Helper()
	ctx := testContext(t)
	for {
		l.mu.Lock()
		found := slices.ContainsFunc(append(slices.Clone(l.lines), l.ready...), func(s string) bool { return strings.Contains(s, text) })
		more := l.more
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Fatalf("got the lines %q and readiness %q, want %q in them", l.lines, l.ready, text)
		}
	}
}

var testContext = proctest.Context

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// children are the server processes of a test; they implement Processes.
type children struct {
	t    testing.TB
	hub  *Hub
	kind func(name string) string
	most int // the most processes at once; 0 means no limit

	mu      sync.Mutex
	running map[string]*exec.Cmd
	ended   map[string]chan struct{}
	starts  []string
	runs    int64
}

func newChildren(t testing.TB, o Options) *children {
	c := &children{t: t, hub: NewHub(o), kind: func(name string) string { return strings.Split(name, "/")[0] }, running: map[string]*exec.Cmd{}, ended: map[string]chan struct{}{}}
	t.Cleanup(func() {
		c.mu.Lock()
		var names []string
		for name := range c.running {
			names = append(names, name)
		}
		c.mu.Unlock()
		for _, name := range names {
			_, _ = c.Stop(context.Background(), name)
		}
		c.hub.Close()
	})
	return c
}

func (c *children) Start(ctx context.Context, name string) error {
	if _, err := c.Stop(ctx, name); err != nil {
		return err
	}
	if n := len(c.alive()); c.most > 0 && n >= c.most {
		return fmt.Errorf("%w: %d run", ErrNoRoom, n)
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+c.kind(name))
	cmd.Stdin, cmd.Stdout = inR, outW
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = inR.Close()
	_ = outW.Close()
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	c.mu.Lock()
	c.runs++
	run := c.runs
	c.running[name], c.ended[name] = cmd, ended
	c.starts = append(c.starts, name)
	c.mu.Unlock()
	c.hub.Take(name, run, nil, inW, outR)
	return nil
}

func (c *children) Stop(_ context.Context, name string) (string, error) {
	c.mu.Lock()
	cmd, ended := c.running[name], c.ended[name]
	delete(c.running, name)
	c.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		<-ended
		return cmd.ProcessState.String(), nil
	}
	return "", nil
}

func (c *children) alive() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name := range c.running {
		select {
		case <-c.ended[name]:
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// connect starts an MCP server of the given kind and returns the connection.
func connect(t testing.TB, kind string, o Options) *Conn {
	t.Helper()
	c := newChildren(t, o)
	if err := c.Start(context.Background(), kind); err != nil {
		t.Fatal(err)
	}
	return c.hub.Conn(kind)
}

// connected is like connect and waits until the server is up.
func connected(t testing.TB, kind string, o Options) *Conn {
	t.Helper()
	c := connect(t, kind, o)
	if err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return c
}

// callTool calls a tool of the connected server and returns the raw result.
func callTool(ctx context.Context, c *Conn, name string, arguments string, onProgress func(json.RawMessage)) (string, error) {
	if arguments == "" {
		arguments = "{}"
	}
	raw, err := c.Call(ctx, "tools/call", map[string]any{"name": name, "arguments": json.RawMessage(arguments)}, onProgress)
	return string(raw), err
}
