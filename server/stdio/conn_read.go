package stdio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/process/prose"
	"pmcp/server/jsonrpc"
)

// codeBusy lies in the range that JSON-RPC reserves for servers, and MCP does not
// use it.
const codeBusy = -32000

// readLoop dispatches messages until the input ends or the shutdown begins. It waits for
// no handler except those of initialize and ping.
func (c *Conn) readLoop() error {
	lines := jsonrpc.NewReader(c.In, c.MaxMessage)
	for {
		line, err := lines.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("cannot read from the client: %w", err)
		}
		if c.stopping.Err() != nil {
			return nil
		}
		c.lastLine.Store(int64(time.Since(c.start)))
		if line.TooLarge() {
			c.refuse(line.ID(), mcp.INVALID_REQUEST, "Invalid request: the message has %d bytes, more than the %d that are allowed", line.Size, c.MaxMessage)
		} else if text := bytes.TrimSpace(line.Text); len(text) > 0 {
			c.dispatch(bytes.Clone(text)) // handlers may still use the text when the reader's buffer is overwritten
		}
		if err != nil {
			return nil
		}
	}
}

// dispatch handles one message, or starts a goroutine that does.
func (c *Conn) dispatch(line []byte) {
	m, bad := jsonrpc.Parse(line)
	switch {
	case bad != nil:
		c.reply(jsonrpc.EncodeError(*bad))
	case m.Kind == jsonrpc.Response:
		c.resolve(m)
	case m.Kind == jsonrpc.Notification && m.Method == "notifications/cancelled":
		c.cancelByClient(m.Params)
	case m.Kind == jsonrpc.Notification:
		c.handleNotification(m)
	case m.Method == string(mcp.MethodInitialize), m.Method == string(mcp.MethodPing):
		c.handleInline(m)
	default:
		c.startRequest(m)
	}
}

func (c *Conn) handleNotification(m jsonrpc.Message) {
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(m.Method, p)
		}
	}()
	c.mcp.HandleMessage(c.mcp.WithContext(c.calls, c.session), m.Forward(0))
}

// handleInline handles a request on the read loop. Only when initialize is answered may
// notifications follow, and a ping is answered however many requests are being handled.
func (c *Conn) handleInline(m jsonrpc.Message) {
	r := c.newRequest(m)
	defer r.cancel(nil)
	if !c.begin(r) {
		return
	}
	resp := c.handle(r)
	c.end(r)
	c.reply(c.answer(r, resp))
	if _, ok := resp.(mcp.JSONRPCResponse); ok && m.Method == string(mcp.MethodInitialize) && !r.modern {
		c.session.setEra(eraLegacy)
	}
}

// cancelByClient cancels the request that the client names, which may have been
// answered. After that, nothing is written for the request.
func (c *Conn) cancelByClient(params json.RawMessage) {
	var target map[string]json.RawMessage
	if json.Unmarshal(params, &target) != nil {
		return
	}
	key, _ := jsonrpc.IDKey(target["requestId"])
	if r, found := c.requests.LoadAndDelete(key); found {
		r.(*request).cancel(errCancelledByClient)
	}
}

// refuse answers a message with an error.
func (c *Conn) refuse(id json.RawMessage, code int, format string, args ...any) {
	c.reply(jsonrpc.EncodeError(jsonrpc.Error{ID: id, Code: code, Text: fmt.Sprintf(format, args...)}))
}

func (c *Conn) logPanic(method string, p any) {
	c.Log.Error("panic while handling a message", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

func panicText(method string) string {
	return fmt.Sprintf("Internal error: handling %s failed unexpectedly; the stack is in the log of pmcp", prose.Cut(method, maxErrorText))
}
