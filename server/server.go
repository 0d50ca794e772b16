// Package server is pmcp's MCP side: it decodes a call, makes one call into the
// packages below, and encodes the answer. Policy is theirs.
//
// What the package guarantees: nothing but MCP messages on the output, one a
// line and from one writer; a call that is slow holds up no other; a request
// that was cancelled is never answered. What it refuses, before anything is
// done: arguments that a tool does not have or that are of another type, with
// the nearest valid one; a call beyond the rate limit; a message over 10 MiB.
//
// Its surface (names of tools, arguments, result keys) is held by golden files;
// the connection loop is its own (see conn.go), everything else of the protocol
// is mcp-go's, and no other package imports that.
package server

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"pmcp/groups"
	"pmcp/health"
	"pmcp/logstore"
	"pmcp/logstore/mask"
	"pmcp/process"
	"pmcp/registry"
	"pmcp/server/upstream"
)

//go:embed instructions.md
var instructions string

// Options are what a Server works with. The first six are required.
type Options struct {
	Manager *process.Manager
	Store   *logstore.Store
	Health  *health.Monitor
	Groups  *groups.Manager
	// Upstream talks to MCP servers that run as processes.
	Upstream *upstream.Hub
	Log      *slog.Logger
	// Registry is this server's record; nil if there is none.
	Registry *registry.Registration
	// RegistryDir is where the records of all servers are; "" if there is none.
	RegistryDir string
	// Session is the id of this session.
	Session string
	// Version and BuildDate are of this binary.
	Version, BuildDate string
	// GuardianPID is the process that watches over this one; 0 without.
	GuardianPID int
	// MaxServers is how many live servers are healthy; 0 means 9.
	MaxServers int
	// RateLimit is how many calls a second each tool takes that changes
	// something; 0 means no limit.
	RateLimit int
	// Toolsets are the families of tools to offer; nil means all.
	Toolsets []string
	// ReadOnly offers only tools that change nothing.
	ReadOnly bool
	// Mask takes secrets out of every answer and learns those of what is started. Nil takes none.
	Mask *mask.Masker
	// OnClient is told once who the client is. Nil for nobody.
	OnClient func(name, version string)
}

// Server serves one session. Its methods may be called from several goroutines.
type Server struct {
	o       Options
	tools   []tool // all there are; see offers
	started time.Time
	mcp     *mcpserver.MCPServer
	waits   map[string]func(json.RawMessage) bool
	events  *eventLog
	limits  rateLimits

	mu       sync.Mutex
	conn     *conn     // the connection being served; nil before
	updates  *updates  // its subscriptions
	messages *messages // its log messages
	client   string    // name and version of the client
	definitions
}

// New returns a Server that Serve puts to work.
func New(o Options) *Server {
	if o.MaxServers == 0 {
		o.MaxServers = 9
	}
	s := &Server{o: o, tools: tools(), started: time.Now(), waits: make(map[string]func(json.RawMessage) bool)}
	options := []mcpserver.ServerOption{
		mcpserver.WithTitle("pmcp process manager"),
		mcpserver.WithInstructions(s.instructions()),
		mcpserver.WithToolCapabilities(false),
		mcpserver.WithResourceCapabilities(true, true),
		mcpserver.WithPromptCapabilities(false),
		mcpserver.WithLogging(),
		mcpserver.WithIcons(icon),
		mcpserver.WithHooks(s.hooks()),
		mcpserver.WithCompletions(),
		mcpserver.WithPromptCompletionProvider(completions{s}),
		mcpserver.WithResourceCompletionProvider(completions{s}),
	}
	for _, method := range []mcp.MCPMethod{mcp.MethodServerDiscover, mcp.MethodToolsList, mcp.MethodPromptsList, mcp.MethodResourcesTemplatesList} {
		options = append(options, mcpserver.WithMethodCacheHints(method, fixedFor.Milliseconds(), mcp.CacheScopePrivate))
	}
	if o.Log.Enabled(context.Background(), slog.LevelDebug) { // it writes two lines a call
		options = append(options, mcpserver.WithLogger(o.Log))
	}
	s.mcp = mcpserver.NewMCPServer(serverName, o.Version, options...)
	s.limits.perSecond = o.RateLimit
	s.events = newEventLog(o.Store, o.Mask, o.Manager.Project(), o.Manager.Watch(), o.Health.Watch(), s.changed, s.tell)
	for _, t := range s.tools {
		if !s.offers(&t) {
			continue
		}
		s.mcp.AddTool(t.definition(), t.handler(s))
		if t.waits != nil {
			s.waits[t.name] = t.waits
		}
	}
	s.addResources()
	s.addPrompts()
	return s
}

