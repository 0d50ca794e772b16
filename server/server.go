// Package server implements pmcp's MCP tools, resources and prompts: it decodes a
// call, makes one call into the packages below, and encodes the answer. Policy
// belongs to them.
//
// It guarantees that the output holds only MCP messages, one per line and from
// one writer; that a slow call delays no other; that a cancelled request is never
// answered. It rejects, before anything is done, arguments that a tool does not
// have (with the nearest valid name) or that have the wrong type, calls beyond
// the rate limit, and messages over 10 MiB.
//
// Golden files hold its surface: names of tools, arguments and result keys. The
// connection loop is in package stdio; mcp-go implements the rest of the
// protocol, and no package outside of server imports it.
package server

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"pmcp/groups"
	"pmcp/health"
	"pmcp/logstore/line"
	"pmcp/logstore/mask"
	"pmcp/process"
	"pmcp/registry"
	"pmcp/server/args"
	"pmcp/server/project"
	"pmcp/server/socket"
	"pmcp/server/stdio"
	"pmcp/server/upstream"
	waking "pmcp/server/wake"
)

//go:embed instructions.md
var instructions string

// Options configure a Server. The first six fields are required.
type Options struct {
	Manager *process.Manager
	Store   *project.Store
	Health  *health.Monitor
	Groups  *groups.Manager
	// Upstream communicates with MCP servers that run as processes.
	Upstream *upstream.Hub
	Log      *slog.Logger
	// Registry is this server's record, or nil.
	Registry *registry.Registration
	// RegistryDir is the directory with the records of all servers, or "".
	RegistryDir string
	// Socket receives the calls of this user's other servers; nil for none. Serve closes it.
	Socket *socket.Listener
	// Session is the ID of this session.
	Session string
	// Build describes this binary.
	Build
	// GuardianPID is the id of the process that watches this one, or 0 if there is
	// none.
	GuardianPID int
	// MaxServers is the largest number of live servers that is considered healthy;
	// 0 means 9.
	MaxServers int
	// RateLimit is how many calls per second are accepted for each tool that
	// changes something; 0 means no limit.
	RateLimit int
	// Toolsets lists the toolsets to offer; nil means all.
	Toolsets []string
	// ReadOnly offers only tools that change nothing.
	ReadOnly bool
	// Structured declares the schemas of answers, and answers every call with the structured
	// form beside the text, unless the call's _meta refuses that.
	Structured bool
	// Channel sends what wakes the model to the client, as a channel of Claude Code; a monitor then gets nothing.
	Channel bool
	// Mask masks secrets in every answer, and learns the secrets of each process
	// that is started. If it is nil, nothing is masked.
	Mask *mask.Masker
	// OnClient, unless nil, is called once with the name and version of the client.
	OnClient func(name, version string)
	// Keep says how processes outlive the session.
	Keep project.Keep
}

// A Build describes a binary: its version, and the date and commit that it was built from.
type Build struct {
	Version string `json:"server_version"`
	Date    string `json:"build_date"`
	Commit  string `json:"build_commit,omitempty" schema:"extra"`
}

// Server serves one session. Its methods may be called from several goroutines.
type Server struct {
	o       Options
	own     *project.Project // the session's own project
	tools   []tool           // all tools, including tools that are not offered; see offers
	started time.Time
	mcp     *mcpserver.MCPServer
	events  *eventLog
	limits  rateLimits
	cpu     cpuMeter
	storage poller        // of the state of the store
	shown   project.Shown // how far output was shown on this connection
	relay   mcpRelay
	silence time.Duration // silenceTimeout; tests shorten it

	served    atomic.Pointer[served] // nil before Serve
	answering sync.WaitGroup         // the calls of other windows; see Close
	performed atomic.Int64           // calls of other windows, under way
}

// served is the connection that is served.
type served struct {
	conn     *stdio.Conn
	updates  *resourceUpdates // its subscriptions
	messages *messageSender   // its log messages
}

