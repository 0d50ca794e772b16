package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"pmcp/logstore"
	"pmcp/logstore/mask"
	"pmcp/process"
	"pmcp/server/upstream"
)

// withMCPOnDemand is withMCP for a command.
func (s *Server) withMCPOnDemand(ctx context.Context, target mcpTarget, use func(*upstream.Conn) error) error {
	args := specArgs{Command: target.Command, Args: target.Args, Cwd: target.Cwd, Env: target.Env}
	spec, err := s.specOf(ctx, "mcp", args, false)
	if err != nil {
		return err
	}
	spec.Stdio = process.StdioMCP
	if spec.Name, err = onDemandName(spec, s.o.Session, s.o.Mask); err != nil {
		return err
	}
	lease, err := s.o.Upstream.OnDemand(ctx, spec.Name, mcpProcesses{s, spec})
	var start *upstream.StartError
	switch {
	case errors.As(err, &start):
		return s.explainDeath(ctx, spec.Name, start.Run, err, start.End)
	case err != nil:
		return err
	}
	defer lease.Release()
	return s.explainDeath(ctx, spec.Name, lease.Run(), use(lease.Conn), "")
}

// onDemandPrefix begins the names of servers on demand.
const onDemandPrefix = "mcp:"

// runners are programs that run what their arguments name, which tells more.
var runners = []string{"npx", "npm", "pnpm", "yarn", "bunx", "bun", "uvx", "uv", "node", "deno", "python", "python3", "tsx", "env", "go", "exec", "run", "dlx"}

var notInName = regexp.MustCompile(`[^A-Za-z0-9._@-]+`)

// onDemandName is what a server on demand is called in lists and logs: the same
// for the same command line, directory and environment, and for nothing else.
// Where a value of the environment or an argument looks secret, it is another in
// each session: names are stored, and nobody shall find out by them what the
// value was.
func onDemandName(spec process.Spec, session string, masker *mask.Masker) (string, error) {
	values := slices.Concat(slices.Collect(maps.Values(spec.Env)), spec.Args)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(spec.Env)), mask.SecretName) && slices.Equal(values, masker.Texts(values)) {
		session = ""
	}
	key, err := json.Marshal([]any{spec.Command, spec.Args, spec.Dir, spec.Env, session})
	if err != nil {
		return "", fmt.Errorf("cannot name the server: %w", err)
	}
	label := spec.Command
	for _, word := range append([]string{spec.Command}, masker.Texts(spec.Args)...) {
		if base := path.Base(word); !strings.HasPrefix(word, "-") && !slices.Contains(runners, base) {
			label = base
			break
		}
	}
	label = notInName.ReplaceAllString(path.Base(label), "-")
	sum := sha256.Sum256(key)
	return fmt.Sprintf("%s%s-%x", onDemandPrefix, label[:min(len(label), 40)], sum[:5]), nil
}

// mcpProcesses starts and stops servers on demand, for the upstream package.
// Which of its methods is called for which name is that package's affair: spec
// is that of the server being started.
type mcpProcesses struct {
	s    *Server
	spec process.Spec
}

// Start starts the server as any process, but without keeping a definition.
func (p mcpProcesses) Start(ctx context.Context, name string) error {
	p.spec.Name = name
	_, _, err := p.s.o.Manager.Start(ctx, p.spec, process.KeepRunning)
	if errors.Is(err, process.ErrTooMany) {
		return fmt.Errorf("%w: %w", upstream.ErrNoRoom, err)
	}
	return err
}

// Stop stops a server and takes it off the list; its log stays.
func (p mcpProcesses) Stop(ctx context.Context, name string) (end string, err error) {
	p.s.awaitOwnEnd(ctx, name)
	st, err := p.s.o.Manager.Stop(ctx, name, process.StopOptions{})
	if errors.Is(err, process.ErrUnknown) {
		return "", nil
	}
	r := ofStatus(&st)
	if err == nil {
		err = p.s.o.Manager.Remove(ctx, name)
	}
	return r.line(), err
}

// awaitOwnEnd waits a moment for the end of a server that has closed its output,
// so that it is not said to have been stopped when it ended by itself.
func (s *Server) awaitOwnEnd(ctx context.Context, name string) {
	if c := s.o.Upstream.Conn(name); c == nil || c.Status().State != upstream.Disconnected {
		return
	}
	waiting, cancel := context.WithTimeout(ctx, deathPatience)
	defer cancel()
	_, _ = s.o.Manager.Await(waiting, name, func(st process.Status) bool { return !st.State.Live() })
}

// mcpDeath is the end of a server in the middle of a call, or of its connection.
type mcpDeath struct {
	name  string
	run   int64 // its id
	ended bool  // else it goes on, for all that is known
	cause error
	text  string
}

// Error gives cause, end, and the last lines of standard error.
func (e *mcpDeath) Error() string { return e.text }

// Unwrap gives the cause, for those who want to know what was sent.
func (e *mcpDeath) Unwrap() error { return e.cause }

