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
)

// An mcpRelay relays to the client what MCP servers request and report. It is an upstream.Client.
type mcpRelay struct {
	s    *Server
	logs *logGate
}

func newMCPRelay(s *Server) mcpRelay {
	return mcpRelay{s, &logGate{sources: make(map[string]*logFlow)}}
}

// Bounds of the log messages of MCP servers: how many of one server reach the client a second, how
// many at once, and of how many servers that is counted.
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

// A logFlow is what is counted of one server.
type logFlow struct {
	limit   *rate.Limiter
	leftOut int // since the last message that was let through
}

// admit reports whether a message of a server may reach the client at the time now, and how many
// before it did not. tell is set for the first that does not.
func (g *logGate) admit(name string, now time.Time) (ok, tell bool, leftOut int) {
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
	resumes := source.leftOut == 0 || source.limit.TokensAt(now) >= relayedLogsBurst/2 // a gap is told once, not 10 times a second
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
	}
	own, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, err
	}
	return r.s.served.Load().conn.Request(ctx, method, own) // only a client that is served has capabilities
}

// Notify sends a log message of a server to the client, with the server's name as its logger, and
// makes an event of a list that has changed.
func (r mcpRelay) Notify(name string, run int64, method string, params json.RawMessage) {
	list, changed := strings.CutSuffix(method, "/list_changed")
	switch {
	case method == stdio.MethodLogMessage:
		r.log(name, params, time.Now())
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

// Bounds of a relayed log message, in bytes: maxMessages of them wait for a client that does not read.
const (
	maxRelayedLog    = 4 << 10
	maxRelayedLogger = 100
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
	ok, tell, leftOut := r.logs.admit(name, now)
	if tell {
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

// note sends the client a remark of pmcp about the log messages of a server.
func (r mcpRelay) note(name, text string) {
	r.s.logEvent(event{level: mcp.LoggingLevelWarning, relayed: map[string]any{"level": mcp.LoggingLevelWarning, "logger": "pmcp", "data": name + ": " + text}})
}