// New returns a Server for one session. Serve runs it.
func New(o Options) *Server {
	if o.MaxServers == 0 {
		o.MaxServers = 9
	}
	s := &Server{o: o, tools: tools(), started: time.Now(), cpu: newCPUMeter(), storage: newPoller(storagePeriod), silence: silenceTimeout}
	s.own = project.New(project.Options{Manager: o.Manager, Store: o.Store, Health: o.Health, Groups: o.Groups, Log: o.Log, Mask: o.Mask, Changed: s.notifyUpdate, Input: s.addInputEvent, Watched: func(e project.WatchEvent) { s.events.addWatchEvent(&e) }, Keep: o.Keep})
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
		options = append(options, mcpserver.WithMethodCacheHints(method, cacheFor.Milliseconds(), mcp.CacheScopePrivate))
	}
	if o.Channel {
		options = append(options, mcpserver.WithExperimental(map[string]any{channelCapability: struct{}{}}))
	}
	if o.Log.Enabled(context.Background(), slog.LevelDebug) { // mcp-go writes two lines per call
		options = append(options, mcpserver.WithLogger(o.Log))
	}
	s.mcp = mcpserver.NewMCPServer(serverName, o.Version, options...)
	s.limits.perSecond = o.RateLimit
	s.events = newEventLog(s.own, o.Store, o.Mask, o.Manager, o.Health.Watch(), s.notifyChanged, s.logEvent)
	var offered []mcpserver.ServerTool
	for _, t := range s.tools {
		if s.offers(&t) {
			offered = append(offered, mcpserver.ServerTool{Tool: t.definition(s.o.Structured), Handler: t.handler(s)})
		}
	}
	s.mcp.AddTools(offered...)
	s.addResources()
	s.addPrompts()
	s.relay = newMCPRelay(s)
	if o.Upstream != nil {
		o.Upstream.Relay(s.relay)
		s.mcp.AddNotificationHandler(mcp.MethodNotificationRootsListChanged, func(context.Context, mcp.JSONRPCNotification) { o.Upstream.RootsChanged() })
	}
	return s
}

// instructions returns the instructions for the model, without the lines about
// tools that this session does not offer. If the client was started below the root of the
// project, they say where processes start: a shell of the client starts elsewhere.
func (s *Server) instructions() string {
	var b strings.Builder
	for line := range strings.Lines(strings.Replace(instructions, "pmcp logs", logsCommand(), 1)) {
		if s.o.Keep.Here && s.o.Keep.For > 0 {
			line = strings.Replace(line, "Processes end with this session", "Processes go on for a time after this session", 1)
		}
		if !slices.ContainsFunc(s.tools, func(t tool) bool { return !s.offers(&t) && strings.Contains(line, t.name) }) {
			b.WriteString(line)
		}
	}
	root := s.o.Manager.Project()
	if dir, err := os.Getwd(); err == nil && strings.HasPrefix(dir, root+"/") && !process.IsNoProject(root) {
		fmt.Fprintf(&b, "- Without cwd a process starts in %s, the root of the project; you are in %s.\n", line.Visible(root), line.Visible(dir))
	}
	return b.String()
}

// logsCommand returns the command that prints logs in a shell: that of this program, with its path unless it is the pmcp
// that PATH has.
func logsCommand() string {
	const name = "pmcp"
	own, err := os.Executable()
	if err != nil {
		return name + " logs"
	}
	if found, err := exec.LookPath(name); err == nil {
		this, ownErr := os.Stat(own)
		other, err := os.Stat(found)
		if ownErr == nil && err == nil && os.SameFile(this, other) {
			return name + " logs"
		}
	}
	return quoteUnlessPlain(own) + " logs"
}

func (s *Server) offers(t *tool) bool {
	return (!s.o.ReadOnly || t.hints.readOnly) && (s.o.Toolsets == nil || slices.Contains(s.o.Toolsets, t.toolset))
}

// Close waits until the goroutines that the Server started have ended. The Manager
// and the Monitor must be closed first, since closing them ends the feeds that the
// goroutines follow.
func (s *Server) Close() {
	s.events.close()
	s.answering.Wait() // not in Serve: a restart, which is never cancelled, ends when the Manager is closed
	s.own.CloseWatches()
}

