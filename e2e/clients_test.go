package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// foreign is an MCP client of another project, with the methods that
// TestGoClientsRunWholeSession needs.
type foreign interface {
	// tools returns the tools' output schemas as JSON, keyed by tool.
	tools(t *testing.T) map[string]any
	// call calls a tool and returns the structured content of a success, or the text of
	// the error.
	call(t *testing.T, tool string, arguments args) (structured any, failure string)
	// logs asks for log messages of level info and above, and calls a tool. It returns the
	// channel on which the log messages arrive.
	logs(t *testing.T, tool string, arguments args) <-chan string
	// cancelled starts a call and cancels it while the call waits.
	cancelled(t *testing.T, tool string, arguments args)
	resources(t *testing.T) (uris []string)
	read(t *testing.T, uri string) (text string)
	prompt(t *testing.T, name, argument, value string) (text string)
	complete(t *testing.T, prompt, argument, value string) []string
	// subscribe returns a channel on which updates of uri arrive.
	subscribe(t *testing.T, uri string) <-chan struct{}
	close(t *testing.T)
}

// TestGoClientsRunWholeSession runs a whole session with each of two MCP clients in Go,
// mcp-go and go-sdk, in an older and the newest version of MCP.
func TestGoClientsRunWholeSession(t *testing.T) {
	for name, dial := range map[string]func(*testing.T, string, io.WriteCloser, io.ReadCloser) foreign{"mcp-go": dialMCPGo, "go-sdk": dialSDK} {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.set("PM_STRUCTURED_OUTPUT", "true")
				in, out, wait := w.pipes(t)
				c := dial(t, version, in, out)
				playForeign(t, c)
				c.close(t)
				wait()
			})
		}
	}
}

func playForeign(t *testing.T, c foreign) {
	declared := c.tools(t)
	call := func(tool string, arguments args) map[string]any {
		t.Helper()
		content, failure := c.call(t, tool, arguments)
		if failure != "" {
			t.Fatalf("%s: got %s, want a success", tool, failure)
		}
		checkSchema(t, tool, declared[tool], content)
		return content.(map[string]any)
	}
	updated := c.subscribe(t, "processes://web")
	if web := call("start_process", own(t, "web", "http").with("ready", args{"port": 0})); web["ready"] != true {
		t.Errorf("got %v, want ready", web)
	}
	if !closedWithin(updated, answersWithin) { // closedWithin also returns true for a value
		t.Error("got no update of a resource, want one")
	}
	if job := call("start_process", sh("job", "echo 'Error: it broke' >&2; exit 3").with("wait", "exit")); job["exit_code"] != 3.0 {
		t.Errorf("got %v, want exit code 3", job)
	}
	if _, failure := c.call(t, "stop_process", args{"proces": "web"}); !strings.Contains(failure, "did you mean process?") {
		t.Errorf("got %q, want the suggestion process", failure)
	}
	for _, tool := range []string{"list_processes", "get_server_info", "get_system_stats", "tail_logs", "get_latest_errors", "list_groups"} {
		call(tool, args{})
	}
	for _, tool := range []string{"get_process_info", "get_process_stats", "get_errors", "get_logs"} {
		call(tool, args{"process": "web"})
	}
	messages := c.logs(t, "start_process", sh("broken", "sleep 0.3; exit 4").with("timeout_ms", 0)) // no call waits for the end
	if !poll(answersWithin, func() bool {
		c.logs(t, "list_processes", args{})
		select {
		case text := <-messages:
			return strings.Contains(text, "broken (run 1) failed")
		default:
			return false
		}
	}) {
		t.Error("got no log message of the crash, want one")
	}
	c.cancelled(t, "wait_for_process", args{"process": "web", "until": "exit"})
	all := c.resources(t)
	if !slices.Contains(all, "processes://list") || !slices.Contains(all, "logs://job") {
		t.Errorf("got resources %v, want processes://list and logs://job among them", all)
	}
	for _, uri := range all {
		if text := c.read(t, uri); !json.Valid([]byte(text)) && !(strings.HasPrefix(uri, "ui://") && strings.HasPrefix(text, "<!doctype html>")) {
			t.Errorf("%s: got %.300s, want JSON, or a page for ui://", uri, text)
		}
	}
	if text := c.prompt(t, "debug_process", "process", "job"); !strings.Contains(text, "it broke") {
		t.Errorf("debug_process: got %s, want the error in it", text)
	}
	if values := c.complete(t, "debug_process", "process", "j"); len(values) != 1 || values[0] != "job" {
		t.Errorf("completion: got %v, want job", values)
	}
	if stopped := call("stop_process", args{"process": "web"}); stopped["state"] != "stopped" {
		t.Errorf("got %v, want state stopped", stopped)
	}
}

