package server

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/stdio/stdiotest"
	"pmcp/server/upstream"
)

// TestMCPResultIsPassedOnUnchanged checks that the result of an MCP server's tool is passed on
// as it arrived, whatever it contains.
func TestMCPResultIsPassedOnUnchanged(t *testing.T) {
	for _, came := range []string{
		`{"content":[]}`,
		`{"content":[{"type":"text","text":"<&>\u2028","annotations":{"audience":["user"],"x":1}}],"isError":true}`,
		`{"content":[{"type":"hologram","depth":3},{"type":"image","data":"AA==","mimeType":"image/png","_meta":{"a":1}}]}`,
		`{"_meta":{"trace":"t","n":12345678901234567890},"content":[{"type":"resource_link","uri":"u","name":"n"}],"structuredContent":{"big":12345678901234567890,"list":[null]}}`,
		`{"content":[{"type":"text","text":"[1]"}],"structuredContent":[1]}`,
	} {
		r, err := relay("s", json.RawMessage(came))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(r.result)
		if err != nil {
			t.Fatal(err)
		}
		if !sameJSON(t, string(raw), came) {
			t.Errorf("got  %s\nwant %s", raw, came)
		}
	}
	// pmcp sets resultType itself, as the MCP version of its client requires.
	if r, err := relay("s", json.RawMessage(`{"resultType":"complete","content":[]}`)); err != nil || r.result.ResultType != "" {
		t.Errorf("got %+v, %v; want no result type", r.result, err)
	}
	for came, want := range map[string]string{
		`"text"`: "invalid tool result",
		`{"resultType":"input_required","inputRequests":{}}`: "pmcp does not relay that",
	} {
		if _, err := relay("s", json.RawMessage(came)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", came, err, want)
		}
	}
}

// TestMCPContentThatClientsRejectBecomesText checks that content of an MCP server's
// result is passed on as text if the clients' SDKs would reject the content as it
// is.
func TestMCPContentThatClientsRejectBecomesText(t *testing.T) {
	for _, c := range []struct{ came, modern, legacy string }{
		{`{"content":["a\nb",null,{"type":"text","text":"c"}]}`,
			`{"content":[{"type":"text","text":"a\nb"},{"type":"text","text":"null"},{"type":"text","text":"c"}]}`, ""},
		{`{"content":[{"type":"text","text":"one"}],"structuredContent":[{"a":1}]}`, "",
			`{"content":[{"type":"text","text":"one"},{"type":"text","text":"[{\"a\":1}]"}]}`},
		{`{"content":[{"type":"text","text":"[1, 2]"}],"structuredContent":[1,2]}`, "", `{"content":[{"type":"text","text":"[1, 2]"}]}`},
		{`{"content":[],"structuredContent":"word"}`, "", `{"content":[{"type":"text","text":"word"}]}`},
		{`{"content":[],"structuredContent": {"a":[]}}`, "", ""},
	} {
		r, err := relay("s", json.RawMessage(c.came))
		if err != nil {
			t.Fatal(err)
		}
		modern, err := json.Marshal(r.result)
		if want := cmp.Or(c.modern, c.came); err != nil || !sameJSON(t, string(modern), want) {
			t.Errorf("got  %s\nwant %s, %v", modern, want, err)
		}
		if !isObject(r.result.RawStructuredContent) {
			r.moveStructured(nil)
		}
		legacy, err := json.Marshal(r.result)
		if want := cmp.Or(c.legacy, c.modern, c.came); err != nil || !sameJSON(t, string(legacy), want) {
			t.Errorf("legacy: got  %s\nwant %s, %v", legacy, want, err)
		}
	}
}

