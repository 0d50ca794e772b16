package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"pmcp/server/jsonrpc"
)

// The supported protocol versions: the newest of each era.
const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

const (
	// discoverAfter is how long initialize may stay unanswered before the server
	// is also sent server/discover. It is long because a server that starts slowly
	// finds both requests when it starts to read, and some legacy servers exit at a
	// request before notifications/initialized (rmcp before 1.4.0 does). A server
	// of the 2026-07-28 era has to reject initialize, and is sent server/discover
	// right then.
	discoverAfter = 15 * time.Second
	// discoverTime is how long a server that has rejected initialize may take to
	// answer server/discover: it is up and has nothing else to do.
	discoverTime = 5 * time.Second
	// maxInstructions bounds Server.Instructions, in bytes.
	maxInstructions = 4 << 10
)

// connect performs the handshake and reports readiness until the connection ends.
func (c *Conn) connect() {
	if c.handshake() {
		c.o.OnReady(c.name, c.run, true, "")
		c.setLevel()
	}
	<-c.down
	c.o.OnReady(c.name, c.run, false, c.Status().Why)
}

// handshake finds out which era the server speaks. It reports whether the
// connection is up; false means that it has ended. initialize is sent first: every
// legacy server answers it at once, however it treats other methods, and a server
// of the 2026-07-28 era rejects it at once. Only a server that does neither for
// discoverAfter is sent both requests. An answer after the start timeout still
// counts: a debugger may have held the server. After a server has rejected
// initialize, handshake waits for it no longer than discoverTime.
func (c *Conn) handshake() bool {
	initialize, err := c.start(context.Background(), methodInitialize, map[string]any{
		"protocolVersion": legacyVersion, "capabilities": c.relay.declared, "clientInfo": c.clientInfo(),
	}, false)
	if err != nil {
		return false
	}
	var discover *pending
	initialized, discovered := initialize.done, chan struct{}(nil)
	ask := func() {
		if discover != nil {
			return
		}
		if discover, err = c.start(context.Background(), methodDiscover, nil, false); err == nil {
			discovered = discover.done
		}
	}
	unanswered, late := time.After(c.o.discoverAfter), time.After(c.o.StartTimeout)
	var deadline <-chan time.Time // starts when the server rejects initialize
	for initialized != nil || discovered != nil {
		select {
		case <-initialized:
			if initialize.err == nil {
				if discover != nil {
					c.remove(discover) // a server that speaks one era may never answer it
				}
				return c.acceptInitialize(initialize.result, false)
			}
			initialized = nil
			c.setRefusal(initialize.err)
			deadline = time.After(c.o.discoverTime)
			ask()
		case <-discovered:
			if discover.err == nil {
				c.remove(initialize)
				return c.acceptInitialize(discover.result, true)
			}
			discovered = nil
		case <-unanswered:
			ask()
		case <-late:
			c.reportLate()
		case <-deadline:
			c.end("it " + c.missingStep())
			return false
		case <-c.down:
			return false
		}
	}
	c.end(fmt.Sprintf("it refuses to connect: %v", initialize.err))
	return false
}

// setRefusal stores the server's error in answer to initialize, for the texts about why
// the server is not up.
func (c *Conn) setRefusal(err error) {
	c.setMissing(fmt.Sprintf("refused initialize: %v, and has not answered %s", err, methodDiscover))
}

// setMissing stores why the server is not up, as the end of a sentence about it.
func (c *Conn) setMissing(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == Connecting { // otherwise the call failed because the connection ended
		c.refusal = text
	}
}

// missingStep returns why the server is not up, as the end of a sentence about it.
func (c *Conn) missingStep() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missingStepLocked()
}

// missingStepLocked is missingStep. Without a refusal the text begins with "has not answered": by that package
// process sees that the server may still become ready.
func (c *Conn) missingStepLocked() string {
	switch {
	case c.refusal != "":
		return c.refusal
	case time.Since(c.started) >= c.o.StartTimeout:
		return "has not answered initialize within " + c.o.StartTimeout.String() + "; " + startTimeoutVariable + " in its env gives it longer"
	}
	return "has not answered initialize yet"
}

// reportLate reports that the start timeout has expired.
func (c *Conn) reportLate() { c.o.OnReady(c.name, c.run, false, "it "+c.missingStep()) }

// identify returns a server's name and version: serverInfo in the result of initialize, or
// in the result or the _meta of server/discover. A value that is not an object is the name.
func identify(raw json.RawMessage) (name, version string) {
	var object struct{ Name, Version json.RawMessage }
	if json.Unmarshal(raw, &object) == nil {
		return textOf(object.Name), textOf(object.Version)
	}
	return textOf(raw), ""
}

// textOf returns a string that a server may have written as a number, or "" for any other
// JSON value: nothing depends on such a text.
func textOf(raw json.RawMessage) string {
	var text string
	var number json.Number
	if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &number) == nil {
		return number.String()
	}
	return text
}

// acceptInitialize reads the result of initialize or, from a modern server, of server/discover, and
// connects. It reports whether the connection is up.
func (c *Conn) acceptInitialize(result json.RawMessage, modern bool) bool {
	var answer struct{ ProtocolVersion, ServerInfo, Instructions, Capabilities json.RawMessage }
	var only struct { // what only server/discover has
		SupportedVersions []string `json:"supportedVersions"`
		Meta              struct {
			ServerInfo json.RawMessage `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	method, err := methodInitialize, json.Unmarshal(result, &answer)
	protocol, instructions := textOf(answer.ProtocolVersion), textOf(answer.Instructions)
	name, version := identify(answer.ServerInfo)
	var capabilities map[string]json.RawMessage
	_ = json.Unmarshal(answer.Capabilities, &capabilities) // anything but an object declares nothing
	if modern {
		method, protocol = methodDiscover, modernVersion
		err = cmp.Or(err, json.Unmarshal(result, &only))
		if name == "" && version == "" {
			name, version = identify(only.Meta.ServerInfo)
		}
	}
	switch {
	case err != nil:
		c.end("its answer to " + method + " cannot be read: " + err.Error())
	case modern && !slices.Contains(only.SupportedVersions, modernVersion):
		speaks := c.sanitize(fmt.Sprint(only.SupportedVersions), maxWord)
		c.end(fmt.Sprintf("it speaks MCP %s; pmcp speaks %s and the versions that initialize negotiates", speaks, modernVersion))
	case protocol == "":
		c.end("its answer to initialize names no protocol version")
	case !modern:
		c.send(jsonrpc.EncodeCall(nil, methodInitialized, nil))
	}
	return c.setConnected(modern, Server{
		Name: c.sanitize(name, maxWord), Version: c.sanitize(version, maxWord), Protocol: c.sanitize(protocol, maxWord),
		Instructions: instructions[:min(len(instructions), maxInstructions)],
	}, capabilities)
}

// setConnected moves the connection from Connecting to Connected. It reports
// whether it did; false means that the connection has ended.
func (c *Conn) setConnected(modern bool, server Server, declared map[string]json.RawMessage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != Connecting {
		return false
	}
	c.state, c.modern, c.server, c.declared = Connected, modern, server, declared
	close(c.up)
	return true
}
