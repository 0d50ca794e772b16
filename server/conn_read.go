package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// codeBusy is in the range that JSON-RPC leaves to servers and MCP has not
// taken.
const codeBusy = -32000

// neverStalled is a progress that out never has.
const neverStalled = math.MaxUint64

// readLoop takes messages until the input ends. It never waits for a handler,
// but for initialize, nor for the client to read, but for c.patience.
func (c *conn) readLoop() error {
	lines := newLineReader(c.in, c.maxMessage)
	for {
		line, over, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read from the client: %w", err)
		}
		c.heard.Store(int64(time.Since(c.began)))
		if over != nil {
			c.refuse(protocolError{id: over.id(), code: mcp.INVALID_REQUEST, text: fmt.Sprintf(
				"Invalid request: the message has %d bytes, more than the %d that are taken", over.size, c.maxMessage)})
			continue
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			c.take(line)
		}
	}
}

// take handles one message. A panic in what it calls costs that message only.
func (c *conn) take(line []byte) {
	m, bad := parseMessage(line)
	if bad != nil {
		c.refuse(*bad)
		return
	}
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(m.method, p)
			if m.kind == kindRequest {
				c.refuse(protocolError{id: m.id, code: mcp.INTERNAL_ERROR, text: panicText(m.method)})
			}
		}
	}()
	switch {
	case m.kind == kindIgnored:
		c.log.Debug("a notification was ignored: its params are no object, or its method is too long", "method", m.method[:min(len(m.method), maxMethodSize)])
	case m.kind == kindResponse:
		c.takeResponse(m)
	case m.kind == kindNotification && m.method == "notifications/cancelled":
		c.cancelByClient(m.params)
	case m.kind == kindNotification:
		c.takeNotification(m)
	case m.method == string(mcp.MethodInitialize):
		c.takeInitialize(m, len(line))
	default:
		c.takeRequest(m, len(line))
	}
}

func (c *conn) takeNotification(m message) {
	if !c.enterInline() {
		return
	}
	defer c.leaveInline()
	c.mcp.HandleMessage(c.mcp.WithContext(c.base, c.session), m.forward(0))
}

// takeInitialize answers before anything that follows is looked at, and sends
// nothing of its own accord before the answer.
func (c *conn) takeInitialize(m message, size int) {
	if !c.enterInline() {
		return
	}
	defer c.leaveInline()
	if c.inUse(m.key) {
		c.refuse(duplicateID(m.id))
		return
	}
	r := c.newRequest(m, size)
	defer r.cancel(nil)
	line, ok := c.answer(r, c.handle(r))
	r.view.end()
	c.write(line)
	if ok && !r.modern {
		c.session.beginLegacy()
	}
}

func (c *conn) inUse(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[key] != nil
}

// enterInline lets the shutdown wait for a message that is handled here.
func (c *conn) enterInline() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.inline++
	return true
}

func (c *conn) leaveInline() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inline--
	c.signalIdleLocked()
}

// cancelByClient ends a request. From here on nothing is written for it.
func (c *conn) cancelByClient(params json.RawMessage) {
	var target map[string]json.RawMessage
	if json.Unmarshal(params, &target) != nil {
		return
	}
	key, ok := idKey(target["requestId"])
	if !ok {
		return
	}
	c.mu.Lock()
	r := c.byID[key]
	if r != nil {
		delete(c.byID, key)
		close(r.gone)
	}
	c.mu.Unlock()
	if r != nil { // else it was answered already, or never asked
		r.cancel(errCancelledByClient)
	}
}

// refuse answers with an error.
func (c *conn) refuse(e protocolError) { c.write(encodeError(e)) }

// write sends what the read loop has to say. If the client has not read for so
// long that even the reserve is full it is dropped: the loop must go on, to see
// cancellations and the end of the input.
func (c *conn) write(line []byte) {
	m := outgoing{line: line}
	room := c.out.offer(m)
	if room == nil {
		return
	}
	if c.stalledAt != c.out.progress() {
		timer := time.NewTimer(c.patience)
		defer timer.Stop()
		for room != nil {
			select {
			case <-room:
				room = c.out.offer(m)
				continue
			case <-timer.C:
			case <-c.stopping:
			}
			break
		}
		if room == nil {
			c.stalledAt = neverStalled
			return
		}
		c.stalledAt = c.out.progress()
		c.log.Warn("the client does not read: dropping answers to what it sends")
	}
}

func (c *conn) logPanic(method string, p any) {
	c.log.Error("panic while handling a message", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

func panicText(method string) string {
	return fmt.Sprintf("Internal error: handling %s failed unexpectedly; the stack is in the log of pmcp", method)
}