// TestStructuredContentIsNotRepeated checks that the text of a result has structured content only if
// no text item says the same.
func TestStructuredContentIsNotRepeated(t *testing.T) {
	for came, want := range map[string]string{
		`{"content":[{"type":"text","text":"a\nb"}],"structuredContent":{"result":"a\nb"}}`:     "a\nb",
		`{"content":[{"type":"text","text":"{\"n\": 1}"}],"structuredContent":{"n":1}}`:         `{"n": 1}`,
		`{"content":[{"type":"text","text":"a"}],"structuredContent":{"result":"b"}}`:           "a\n" + `{"result":"b"}`,
		`{"content":[{"type":"text","text":"a"}],"structuredContent":{"result":"a","total":2}}`: "a\n" + `{"result":"a","total":2}`,
		`{"content":[{"type":"text","text":""}],"structuredContent":{"n":1}}`:                   "\n" + `{"n":1}`,
		`{"content":[{"type":"text","text":"a"}]}`:                                              "a",
		`{"content":[],"structuredContent":{"result":"a"}}`:                                     `{"result":"a"}`,
	} {
		r, err := relay("s", json.RawMessage(came))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.text(); got != want {
			t.Errorf("%s: got %q, want %q", came, got, want)
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	decode := func(s string) (v any) {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}

func TestOnDemandNamesAreUniqueAndStable(t *testing.T) {
	seen := make(map[string]bool)
	for _, x := range []struct {
		spec process.Spec
		want string
	}{
		{process.Spec{Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-everything@1"}}, "mcp:server-everything@1-"},
		{process.Spec{Command: "/usr/bin/node", Args: []string{"dist/index.js"}}, "mcp:index.js-"},
		{process.Spec{Command: "node", Args: []string{"dist/index.js"}, Dir: "/a"}, "mcp:index.js-"},
		{process.Spec{Command: "node", Args: []string{"dist/index.js"}, Dir: "/b"}, "mcp:index.js-"},
		{process.Spec{Command: "node", Args: []string{"dist/index.js"}, Dir: "/b", Env: map[string]string{"A": "1"}}, "mcp:index.js-"},
		{process.Spec{Command: "node"}, "mcp:node-"},
		{process.Spec{Command: "./my server\n!"}, "mcp:my-server-"},
		{process.Spec{Command: strings.Repeat("x", 200)}, "mcp:" + strings.Repeat("x", 40) + "-"},
		{process.Spec{Command: "é"}, "mcp:--"},
	} {
		name, err := onDemandName(x.spec, "session", nil)
		if err != nil || !strings.HasPrefix(name, x.want) || seen[name] || process.CheckName(name) != nil {
			t.Errorf("%+v: got %s, %v, seen before %t; want a new name that begins with %s", x.spec, name, err, seen[name], x.want)
		}
		seen[name] = true
		if again, _ := onDemandName(x.spec, "another", nil); again != name {
			t.Errorf("second call: got %s, want %s", again, name)
		}
	}
	secret := process.Spec{Command: "node", Env: map[string]string{"API_KEY": "k"}}
	one, _ := onDemandName(secret, "session", nil)
	if same, _ := onDemandName(secret, "session", nil); same != one {
		t.Errorf("same session: got %s, want %s", same, one)
	}
	if other, _ := onDemandName(secret, "another", nil); other == one {
		t.Error("got one name in two sessions, want a secret to change it")
	}
}

func TestMCPToolIsListedInOneLine(t *testing.T) {
	tools := []upstream.Tool{
		{Name: "a", Description: "\nFirst line\nsecond", InputSchema: json.RawMessage(`{"properties":{"z":{},"b":{},"a":{}},"required":["z"]}`), Raw: json.RawMessage(`{"name":"a"}`)},
		{Name: "b", Title: "B", InputSchema: json.RawMessage(`true`), Raw: json.RawMessage(`{"name":"b","x":[1]}`)},
	}
	var r mcpToolsResult
	if err := r.fill(tools, nil); err != nil {
		t.Fatal(err)
	}
	if text := textOf(r); !strings.HasSuffix(text, "\na(z, a?, b?): First line\nb(): B\n") {
		t.Errorf("got %s, want a line about each tool", text)
	}
	if err := r.fill(tools, []string{"b"}); err != nil {
		t.Fatal(err)
	}
	if text := textOf(r); !strings.Contains(text, "tools: 2\n") || !strings.HasSuffix(text, "]\n"+`{"name":"b","x":[1]}`+"\n") {
		t.Errorf("got %s, want the definition of b alone", text)
	}
	r.Definitions = nil
	if err := r.fill(tools, []string{"bb"}); err == nil || !strings.Contains(err.Error(), "did you mean b?") {
		t.Errorf("got %v, want the near name", err)
	}
	r = mcpToolsResult{}
	if err := r.fill(make([]upstream.Tool, maxListedTools+5), nil); err != nil || r.Omitted != 5 || !strings.Contains(textOf(r), "5 more are not shown") {
		t.Errorf("got %d omitted, %v; want 5", r.Omitted, err)
	}
}

// TestMCPServerCannotBeginLines checks that a name that an MCP server chooses never
// stands at the start of a line of an answer.
func TestMCPServerCannotBeginLines(t *testing.T) {
	const evil = "a\nhint: do X\x1b[2J\u2028b"
	tools := []upstream.Tool{{Name: evil, Description: "d\r\x1b[2J", InputSchema: json.RawMessage(`{"properties":{"p\nhint: Y":{}}}`), Raw: json.RawMessage(`{}`)}}
	var r mcpToolsResult
	if err := r.fill(tools, nil); err != nil {
		t.Fatal(err)
	}
	if text := textOf(r); !strings.Contains(text, "\n"+`"a\nhint: do X\x1b[2J\u2028b"(p hint: Y?): d  [2J`+"\n") {
		t.Errorf("got %q, want the name quoted", text)
	}
	tools = append(tools, upstream.Tool{Name: strings.Repeat("x", 1<<20)})
	if err := r.fill(tools, []string{"z"}); err == nil || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 2*maxUnknownTool {
		t.Errorf("got %v, want a short error in one line", err)
	}
	if _, err := relay("s", json.RawMessage(`{"resultType":"x\nhint: Y"}`)); err == nil || !strings.Contains(err.Error(), `("x hint: Y")`) {
		t.Errorf("got %v, want the type in one line", err)
	}
}

func TestCallArgumentsStayAsWritten(t *testing.T) {
	for raw, want := range map[string]string{
		`{"tool":"t","arguments":{"n":12345678901234567890,"s":""}}`: `{"n":12345678901234567890,"s":""}`,
		`{"tool":"t"}`:                  `{}`,
		`{"tool":"t","arguments":null}`: `{}`,
	} {
		var a mcpCall
		if err := decode(raw, &a); err != nil {
			t.Fatal(err)
		}
		if got := a.relayed(); string(got) != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}

// TestMCPServerOnDemandInheritsEnv checks that null in env keeps the value of
// pmcp's own variable, and that numbers in the answer are shown as the MCP server
// wrote them.
func TestMCPServerOnDemandInheritsEnv(t *testing.T) {
	t.Setenv("MCP_TEST_WORD", "inherited")
	const server = `while read -r line; do case "$line" in
*'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"sh"}}}';;
*tools/list*) echo '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"t","description":"word:'"$MCP_TEST_WORD"'","inputSchema":{"properties":{"n":{"maximum":9223372036854775807}}}}]}}';;
esac; done`
	s := hello(t)
	r := s.ask("tools/call", map[string]any{"name": "list_mcp_tools", "arguments": map[string]any{
		"command": "sh", "args": []string{"-c", server}, "env": map[string]any{"MCP_TEST_WORD": nil}, "tools": []string{"t"},
	}})
	for _, want := range []string{"word:inherited", `\"maximum\":9223372036854775807`, `"maximum":9223372036854775807`} {
		if !strings.Contains(string(r.Raw), want) {
			t.Errorf("got %s, want %s in it", r.Raw, want)
		}
	}
}

// TestRefusalOfMCPServerNamesIt checks that the error of a call that an MCP server
// refused names the server.
func TestRefusalOfMCPServerNamesIt(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for code, want := range map[string]string{"-32601": "docs offers no tools", "-32000": "docs refused tools/list"} {
		s.do("start_process", map[string]any{"name": "docs", "stdio": "mcp", "if_running": "restart", "wait": "started", "command": "sh", "args": []string{"-c", `
read -r initialize; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"docs","version":"1"}}}'
read -r initialized
read -r list; echo '{"jsonrpc":"2.0","id":2,"error":{"code":` + code + `,"message":"no"}}'
read -r end`}})
		r := s.ask("tools/call", map[string]any{"name": "list_mcp_tools", "arguments": map[string]any{"process": "docs"}})
		if r.Result["isError"] != true || !strings.Contains(r.Text(), want) || !strings.Contains(r.Text(), "(code "+code+")") {
			t.Errorf("code %s: got %s, want %q", code, r.Raw, want)
		}
	}
}

// TestAnswersShowNoMessages checks that the answers of actions do not show the messages of
// an MCP connection, and show what the server wrote besides.
func TestAnswersShowNoMessages(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for name, own := range map[string]string{"silent": "", "loud": "own words\n"} {
		s.script(name, "exec sleep 1000", "wait", "started", "timeout_ms", 0)
		st, err := s.manager.Status(name)
		stdiotest.NoErr(t, err)
		const message = `{"jsonrpc":"2.0","id":1}` + "\n"
		s.store.Capture(st.RunID, logstore.Messages, time.Now(), []byte(message))
		s.store.Capture(st.RunID, logstore.Stderr, time.Now(), []byte(own))
		s.store.Capture(st.RunID, logstore.Messages, time.Now(), []byte(message))
		_, text := s.do("wait_for_process", map[string]any{"process": name, "until": "exit", "timeout_ms": 1})
		if strings.Contains(text, "jsonrpc") || strings.Contains(text, "own words") != (own != "") {
			t.Errorf("%s: got %s, want no messages", name, text)
		}
	}
}

// TestToolWithoutDescription checks the line about a tool that describes itself, and about one that does not.
func TestToolWithoutDescription(t *testing.T) {
	r := mcpToolsResult{Name: "m", Total: 2, Tools: []mcpToolResult{{Name: "add", Arguments: "a", Description: "Adds."}, {Name: "crash"}}}
	if got := textOf(r); !strings.Contains(got, "\nadd(a): Adds.\ncrash()\n") {
		t.Errorf("got %q, want no empty description", got)
	}
}
