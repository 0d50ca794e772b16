package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/project"
	"pmcp/server/stdio"
	"pmcp/server/upstream"
)

// maxListedTools bounds the number of tools that list_mcp_tools lists.
const maxListedTools = 300

// maxInstructions bounds the part of a server's instructions that list_mcp_tools
// shows, in bytes.
const maxInstructions = 2000

// mcpTarget selects an MCP server: either a process, or a command that is started
// on demand.
type mcpTarget struct {
	Process string             `json:"process,omitempty"`
	Command string             `json:"command,omitempty"`
	Args    []string           `json:"args,omitempty" schema:"brief"`
	Cwd     string             `json:"cwd,omitempty" schema:"brief"`
	Env     map[string]*string `json:"env,omitempty" schema:"brief"` // null stands for "not given", as in start_process
}

type listMCPToolsArgs struct {
	mcpTarget
	Tools []string `json:"tools,omitempty"`
}

type mcpToolsResult struct {
	Name         string           `json:"name"`
	Server       string           `json:"server,omitempty"`
	Protocol     string           `json:"protocol"`
	Instructions string           `json:"instructions,omitempty"`
	Total        int              `json:"total"` // number of tools
	Tools        []mcpToolResult  `json:"tools"` // empty if Definitions has what the call names
	Omitted      int              `json:"omitted,omitempty"`
	Definitions  []map[string]any `json:"definitions,omitempty"`
	Resources    []mcpOffer       `json:"resources,omitempty"`
	Templates    []mcpOffer       `json:"resource_templates,omitempty"`
	Prompts      []mcpOffer       `json:"prompts,omitempty"`
	Unread       []string         `json:"unread,omitempty"` // the lists that could not be read, and why
	Notice       string           `json:"notice"`
}

// mcpToolResult is one tool, on one line.
type mcpToolResult struct {
	Name        string `json:"name"`
	Arguments   string `json:"arguments"` // optional arguments have a question mark
	Description string `json:"description,omitempty"`
}

func (r mcpToolsResult) write(t *answerText) {
	t.part("%s: %q, MCP %s, tools: %d", r.Name, r.Server, r.Protocol, r.Total)
	t.optPart(", resources: %d", len(r.Resources))
	t.optPart(", templates: %d", len(r.Templates))
	t.optPart(", prompts: %d", len(r.Prompts))
	t.line("")
	var lines []string
	if r.Instructions != "" {
		lines = append([]string{"instructions:"}, quoteLines(r.Instructions)...)
	}
	for _, tool := range r.Tools {
		call := fmt.Sprintf("%s(%s)", quoteUnlessPlain(tool.Name), upstream.OneLine(tool.Arguments))
		lines = append(lines, prose.Join(": ", call, tool.Description))
	}
	lines = slices.Concat(lines, offerLines("resource", r.Resources), offerLines("template", r.Templates), offerLines("prompt", r.Prompts))
	for _, d := range r.Definitions {
		raw, err := json.Marshal(d)
		if err != nil { // it was decoded from JSON
			raw = []byte(err.Error())
		}
		lines = append(lines, string(raw))
	}
	t.output(lines, nil)
	t.optLine("%d more are not shown", r.Omitted)
	for _, list := range r.Unread {
		t.line("not listed: %s", list)
	}
}

func listMCPToolsTool() tool {
	return define(tool{
		name: "list_mcp_tools", title: "List MCP tools", toolset: setMCP,
		description: "What an MCP server offers: a process with stdio: mcp, or command (args, cwd, env). Those in tools are in full.",
		hints:       hints{openWorld: true},
	}, listMCPTools)
}

