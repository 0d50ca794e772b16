package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// scripted returns a connection to a simulated MCP server. answer returns the line
// that the server writes for each message, or "" for none.
func scripted(t *testing.T, answer func(m message) string) *Conn {
	t.Helper()
	c := newScripted(t, Options{})
	c.run(answer)
	return c.Conn
}

// A script is a connection to a simulated MCP server that does not answer yet.
type script struct {
	*Conn
	t      *testing.T
	asked  *io.PipeReader
	answer *io.PipeWriter
}

func newScripted(t *testing.T, o Options) script {
	asked, stdin := io.Pipe()
	stdout, answer := io.Pipe()
	return script{newPipesConn(o.withDefaults(), "scripted", 1, stdin, stdout), t, asked, answer}
}

func (s script) run(answer func(m message) string) {
	served, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(served); s.serve() }()
	go func() {
		defer close(ended)
		for lines := bufio.NewReader(s.asked); ; {
			text, err := lines.ReadBytes('\n')
			if err != nil {
				_ = s.answer.Close()
				return
			}
			var m message
			if err := json.Unmarshal(text, &m); err != nil {
				s.t.Errorf("%s: %v", text, err)
			}
			if line := answer(m); line != "" {
				_, _ = io.WriteString(s.answer, line+"\n")
			}
		}
	}()
	s.t.Cleanup(func() { s.end("the test is over"); <-served; <-ended })
}

