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
	"time"

	"pmcp/logstore"
	"pmcp/logstore/mask"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/project"
	"pmcp/server/upstream"
)

// withMCPOnDemand is withMCP for an MCP server that is given as a command.
func (s *call) withMCPOnDemand(ctx context.Context, target mcpTarget, use func(*upstream.Conn) error) error {
	def := project.Definition{Command: target.Command, Args: target.Args, Cwd: target.Cwd, Env: target.Env, Streams: project.Streams{Stdio: process.StdioMCP}}
	spec, err := s.project.Spec("mcp", def, false)
	if err != nil {
		return err
	}
	if spec.Name, err = onDemandName(spec, s.o.Session, s.o.Mask); err != nil {
		return err
	}
	lease, err := s.o.Upstream.OnDemand(ctx, spec.Name, mcpProcesses{s.Server, spec})
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

// runners are programs that run another program, which an argument names. The
// argument is the better label for the process.
var runners = []string{"npx", "npm", "pnpm", "yarn", "bunx", "bun", "uvx", "uv", "node", "deno", "python", "python3", "tsx", "env", "go", "exec", "run", "dlx"}

// notInName matches characters that a process name must not contain.
var notInName = regexp.MustCompile(`[^A-Za-z0-9._@-]+`)

// onDemandName returns the name that a server started on demand has in lists and
// logs. The name depends only on the command line, the directory and the
// environment, and differs if any of them differs. If an argument or a value of the
// environment looks secret, the name also depends on the session: names are stored,
// and a stored name must not allow testing guesses of the secret.
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
	return fmt.Sprintf("%s%s-%x", project.OnDemandPrefix, label[:min(len(label), 40)], sum[:5]), nil
}

// mcpProcesses starts and stops servers on demand for the upstream package, which
// decides when to call Start and Stop, and for which name. spec is the spec of the
// server being started.
type mcpProcesses struct {
	s    *Server
	spec process.Spec
}

// Start starts the server like any process, but saves no definition.
func (p mcpProcesses) Start(ctx context.Context, name string) error {
	p.spec.Name = name
	_, _, err := p.s.o.Manager.Start(ctx, p.spec, process.KeepRunning)
	if errors.Is(err, process.ErrTooMany) {
		return fmt.Errorf("%w: %w", upstream.ErrNoRoom, err)
	}
	return err
}

// Stop stops a server and removes it from the list of processes, but keeps its log.
// end describes how the server ended.
func (p mcpProcesses) Stop(ctx context.Context, name string) (end string, err error) {
	// A server that has closed its output may be exiting on its own, which must not be
	// reported as a stop.
	if c := p.s.o.Upstream.Conn(name); c != nil && c.Status().State == upstream.Disconnected {
		p.s.awaitRunEnd(ctx, name, c.Run(), deathTimeout)
	}
	st, err := p.s.o.Manager.Stop(ctx, name, process.StopOptions{})
	if errors.Is(err, process.ErrUnknown) {
		return "", nil
	}
	if err == nil {
		err = p.s.o.Manager.Remove(ctx, name)
	}
	return lineOf(&project.Run{Status: st}), err
}

// reportedDeath returns what explainDeath reports about a run: its errors together
// with its end, because the text has the last lines of standard error.
func reportedDeath(name string, run int64, ended bool) []reported {
	if !ended {
		return nil
	}
	return []reported{{name: name, runID: run, stage: stageEnded, faults: true}}
}