func listMCPTools(ctx context.Context, s *call, a listMCPToolsArgs) (mcpToolsResult, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout(0))
	defer cancel()
	defer reportProgress(ctx, func() string { return "waiting for the server's list" })()
	var r mcpToolsResult
	err := s.withMCP(ctx, a.mcpTarget, func(c *upstream.Conn) error {
		tools, unreadable, err := c.Tools(ctx)
		var refused *upstream.RPCError
		switch {
		case errors.As(err, &refused) && refused.Code == mcp.METHOD_NOT_FOUND && (c.Has(upstream.Resources) || c.Has(upstream.Prompts)):
		case errors.As(err, &refused) && refused.Code == mcp.METHOD_NOT_FOUND:
			return fmt.Errorf("%s offers no tools: it refused tools/list: %w", c.Name(), err)
		case errors.As(err, &refused):
			return fmt.Errorf("%s refused tools/list: %w", c.Name(), err)
		case err != nil:
			return err
		}
		st := c.Status()
		r.Name, r.Server, r.Protocol = c.Name(), prose.Join(" ", st.Name, st.Version), st.Protocol
		if len(a.Tools) == 0 {
			r.Instructions = cut(st.Instructions, maxInstructions)
		}
		if err := r.fill(tools, a.Tools); err != nil {
			return err
		}
		r.Total += unreadable
		if len(a.Tools) > 0 {
			return nil
		}
		r.Omitted += unreadable
		r.addOffers(ctx, c)
		return nil
	})
	return r, err
}

// fill adds the definitions of the wanted tools to r or, if none are wanted, a line
// about each tool.
func (r *mcpToolsResult) fill(tools []upstream.Tool, wanted []string) error {
	r.Notice = outputNotice
	r.Tools, r.Total = []mcpToolResult{}, len(tools)
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
		if len(wanted) > 0 {
			continue
		}
		if len(r.Tools) == maxListedTools {
			r.Omitted++
			continue
		}
		r.Tools = append(r.Tools, mcpToolResult{Name: t.Name, Arguments: argumentNames(t.InputSchema), Description: summaryLine(cmp.Or(t.Description, t.Title))})
	}
	for _, name := range wanted {
		at := slices.Index(names, name)
		if at < 0 {
			return unknownTool(r.Name, name, names)
		}
		var definition map[string]any
		decoder := json.NewDecoder(bytes.NewReader(tools[at].Raw))
		decoder.UseNumber() // keeps numbers as they were sent
		if err := decoder.Decode(&definition); err != nil {
			return fmt.Errorf("cannot read the definition of %s: %w", name, err)
		}
		r.Definitions = append(r.Definitions, definition)
	}
	return nil
}

// maxUnknownTool bounds the size of unknownTool's error in bytes, since the MCP
// server chooses the tool names in it.
const maxUnknownTool = 2000

// unknownTool returns the error for a tool that the server does not have; it
// suggests the nearest name.
func unknownTool(server, name string, names []string) error {
	text := fmt.Sprintf("argument tools: %s has no tool %q", server, name)
	if best := args.Nearest(name, names); best != "" {
		text += fmt.Sprintf("; did you mean %s?", quoteUnlessPlain(best))
	}
	var available []string
	for _, name := range names[:min(len(names), 50)] {
		available = append(available, quoteUnlessPlain(name))
	}
	text = fmt.Sprintf("%s (there are: %s)", text, strings.Join(available, ", "))
	return errors.New(cut(text, maxUnknownTool))
}

// argumentNames returns the names of the properties in a schema, required
// properties first.
func argumentNames(schema json.RawMessage) string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	_ = json.Unmarshal(schema, &s) // a schema that is not an object has no properties
	var required, optional []string
	for name := range s.Properties {
		if slices.Contains(s.Required, name) {
			required = append(required, name)
		} else {
			optional = append(optional, name+"?")
		}
	}
	slices.Sort(required)
	slices.Sort(optional)
	return strings.Join(append(required, optional...), ", ")
}

func summaryLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return upstream.OneLine(cut(s, 200))
}

type callMCPToolArgs struct {
	mcpTarget `schema:"brief"`
	Tool      string                     `json:"tool,omitempty"`
	Arguments map[string]json.RawMessage `json:"arguments,omitempty"`
	Calls     []mcpCall                  `json:"calls,omitempty" schema:"flat" jsonschema:"tool, arguments of each"`
	TimeoutMS int                        `json:"timeout_ms,omitempty" schema:"brief" min:"1" max:"600000"`
	MaxBytes  int                        `json:"max_bytes,omitempty" schema:"brief" min:"256" max:"1048576"`
}

