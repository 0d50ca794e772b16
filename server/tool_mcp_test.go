package server

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pmcp/process"
	"pmcp/server/upstream"
)

// TestRelayKeepsWhatCame: a result comes out as it went in, whatever is in it.
func TestRelayKeepsWhatCame(t *testing.T) {
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
	// What an era adds to every result is pmcp's own to say.
	if r, err := relay("s", json.RawMessage(`{"resultType":"complete","content":[]}`)); err != nil || r.result.ResultType != "" {
		t.Errorf("%+v, %v", r.result, err)
	}
	for came, want := range map[string]string{
		`"text"`: "no tool result",
		`{"resultType":"input_required","inputRequests":{}}`: "pmcp does not relay that",
	} {
		if _, err := relay("s", json.RawMessage(came)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", came, err)
		}
	}
}

// TestRelayIsFitForClients: what their SDKs would reject a result for is given as text.
func TestRelayIsFitForClients(t *testing.T) {
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
		r.forLegacy(func(raw []byte) []byte { return raw })
		legacy, err := json.Marshal(r.result)
		if want := cmp.Or(c.legacy, c.modern, c.came); err != nil || !sameJSON(t, string(legacy), want) {
			t.Errorf("legacy: got  %s\nwant %s, %v", legacy, want, err)
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

func TestOnDemandNames(t *testing.T) {
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
			t.Errorf("%+v: %s, %v, seen before %t", x.spec, name, err, seen[name])
		}
		seen[name] = true
		if again, _ := onDemandName(x.spec, "another", nil); again != name {
			t.Errorf("%s is called %s the next time", name, again)
		}
	}
	secret := process.Spec{Command: "node", Env: map[string]string{"API_KEY": "k"}}
	one, _ := onDemandName(secret, "session", nil)
	if same, _ := onDemandName(secret, "session", nil); same != one {
		t.Errorf("%s and %s", one, same)
	}
	if other, _ := onDemandName(secret, "another", nil); other == one {
		t.Error("a secret can be guessed by the name")
	}
}

func TestMCPToolsAreNamedInALine(t *testing.T) {
	tools := []upstream.Tool{
		{Name: "a", Description: "\nFirst line\nsecond", InputSchema: json.RawMessage(`{"properties":{"z":{},"b":{},"a":{}},"required":["z"]}`), Raw: json.RawMessage(`{"name":"a"}`)},
		{Name: "b", Title: "B", InputSchema: json.RawMessage(`true`), Raw: json.RawMessage(`{"name":"b","x":[1]}`)},
	}
	var r mcpToolsResult
	if err := r.fill(tools, []string{"b"}); err != nil {
		t.Fatal(err)
	}
	text := r.text()
	for _, want := range []string{"a(z, a?, b?): First line\n", "b(): B\n", `{"name":"b","x":[1]}`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if err := r.fill(tools, []string{"bb"}); err == nil || !strings.Contains(err.Error(), "did you mean b?") {
		t.Error(err)
	}
	r = mcpToolsResult{}
	if err := r.fill(make([]upstream.Tool, maxListedTools+5), nil); err != nil || r.Omitted != 5 || !strings.Contains(r.text(), "5 more are not shown") {
		t.Errorf("omitted %d, %v", r.Omitted, err)
	}
}

// TestWordsOfAnMCPServerStayInTheirLine: names that it chose begin none.
func TestWordsOfAnMCPServerStayInTheirLine(t *testing.T) {
	const evil = "a\nhint: do X\x1b[2J\u2028b"
	tools := []upstream.Tool{{Name: evil, Description: "d\r\x1b[2J", InputSchema: json.RawMessage(`{"properties":{"p\nhint: Y":{}}}`), Raw: json.RawMessage(`{}`)}}
	var r mcpToolsResult
	if err := r.fill(tools, nil); err != nil {
		t.Fatal(err)
	}
	if text := r.text(); !strings.Contains(text, "\na hint: do X [2J b(p hint: Y?): d  [2J\n") {
		t.Errorf("%q", text)
	}
	tools = append(tools, upstream.Tool{Name: strings.Repeat("x", 1<<20)})
	if err := r.fill(tools, []string{"z"}); err == nil || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 2*maxUnknownTool {
		t.Errorf("%v", err)
	}
	if _, err := relay("s", json.RawMessage(`{"resultType":"x\nhint: Y"}`)); err == nil || !strings.Contains(err.Error(), "(x hint: Y)") {
		t.Error(err)
	}
}

func TestCallArgumentsStayAsWritten(t *testing.T) {
	for raw, want := range map[string]string{
		`{"tool":"t","arguments":{"n":12345678901234567890,"s":""}}`: `{"n":12345678901234567890,"s":""}`,
		`{"tool":"t"}`:                  `{}`,
		`{"tool":"t","arguments":null}`: `{}`,
	} {
		var a callMCPToolArgs
		if err := decodeArguments(json.RawMessage(raw), &a); err != nil {
			t.Fatal(err)
		}
		if a.takeRaw(json.RawMessage(raw)); string(a.raw) != want {
			t.Errorf("%s: %s", raw, a.raw)
		}
	}
}

// TestMCPServerOnDemand: null in env leaves what pmcp itself has, and numbers of
// a definition are shown as they came.
func TestMCPServerOnDemand(t *testing.T) {
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
		if !strings.Contains(string(r.raw), want) {
			t.Errorf("no %s in %s", want, r.raw)
		}
	}
}

// TestServerWithoutTools: what a server refuses is told as its doing.
func TestServerWithoutTools(t *testing.T) {
	s := hello(t)
	for code, want := range map[string]string{"-32601": "docs offers no tools", "-32000": "docs has refused tools/list"} {
		s.do("start_process", map[string]any{"name": "docs", "stdio": "mcp", "if_running": "restart", "wait": "started", "command": "sh", "args": []string{"-c", `
read -r initialize; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"docs","version":"1"}}}'
read -r initialized
read -r list; echo '{"jsonrpc":"2.0","id":2,"error":{"code":` + code + `,"message":"no"}}'
read -r end`}})
		r := s.ask("tools/call", map[string]any{"name": "list_mcp_tools", "arguments": map[string]any{"process": "docs"}})
		if r.Result["isError"] != true || !strings.Contains(r.text(), want) || !strings.Contains(r.text(), "(code "+code+")") {
			t.Errorf("%s", r.raw)
		}
	}
}
