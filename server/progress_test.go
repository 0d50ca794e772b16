package server

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/groups"
)

// TestReport: progress rises, bears the token exactly as the client wrote it,
// comes before the answer, and only to a client that asked.
func TestReport(t *testing.T) {
	b := newToolbox()
	handed := make(chan struct{}, 100)
	b.mcp.AddTool(mcp.NewToolWithRawSchema("steady", "", json.RawMessage(`{"type":"object"}`)),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			stop := reportEvery(ctx, time.Millisecond, nil, func() string { handed <- struct{}{}; return "at it" })
			if progressToken(ctx) != nil {
				for range 3 {
					<-handed
				}
			}
			stop()
			stop() // safe twice
			return mcp.NewToolResultText("done"), nil
		})
	c := dial(t, b)
	c.initialize("2025-11-25")
	for _, token := range []string{`"a"`, `9007199254740993`} {
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"steady","_meta":{"progressToken":%s}}}`, token)
		for last := 0.0; ; {
			r := c.recv()
			if r.Method == "" {
				if last < 2 {
					t.Errorf("answered after %v notifications", last)
				}
				break
			}
			var params struct {
				Params struct {
					Token    json.RawMessage `json:"progressToken"`
					Progress float64
					Message  string
				}
			}
			noErr(t, json.Unmarshal([]byte(r.raw), &params))
			if p := params.Params; string(p.Token) != token || p.Progress <= last || p.Message != "at it" {
				t.Errorf("%s", r.raw)
			}
			last = params.Params.Progress
		}
	}
	for _, meta := range []string{`{}`, `{"progressToken":null}`} {
		c.call(`2`, "tools/call", `{"name":"steady","_meta":`+meta+`}`)
	}
}

// TestReportOfNews: what happens between the periods is told when it happens.
func TestReportOfNews(t *testing.T) {
	b := newToolbox()
	b.mcp.AddTool(mcp.NewToolWithRawSchema("group", "", json.RawMessage(`{"type":"object"}`)),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			news, handed := newLatestNews(), make(chan struct{}, 1)
			stop := reportEvery(ctx, time.Hour, news.told, func() string { handed <- struct{}{}; return news.text() })
			news.take(groups.Progress{Done: 1, Total: 2, Outcome: groups.Outcome{Process: "db", Result: groups.BecameReady}})
			<-handed
			stop()
			return mcp.NewToolResultText("done"), nil
		})
	c := dial(t, b)
	c.initialize("2025-11-25")
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"group","_meta":{"progressToken":1}}}`)
	if r := c.recv(); r.Method != methodProgress || !strings.Contains(r.raw, "1 of 2 done; db ready") {
		t.Errorf("%s", r.raw)
	}
	c.recv()
}