// check returns an error unless a has either one tool or calls.
func (a *callMCPToolArgs) check() error {
	switch {
	case len(a.Calls) == 0 && a.Tool == "":
		return errors.New("missing argument: tool, or calls with a tool and arguments in each")
	case len(a.Calls) > 0 && (a.Tool != "" || len(a.Arguments) > 0):
		return errors.New("argument calls: it has the tool and the arguments of each call; give either tool and arguments, or calls")
	case len(a.Calls) > maxMCPCalls:
		return fmt.Errorf("argument calls: %d calls, at most %d are allowed", len(a.Calls), maxMCPCalls)
	case len(a.Calls) == 0 && a.MaxBytes > 0:
		return errors.New("argument max_bytes: it works only with calls; the result of one tool comes as the server sent it")
	}
	return nil
}

func callMCPToolTool() tool {
	return define(tool{
		name: "call_mcp_tool", title: "Call MCP tool", toolset: setMCP,
		description: "Calls a tool of an MCP server (process, or command, args, cwd, env), or several. Also timeout_ms.",
		hints:       hints{destructive: true, openWorld: true},
	}, callMCPTool)
}

func callMCPTool(ctx context.Context, s *call, a callMCPToolArgs) (answer, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	if len(a.Calls) > 0 {
		return s.callMCPTools(ctx, &a)
	}
	call := mcpCall{a.Tool, a.Arguments}
	arguments := call.relayed()
	s.o.Mask.LearnJSON(arguments)
	return s.relayMCP(ctx, a.mcpTarget, a.TimeoutMS, mcpRequest{
		method: "tools/call", params: map[string]any{"name": a.Tool, "arguments": arguments}, read: relay,
		refused: a.Tool, hint: fmt.Sprintf("list_mcp_tools shows the tools, with tools: [%q] its arguments", a.Tool),
	})
}

// An mcpRequest is a request to an MCP server of which the result is relayed.
type mcpRequest struct {
	method string
	params map[string]any
	read   func(server string, raw json.RawMessage) (relayedResult, error)
	// refused precedes the error of a server that refuses the request, and hint follows it.
	refused, hint string
}

// relayMCP makes one request to an MCP server and relays its result, and its progress.
func (s *call) relayMCP(ctx context.Context, target mcpTarget, timeoutMS int, q mcpRequest) (answer, error) {
	callCtx, cancel := context.WithTimeout(ctx, waitTimeout(timeoutMS))
	defer cancel()
	var r relayedResult
	var server string
	err := s.withMCP(callCtx, target, func(c *upstream.Conn) error {
		server = c.Name()
		raw, err := c.Call(callCtx, q.method, q.params, s.progressRelay(ctx))
		if err != nil {
			return err
		}
		r, err = q.read(c.Name(), raw)
		return err
	})
	var refused *upstream.RPCError
	switch {
	case errors.As(err, &refused):
		if required := s.relay.urlRequired(server, refused); required != nil && !s.project.IsReceived() {
			return nil, required
		}
		return nil, withHint(fmt.Errorf("%s: %w", q.refused, err), "%s", q.hint)
	case err != nil:
		return nil, timeoutError(ctx, err, timeoutMS)
	}
	if !mcpserver.IsModernRequest(ctx) && !isObject(r.result.RawStructuredContent) { // as MCP until 2025-11-25 requires
		r.moveStructured(s.o.Mask)
	}
	return r, nil
}

// timeoutError returns err, of calls with a timeout_ms, with a hint if their time is
// over. ctx is the context of the request, which has no such limit.
func timeoutError(ctx context.Context, err error, timeoutMS int) error {
	hint := "the server is alive; a longer timeout_ms gives it more time"
	var away *project.WindowError
	switch {
	case ctx.Err() != nil, errors.As(err, &away): // the owner of the process makes the call
		return err
	case errors.Is(err, errNotSent):
		hint = "a longer timeout_ms waits for it"
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return withHint(fmt.Errorf("no result after %s: %s", waitTimeout(timeoutMS), trimCause(err, context.DeadlineExceeded)), "%s", hint)
}

func trimCause(err, cause error) string { return strings.TrimPrefix(err.Error(), cause.Error()+": ") }

// progressRelay returns a function that forwards the progress of a call to an MCP
// server to the client. It returns nil if the client did not ask for progress.
func (s *Server) progressRelay(ctx context.Context) func(json.RawMessage) {
	token := stdio.ProgressToken(ctx)
	if token == nil {
		return nil
	}
	return func(params json.RawMessage) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(s.o.Mask.JSON(params), &fields) != nil {
			return
		}
		own := make(map[string]any, len(fields))
		for name, value := range fields {
			own[name] = value
		}
		own["progressToken"] = token
		_ = stdio.Notify(ctx, stdio.MethodProgress, own) // fails only if the client is gone
	}
}

