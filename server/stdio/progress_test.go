package stdio

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/stdio/stdiotest"
)

// TestReportProgressPrecedesTheAnswer checks that progress rises, carries the token
// exactly as the client wrote it, precedes the answer, and goes only to a client
// that asked for progress.
func TestReportProgressPrecedesTheAnswer(t *testing.T) {
	b := newToolbox()
	seen := make(chan struct{}, 100) // by the client: what was handed over may not be written before the answer
	b.mcp.AddTool(mcp.NewToolWithRawSchema("steady", "", json.RawMessage(`{"type":"object"}`)),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			stop := ReportProgressEvery(ctx, time.Millisecond, nil, func() string { return "at it" })
			if ProgressToken(ctx) != nil {
				for range 2 {
					<-seen
				}
			}
			stop()
			stop() // a second call of stop is allowed
			return mcp.NewToolResultText("done"), nil
		})
	c := dial(t, b)
	c.Initialize("2025-11-25")
	for _, token := range []string{`"a"`, `9007199254740993`} {
		for len(seen) > 0 { // what the tool did not wait for
			<-seen
		}
		c.Send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"steady","_meta":{"progressToken":%s}}}`, token)
		for last := 0.0; ; {
			r := c.Recv()
			if r.Method == "" {
				if last < 2 {
					t.Errorf("got the answer after progress %v, want at least 2 before it", last)
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
			stdiotest.NoErr(t, json.Unmarshal([]byte(r.Raw), &params))
			if p := params.Params; string(p.Token) != token || p.Progress <= last || p.Message != "at it" {
				t.Errorf("got %s, want token %s and progress above %v", r.Raw, token, last)
			}
			last = params.Params.Progress
			seen <- struct{}{}
		}
	}
	for _, meta := range []string{`{}`, `{"progressToken":null}`} {
		c.Call(`2`, "tools/call", `{"name":"steady","_meta":`+meta+`}`)
	}
}

// TestReportProgressSendsNewsAtOnce checks that a changed progress text is sent at
// once, not only after the reporting period.
func TestReportProgressSendsNewsAtOnce(t *testing.T) {
	b := newToolbox()
	seen := make(chan struct{})
	b.mcp.AddTool(mcp.NewToolWithRawSchema("group", "", json.RawMessage(`{"type":"object"}`)),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			news := make(chan struct{}, 1)
			stop := ReportProgressEvery(ctx, time.Hour, news, func() string { return "db ready" })
			news <- struct{}{}
			<-seen
			stop()
			return mcp.NewToolResultText("done"), nil
		})
	c := dial(t, b)
	c.Initialize("2025-11-25")
	c.Send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"group","_meta":{"progressToken":1}}}`)
	if r := c.Recv(); r.Method != MethodProgress || !strings.Contains(r.Raw, "db ready") {
		t.Errorf("got %s, want progress with the news", r.Raw)
	}
	close(seen)
	c.Recv()
}
