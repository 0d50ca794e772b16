package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// TestInitializeFirst pipelines calls behind initialize.
func TestInitializeFirst(t *testing.T) {
	for range 50 {
		c := dial(t, newToolbox())
		_, err := io.WriteString(c.in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"n","version":"v"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"announce"}}
`)
		noErr(t, err)
		if r := c.answer(`1`); r.Result["protocolVersion"] != "2025-06-18" {
			t.Fatalf("%s", r.raw)
		}
		if r := c.recv(); r.Method != mcp.MethodNotificationToolsListChanged {
			t.Fatalf("the broadcast of the handler is not before its answer: %s", r.raw)
		}
		c.answer(`2`)
		noErr(t, c.end())
	}
}

// TestNothingBeforeInitializeIsAnswered has a hook send while initialize is
// being worked on.
func TestNothingBeforeInitializeIsAnswered(t *testing.T) {
	hooks := &mcpserver.Hooks{}
	hooks.AddAfterInitialize(func(ctx context.Context, _ any, _ *mcp.InitializeRequest, _ *mcp.InitializeResult) {
		s := mcpserver.ServerFromContext(ctx)
		_ = s.SendNotificationToClient(ctx, methodLogMessage, map[string]any{"level": "error"}) // refused
		s.SendNotificationToAllClients(mcp.MethodNotificationToolsListChanged, nil)
	})
	c := dial(t, newToolbox(mcpserver.WithHooks(hooks)))
	c.initialize("2025-11-25") // wants the answer first
	c.alive()                  // and nothing else
}

func TestEras(t *testing.T) {
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			c := dial(t, newToolbox())
			if r := c.initialize(version); r.Result["protocolVersion"] != version {
				t.Errorf("%s", r.raw)
			}
			if r := c.call(`1`, "tools/list", `{}`); r.Result["resultType"] != nil || len(r.Result["tools"].([]any)) == 0 {
				t.Errorf("%s", r.raw)
			}
			if r := c.call(`2`, "server/discover", `{}`); r.Error == nil || r.Error.Code != mcp.METHOD_NOT_FOUND {
				t.Errorf("%s", r.raw)
			}
		})
	}
	t.Run("2026-07-28", func(t *testing.T) {
		c := dial(t, newToolbox())
		if r := c.call(`1`, "server/discover", `{`+modernMeta+`}`); r.Result["resultType"] != "complete" {
			t.Errorf("%s", r.raw)
		}
		c.tool(`2`, "echo", `{"text":"x"}`) // a request without the _meta of the era is legacy
		if r := c.answer(`2`); r.Result["resultType"] != nil {
			t.Errorf("%s", r.raw)
		}
		if r := c.call(`3`, "ping", `{`+modernMeta+`}`); r.Error == nil || r.Error.Code != mcp.METHOD_NOT_FOUND {
			t.Errorf("%s", r.raw)
		}
		if r := c.call(`5`, "tools/list", `{`+strings.ReplaceAll(modernMeta, "2026-07-28", "2027-01-01")+`}`); r.Error == nil ||
			r.Error.Code != -32022 || !strings.Contains(string(r.Error.Data), "2025-11-25") {
			t.Errorf("%s", r.raw)
		}
		// PHP escapes slashes; the era must not depend on it.
		if r := c.call(`4`, "tools/list", `{`+strings.ReplaceAll(modernMeta, "/", `\/`)+`}`); r.Result["resultType"] != "complete" {
			t.Errorf("%s", r.raw)
		}
	})
}

func TestModernRequestGetsNothingForbidden(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	c.call(`0`, "server/discover", `{`+modernMeta+`}`)
	// No subscription: no list_changed. No logLevel: no message.
	c.call(`1`, "tools/call", `{"name":"announce",`+modernMeta+`}`)
	c.call(`2`, "tools/call", `{"name":"log",`+modernMeta+`}`)
	noErr(t, c.conn.notify(t.Context(), mcp.MethodNotificationResourceUpdated, map[string]any{"uri": "test://missing"}))
	noErr(t, c.conn.notify(t.Context(), methodLogMessage, map[string]any{"level": "error", "data": "x"}))
	if err := c.conn.ping(t.Context()); !errors.Is(err, errPingImpossible) {
		t.Errorf("ping: %v", err)
	}
	withLog := strings.Replace(modernMeta, "{", `{"io.modelcontextprotocol/logLevel":"info",`, 1)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"log",%s}}`, withLog)
	if r := c.recv(); r.Method != methodLogMessage {
		t.Errorf("%s", r.raw)
	}
	c.answer(`3`)
}