// Serve serves MCP on in and out until in ends, the client is gone, or ctx ends.
// Then it drains the connection and returns; a session of the daemon continues while it
// keeps processes. It must not be called twice.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	c := stdio.NewConn(s.mcp, stdio.Options{In: in, Out: out, Log: s.o.Log, RefuseSubscription: resourceProblem, IsTask: isTask, OnClient: s.o.OnClient, OnSubscribe: s.wakeUpdates})
	updates, messages := newResourceUpdates(s, c), newMessageSender(c)
	s.served.Store(&served{c, updates, messages})
	notifying, stop := context.WithCancel(ctx)
	var notifiers sync.WaitGroup
	notifiers.Go(func() { updates.run(notifying) })
	notifiers.Go(func() { messages.run(notifying) })
	notifiers.Go(func() { s.watchStorage(notifying) })
	notifiers.Go(func() { s.own.SpareNames(notifying) })
	notifiers.Go(func() { s.cpu.run(notifying) })
	if s.o.Channel {
		notifiers.Go(func() { s.runChannel(notifying, c) })
	}
	if s.o.Socket != nil {
		s.answering.Go(func() { s.o.Socket.Serve(notifying, s.answerServer) })
	}
	if s.o.Keep.Here {
		notifiers.Go(func() { s.own.EndKept(notifying) })
	}
	err := c.Serve(ctx)
	if s.o.Keep.Here {
		s.own.Linger(ctx, func() bool { return s.performed.Load() > 0 })
	}
	stop()
	notifiers.Wait()
	if errors.Is(err, stdio.ErrClientGone) {
		s.o.Log.Info("the client is gone")
		return nil
	}
	return err
}

// notifyChanged is notifyUpdate for a change that removes no line of a log.
func (s *Server) notifyChanged(name string) { s.notifyUpdate(name, false) }

// notifyUpdate notifies the client's subscriptions that something about a process has
// changed, or about a group if name is "". cleared means that lines may have been removed
// from its log. It also polls the state of the store.
func (s *Server) notifyUpdate(name string, cleared bool) {
	s.storage.trigger()
	if c := s.served.Load(); c != nil {
		c.updates.addChange(name, cleared)
	}
}

// wakeUpdates is called when there is a new subscription.
func (s *Server) wakeUpdates() {
	if c := s.served.Load(); c != nil {
		wake(c.updates.wake)
	}
}

// wake puts a token into a channel with one slot, unless there is one.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A poller calls a function periodically, but only while that is of use, so that a session in
// which nothing happens wakes no processor.
type poller struct {
	period    time.Duration
	triggered chan struct{} // one slot
}

func newPoller(period time.Duration) poller {
	return poller{period: period, triggered: make(chan struct{}, 1)}
}

// trigger requests a poll. It never blocks.
func (p poller) trigger() { wake(p.triggered) }

