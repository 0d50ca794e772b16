package stdio

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"pmcp/server/stdio/stdiotest"
)

// TestInitializeIsAnsweredFirst sends initialize and a call in one write, and
// checks that initialize is answered before the call.
func TestInitializeIsAnsweredFirst(t *testing.T) {
	for range 50 {
		c := dial(t, newToolbox())
		_, err := io.WriteString(c.In, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"n","version":"v"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"announce"}}
`)
		stdiotest.NoErr(t, err)
		if r := c.Answer(`1`); r.Result["protocolVersion"] != "2025-06-18" {
			t.Fatalf("got %s, want version 2025-06-18", r.Raw)
		}
		if r := c.Recv(); r.Method != mcp.MethodNotificationToolsListChanged {
			t.Fatalf("got %s, want the notification of the handler before its answer", r.Raw)
		}
		c.Answer(`2`)
		stdiotest.NoErr(t, c.End())
	}
}

// TestNothingIsSentBeforeInitializeIsAnswered checks that notifications which are sent
// during initialize do not precede the answer to initialize.
func TestNothingIsSentBeforeInitializeIsAnswered(t *testing.T) {
	var c *connClient
	hooks := &mcpserver.Hooks{}
	hooks.AddAfterInitialize(func(ctx context.Context, _ any, _ *mcp.InitializeRequest, _ *mcp.InitializeResult) {
		stdiotest.NoErr(t, c.conn.Notify(ctx, MethodLogMessage, map[string]any{"level": "error"}))
		mcpserver.ServerFromContext(ctx).SendNotificationToAllClients(mcp.MethodNotificationToolsListChanged, nil)
	})
	c = dial(t, newToolbox(mcpserver.WithHooks(hooks)))
	c.Initialize("2025-11-25") // fails if anything precedes the answer
	c.Alive()                  // fails if anything else was sent
}

func TestFirstRequestDecidesProtocolEra(t *testing.T) {
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			c := dial(t, newToolbox())
			if r := c.Initialize(version); r.Result["protocolVersion"] != version {
				t.Errorf("got %s, want version %s", r.Raw, version)
			}
			if r := c.Call(`1`, "tools/list", `{}`); r.Result["resultType"] != nil || len(r.Result["tools"].([]any)) == 0 {
				t.Errorf("got %s, want tools and no resultType", r.Raw)
			}
			if r := c.Call(`2`, "server/discover", `{}`); r.Error == nil || r.Error.Code != mcp.METHOD_NOT_FOUND {
				t.Errorf("got %s, want code %d", r.Raw, mcp.METHOD_NOT_FOUND)
			}
		})
	}
	t.Run("2026-07-28", func(t *testing.T) {
		c := dial(t, newToolbox())
		if r := c.Call(`1`, "server/discover", `{`+stdiotest.ModernMeta+`}`); r.Result["resultType"] != "complete" {
			t.Errorf("got %s, want resultType complete", r.Raw)
		}
		c.Tool(`2`, "echo", `{"text":"x"}`) // a request without _meta of MCP 2026-07-28 is of an older version
		if r := c.Answer(`2`); r.Result["resultType"] != nil {
			t.Errorf("got %s, want no resultType", r.Raw)
		}
		if r := c.Call(`3`, "ping", `{`+stdiotest.ModernMeta+`}`); r.Error == nil || r.Error.Code != mcp.METHOD_NOT_FOUND {
			t.Errorf("got %s, want code %d", r.Raw, mcp.METHOD_NOT_FOUND)
		}
		if r := c.Call(`5`, "tools/list", `{`+strings.ReplaceAll(stdiotest.ModernMeta, "2026-07-28", "2027-01-01")+`}`); r.Error == nil ||
			r.Error.Code != -32022 || !strings.Contains(string(r.Error.Data), "2025-11-25") {
			t.Errorf("got %s, want code -32022 and the supported versions", r.Raw)
		}
		// PHP escapes slashes; the protocol era must not depend on such escapes.
		if r := c.Call(`4`, "tools/list", `{`+strings.ReplaceAll(stdiotest.ModernMeta, "/", `\/`)+`}`); r.Result["resultType"] != "complete" {
			t.Errorf("got %s, want resultType complete", r.Raw)
		}
	})
}

func TestModernRequestGetsOnlyAllowedMessages(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.Call(`0`, "server/discover", `{`+stdiotest.ModernMeta+`}`)
	// Without a subscription there is no list_changed; without a log level, no log
	// message.
	c.Call(`1`, "tools/call", `{"name":"announce",`+stdiotest.ModernMeta+`}`)
	c.Call(`2`, "tools/call", `{"name":"log",`+stdiotest.ModernMeta+`}`)
	stdiotest.NoErr(t, c.conn.Notify(t.Context(), mcp.MethodNotificationResourceUpdated, map[string]any{"uri": "test://missing"}))
	stdiotest.NoErr(t, c.conn.Notify(t.Context(), MethodLogMessage, map[string]any{"level": "error", "data": "x"}))
	if err := c.conn.Ping(t.Context()); !errors.Is(err, ErrPingImpossible) {
		t.Errorf("ping: got %v, want %v", err, ErrPingImpossible)
	}
	withLog := strings.Replace(stdiotest.ModernMeta, "{", `{"io.modelcontextprotocol/logLevel":"info",`, 1)
	c.Send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"log",%s}}`, withLog)
	if r := c.Recv(); r.Method != MethodLogMessage {
		t.Errorf("got %s, want a log message", r.Raw)
	}
	c.Answer(`3`)
}