// explainDeath adds an explanation to an error about a connection that ended or was
// never established: how the run ended, if it has ended, and the last lines that it
// wrote to standard error. end describes how the run ended, or is "" if the caller
// does not know. explainDeath returns other errors unchanged.
func (s *Server) explainDeath(ctx context.Context, name string, run int64, err error, end string) error {
	if !errors.Is(err, upstream.ErrDisconnected) && !errors.Is(err, upstream.ErrStarting) {
		return err
	}
	var t answerText
	t.line("%s", trimCause(err, upstream.ErrDisconnected))
	ended := end != ""
	c := s.o.Upstream.Conn(name)
	overHTTP := c != nil && c.Run() == run && c.OverHTTP()
	if !ended && errors.Is(err, upstream.ErrDisconnected) {
		timeout := deathTimeout
		if overHTTP && c.Refused() {
			timeout = 0 // it answers, so it lives
		}
		end, ended = s.awaitRunEnd(ctx, name, run, timeout)
	}
	t.optLine("%s", end)
	page, readErr := s.o.Store.Read(ctx, logstore.Query{Runs: []int64{run}, Streams: 1 << logstore.Stderr, Limit: deathLines, Newest: true})
	if readErr == nil {
		last := logSource{page: page, view: logView{newest: true, actionRun: run, maxBytes: actionMaxBytes / 2}}.render()
		last.writeTo(&t, nil)
	}
	next := ""
	switch {
	case ended:
		next = restartAdvice(name, "start_process with its name")
	case !overHTTP: // over HTTP, the next call connects again
		next = restartAdvice(name, "restart_process")
	}
	t.hint(prose.Join("; ", next, fmt.Sprintf("get_logs with process: %q and stream: \"mcp\" shows the messages", name)))
	return &composedError{text: strings.TrimSuffix(t.b.String(), "\n"), cause: err, reports: reportedDeath(name, run, ended)}
}

// restartAdvice returns how to restart the MCP server called name: with tool or, if
// the server was started on demand, by repeating the call.
func restartAdvice(name, tool string) string {
	if strings.HasPrefix(name, project.OnDemandPrefix) {
		return "call it with its command again to restart it"
	}
	return tool + " starts it again"
}

// awaitRunEnd waits at most timeout for the end of a run whose connection has
// ended. line describes the run, or is "" if another run has replaced the run.
// ended reports whether the run has ended.
func (s *Server) awaitRunEnd(ctx context.Context, name string, run int64, timeout time.Duration) (line string, ended bool) {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	st, err := s.o.Manager.Await(waiting, name, func(st process.Status) bool { return st.RunID != run || !st.State.Live() })
	if errors.Is(err, process.ErrUnknown) || st.RunID != run {
		return "", false
	}
	return lineOf(&project.Run{Status: st}), !st.State.Live()
}

// mcpInfo is the MCP connection of a process as get_process_info shows it.
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
	Refused       int64  `json:"refused,omitempty"`    // messages that were too large
	Garbage       int64  `json:"garbage,omitempty"`    // lines that are not messages
	Unexpected    int64  `json:"unexpected,omitempty"` // responses to no request
	LastActivity  string `json:"last_activity,omitempty"`
}

// mcpInfoOf returns c as the MCP connection of the given run, or nil if the run has
// another connection or none.
func mcpInfoOf(c *upstream.Conn, run int64) *mcpInfo {
	if c == nil || c.Run() != run {
		return nil
	}
	st := c.Status()
	return &mcpInfo{
		State: st.State.String(), Why: st.Why, Server: prose.Join(" ", st.Name, st.Version), Protocol: st.Protocol,
		Sent: st.Sent, Received: st.Received, SentBytes: st.SentBytes, ReceivedBytes: st.ReceivedBytes, InFlight: st.InFlight,
		Errors: st.Errors, Refused: st.Refused, Garbage: st.Garbage, Unexpected: st.Unexpected, LastActivity: args.FormatTime(st.LastActivity),
	}
}

// write writes the connection on one line, or nothing if m is nil.
func (m *mcpInfo) write(t *answerText) {
	if m == nil {
		return
	}
	t.part("mcp: %s", prose.Join(": ", m.State, m.Why))
	if m.Server != "" {
		t.part(", %q, MCP %s", m.Server, m.Protocol)
	}
	t.part(", sent %s (%s), received %d (%s), %d in flight, %s", countNoun(m.Sent, "message", "messages"), formatBytes(m.SentBytes), m.Received, formatBytes(m.ReceivedBytes), m.InFlight, countNoun(m.Errors, "error", "errors"))
	t.optPart(", %d too large", m.Refused)
	t.optPart(", %d not messages", m.Garbage)
	t.optPart(", %d responses to no request", m.Unexpected)
	t.optPart(", last at %s", m.LastActivity)
	t.line("")
}
