package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// The protocol versions that are spoken: the newest of each era.
const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

const (
	// discoverAfter is how long initialize may stay unanswered before the
	// server is also asked in the manner of the other era. It is long: a server
	// that is slow to start finds both questions when it reads at last, and some
	// of the legacy era end at a request before notifications/initialized (rmcp
	// before 1.4.0 does). One of the 2026-07-28 era has to refuse initialize, and
	// is asked then.
	discoverAfter = 15 * time.Second
	// discoverTime is how long a server that has refused initialize may take to
	// answer the other question: it is up, and has nothing else to do.
	discoverTime = 5 * time.Second
	// maxInstructions bounds Server.Instructions, in bytes.
	maxInstructions = 4 << 10
)

// connect brings the connection up and tells of its readiness to its end.
func (c *Conn) connect() {
	if c.handshake() {
		c.o.OnReady(c.name, c.run, true, "")
	}
	<-c.down
	c.o.OnReady(c.name, c.run, false, c.Status().Why)
}

// handshake finds out which era the server speaks; false means that the
// connection has ended first. initialize comes first: every server of the
// legacy era answers it at once, whatever it makes of other methods, and one of
// the 2026-07-28 era refuses it at once. Only who does neither for a while is
// asked both. An answer after the start timeout still counts: a server that a
// debugger has held is as good as another. Who has refused initialize is waited
// for no longer than discoverTime.
func (c *Conn) handshake() bool {
	initialize, err := c.begin(context.Background(), methodInitialize, map[string]any{
		"protocolVersion": legacyVersion, "capabilities": map[string]any{}, "clientInfo": c.clientInfo(),
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
		if discover, err = c.begin(context.Background(), methodDiscover, nil, false); err == nil {
			discovered = discover.done
		}
	}
	impatience, late := time.NewTimer(c.o.discoverAfter), time.NewTimer(c.o.StartTimeout)
	defer impatience.Stop()
	defer late.Stop()
	over := time.NewTimer(time.Hour)
	over.Stop() // it begins with a refusal
	defer over.Stop()
	for initialized != nil || discovered != nil {
		select {
		case <-initialized:
			if initialize.err == nil {
				if discover != nil {
					c.forget(discover) // a server that speaks one era may never answer it
				}
				return c.welcomeLegacy(initialize.result)
			}
			initialized = nil
			c.refuses(initialize.err)
			over.Reset(c.o.discoverTime)
			ask()
		case <-discovered:
			if discover.err == nil {
				c.forget(initialize)
				return c.welcomeModern(discover.result)
			}
			discovered = nil
		case <-impatience.C:
			ask()
		case <-late.C:
			c.tellLate()
		case <-over.C:
			c.end("it " + c.missing(""))
			return false
		case <-c.down:
			return false
		}
	}
	c.end(fmt.Sprintf("it refuses to connect: %v", initialize.err))
	return false
}

// refuses keeps what a server has answered to initialize, for those who ask why
// it does not come up.
func (c *Conn) refuses(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == Connecting { // else its end is what the call has failed of
		c.refusal = fmt.Sprintf("refused initialize: %v, and has not answered %s", err, methodDiscover)
		c.why = "it " + c.refusal
	}
}

// missing is what a server that is not up has done instead of it; when says how
// long an answer was waited for.
func (c *Conn) missing(when string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusal != "" {
		return c.refusal
	}
	return "has not answered initialize " + when
}

// tellLate says that the start timeout is over.
func (c *Conn) tellLate() {
	why := "it " + c.missing("within "+c.o.StartTimeout.String())
	c.mu.Lock()
	if c.state == Connecting {
		c.why = why
	}
	c.mu.Unlock()
	c.o.OnReady(c.name, c.run, false, why)
}

// identity is how a server names itself: beside the result of initialize, or in
// the _meta of that of server/discover. What is no object is taken for the name.
type identity struct {
	Name    word `json:"name"`
	Version word `json:"version"`
}

// UnmarshalJSON never fails: nothing depends on what a server is called.
func (i *identity) UnmarshalJSON(raw []byte) error {
	type object identity
	if json.Unmarshal(raw, (*object)(i)) == nil {
		return nil
	}
	*i = identity{}
	return i.Name.UnmarshalJSON(raw)
}

// word is a string that a server may have written as a number; it is empty for
// everything else.
type word string

// UnmarshalJSON never fails.
func (w *word) UnmarshalJSON(raw []byte) error {
	var text string
	var number json.Number
	switch {
	case json.Unmarshal(raw, &text) == nil:
		*w = word(text)
	case json.Unmarshal(raw, &number) == nil:
		*w = word(number)
	}
	return nil
}

func (c *Conn) welcomeLegacy(result json.RawMessage) bool {
	var answer struct {
		ProtocolVersion word     `json:"protocolVersion"`
		ServerInfo      identity `json:"serverInfo"`
		Instructions    word     `json:"instructions"`
	}
	if err := json.Unmarshal(result, &answer); err != nil {
		c.end("its answer to initialize cannot be read: " + err.Error())
		return false
	}
	if answer.ProtocolVersion == "" {
		c.end("its answer to initialize names no protocol version")
		return false
	}
	c.put(call{JSONRPC: "2.0", Method: methodInitialized})
	return c.enter(false, Server{
		Name: string(answer.ServerInfo.Name), Version: string(answer.ServerInfo.Version), Protocol: c.words(string(answer.ProtocolVersion), maxWord), Instructions: string(answer.Instructions),
	})
}

func (c *Conn) welcomeModern(result json.RawMessage) bool {
	var answer struct {
		SupportedVersions []string `json:"supportedVersions"`
		ServerInfo        identity `json:"serverInfo"`
		Instructions      word     `json:"instructions"`
		Meta              struct {
			ServerInfo identity `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(result, &answer); err != nil {
		c.end("its answer to server/discover cannot be read: " + err.Error())
		return false
	}
	if !slices.Contains(answer.SupportedVersions, modernVersion) {
		speaks := c.words(fmt.Sprint(answer.SupportedVersions), maxWord)
		c.end(fmt.Sprintf("it speaks MCP %s, and pmcp %s and what initialize settles", speaks, modernVersion))
		return false
	}
	who := answer.ServerInfo
	if who == (identity{}) {
		who = answer.Meta.ServerInfo
	}
	return c.enter(true, Server{Name: string(who.Name), Version: string(who.Version), Protocol: modernVersion, Instructions: string(answer.Instructions)})
}

// enter makes the connection connected; false if it has ended.
func (c *Conn) enter(modern bool, server Server) bool {
	server.Name, server.Version = c.words(server.Name, maxWord), c.words(server.Version, maxWord)
	server.Instructions = server.Instructions[:min(len(server.Instructions), maxInstructions)]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != Connecting {
		return false
	}
	c.state, c.why, c.modern, c.server = Connected, "", modern, server
	close(c.up)
	return true
}