// checkSchema checks that structured content fits the declared output schema.
func checkSchema(t *testing.T, tool string, declared, content any) {
	t.Helper()
	raw, err := json.Marshal(declared)
	check(t, err)
	var schema jsonschema.Schema
	check(t, json.Unmarshal(raw, &schema))
	resolved, err := schema.Resolve(nil)
	check(t, err)
	if err := resolved.Validate(content); err != nil {
		t.Errorf("%s: %v", tool, err)
	}
}

// bounded returns a context with a deadline for the whole session of a test.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), answersWithin)
	t.Cleanup(cancel)
	return ctx
}

type mcpgoClient struct {
	*mcpclient.Client
	ctx      context.Context
	version  string
	listens  chan struct{} // closed when a subscription is acknowledged
	updates  chan struct{}
	messages chan string
}

func dialMCPGo(t *testing.T, version string, in io.WriteCloser, out io.ReadCloser) foreign {
	c := &mcpgoClient{ctx: bounded(t), version: version, listens: make(chan struct{}), updates: make(chan struct{}, 100), messages: make(chan string, 100),
		Client: mcpclient.NewClient(transport.NewIO(out, in, io.NopCloser(strings.NewReader(""))), mcpclient.WithProtocolVersion(version))}
	check(t, c.Start(c.ctx))
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		switch n.Method {
		case string(mcp.MethodNotificationSubscriptionsAcknowledged):
			close(c.listens)
		case mcp.MethodNotificationResourceUpdated:
			c.updates <- struct{}{}
		case "notifications/message":
			c.messages <- fmt.Sprint(n.Params.AdditionalFields["data"])
		}
	})
	_, err := c.Initialize(c.ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
		ProtocolVersion: version, ClientInfo: mcp.Implementation{Name: "mcp-go", Version: "1"}}})
	check(t, err)
	return c
}

func (c *mcpgoClient) tools(t *testing.T) map[string]any {
	list, err := c.ListTools(c.ctx, mcp.ListToolsRequest{})
	check(t, err)
	schemas := map[string]any{}
	for _, tool := range list.Tools {
		schemas[tool.Name] = tool.OutputSchema
	}
	return schemas
}

func (c *mcpgoClient) request(tool string, arguments args) (r mcp.CallToolRequest) {
	r.Params.Name, r.Params.Arguments = tool, map[string]any(arguments)
	return r
}

func (c *mcpgoClient) call(t *testing.T, tool string, arguments args) (any, string) {
	r, err := c.CallTool(c.ctx, c.request(tool, arguments))
	check(t, err)
	if r.IsError {
		return nil, r.Content[0].(mcp.TextContent).Text
	}
	return r.StructuredContent, ""
}

func (c *mcpgoClient) logs(t *testing.T, tool string, arguments args) <-chan string {
	r := c.request(tool, arguments)
	if c.version == "2026-07-28" {
		r.Params.Meta = &mcp.Meta{}
		r.Params.Meta.SetLogLevel(mcp.LoggingLevelInfo)
	} else {
		var level mcp.SetLevelRequest
		level.Params.Level = mcp.LoggingLevelInfo
		check(t, c.SetLevel(c.ctx, level)) //nolint:staticcheck // deprecated, but the only way in older MCP versions
	}
	_, err := c.CallTool(c.ctx, r)
	check(t, err)
	return c.messages
}

func (c *mcpgoClient) cancelled(t *testing.T, tool string, arguments args) {
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, c.request(tool, arguments))
		done <- err
	}()
	c.call(t, "list_processes", args{}) // most likely handled after the cancellation
	cancel()
	if <-done == nil {
		t.Error("the cancelled call succeeded, want an error")
	}
}

func (c *mcpgoClient) resources(t *testing.T) (uris []string) {
	list, err := c.ListResources(c.ctx, mcp.ListResourcesRequest{})
	check(t, err)
	for _, r := range list.Resources {
		uris = append(uris, r.URI)
	}
	return uris
}

func (c *mcpgoClient) read(t *testing.T, uri string) string {
	r, err := c.ReadResource(c.ctx, mcp.ReadResourceRequest{Params: mcp.ReadResourceParams{URI: uri}})
	check(t, err)
	return r.Contents[0].(mcp.TextResourceContents).Text
}

func (c *mcpgoClient) prompt(t *testing.T, name, argument, value string) string {
	r, err := c.GetPrompt(c.ctx, mcp.GetPromptRequest{Params: mcp.GetPromptParams{Name: name, Arguments: map[string]string{argument: value}}})
	check(t, err)
	return r.Messages[0].Content.(mcp.TextContent).Text
}

func (c *mcpgoClient) complete(t *testing.T, prompt, argument, value string) []string {
	var r mcp.CompleteRequest
	r.Params.Ref = mcp.PromptReference{Type: "ref/prompt", Name: prompt}
	r.Params.Argument = mcp.CompleteArgument{Name: argument, Value: value}
	got, err := c.Complete(c.ctx, r)
	check(t, err)
	return got.Completion.Values
}

