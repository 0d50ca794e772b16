package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/time/rate"

	"pmcp/server/stdio"
	"pmcp/server/upstream"
)

// An mcpRelay relays to the client what MCP servers request and report. It is an upstream.Client.
type mcpRelay struct {
	s               *Server
	logs, completed *logGate
}

func newMCPRelay(s *Server) mcpRelay { return mcpRelay{s, newLogGate(), newLogGate()} }

// Bounds of the log messages of MCP servers, and of the completed elicitations: how many of one server reach
// the client a second, how many at once, and of how many servers that is counted.
const (
	relayedLogs      = 10
	relayedLogsBurst = 50
	maxLogSources    = 256
)

// A logGate bounds the rate of the log messages of each MCP server, so that these flood neither the
// client nor the queue that they share with pmcp's own.
type logGate struct {
	mu      sync.Mutex
	sources map[string]*logFlow // guarded by mu; by the name of the server
}

func newLogGate() *logGate { return &logGate{sources: make(map[string]*logFlow)} }

// A logFlow is what is counted of one server.
type logFlow struct {
	limit   *rate.Limiter
	leftOut int // since the last message that was let through
}

// admit reports whether a message of a server may reach the client at the time now, and how many
// before it did not. first is set for the first that does not.
func (g *logGate) admit(name string, now time.Time) (ok, first bool, leftOut int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	source := g.sources[name]
	if source == nil {
		if len(g.sources) >= maxLogSources {
			clear(g.sources)
		}
		source = &logFlow{limit: rate.NewLimiter(relayedLogs, relayedLogsBurst)}
		g.sources[name] = source
	}
	resumes := source.leftOut == 0 || source.limit.TokensAt(now) >= relayedLogsBurst/2 // a gap is reported once, not 10 times a second
	if !resumes || !source.limit.AllowN(now, 1) {
		source.leftOut++
		return false, source.leftOut == 1, 0
	}
	leftOut, source.leftOut = source.leftOut, 0
	return true, false, leftOut
}

// logLevels are the levels that MCP has.
var logLevels = []mcp.LoggingLevel{
	mcp.LoggingLevelDebug, mcp.LoggingLevelInfo, mcp.LoggingLevelNotice, mcp.LoggingLevelWarning,
	mcp.LoggingLevelError, mcp.LoggingLevelCritical, mcp.LoggingLevelAlert, mcp.LoggingLevelEmergency,
}

// metaServer is the key in the _meta of a relayed request for the name of the server.
const metaServer = "pmcp/server"

// Capabilities returns those of sampling, elicitation and roots that the client has, if it takes
// requests. A session of the daemon has none, because its processes may outlive the client.
func (r mcpRelay) Capabilities() map[string]any {
	c := r.s.served.Load()
	if c == nil || r.s.o.Keep.Here {
		return nil
	}
	caps, requests := c.conn.ClientCapabilities()
	all := map[string]any{}
	if requests && caps.Sampling != nil {
		all["sampling"] = caps.Sampling
	}
	if requests && caps.Elicitation != nil {
		all["elicitation"] = caps.Elicitation
	}
	if requests && caps.Roots != nil {
		all["roots"] = caps.Roots
	}
	return all
}

// Request relays a request with the name of the server: in its _meta, and in the message of an
// elicitation, which a person reads.
func (r mcpRelay) Request(ctx context.Context, name, method string, params json.RawMessage) (result, refusal json.RawMessage, err error) {
	fields := map[string]json.RawMessage{}
	meta := map[string]json.RawMessage{}
	_ = json.Unmarshal(r.s.o.Mask.JSON(params), &fields) // absent or odd params become an object
	_ = json.Unmarshal(fields["_meta"], &meta)
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	meta[metaServer], _ = json.Marshal(name) // strings always encode, and so does decoded JSON
	fields["_meta"], _ = json.Marshal(meta)
	if method == string(mcp.MethodElicitationCreate) {
		var message string
		_ = json.Unmarshal(fields["message"], &message)
		fields["message"], _ = json.Marshal(name + ": " + message)
		keepURL(fields, params)
	}
	own, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, err
	}
	return r.s.served.Load().conn.Request(ctx, method, own) // only a client that is served has capabilities
}

// keepURL undoes the masking of the address that a person is to open, as in an authorization: with a part
// masked it would lead nowhere. params are those of the request.
func keepURL(fields map[string]json.RawMessage, params json.RawMessage) {
	var own struct{ URL json.RawMessage }
	if json.Unmarshal(params, &own) == nil && own.URL != nil {
		fields["url"] = own.URL
	}
}