func TestSubscriptionsListen(t *testing.T) {
	b := newToolbox()
	c := dial(t, b)
	listen := func(id, filter string) {
		c.send(`{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"notifications":%s,%s}}`, id, filter, modernMeta)
		r := c.recv()
		if r.Method != mcp.MethodNotificationSubscriptionsAcknowledged || subscription(r) != id {
			t.Fatalf("acknowledgement of %s: %s", id, r.raw)
		}
	}
	update := func() {
		noErr(t, c.conn.notify(t.Context(), mcp.MethodNotificationResourceUpdated, map[string]any{"uri": "test://a"}))
	}
	listen(`9007199254740993`, `{"resourceSubscriptions":["test://a"]}`)
	listen(`"tools"`, `{"toolsListChanged":true}`)
	if !c.conn.session.IsSubscribedToResource("test://a") || c.conn.session.IsSubscribedToResource("test://b") {
		t.Error("subscriptions are not known")
	}

	update()
	if r := c.recv(); r.Method != mcp.MethodNotificationResourceUpdated || subscription(r) != `9007199254740993` || r.Params["uri"] != "test://a" {
		t.Errorf("%s", r.raw)
	}
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"announce",%s}}`, modernMeta)
	if r := c.recv(); r.Method != mcp.MethodNotificationToolsListChanged || subscription(r) != `"tools"` {
		t.Errorf("%s", r.raw)
	}
	c.answer(`1`)

	c.cancelID(`9007199254740993`)
	c.call(`2`, "tools/list", `{`+modernMeta+`}`) // the cancellation was read before this
	update()
	c.call(`3`, "tools/list", `{`+modernMeta+`}`) // and nothing came for the stream

	c.in.Close()
	if r := c.answer(`"tools"`); r.Error != nil {
		t.Errorf("a stream that the server ends is answered: %s", r.raw)
	} else if id, _ := json.Marshal(r.Result["_meta"].(map[string]any)[mcp.MetaKeySubscriptionID]); string(id) != `"tools"` {
		t.Errorf("%s", r.raw)
	}
	noErr(t, c.result())
	if c.conn.session.IsSubscribedToResource("test://a") {
		t.Error("the stream left its subscription behind")
	}
}

// subscription gives the id of the stream as JSON.
func subscription(r reply) string {
	var n struct {
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	_ = json.Unmarshal([]byte(r.raw), &n)
	return string(n.Params.Meta[mcp.MetaKeySubscriptionID])
}

func TestLegacySubscriptionsAndLogLevel(t *testing.T) {
	c := dial(t, newToolbox())
	updated := func(uri string) {
		noErr(t, c.conn.notify(t.Context(), mcp.MethodNotificationResourceUpdated, map[string]any{"uri": uri}))
	}
	message := func(level mcp.LoggingLevel) {
		noErr(t, c.conn.notify(t.Context(), methodLogMessage, map[string]any{"level": level, "data": "x"}))
	}
	updated("test://a") // nothing may be sent before initialize
	message("emergency")
	c.initialize("2025-11-25")
	c.call(`1`, "resources/subscribe", `{"uri":"test://a"}`)
	updated("test://b")
	updated("test://a")
	if r := c.recv(); r.Method != mcp.MethodNotificationResourceUpdated || r.Params["uri"] != "test://a" {
		t.Errorf("%s", r.raw)
	}
	c.call(`2`, "resources/unsubscribe", `{"uri":"test://a"}`)
	updated("test://a")
	message("info") // below the default
	message("warning")
	if r := c.recv(); r.Method != methodLogMessage || r.Params["level"] != "warning" {
		t.Errorf("%s", r.raw)
	}
	c.call(`3`, "logging/setLevel", `{"level":"critical"}`)
	message("error")
	c.alive()
}

func TestClientIsNamedOnce(t *testing.T) {
	for era, hello := range map[string]func(*rawClient) (name, version string){
		"legacy": func(c *rawClient) (string, string) { c.initialize("2025-06-18"); return "raw", "0.1" },
		"modern": func(c *rawClient) (string, string) {
			c.call(`1`, "tools/list", `{`+modernMeta+`}`)
			return "modern", "9"
		},
	} {
		t.Run(era, func(t *testing.T) {
			c := dial(t, newToolbox())
			told := make(chan [2]string, 10)
			c.conn.onClient(func(name, version string) { told <- [2]string{name, version} })
			c.alive() // says nothing of the client
			if len(told) > 0 {
				t.Error("told too early")
			}
			name, version := hello(c)
			hello(c)
			if got := awaitValue(t, told, "the name"); got != [2]string{name, version} || len(told) > 0 {
				t.Errorf("%v, and %d more", got, len(told))
			}
			c.conn.onClient(func(name, version string) { told <- [2]string{name, version} })
			if got := awaitValue(t, told, "the name, afterwards"); got[0] != name {
				t.Errorf("%v", got)
			}
		})
	}
}
