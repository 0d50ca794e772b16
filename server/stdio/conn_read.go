package stdio

import (
	"bytes"
	"context"
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

// readLoop dispatches messages until the input ends. It waits for no handler
// except that of initialize. For the client to read, it waits no longer than
// StallTimeout.
func (c *Conn) readLoop() error {
	lines := jsonrpc.NewReader(c.In, c.MaxMessage)
	for {
		line, err := lines.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("cannot read from the client: %w", err)
		}
		c.lastLine.Store(int64(time.Since(c.start)))
		if line.TooLarge() {
			c.refuse(jsonrpc.Error{ID: line.ID(), Code: mcp.INVALID_REQUEST, Text: fmt.Sprintf(
				"Invalid request: the message has %d bytes, more than the %d that are allowed", line.Size, c.MaxMessage)})
		} else if text := bytes.TrimSpace(line.Text); len(text) > 0 {
			c.dispatch(bytes.Clone(text)) // handlers may still use the text when the reader's buffer is overwritten
		}
		if err != nil {
			return nil
		}
	}
}

// dispatch handles one message, or starts a goroutine that does. If code that it
// calls panics, only that message is lost.
func (c *Conn) dispatch(line []byte) {
	m, bad := jsonrpc.Parse(line)
	if bad != nil {
		c.refuse(*bad)
		return
	}
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(m.Method, p)
			if m.Kind == jsonrpc.Request {
				c.refuse(jsonrpc.Error{ID: m.ID, Code: mcp.INTERNAL_ERROR, Text: panicText(m.Method)})
			}
		}
	}()
	switch {
	case m.Kind == jsonrpc.Response:
		c.resolve(m)
	case m.Kind == jsonrpc.Notification && m.Method == "notifications/cancelled":
		c.cancelByClient(m.Params)
	case m.Kind == jsonrpc.Notification:
		c.handleNotification(m)
	case m.Method == string(mcp.MethodInitialize):
		c.handleInitialize(m, len(line))
	default:
		c.startRequest(m, len(line))
	}
}

func (c *Conn) handleNotification(m jsonrpc.Message) {
	r := &request{Message: m, inline: true, cancel: func(error) {}}
	if refusal, _ := c.requests.admit(r); refusal != nil {
		return
	}
	defer c.requests.remove(r)
	c.mcp.HandleMessage(c.mcp.WithContext(c.base, c.session), m.Forward(0))
}

// handleInitialize answers initialize before the next message is dispatched. It
// lets no notification precede the answer.
func (c *Conn) handleInitialize(m jsonrpc.Message, size int) {
	r := c.newRequest(m, size)
	r.inline = true
	defer r.cancel(nil)
	if refusal, _ := c.requests.admit(r); refusal != nil {
		c.refuse(*refusal)
		return
	}
	defer c.requests.remove(r)
	defer c.requests.releaseID(r)
	resp := c.handle(r)
	r.session.close()
	c.write(c.answer(r, resp))
	if _, ok := resp.(mcp.JSONRPCResponse); ok && !r.modern {
		c.session.setLegacy()
	}
}

// cancelByClient cancels the request that the client names.
func (c *Conn) cancelByClient(params json.RawMessage) {
	var target map[string]json.RawMessage
	if json.Unmarshal(params, &target) != nil {
		return
	}
	if key, ok := jsonrpc.IDKey(target["requestId"]); ok {
		c.requests.cancelByID(key)
	}
}

// refuse writes an error response.
func (c *Conn) refuse(e jsonrpc.Error) { c.write(jsonrpc.EncodeError(e)) }

// write queues a line from the read loop. If the client has not read for so long
// that even the reserve is full, write drops the line: the loop must continue to
// read cancellations and the end of the input.
func (c *Conn) write(line []byte) {
	wait := c.StallTimeout
	if c.stalledAt == c.out.progress() {
		wait = 0
	}
	quit, cancel := context.WithTimeout(c.base, wait)
	defer cancel()
	if err := c.out.put(outgoing{line: line}, outboxReserve, quit.Done()); errors.Is(err, errPutAborted) && wait > 0 {
		c.stalledAt = c.out.progress()
		c.Log.Warn("the client does not read: dropping answers to what it sends")
	}
}

func (c *Conn) logPanic(method string, p any) {
	c.Log.Error("panic while handling a message", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

func panicText(method string) string {
	return fmt.Sprintf("Internal error: handling %s failed unexpectedly; the stack is in the log of pmcp", prose.Cut(method, maxErrorText))
}