// opensURLs reports whether the client can have a person open an address that an MCP server names.
func (r mcpRelay) opensURLs() bool {
	c := r.s.served.Load()
	if c == nil || r.s.o.Keep.Here || c.conn.Modern() { // MCP 2026-07-28 has another way
		return false
	}
	caps, requests := c.conn.ClientCapabilities()
	return requests && caps.Elicitation != nil && caps.Elicitation.URL != nil
}

// urlRequired returns err as the error with which the client opens the addresses that an MCP server
// requires before it performs a call, with the server's name before each message. It returns nil if err
// is another one, or the client cannot do that.
func (r mcpRelay) urlRequired(name string, err *upstream.RPCError) error {
	var raw, required mcp.URLElicitationRequiredError
	if err.Code != mcp.URL_ELICITATION_REQUIRED || !r.opensURLs() ||
		json.Unmarshal(err.Data, &raw) != nil || json.Unmarshal(r.s.o.Mask.JSON(err.Data), &required) != nil || len(raw.Elicitations) == 0 {
		return nil
	}
	for i := range required.Elicitations {
		e := &required.Elicitations[i]
		e.Message, e.URL = name+": "+e.Message, raw.Elicitations[i].URL // see keepURL
	}
	return required
}

// Notify sends a log message of a server to the client, with the server's name as its logger, and
// the news that what a person does at an address is done. It makes an event of a list that has changed.
func (r mcpRelay) Notify(name string, run int64, method string, params json.RawMessage) {
	list, changed := strings.CutSuffix(method, "/list_changed")
	switch {
	case method == stdio.MethodLogMessage:
		r.log(name, params, time.Now())
	case method == string(mcp.MethodNotificationElicitationComplete):
		r.complete(name, params, time.Now())
	case changed:
		st, err := r.s.o.Manager.Status(name)
		if err != nil || st.RunID != run {
			return // it has ended
		}
		list = strings.TrimPrefix(list, "notifications/")
		r.s.events.add(event{
			at: time.Now(), level: mcp.LoggingLevelNotice, name: name, run: st.Run, runID: run,
			text: fmt.Sprintf("%s (run %d): its list of %s has changed; list_mcp_tools shows it", name, st.Run, list),
		})
	}
}

// Bounds of a relayed notification, in bytes: maxMessages of them wait for a client that does not read.
const (
	maxRelayedLog    = 4 << 10
	maxRelayedLogger = 100
	maxElicitationID = 1000
)

// log sends a log message of a server to the client, or once that there are too many. Data that are too long become the start of
// their JSON, and a level that MCP does not have becomes info.
func (r mcpRelay) log(name string, params json.RawMessage, now time.Time) {
	var m struct {
		Level  mcp.LoggingLevel `json:"level"`
		Logger string           `json:"logger"`
		Data   json.RawMessage  `json:"data"`
	}
	if json.Unmarshal(r.s.o.Mask.JSON(params), &m) != nil || m.Data == nil {
		return // not a log message
	}
	ok, first, leftOut := r.logs.admit(name, now)
	if first {
		r.note(name, fmt.Sprintf("it sends more than %d log messages a second: further ones are only in get_logs with process: %q and stream: \"mcp\"", relayedLogs, name))
	}
	if !ok {
		return
	}
	if leftOut > 0 {
		r.note(name, fmt.Sprintf("%d log messages were left out here", leftOut))
	}
	if m.Logger != "" {
		name += "/" + cut(m.Logger, maxRelayedLogger)
	}
	if len(m.Data) > maxRelayedLog {
		text := string(m.Data)
		m.Data, _ = json.Marshal(cut(text, maxRelayedLog)) // a string always encodes
	}
	if !slices.Contains(logLevels, m.Level) {
		m.Level = mcp.LoggingLevelInfo
	}
	r.s.logEvent(event{level: m.Level, relayed: map[string]any{"level": m.Level, "logger": name, "data": m.Data}})
}

// complete sends the client the id of an elicitation that is complete. Too many are left out.
func (r mcpRelay) complete(name string, params json.RawMessage, now time.Time) {
	var m struct {
		ElicitationID string `json:"elicitationId"`
	}
	if json.Unmarshal(params, &m) != nil || m.ElicitationID == "" || len(m.ElicitationID) > maxElicitationID || !r.opensURLs() {
		return
	}
	if ok, _, _ := r.completed.admit(name, now); ok {
		r.s.logEvent(event{method: mcp.MethodNotificationElicitationComplete, relayed: map[string]any{"elicitationId": m.ElicitationID}})
	}
}

// note sends the client a remark of pmcp about the log messages of a server.
func (r mcpRelay) note(name, text string) {
	r.s.logEvent(event{level: mcp.LoggingLevelWarning, relayed: map[string]any{"level": mcp.LoggingLevelWarning, "logger": "pmcp", "data": name + ": " + text}})
}
