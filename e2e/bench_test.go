package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// BenchmarkStartup measures the time from exec to the answer to initialize, which an
// editor waits for at each start.
func BenchmarkStartup(b *testing.B) {
	servers := map[string][]string{
		"pmcp": {binary(b)}, "pmcp_no_guardian": {binary(b), "--no-guardian"},
		"bare_mcp-go": append([]string{self(b)}, program("mcpgo")...),
	}
	for _, name := range []string{"pmcp", "pmcp_no_guardian", "bare_mcp-go"} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				p := w.plain(b, servers[name])
				p.exchange(b, initializeLine)
				took = append(took, time.Since(begin))
				b.StopTimer()
				p.end(b)
				b.StartTimer()
			}
			reportPercentiles(b, took)
		})
	}
}

// BenchmarkLatency measures one request over real pipes, and compares it with a bare
// mcp-go server that offers the same tools and does nothing when they are called.
func BenchmarkLatency(b *testing.B) {
	w := newWorld(b)
	pmcp := w.plain(b, []string{binary(b)})
	defer pmcp.end(b)
	pmcp.exchange(b, initializeLine)
	tools := pmcp.exchange(b, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	file := w.home + "/tools.json"
	check(b, os.WriteFile(file, tools, 0o600))
	bare := w.plain(b, append([]string{self(b)}, program("mcpgo", file)...))
	defer bare.end(b)
	bare.exchange(b, initializeLine)
	for _, request := range []struct{ name, line string }{
		{"ping", `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{"tools_list", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`},
		{"list_processes", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_processes","arguments":{}}}`},
	} {
		for name, p := range map[string]*plain{"pmcp": pmcp, "bare_mcp-go": bare} {
			b.Run(request.name+"/"+name, func(b *testing.B) {
				var took []time.Duration
				size := 0
				for b.Loop() {
					begin := time.Now()
					size = len(p.exchange(b, request.line))
					took = append(took, time.Since(begin))
				}
				reportPercentiles(b, took)
				b.ReportMetric(float64(size), "bytes")
			})
		}
	}
}

// BenchmarkUpstreamCall measures one call of a managed MCP server through pmcp, and
// compares it with the same call made directly.
func BenchmarkUpstreamCall(b *testing.B) {
	w := newUpstreamWorld(b)
	direct := w.launch(b, self(b), program("mcpodd")...)
	direct.initialize(b)
	pmcp := w.start(b)
	pmcp.initialize(b)
	pmcp.odd(b, "odd", nil)
	arguments := args{"b": strings.Repeat("x", 200)}
	for _, way := range []struct {
		name string
		s    *session
		tool string
		args args
	}{
		{"pmcp", pmcp, "call_mcp_tool", args{"process": "odd", "tool": "echo", "arguments": arguments}},
		{"direct", direct, "echo", arguments},
	} {
		b.Run(way.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				way.s.must(b, way.tool, way.args)
				took = append(took, time.Since(begin))
			}
			reportPercentiles(b, took)
		})
	}
}

const initializeLine = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`

func reportPercentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	at := func(percent int) float64 { return float64(took[len(took)*percent/100].Microseconds()) }
	b.ReportMetric(at(50), "p50-µs")
	b.ReportMetric(at(90), "p90-µs")
	b.ReportMetric(at(99), "p99-µs")
}

// median returns the median in microseconds.
func median(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / 1e3
}

// A plain is a server with a client that only exchanges lines, for benchmarks.
type plain struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (w *world) plain(b *testing.B, command []string) *plain {
	b.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = w.project, w.env
	in, err := cmd.StdinPipe()
	check(b, err)
	out, err := cmd.StdoutPipe()
	check(b, err)
	check(b, cmd.Start())
	return &plain{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

// unlimited starts the built binary without a rate limit and with room for all that a
// benchmark prints, and initializes it.
func unlimited(b *testing.B) *plain {
	b.Helper()
	w := newWorld(b)
	w.set("PM_RATE_LIMIT", "0")
	w.set("PM_MAX_LOG_SIZE_MB", "4096")
	c := w.plain(b, []string{binary(b)})
	c.exchange(b, initializeLine)
	return c
}

func (p *plain) exchange(b *testing.B, line string) []byte {
	b.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	check(b, err)
	answer, err := p.out.ReadBytes('\n')
	check(b, err)
	return answer
}

func (p *plain) end(b *testing.B) {
	b.Helper()
	check(b, p.in.Close())
	_, err := io.Copy(io.Discard, p.out)
	check(b, err)
	check(b, p.cmd.Wait())
}

// mcpgoProgram runs mcp-go's own stdio server with the tools that a file with a tools/list
// answer names. A call whose argument "answer" is a file with an answer gets that answer.
func mcpgoProgram(arguments []string) int {
	s := mcpserver.NewMCPServer("bare", "1")
	if len(arguments) > 0 {
		if err := addTools(s, arguments[0]); err != nil {
			return fail(err)
		}
	}
	if len(arguments) > 1 { // "offers": a resource and a prompt too
		s.AddResource(mcp.NewResource("note://a", "a"), func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "note://a", MIMEType: "text/plain", Text: "a note"}}, nil
		})
		s.AddPrompt(mcp.NewPrompt("greet"), func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return mcp.NewGetPromptResult("", []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent("hello"))}), nil
		})
	}
	st := mcpserver.NewStdioServer(s)
	st.SetErrorLogger(log.New(os.Stderr, "", 0))
	if err := st.Listen(context.Background(), os.Stdin, os.Stdout); err != nil {
		return fail(err)
	}
	return 0
}

func addTools(s *mcpserver.MCPServer, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var answer struct {
		Result struct {
			Tools []struct {
				Name, Description string
				InputSchema       json.RawMessage
				OutputSchema      json.RawMessage
				Annotations       mcp.ToolAnnotation
			}
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	for _, t := range answer.Result.Tools {
		tool := mcp.NewToolWithRawSchema(t.Name, t.Description, t.InputSchema)
		tool.RawOutputSchema, tool.Annotations = t.OutputSchema, t.Annotations
		s.AddTool(tool, func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if file := request.GetString("answer", ""); file != "" {
				return givenAnswer(file)
			}
			return mcp.NewToolResultStructured(map[string]any{"processes": []any{}}, "no processes"), nil
		})
	}
	return nil
}

// givenAnswers holds the results that givenAnswer has read, by file.
var givenAnswers sync.Map

// givenAnswer returns the tool result in a file that holds a response.
func givenAnswer(file string) (*mcp.CallToolResult, error) {
	if r, read := givenAnswers.Load(file); read {
		return r.(*mcp.CallToolResult), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var response struct {
		Result struct {
			Content           []struct{ Text string }
			StructuredContent json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &response); err != nil {
		return nil, err
	}
	r := mcp.NewToolResultStructured(response.Result.StructuredContent, response.Result.Content[0].Text)
	givenAnswers.Store(file, r)
	return r, nil
}