func TestListenStreamCarriesSubscribedUpdates(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	listen := func(id, filter string) {
		c.Send(`{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"notifications":%s,%s}}`, id, filter, stdiotest.ModernMeta)
		r := c.Recv()
		if r.Method != mcp.MethodNotificationSubscriptionsAcknowledged || r.Subscription() != id {
			t.Fatalf("got %s, want the acknowledgement of %s", r.Raw, id)
		}
	}
	update := func() {
		stdiotest.NoErr(t, c.conn.Notify(t.Context(), mcp.MethodNotificationResourceUpdated, map[string]any{"uri": "test://a"}))
	}
	listen(`9007199254740993`, `{"resourceSubscriptions":["test://a"]}`)
	listen(`"tools"`, `{"toolsListChanged":true}`)
	if !c.conn.session.IsSubscribedToResource("test://a") || c.conn.session.IsSubscribedToResource("test://b") {
		t.Error("want a subscription to test://a and none to test://b")
	}

	update()
	if r := c.Recv(); r.Method != mcp.MethodNotificationResourceUpdated || r.Subscription() != `9007199254740993` || r.Params["uri"] != "test://a" {
		t.Errorf("got %s, want an update of test://a", r.Raw)
	}
	stdiotest.NoErr(t, c.conn.Notify(t.Context(), mcp.MethodNotificationToolsListChanged, nil))
	if r := c.Recv(); r.Method != mcp.MethodNotificationToolsListChanged || r.Subscription() != `"tools"` {
		t.Errorf("got %s, want a changed list on stream tools", r.Raw)
	}

	c.Cancel(`9007199254740993`)
	c.Call(`2`, "tools/list", `{`+stdiotest.ModernMeta+`}`) // the server reads the cancellation before this request
	update()
	c.Call(`3`, "tools/list", `{`+stdiotest.ModernMeta+`}`) // fails if a notification for the stream was sent

	c.In.Close()
	if r := c.Answer(`"tools"`); r.Error != nil {
		t.Errorf("got %s, want a result for a stream that the server ends", r.Raw)
	} else if id, _ := json.Marshal(r.Result["_meta"].(map[string]any)[mcp.MetaKeySubscriptionID]); string(id) != `"tools"` {
		t.Errorf("got %s, want the id of stream tools", r.Raw)
	}
	stdiotest.NoErr(t, c.Result())
	if c.conn.session.IsSubscribedToResource("test://a") {
		t.Error("the subscription outlived its stream")
	}
}

func TestLegacyClientGetsSubscribedUpdatesAndLogLevel(t *testing.T) {
	c := dial(t, newToolbox())
	updated := func(uri string) {
		stdiotest.NoErr(t, c.conn.Notify(t.Context(), mcp.MethodNotificationResourceUpdated, map[string]any{"uri": uri}))
	}
	message := func(level mcp.LoggingLevel) {
		stdiotest.NoErr(t, c.conn.Notify(t.Context(), MethodLogMessage, map[string]any{"level": level, "data": "x"}))
	}
	updated("test://a") // dropped, because nothing may be sent before initialize
	message("emergency")
	c.Initialize("2025-11-25")
	c.Call(`1`, "resources/subscribe", `{"uri":"test://a"}`)
	updated("test://b")
	updated("test://a")
	if r := c.Recv(); r.Method != mcp.MethodNotificationResourceUpdated || r.Params["uri"] != "test://a" {
		t.Errorf("got %s, want an update of test://a", r.Raw)
	}
	c.Call(`2`, "resources/unsubscribe", `{"uri":"test://a"}`)
	updated("test://a")
	message("info") // dropped, because info is below the default level
	message("warning")
	if r := c.Recv(); r.Method != MethodLogMessage || r.Params["level"] != "warning" {
		t.Errorf("got %s, want a warning", r.Raw)
	}
	c.Call(`3`, "logging/setLevel", `{"level":"critical"}`)
	message("error")
	c.Alive()
}

func TestOnClientIsCalledOnce(t *testing.T) {
	for era, hello := range map[string]func(*connClient) (name, version string){
		"legacy": func(c *connClient) (string, string) { c.Initialize("2025-06-18"); return "raw", "0.1" },
		"modern": func(c *connClient) (string, string) {
			c.Call(`1`, "tools/list", `{`+stdiotest.ModernMeta+`}`)
			return "modern", "9"
		},
	} {
		t.Run(era, func(t *testing.T) {
			clients := make(chan [2]string, 10)
			c := dial(t, newToolbox(), func(o *Options) {
				o.OnClient = func(name, version string) { clients <- [2]string{name, version} }
			})
			c.Alive() // a ping does not carry the client's name
			if len(clients) > 0 {
				t.Error("OnClient called its function before the client named itself")
			}
			name, version := hello(c)
			hello(c)
			if got := stdiotest.AwaitValue(t, clients, "the name"); got != [2]string{name, version} || len(clients) > 0 {
				t.Errorf("got %v and %d more, want %s %s once", got, len(clients), name, version)
			}
		})
	}
}