func (c *mcpgoClient) subscribe(t *testing.T, uri string) <-chan struct{} {
	if c.version == "2026-07-28" {
		stop, err := c.ListenAsync(c.ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{uri}}, nil)
		check(t, err)
		t.Cleanup(stop)
		if !closedWithin(c.listens, answersWithin) {
			t.Errorf("the subscription is not acknowledged within %v", answersWithin)
		}
		return c.updates
	}
	check(t, c.Subscribe(c.ctx, mcp.SubscribeRequest{Params: mcp.SubscribeParams{URI: uri}})) //nolint:staticcheck // deprecated, but the only way in older MCP versions
	return c.updates
}

func (c *mcpgoClient) close(t *testing.T) { check(t, c.Close()) }

type sdkClient struct {
	*sdk.ClientSession
	ctx      context.Context
	version  string
	updates  chan struct{}
	messages chan string
}

func dialSDK(t *testing.T, version string, in io.WriteCloser, out io.ReadCloser) foreign {
	c := &sdkClient{ctx: bounded(t), version: version, updates: make(chan struct{}, 100), messages: make(chan string, 100)}
	client := sdk.NewClient(&sdk.Implementation{Name: "go-sdk", Version: "1"}, &sdk.ClientOptions{
		ResourceUpdatedHandler: func(context.Context, *sdk.ResourceUpdatedNotificationRequest) { c.updates <- struct{}{} },
		LoggingMessageHandler:  func(_ context.Context, r *sdk.LoggingMessageRequest) { c.messages <- fmt.Sprint(r.Params.Data) }, //nolint:staticcheck // deprecated, but still served
	})
	s, err := client.Connect(c.ctx, &sdk.IOTransport{Reader: out, Writer: in}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	check(t, err)
	if got := s.InitializeResult().ProtocolVersion; got != version {
		t.Errorf("got version %s, want %s", got, version)
	}
	c.ClientSession = s
	return c
}

func (c *sdkClient) tools(t *testing.T) map[string]any {
	schemas := map[string]any{}
	for tool, err := range c.Tools(c.ctx, nil) {
		check(t, err)
		schemas[tool.Name] = tool.OutputSchema
	}
	return schemas
}

func (c *sdkClient) call(t *testing.T, tool string, arguments args) (any, string) {
	r, err := c.CallTool(c.ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
	check(t, err)
	if r.IsError {
		return nil, r.Content[0].(*sdk.TextContent).Text
	}
	return r.StructuredContent, ""
}

func (c *sdkClient) logs(t *testing.T, tool string, arguments args) <-chan string {
	params := &sdk.CallToolParams{Name: tool, Arguments: arguments}
	if c.version == "2026-07-28" {
		params.Meta = sdk.Meta{sdk.MetaKeyLogLevel: "info"} //nolint:staticcheck // deprecated, but still served
	} else {
		check(t, c.SetLoggingLevel(c.ctx, &sdk.SetLoggingLevelParams{Level: "info"})) //nolint:staticcheck // deprecated, but still served
	}
	_, err := c.CallTool(c.ctx, params)
	check(t, err)
	return c.messages
}

func (c *sdkClient) cancelled(t *testing.T, tool string, arguments args) {
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
		done <- err
	}()
	c.call(t, "list_processes", args{}) // most likely handled after the cancellation
	cancel()
	if <-done == nil {
		t.Error("the cancelled call succeeded, want an error")
	}
}

func (c *sdkClient) resources(t *testing.T) (uris []string) {
	for r, err := range c.Resources(c.ctx, nil) {
		check(t, err)
		uris = append(uris, r.URI)
	}
	return uris
}

func (c *sdkClient) read(t *testing.T, uri string) string {
	r, err := c.ReadResource(c.ctx, &sdk.ReadResourceParams{URI: uri})
	check(t, err)
	return r.Contents[0].Text
}

func (c *sdkClient) prompt(t *testing.T, name, argument, value string) string {
	r, err := c.GetPrompt(c.ctx, &sdk.GetPromptParams{Name: name, Arguments: map[string]string{argument: value}})
	check(t, err)
	return r.Messages[0].Content.(*sdk.TextContent).Text
}

func (c *sdkClient) complete(t *testing.T, prompt, argument, value string) []string {
	r, err := c.Complete(c.ctx, &sdk.CompleteParams{
		Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: prompt}, Argument: sdk.CompleteParamsArgument{Name: argument, Value: value}})
	check(t, err)
	return r.Completion.Values
}

func (c *sdkClient) subscribe(t *testing.T, uri string) <-chan struct{} {
	check(t, c.Subscribe(c.ctx, &sdk.SubscribeParams{URI: uri}))
	return c.updates
}

func (c *sdkClient) close(t *testing.T) { check(t, c.Close()) }