// withMCP calls use with a connection to the MCP server. If the server died, the
// error describes how it died and has the last lines of its standard error. If a
// server on demand turns out to be dead before anything was written to it, withMCP
// starts it once more.
func (s *call) withMCP(ctx context.Context, target mcpTarget, use func(*upstream.Conn) error) error {
	switch {
	case (target.Process == "") == (target.Command == ""):
		return errors.New("give either process, the name of an MCP server started with stdio: mcp, or command, a server to start on demand")
	case target.Process == "":
		err := s.withMCPOnDemand(ctx, target, use)
		if errors.Is(err, upstream.ErrNotSent) {
			err = s.withMCPOnDemand(ctx, target, use)
		}
		return err
	case len(target.Args)+len(target.Env) > 0 || target.Cwd != "":
		return errors.New("argument process: args, cwd and env work only with command; a process has its own")
	}
	for again := true; ; again = false {
		c, err := s.mcpConn(ctx, target.Process)
		if err != nil {
			return err
		}
		release := s.o.Upstream.Hold(c)
		err = use(c)
		release()
		if !again || !errors.Is(err, upstream.ErrNotSent) || !c.OverHTTP() { // its server may have lost the session
			return s.explainDeath(ctx, c.Name(), c.Run(), err, "")
		}
	}
}

// mcpConn returns the connection of a process once it is ready for use.
func (s *call) mcpConn(ctx context.Context, argument string) (*upstream.Conn, error) {
	name, err := s.project.ResolveOne(ctx, argument, s.reads)
	if err != nil {
		return nil, err
	}
	run, err := s.project.AwaitSettled(ctx, name)
	if errors.Is(err, process.ErrUnknown) {
		return nil, withHint(fmt.Errorf("%s is not running", name), "%s", restartAdvice(name, "start_process with its name"))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s; %w", err, lineOf(&run), errNotSent)
	}
	c := s.o.Upstream.Conn(name)
	if run.Spec.Stdio == process.StdioHTTP && run.State == process.Running && (c == nil || c.Run() != run.RunID) { // it does not listen yet
		run, _, err = s.project.Await(ctx, name, run.RunID, project.UntilReady, s.o.Upstream.StartTimeout(run.Spec.Env))
		c = s.o.Upstream.Conn(name)
		switch {
		case err != nil:
			err = fmt.Errorf("%w: %s: %s; %w", err, name, run.NotReady, errNotSent)
		case !run.Over() && (c == nil || c.Run() != run.RunID):
			err = fmt.Errorf("%w: %s: %s", upstream.ErrStarting, name, run.NotReady)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case !process.SpeaksMCP(run.Spec.Stdio):
		return nil, withHint(fmt.Errorf("%s does not speak MCP: it was not started with stdio: mcp", name), `if it does, restart_process with stdio: "mcp"`)
	case run.State != process.Running || c == nil || c.Run() != run.RunID:
		return nil, withHint(errors.New(lineOf(&run)), "%s; get_logs shows why it ended", restartAdvice(name, "start_process with its name"))
	}
	c = s.o.Upstream.Reconnect(ctx, c)
	if err := c.Ready(ctx); err != nil {
		return nil, s.explainDeath(ctx, name, c.Run(), err, "")
	}
	return c, nil
}

// errNotSent is returned when a call was not sent because its server did not start
// in time.
var errNotSent = errors.New("the server was not up, and nothing was sent")

const (
	// deathTimeout bounds the wait for the end of a server that closed its output,
	// so that the answer can say how it ended. Only a server that stays alive
	// without its output takes that long.
	deathTimeout = 2 * time.Second
	// deathLines is how many lines of the standard error of a dead server the
	// answer shows.
	deathLines = 20
)