// run calls poll at once and then, no more often than once a period, after each trigger and after
// each poll that returned true. It returns when ctx ends.
func (p poller) run(ctx context.Context, poll func() (again bool)) {
	for {
		again := poll()
		select {
		case <-time.After(p.period):
		case <-ctx.Done():
			return
		}
		if again {
			continue
		}
		select {
		case <-p.triggered:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) logEvent(e event) {
	if c := s.served.Load(); c != nil {
		c.messages.add(e)
	}
}

const (
	// pingTimeout is how long a client may take to answer a ping after its
	// launcher has died.
	pingTimeout = 2 * time.Second
	// pingRetry is the pause between attempts to ping a client that may not be
	// pinged yet.
	pingRetry = time.Second
	// silenceTimeout is how long a client that may not be pinged may be silent
	// after its launcher has died.
	silenceTimeout = 10 * time.Minute
)

// ErrClientLives is returned by AwaitClientGone when the client answered.
var ErrClientLives = errors.New("the client lives")

// AwaitClientGone is called when the parent of the launched process has changed:
// either the client has died, or only a wrapper such as npx. It returns nil when
// the client is gone: the client does not answer a ping or, while it may not be
// pinged, has been silent for ten minutes. Otherwise it returns ErrClientLives or
// ctx's error.
func (s *Server) AwaitClientGone(ctx context.Context) error {
	for {
		err := s.probeClient(ctx)
		if !errors.Is(err, stdio.ErrPingImpossible) {
			return err
		}
		// The client may still send initialize and can be pinged from then on.
		select {
		case <-time.After(pingRetry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// probeClient probes the client once. It returns nil if the client is gone, and
// ErrPingImpossible if that cannot be determined yet.
func (s *Server) probeClient(ctx context.Context) error {
	c := s.served.Load()
	if c == nil {
		return stdio.ErrPingImpossible
	}
	pinged, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	switch err := c.conn.Ping(pinged); {
	case err == nil:
		return ErrClientLives
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, stdio.ErrPingImpossible) && time.Since(c.conn.LastMessage()) < s.silence:
		return err
	}
	return nil
}

// atOwner has the window that owns a process perform a call of t that has failed with err
// because of that, and returns its answer. If err has another reason, or the window cannot
// be asked, it returns a and the error to report.
func (s *call) atOwner(ctx context.Context, t *tool, given args.Given, a answer, err error) (answer, error) {
	defer s.reportOwner(ctx, err)()
	name, sent := project.OwnedBy(err), time.Now()
	owner, done, err := s.project.AtOwner(ctx, t.name, given, err)
	if done && name != "" && !t.hints.readOnly {
		s.events.followKept(name, sent, owner.Structured)
	}
	switch {
	case !done:
		return a, err
	case owner.Relayed != nil:
		return relay(t.name, owner.Relayed)
	}
	text, err := json.Marshal(owner.Text)
	if err != nil {
		return nil, err
	}
	r := relayedResult{&mcp.CallToolResult{Content: []mcp.Content{relayedContent{raw: textItem(text)}}, IsError: owner.IsError}}
	if s.structured {
		r.result.RawStructuredContent = owner.Structured
	}
	return r, nil
}

// reportOwner sends progress of a call that another window performs until stop is called.
func (s *call) reportOwner(ctx context.Context, err error) (stop func()) {
	if name := project.OwnedBy(err); name != "" {
		return s.reportStatus(ctx, name)
	}
	return func() {}
}

// answerServer performs a call of another window about a process that this session runs.
// What this session does not offer, or does not allow, is refused.
func (s *Server) answerServer(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if method == project.StoredMethod {
		return s.own.AwaitStored(ctx), nil
	}
	if method == waking.Method {
		return s.answerMonitor(ctx, params)
	}
	if method == project.MarkedMethod {
		return s.answerMark(ctx, params)
	}
	s.performed.Add(1)
	defer s.performed.Add(-1)
	r, err := project.DecodeOwnerCall(method, params)
	if err != nil {
		return nil, socket.Refusal(err.Error())
	}
	at := slices.IndexFunc(s.tools, func(t tool) bool { return t.name == r.Tool && s.offers(&t) })
	if at < 0 {
		return nil, socket.Refusal(fmt.Sprintf("it does not offer %.100q (PM_READ_ONLY, PM_TOOLSETS)", r.Tool))
	}
	t := &s.tools[at]
	if err := s.own.CheckAllowed(r.Allowed); t.hints.openWorld && err != nil {
		return nil, socket.Refusal(err.Error())
	}
	if err := s.limits.allow(t); err != nil {
		return nil, socket.Refusal(err.Error())
	}
	c := &call{Server: s, named: true, reads: t.hints.readOnly}
	defer c.release()
	if c.project, _, err = s.own.At(ctx, r.Project, "", ""); err != nil {
		return nil, socket.Refusal(err.Error())
	}
	if err := c.project.CheckCall(r); err != nil {
		return nil, socket.Refusal(err.Error())
	}
	c.project = c.project.For(r.By).Received()
	s.o.Mask.LearnSteps(params)
	a, err := t.call(ctx, c, r.Arguments)
	s.own.AwaitStored(ctx) // what the caller reads then shows what was done
	return s.ownerAnswer(t, a, err)
}

// ownerAnswer returns the answer of t as it is sent to another window. It is masked, and has
// no events: those are for the client of this session.
func (s *Server) ownerAnswer(t *tool, a answer, err error) (answer project.OwnerAnswer, _ error) {
	if err != nil {
		text := s.errorAnswer(err)
		return project.OwnerAnswer{Text: t.name + ": " + text, IsError: true}, nil
	}
	if r, relayed := a.(relayedResult); relayed {
		answer.Relayed, err = json.Marshal(r.masked(s.o.Mask))
		return answer, err
	}
	structured, err := stdio.Encode(a)
	if err != nil {
		return answer, fmt.Errorf("cannot encode the answer of %s: %w", t.name, err)
	}
	return project.OwnerAnswer{
		Text: s.o.Mask.Text(textOf(a)), Structured: json.RawMessage(line.VisibleJSON(s.o.Mask.JSON(structured))),
	}, nil
}
