package stdio

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/stdio/stdiotest"
)

// TestInvalidLineGetsOneError checks that each invalid line gets one error as its
// answer, and that the connection continues.
func TestInvalidLineGetsOneError(t *testing.T) {
	c := dial(t, newToolbox())
	for name, tc := range map[string]struct {
		line string
		id   string
		code int
		says string
	}{
		"malformed":               {`{"jsonrpc":"2.0","id":1,`, `null`, mcp.PARSE_ERROR, "not valid JSON"},
		"word":                    {`hello`, `null`, mcp.PARSE_ERROR, "not valid JSON"},
		"two messages":            {`{"jsonrpc":"2.0","id":1,"method":"ping"} {}`, `null`, mcp.PARSE_ERROR, "not valid JSON"},
		"batch":                   {`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `null`, mcp.INVALID_REQUEST, "batches are not supported"},
		"empty batch":             {`[]`, `null`, mcp.INVALID_REQUEST, "batches are not supported"},
		"broken batch":            {`[{"jsonrpc":`, `null`, mcp.PARSE_ERROR, "not valid JSON"},
		"string":                  {`"ping"`, `null`, mcp.INVALID_REQUEST, "must be a JSON object"},
		"number":                  {`1`, `null`, mcp.INVALID_REQUEST, "must be a JSON object"},
		"empty object":            {`{}`, `null`, mcp.INVALID_REQUEST, `"jsonrpc" must be "2.0"`},
		"version 1.0":             {`{"jsonrpc":"1.0","id":7,"method":"ping"}`, `7`, mcp.INVALID_REQUEST, `"jsonrpc" must be "2.0"`},
		"no version":              {`{"id":7,"method":"ping"}`, `7`, mcp.INVALID_REQUEST, `"jsonrpc" must be "2.0"`},
		"no method":               {`{"jsonrpc":"2.0","id":7}`, `7`, mcp.INVALID_REQUEST, "non-empty string"},
		"empty method":            {`{"jsonrpc":"2.0","id":7,"method":""}`, `7`, mcp.INVALID_REQUEST, "non-empty string"},
		"method of wrong type":    {`{"jsonrpc":"2.0","id":7,"method":["ping"]}`, `7`, mcp.INVALID_REQUEST, "non-empty string"},
		"endless method":          {`{"jsonrpc":"2.0","id":7,"method":"` + strings.Repeat("m", 300) + `"}`, `7`, mcp.METHOD_NOT_FOUND, "not found"},
		"method and result":       {`{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}`, `7`, mcp.INVALID_REQUEST, `beside "result"`},
		"unknown method":          {`{"jsonrpc":"2.0","id":7,"method":"no/such"}`, `7`, mcp.METHOD_NOT_FOUND, "no/such"},
		"unknown tool":            {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nix"}}`, `7`, mcp.INVALID_PARAMS, "nix"},
		"tool name of wrong type": {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":5}}`, `7`, mcp.INVALID_PARAMS, "tools/call"},
		"params an array":         {`{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}`, `7`, mcp.INVALID_PARAMS, "must be an object"},
		"id null":                 {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `null`, mcp.INVALID_REQUEST, "string or an integer"},
		"id fraction":             {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `null`, mcp.INVALID_REQUEST, "string or an integer"},
		"id object":               {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `null`, mcp.INVALID_REQUEST, "string or an integer"},
		"endless id":              {`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 2000) + `","method":"ping"}`, `null`, mcp.INVALID_REQUEST, "at most 1024 bytes"},
		"invalid UTF-8":           {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{\"a\":\"\xff\"}}", `7`, mcp.PARSE_ERROR, "not valid UTF-8"},
		"invalid UTF-8 in the id": {"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}", `null`, mcp.PARSE_ERROR, "not valid UTF-8"},
		"endless nesting":         {strings.Repeat(`{"a":`, 20000), `null`, mcp.PARSE_ERROR, "not valid JSON"},
		"unknown resource":        {`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"nix://"}}`, `7`, mcp.RESOURCE_NOT_FOUND, "nix://"},
		"resource not found":      {`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"test://missing"}}`, `7`, mcp.RESOURCE_NOT_FOUND, "there are: a, b"},
		"resource not found 2026": {`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"test://missing",` + stdiotest.ModernMeta + `}}`, `7`, mcp.INVALID_PARAMS, "there are: a, b"},
		"resource failure":        {`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"test://fails"}}`, `7`, mcp.INTERNAL_ERROR, "out of order"},
		"resource panic":          {`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"test://panic"}}`, `7`, mcp.INTERNAL_ERROR, "failed unexpectedly"},
		"prompt argument":         {`{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"picky"}}`, `7`, mcp.INVALID_PARAMS, "argument process is missing"},
		"result not encodable":    {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nan"}}`, `7`, mcp.INTERNAL_ERROR, "cannot be written"},
	} {
		t.Run(name, func(t *testing.T) {
			c.T = t
			c.Send("%s", tc.line)
			r := c.Answer(tc.id)
			if r.Error == nil || r.Error.Code != tc.code || !strings.Contains(r.Error.Message, tc.says) {
				t.Errorf("got %s, want code %d and %q", r.Raw, tc.code, tc.says)
			}
			c.Alive()
		})
	}
	c.T = t
}

func TestResourceNotFoundErrorNamesURI(t *testing.T) {
	c := dial(t, newToolbox())
	r := c.Call(`1`, "resources/read", `{"uri":"test://missing"}`)
	if r.Error == nil || string(r.Error.Data) != `{"uri":"test://missing"}` {
		t.Errorf("got %s, want the URI in its data", r.Raw)
	}
}

// TestNotificationsAndResponsesAreNotAnswered checks that messages which must not be answered get no answer.
func TestNotificationsAndResponsesAreNotAnswered(t *testing.T) {
	c := dial(t, newToolbox())
	for _, line := range []string{
		"", "   ", "\r", "\t\r",
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"notifications/no-such"}`,
		`{"jsonrpc":"2.0","method":"notifications/x","params":[1,2]}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}`,
		`{"jsonrpc":"2.0","method":"notifications/` + strings.Repeat("x", 300) + `"}`,
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"panic"}}`, // a notification calls no tool
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		`{"jsonrpc":"2.0","id":"pmcp-77","result":{}}`,
		`{"jsonrpc":"2.0","id":12,"error":{"code":1,"message":"x"}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`,
		`{"id":1.5,"result":{}}`,
	} {
		c.Send("%s", line)
	}
	c.Alive()
}

func TestIDsAreEchoedExactly(t *testing.T) {
	c := dial(t, newToolbox())
	for _, id := range []string{`1`, `"1"`, `0`, `-5`, `9007199254740993`, `123456789012345678901234567890`,
		`""`, `"ä€😀"`, `"\u00e4\u003c"`, `"<&>"`, `"a\\\"b"`} {
		c.Call(id, "ping", `{}`)
		if r := c.Call(id, "no/such", `{}`); r.Error == nil {
			t.Errorf("got %s, want an error", r.Raw)
		}
	}
}

func TestDuplicateIDIsRefused(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.Tool(`5`, "hold", `{}`)
	stdiotest.AwaitValue(t, b.started, "the first call")
	for _, method := range []string{"ping", "initialize"} {
		if r := c.Call(`5`, method, `{}`); r.Error == nil || r.Error.Code != mcp.INVALID_REQUEST || !strings.Contains(r.Error.Message, "still being handled") {
			t.Fatalf("got %s, want an error for a duplicate id", r.Raw)
		}
	}
	c.Call(`"5"`, "ping", `{}`) // the string "5" is a different id
	close(b.release)
	if r := c.Answer(`5`); r.Text() != "released" {
		t.Fatalf("got %s, want released", r.Raw)
	}
	c.Call(`5`, "ping", `{}`) // the id can be used again
}

func TestPanicsBecomeAnswers(t *testing.T) {
	c := dial(t, newToolbox())
	for _, tool := range []string{"panic", "goexit"} {
		c.Tool(`1`, tool, `{}`)
		r := c.Answer(`1`)
		if r.Result["isError"] != true || !strings.Contains(r.Text(), "failed unexpectedly") || r.Result["resultType"] != nil {
			t.Errorf("%s: got %s, want an error result", tool, r.Raw)
		}
		r = c.Call(`2`, "tools/call", `{"name":"`+tool+`",`+stdiotest.ModernMeta+`}`)
		if r.Result["isError"] != true || r.Result["resultType"] != "complete" {
			t.Errorf("%s, 2026-07-28: got %s, want a complete error result", tool, r.Raw)
		}
	}
	if log := c.Log.String(); !strings.Contains(log, "deliberate") || !strings.Contains(log, "(*toolbox).panic") {
		t.Errorf("got log\n%s\nwant the panic and its stack", log)
	}
}

func TestHTMLIsNotEscapedInAnswers(t *testing.T) {
	c := dial(t, newToolbox())
	const text = `a <b> && "c" \\u003c d`
	quoted, _ := json.Marshal(text)
	c.Tool(`1`, "echo", fmt.Sprintf(`{"text":%s}`, quoted))
	r := c.Answer(`1`)
	if r.Text() != text || !strings.Contains(r.Raw, "<b> &&") {
		t.Errorf("got %s, want %s unescaped", r.Raw, text)
	}
}

// TestMessageIsOneLine checks that characters which could break a line are escaped
// in an answer.
func TestMessageIsOneLine(t *testing.T) {
	c := dial(t, newToolbox())
	text := "a\nb\r\nc\u2028d\u2029e\u0085f\x00"
	quoted, _ := json.Marshal(text)
	c.Tool(`1`, "echo", fmt.Sprintf(`{"text":%s}`, quoted))
	r := c.Answer(`1`)
	if r.Text() != text || strings.ContainsAny(r.Raw, "\n\r\u2028\u2029") {
		t.Errorf("got %q, want one line with %q", r.Raw, text)
	}
}

func TestMessageOverLimitIsRefused(t *testing.T) {
	c := dial(t, newToolbox(), func(o *Options) { o.MaxMessage = 100_000 })
	pad := strings.Repeat("x", 300_000)
	for id, line := range map[string]string{
		`41`:   `{"jsonrpc":"2.0","id":41,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + pad + `"}}}`,
		`"ts"`: `{"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + pad + `"}},"jsonrpc":"2.0","id":"ts"}`,
		`null`: pad,
	} {
		c.Send("%s", line)
		r := c.Answer(id)
		if r.Error == nil || r.Error.Code != mcp.INVALID_REQUEST || !strings.Contains(r.Error.Message, "more than the 100000") {
			t.Errorf("got %s, want an error that names the limit", r.Raw)
		}
		c.Alive()
	}
}

// TestMessagesUpToDefaultLimitAreRead checks that messages of up to the documented
// 10 MiB are read. The test's messages have a wrong JSON-RPC version, so that no
// method is called.
func TestMessagesUpToDefaultLimitAreRead(t *testing.T) {
	c := dial(t, newToolbox())
	const frame = `{"jsonrpc":"1.0","id":1,"method":"ping","params":{"p":""}}`
	fill := strings.Repeat("x", 10<<20-len(frame))
	for extra, says := range map[string]string{"": `must be "2.0"`, "x": "10485761 bytes"} {
		c.Send(`{"jsonrpc":"1.0","id":1,"method":"ping","params":{"p":"%s%s"}}`, fill, extra)
		if r := c.Answer(`1`); r.Error.Code != mcp.INVALID_REQUEST || !strings.Contains(r.Error.Message, says) {
			t.Errorf("got %s, want an error with %q", r.Raw, says)
		}
	}
}

func TestLastLineWithoutNewlineIsHandled(t *testing.T) {
	c := dial(t, newToolbox())
	if _, err := io.WriteString(c.In, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err != nil {
		t.Fatal(err)
	}
	if err := c.End(); err != nil {
		t.Fatal(err)
	}
	c.Answer(`1`)
}