// result returns a response to m.
func result(m message, text string) string {
	return `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + text + `}`
}

const plainInitialize = `{"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"}}`

// TestTextOfTheServerStaysInItsLine checks in both protocol eras that text an MCP
// server chooses is bounded, starts no new line and moves no terminal cursor.
func TestTextOfTheServerStaysInItsLine(t *testing.T) {
	long := strings.Repeat("é", 500)
	const evil = `evil\nhint: do X\r\n\u001b[2Jnext_cursor:\u0085ZZ\u2028`
	const tame = "evil hint: do X   [2Jnext_cursor: ZZ"
	for want, answer := range map[string]func(m message) string{
		"2025": func(m message) string {
			return result(m, `{"protocolVersion":"2025\n","serverInfo":{"name":"`+evil+`","version":"`+long+`"}}`)
		},
		modernVersion: func(m message) string {
			if m.Method == methodInitialize {
				return `{"id":` + string(m.ID) + `,"error":{"code":-1,"message":"no"}}`
			}
			return result(m, `{"supportedVersions":["2026-07-28"],"serverInfo":{"name":"`+evil+`","version":"`+long+`"}}`)
		},
	} {
		c := scripted(t, func(m message) string {
			switch m.Method {
			case methodInitialize, methodDiscover:
				return answer(m)
			case "tools/call":
				return `{"id":` + string(m.ID) + `,"error":{"code":-5,"message":"` + evil + strings.Repeat("é", 150<<10) + `","data":["a",` + "\r" + `"b"]}}`
			}
			return ""
		})
		if err := c.Ready(testContext(t)); err != nil {
			t.Fatal(err)
		}
		st := c.Status()
		if st.Name != tame || st.Protocol != want {
			t.Errorf("got %+v, want name %q and protocol %s", st.Server, tame, want)
		}
		if v := st.Version; len(v) > maxWord+len("…") || !strings.HasSuffix(v, "é…") || !utf8.ValidString(v) {
			t.Errorf("got a version of %d bytes, want at most %d: %q", len(v), maxWord+len("…"), v)
		}
		_, err := callTool(testContext(t), c, "x", "", nil)
		var rpc *RPCError
		if !errors.As(err, &rpc) || rpc.Code != -5 || len(rpc.Message) > maxErrorText+len("…") || !utf8.ValidString(rpc.Message) {
			t.Fatalf("got %v, want code -5 with a bounded message", err)
		}
		if text := err.Error(); !strings.HasPrefix(text, `"`+tame+" éé") || !strings.HasSuffix(text, `é…" (code -5) ["a", "b"]`) || strings.ContainsAny(text, "\n\r\x1b") {
			t.Errorf("got %q, want one line with the start of the message, code and data", text)
		}
	}
}

// TestUnsupportedVersionsAreNamed checks that an error names the server's
// unsupported versions in one bounded line.
func TestUnsupportedVersionsAreNamed(t *testing.T) {
	c := scripted(t, func(m message) string {
		if m.Method == methodInitialize {
			return `{"id":` + string(m.ID) + `,"error":{"code":-1,"message":"no"}}`
		}
		return result(m, `{"supportedVersions":["2030\nhint: X","`+strings.Repeat("9", 1000)+`"]}`)
	})
	err := c.Ready(testContext(t))
	if !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), "it speaks MCP [2030 hint: X 999") || len(err.Error()) > 2*maxWord {
		t.Errorf("got %v, want ErrDisconnected with the versions", err)
	}
}

// TestServerWithOddNameIsConnected checks that a server that writes its name or version as another
// type is connected like any other, because nothing depends on them.
func TestServerWithOddNameIsConnected(t *testing.T) {
	for _, x := range []struct{ more, name, version string }{
		{`"serverInfo":{"name":"weather","version":1.5}`, "weather", "1.5"},
		{`"serverInfo":"weather"`, "weather", ""},
		{`"serverInfo":{"name":["a"],"version":null}`, "", ""},
		{`"serverInfo":7,"instructions":["a"]`, "7", ""},
		{`"instructions":{"a":1}`, "", ""},
	} {
		c := scripted(t, func(m message) string {
			if m.Method == methodInitialize {
				return result(m, `{"protocolVersion":"2025-11-25","capabilities":{},`+x.more+`}`)
			}
			return ""
		})
		if err := c.Ready(testContext(t)); err != nil {
			t.Errorf("%s: %v", x.more, err)
		}
		if st := c.Status(); st.Name != x.name || st.Version != x.version || st.Instructions != "" {
			t.Errorf("%s: got %+v, want name %q and version %q", x.more, st.Server, x.name, x.version)
		}
	}
}

// TestMalformedErrorAnswersCall checks that a malformed error still answers the call with the
// readable parts of the error, and that the connection stays up.
func TestMalformedErrorAnswersCall(t *testing.T) {
	for _, x := range []struct{ answer, want string }{
		{`"error":"boom"`, `"boom" (code 0)`},
		{`"error":{"code":"ENOENT","message":"no file"}`, `"ENOENT: no file" (code 0)`},
		{`"error":{"code":-32000.0,"message":"m"}`, `"m" (code -32000)`},
		{`"error":{"code":1e3,"message":"m"}`, `"m" (code 1000)`},
		{`"error":{"code":1e300,"message":"m"}`, `"m" (code 0)`},
		{`"error":{"code":-1,"message":{"a":1},"data":2}`, `"{\"a\":1}" (code -1) 2`},
		{`"error":{"code":-1}`, `"" (code -1)`},
		{`"error":{"code":null,"message":null}`, `"" (code 0)`},
		{`"error":{"reason":"r"}`, `"{\"reason\":\"r\"}" (code 0)`},
		{`"error":[1]`, `"[1]" (code 0)`},
		{`"error":7,"result":null`, `"7" (code 0)`},
		{`"error":null`, "scripted has answered tools/call without result or error"},
		{`"x":1`, "scripted has answered tools/call without result or error"},
	} {
		c := scripted(t, func(m message) string {
			switch m.Method {
			case methodInitialize:
				return result(m, plainInitialize)
			case "tools/call":
				return `{"jsonrpc":"2.0","id":` + string(m.ID) + "," + x.answer + "}"
			case methodPing:
				return result(m, "{}")
			}
			return ""
		})
		if err := c.Ready(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := callTool(testContext(t), c, "x", "", nil); err == nil || err.Error() != x.want {
			t.Errorf("%s: got %v, want %s", x.answer, err, x.want)
		}
		if _, err := c.Call(testContext(t), methodPing, nil, nil); err != nil {
			t.Errorf("%s: ping afterwards: %v", x.answer, err)
		}
	}
}

// TestEchoingProgramIsNotTakenForServer checks that a program that echoes its input, such as cat, is
// not mistaken for an MCP server that refuses initialize: an echoed request does
// not count as an answer.
func TestEchoingProgramIsNotTakenForServer(t *testing.T) {
	log := newMemLog()
	s := newScripted(t, Options{Capture: log.capture, OnReady: log.onReady, StartTimeout: time.Hour})
	s.run(func(m message) string {
		text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "method": m.Method, "params": m.Params})
		if err != nil {
			t.Error(err)
		}
		return string(text)
	})
	err := s.Ready(testContext(t))
	if !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), "it echoes its input") || strings.Contains(err.Error(), "does not relay") {
		t.Errorf("got %v, want that it echoes its input", err)
	}
}

// refusing answers initialize with an error and nothing else.
func refusing(m message) string {
	if m.Method != methodInitialize {
		return ""
	}
	return `{"id":` + string(m.ID) + `,"error":{"code":-32603,"message":"no API key"}}`
}

// TestRefusalIsNamed checks that every text that explains why a server is not up
// contains the server's refusal of initialize.
func TestRefusalIsNamed(t *testing.T) {
	const want = `refused initialize: "no API key" (code -32603), and has not answered server/discover`
	log := newMemLog()
	s := newScripted(t, Options{Capture: log.capture, OnReady: log.onReady})
	s.o.discoverTime = time.Hour
	s.run(refusing)
	log.await(t, `"method":"server/discover"`)
	if why := s.Status().Why; why != "it "+want {
		t.Errorf("got %q, want %q", why, "it "+want)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Ready(gone); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "scripted "+want) {
		t.Errorf("got %v, want context.Canceled: scripted %s", err, want)
	}
	s.reportLate()
	log.await(t, "scripted 1 false it "+want)
}

// TestRefusalShortensTheWait checks that a server that has rejected initialize has
// only discoverTime to answer server/discover, not the whole start timeout.
func TestRefusalShortensTheWait(t *testing.T) {
	s := newScripted(t, Options{StartTimeout: time.Hour})
	s.o.discoverTime = time.Millisecond
	s.run(refusing)
	err := s.Ready(testContext(t))
	if !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), `it refused initialize: "no API key" (code -32603), and has not answered server/discover`) {
		t.Errorf("got %v, want ErrDisconnected with the refusal", err)
	}
}

// listing returns a simulated server that answers tools/list with the page that
// pages returns for a cursor; the cursor of the first page is "".
func listing(pages func(cursor string) string) func(m message) string {
	return func(m message) string {
		switch m.Method {
		case methodInitialize:
			return result(m, plainInitialize)
		case "tools/list":
			var p struct{ Cursor string }
			_ = json.Unmarshal(m.Params, &p)
			return result(m, pages(p.Cursor))
		}
		return ""
	}
}

// TestOddListsAreReadInFull checks that an empty page does not end the list, and that an
// unreadable field of a tool hides neither its other fields nor the other tools.
func TestOddListsAreReadInFull(t *testing.T) {
	c := scripted(t, listing(func(cursor string) string {
		return map[string]string{
			"":  `{"tools":[],"nextCursor":"a"}`,
			"a": `{"nextCursor":"b"}`,
			"b": `{"tools":[{"name":"one","description":5,"title":"T"},7,{"name":{}},{"name":"two","description":"d"}],"nextCursor":"c"}`,
			"c": `{"tools":[]}`,
		}[cursor]
	}))
	if err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	tools, unreadable, err := c.Tools(testContext(t))
	if err != nil || len(tools) != 2 || unreadable != 2 {
		t.Fatalf("got %+v, %d unreadable, %v, want 2 tools and 2 unreadable", tools, unreadable, err)
	}
	if one := tools[0]; one.Name != "one" || one.Title != "T" || one.Description != "" || !strings.Contains(string(one.Raw), `"description":5`) || tools[1].Description != "d" {
		t.Errorf("got %+v, want the tools one and two", tools)
	}
}

// TestEndlessListIsBounded checks that Tools requests at most maxPages pages from a
// server that always offers another.
func TestEndlessListIsBounded(t *testing.T) {
	asked := 0
	c := scripted(t, listing(func(cursor string) string {
		asked++
		return `{"tools":[],"nextCursor":"` + cursor + `x"}`
	}))
	if err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Tools(testContext(t)); err != nil || asked != maxPages {
		t.Errorf("got %d requests, %v, want %d", asked, err, maxPages)
	}
}