// about tells of the errors of the run with its end: the last lines of standard
// error stand in the text.
func (e *mcpDeath) about() []told {
	if !e.ended {
		return nil
	}
	return []told{{name: e.name, runID: e.run, stage: stageEnded, faults: true}}
}

// explainDeath adds to an error that says that a connection is gone, or never
// came up, how the run has ended, if it has, and what it wrote last on standard
// error. end is how it ended where that is known, else "". Other errors are left
// as they are.
func (s *Server) explainDeath(ctx context.Context, name string, run int64, err error, end string) error {
	if !errors.Is(err, upstream.ErrDisconnected) && !errors.Is(err, upstream.ErrStarting) {
		return err
	}
	var b strings.Builder
	b.WriteString(stripped(err, upstream.ErrDisconnected))
	ended := end != ""
	if !ended && errors.Is(err, upstream.ErrDisconnected) {
		end, ended = s.endOf(ctx, name, run)
	}
	if end != "" {
		b.WriteString("\n" + end)
	}
	page, readErr := s.o.Store.Read(ctx, logstore.Query{Runs: []int64{run}, Streams: 1 << logstore.Stderr, Limit: deathLines, Newest: true})
	if readErr == nil {
		last := lastOf(page)
		b.WriteString("\n" + strings.TrimRight(last.text(), "\n"))
	}
	next := startedAgain(name, "restart_process")
	fmt.Fprintf(&b, "\nhint: %s; get_logs with process: %q and stream: \"mcp\" shows the messages", next, name)
	return &mcpDeath{name: name, run: run, ended: ended, cause: err, text: b.String()}
}

// startedAgain says how the MCP server called name is started again: by tool, or,
// where it was started on demand, by what started it.
func startedAgain(name, tool string) string {
	if strings.HasPrefix(name, onDemandPrefix) {
		return "call it with its command again, which starts it anew"
	}
	return tool + " starts it again"
}

// endOf is how run, whose connection has ended, ends, in a line: it is waited
// for a moment. ended says whether it has. "" if another run has taken its place.
func (s *Server) endOf(ctx context.Context, name string, run int64) (line string, ended bool) {
	waiting, cancel := context.WithTimeout(ctx, deathPatience)
	defer cancel()
	st, err := s.o.Manager.Await(waiting, name, func(st process.Status) bool { return st.RunID != run || !st.State.Live() })
	if errors.Is(err, process.ErrUnknown) || st.RunID != run {
		return "", false
	}
	r := ofStatus(&st)
	return r.line(), !st.State.Live()
}

// mcpInfo is the connection of a process in get_process_info.
type mcpInfo struct {
	State         string `json:"state"`
	Why           string `json:"why,omitempty"`
	Server        string `json:"server,omitempty"`
	Protocol      string `json:"protocol,omitempty"`
	Sent          int64  `json:"messages_sent"`
	Received      int64  `json:"messages_received"`
	SentBytes     int64  `json:"bytes_sent"`
	ReceivedBytes int64  `json:"bytes_received"`
	InFlight      int    `json:"in_flight,omitempty"`
	Errors        int64  `json:"errors,omitempty"`
	Refused       int64  `json:"refused,omitempty"`    // too large
	Garbage       int64  `json:"garbage,omitempty"`    // lines that are no messages
	Unexpected    int64  `json:"unexpected,omitempty"` // answers to what was not asked
	LastActivity  string `json:"last_activity,omitempty"`
}

// mcpInfoOf is the connection with run of name; nil if there is none.
func (s *Server) mcpInfoOf(name string, run int64) *mcpInfo {
	c := s.o.Upstream.Conn(name)
	if c == nil || c.Run() != run {
		return nil
	}
	st := c.Status()
	return &mcpInfo{
		State: st.State.String(), Why: st.Why, Server: joinNonEmpty(st.Name, st.Version), Protocol: st.Protocol,
		Sent: st.Sent, Received: st.Received, SentBytes: st.SentBytes, ReceivedBytes: st.ReceivedBytes, InFlight: st.InFlight,
		Errors: st.Errors, Refused: st.Refused, Garbage: st.Garbage, Unexpected: st.Unexpected, LastActivity: formatTime(st.LastActivity),
	}
}

func (m *mcpInfo) text() string {
	if m == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "mcp: %s", joinNonEmpty(m.State, m.Why))
	if m.Server != "" {
		fmt.Fprintf(&b, ", %s, MCP %s", m.Server, m.Protocol)
	}
	fmt.Fprintf(&b, ", sent %d messages (%s), received %d (%s), %d in flight, %d errors", m.Sent, formatBytes(m.SentBytes), m.Received, formatBytes(m.ReceivedBytes), m.InFlight, m.Errors)
	for _, odd := range []struct {
		n    int64
		what string
	}{{m.Refused, "too large"}, {m.Garbage, "no messages"}, {m.Unexpected, "answers to nothing"}} {
		if odd.n > 0 {
			fmt.Fprintf(&b, ", %d %s", odd.n, odd.what)
		}
	}
	if m.LastActivity != "" {
		fmt.Fprintf(&b, ", last at %s", m.LastActivity)
	}
	return b.String() + "\n"
}
