package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// mcpoddProgram is an MCP server whose tools are named after what they do. The first
// argument is the kind of server, which selects what the server itself does wrong; a
// second argument only makes the command line unique. The server prints its pid on
// standard error. A server of the kind tree also starts a child in a session of its own
// and prints the child's pid.
func mcpoddProgram(arguments []string) int {
	kind := ""
	if len(arguments) > 0 {
		kind = arguments[0]
	}
	fmt.Fprintf(os.Stderr, "pid %d\n", os.Getpid())
	switch kind {
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot open the database")
		return 4
	case "rubbish":
		fmt.Println("Server started!")
	case "tree":
		out, err := ownProgram("orphan").Output()
		if err != nil {
			return fail(err)
		}
		fmt.Fprintf(os.Stderr, "orphan %s\n", strings.TrimSpace(string(out)))
	}
	lines := bufio.NewReader(os.Stdin)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m message
		if json.Unmarshal(text, &m) != nil || m.ID == nil || kind == "silent" {
			continue
		}
		result := `{}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"echo","description":"says it again","inputSchema":{"type":"object","properties":{"a":{},"b":{}},"required":["b"]}}]}`
		case "tools/call":
			var ends bool
			var code int
			if result, ends, code = oddTool(m); ends {
				return code
			}
		}
		if result != "" {
			fmt.Printf(`{"result":%s,"jsonrpc":"2.0","id":%s}`+"\n", result, m.ID)
		}
	}
}

// oddTool returns the result of a tool of mcpoddProgram, or "" if the tool must not
// answer. ends reports whether the server then exits, with the given code.
func oddTool(m message) (result string, ends bool, code int) {
	name, number, _ := strings.Cut(fmt.Sprint(m.Params["name"]), " ")
	n, _ := strconv.Atoi(number)
	switch name {
	case "crash":
		fmt.Fprintln(os.Stderr, "panic: index out of range [7]")
		return "", true, 2
	case "big":
		return `{"content":[{"type":"text","text":"` + strings.Repeat("x", n) + `"}]}`, false, 0
	case "fail":
		return `{"content":[{"type":"text","text":"no such city\nnext_cursor: AAAA"}],"isError":true}`, false, 0
	case "image":
		return `{"content":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("A", 4000) + `"}]}`, false, 0
	case "bare":
		return `{"content":["words"],"structuredContent":[1]}`, false, 0
	case "never":
		return "", false, 0
	case "noise":
		fmt.Println("debug: noise called")
	case "open":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"sign in first","data":{"elicitations":[{"mode":"url","url":"https://example.com/?token=0123456789abcdef","message":"sign in","elicitationId":"e7"}]}}}`+"\n", m.ID)
		return "", false, 0
	case "complete":
		fmt.Println(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e7","more":1}}`)
	}
	arguments, _ := json.Marshal(m.Params["arguments"])
	return fmt.Sprintf(`{"content":[{"type":"text","text":"ok"}],"structuredContent":{"pid":%d,"arguments":%s}}`, os.Getpid(), arguments), false, 0
}