// instructions are for the model that uses this session's tools: a line that
// speaks of another one is left out.
func (s *Server) instructions() string {
	var b strings.Builder
	for line := range strings.Lines(instructions) {
		if !slices.ContainsFunc(s.tools, func(t tool) bool { return !s.offers(&t) && strings.Contains(line, t.name) }) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// offers says whether a tool is one of this session.
func (s *Server) offers(t *tool) bool {
	return (!s.o.ReadOnly || t.hints.readOnly) && (s.o.Toolsets == nil || slices.Contains(s.o.Toolsets, t.toolset))
}

// Close waits for what the Server started. It must not return before its
// goroutines have ended; the Manager and the Monitor must be closed first, since
// their feeds end them.
func (s *Server) Close() { s.events.close() }

// Serve speaks MCP on in and out until in ends, the client is gone, or ctx
// ends; then it drains and returns. It must not be called twice.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	c := newConn(s.mcp, connOptions{in: in, out: out, log: s.o.Log, waits: s.mayWait})
	c.onClient(s.setClient)
	news, messages := newUpdates(s, c), newMessages(c)
	s.mu.Lock()
	s.conn, s.updates, s.messages = c, news, messages
	s.mu.Unlock()
	telling, stop := context.WithCancel(ctx)
	var tellers sync.WaitGroup
	tellers.Go(func() { news.run(telling) })
	tellers.Go(func() { messages.run(telling) })
	tellers.Go(func() { s.watchStorage(telling) })
	tellers.Go(func() { s.spareNames(telling) })
	err := c.serve(ctx)
	stop()
	tellers.Wait()
	if errors.Is(err, errClientGone) {
		s.o.Log.Info("the client is gone")
		return nil
	}
	return err
}

// changed notes that there is news of a process, for subscriptions.
func (s *Server) changed(name string) { s.note((*updates).changed, name) }

// cleared notes that lines of the log of a process were removed, for subscriptions.
func (s *Server) cleared(name string) { s.note((*updates).cleared, name) }

// note tells the updates of the session, if there is one.
func (s *Server) note(what func(*updates, string), name string) {
	s.mu.Lock()
	news := s.updates
	s.mu.Unlock()
	if news != nil {
		what(news, name)
	}
}

// tell notes an event, for log messages.
func (s *Server) tell(e event) {
	s.mu.Lock()
	messages := s.messages
	s.mu.Unlock()
	if messages != nil {
		messages.add(e)
	}
}

// accompany has the call of ctx get the log messages that it asks for, until
// leave is called.
func (s *Server) accompany(ctx context.Context) (leave func()) {
	s.mu.Lock()
	messages := s.messages
	s.mu.Unlock()
	return messages.accompany(ctx)
}

// mayWait says whether a request may wait long.
func (s *Server) mayWait(method string, params json.RawMessage) bool {
	if method != string(mcp.MethodToolsCall) {
		return false
	}
	var call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal(params, &call) != nil {
		return false
	}
	waits := s.waits[call.Name]
	return waits != nil && waits(call.Arguments)
}

// waitsIf makes a tool's waits func from one that looks at decoded arguments.
func waitsIf[A any](may func(A) bool) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool {
		var args A
		return decodeArguments(raw, &args) == nil && may(args)
	}
}

func (s *Server) setClient(name, version string) {
	s.mu.Lock()
	s.client = joinNonEmpty(name, version)
	s.mu.Unlock()
	if s.o.OnClient != nil {
		s.o.OnClient(name, version)
	}
}

func joinNonEmpty(words ...string) string { return joinGiven(" ", words) }

// joinHints are hints in one line.
func joinHints(hints ...string) string { return joinGiven("; ", hints) }

func joinGiven(separator string, parts []string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), separator)
}

const (
	// pingPatience is how long a client may take to answer a ping after its
	// launcher is gone.
	pingPatience = 2 * time.Second
	// pingRetry is how long until the next try where none may be pinged yet.
	pingRetry = time.Second
	// silencePatience is how long a client that may not be pinged may be silent
	// after its launcher is gone.
	silencePatience = 10 * time.Minute
)

// ErrClientLives says that the client answered.
var ErrClientLives = errors.New("the client lives")

// AwaitClientGone is called when the parent of the launched process has
// changed: the client may have died, or only a wrapper such as npx. It returns
// nil when the client is gone: it does not answer a ping or, where none may be
// written to it, has been silent for ten minutes. Otherwise it returns
// ErrClientLives, or ctx's error.
func (s *Server) AwaitClientGone(ctx context.Context) error {
	for {
		err := s.tryClient(ctx)
		if !errors.Is(err, errPingImpossible) {
			return err
		}
		// It may yet say initialize, and can be pinged from then on.
		select {
		case <-time.After(pingRetry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryClient is one try: nil if the client is gone, errPingImpossible if that
// cannot be known yet.
func (s *Server) tryClient(ctx context.Context) error {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c == nil { // not served yet
		return errPingImpossible
	}
	pinged, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	switch err := c.ping(pinged); {
	case err == nil:
		return ErrClientLives
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errPingImpossible) && time.Since(c.lastMessage()) < silencePatience:
		return err
	}
	return nil
}
