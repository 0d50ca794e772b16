package server

import (
	"bytes"
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
	"pmcp/server/upstream"
)

// maxListedTools bounds the tools that list_mcp_tools names.
const maxListedTools = 300

// maxInstructions bounds what list_mcp_tools shows of a server's instructions,
// in bytes.
const maxInstructions = 2000

// mcpTarget says which MCP server is meant: a process, or a command that is
// started on demand.
type mcpTarget struct {
	Process string             `json:"process,omitempty"`
	Command string             `json:"command,omitempty"`
	Args    []string           `json:"args,omitempty"`
	Cwd     string             `json:"cwd,omitempty"`
	Env     map[string]*string `json:"env,omitempty"` // null is not given, as in start_process
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
	Tools        []mcpToolResult  `json:"tools"`
	Omitted      int              `json:"omitted,omitempty"`
	Definitions  []map[string]any `json:"definitions,omitempty"`
	Notice       string           `json:"notice"`
}

// mcpToolResult is one tool in a line.
type mcpToolResult struct {
	Name        string `json:"name"`
	Arguments   string `json:"arguments"` // optional ones with a question mark
	Description string `json:"description,omitempty"`
}

func (r mcpToolsResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, MCP %s, tools: %d\n[%s]\n", r.Name, r.Server, r.Protocol, len(r.Tools)+r.Omitted, r.Notice)
	if r.Instructions != "" {
		fmt.Fprintf(&b, "instructions: %s\n", r.Instructions)
	}
	for _, t := range r.Tools {
		fmt.Fprintf(&b, "%s(%s): %s\n", upstream.OneLine(t.Name), upstream.OneLine(t.Arguments), t.Description)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&b, "%d more are not shown\n", r.Omitted)
	}
	for _, d := range r.Definitions {
		raw, err := json.Marshal(d)
		if err != nil { // it was decoded from JSON
			raw = []byte(err.Error())
		}
		fmt.Fprintf(&b, "%s\n", raw)
	}
	return b.String()
}

func listMCPToolsTool() tool {
	return define(tool{
		name: "list_mcp_tools", title: "List MCP tools", toolset: setMCP,
		description: "Names the tools of an MCP server: a process with stdio: mcp, or a command; defines in full those in tools.",
		hints:       hints{openWorld: true},
		waits:       func(json.RawMessage) bool { return true },
	}, listMCPTools)
}

func listMCPTools(ctx context.Context, s *Server, a listMCPToolsArgs) (mcpToolsResult, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTime(0))
	defer cancel()
	defer report(ctx, func() string { return "waiting for the server's list" })()
	var r mcpToolsResult
	err := s.withMCP(ctx, a.mcpTarget, func(c *upstream.Conn) error {
		tools, unreadable, err := c.Tools(ctx)
		var refused *upstream.RPCError
		switch {
		case errors.As(err, &refused) && refused.Code == mcp.METHOD_NOT_FOUND:
			return fmt.Errorf("%s offers no tools: it has refused tools/list: %w", c.Name(), err)
		case errors.As(err, &refused):
			return fmt.Errorf("%s has refused tools/list: %w", c.Name(), err)
		case err != nil:
			return err
		}
		st := c.Status()
		r.Name, r.Server, r.Protocol = c.Name(), joinNonEmpty(st.Name, st.Version), st.Protocol
		if len(a.Tools) == 0 {
			r.Instructions = cut(st.Instructions, len(st.Instructions), maxInstructions)
		}
		r.Omitted = unreadable
		return r.fill(tools, a.Tools)
	})
	return r, err
}

// fill names the tools and gives the definitions of those wanted.
func (r *mcpToolsResult) fill(tools []upstream.Tool, wanted []string) error {
	r.Notice = outputNotice
	r.Tools = []mcpToolResult{}
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
		if len(r.Tools) == maxListedTools {
			r.Omitted++
			continue
		}
		description := t.Description
		if description == "" {
			description = t.Title
		}
		r.Tools = append(r.Tools, mcpToolResult{Name: t.Name, Arguments: argumentNames(t.InputSchema), Description: summaryLine(description)})
	}
	for _, name := range wanted {
		at := slices.Index(names, name)
		if at < 0 {
			return unknownTool(r.Name, name, names)
		}
		var definition map[string]any
		decoder := json.NewDecoder(bytes.NewReader(tools[at].Raw))
		decoder.UseNumber() // numbers stay as they were written
		if err := decoder.Decode(&definition); err != nil {
			return fmt.Errorf("cannot read the definition of %s: %w", name, err)
		}
		r.Definitions = append(r.Definitions, definition)
	}
	return nil
}

// maxUnknownTool bounds unknownTool's error, in bytes: the names are the server's.
const maxUnknownTool = 2000

func unknownTool(server, name string, names []string) error {
	text := fmt.Sprintf("argument tools: %s has no tool %q", server, name)
	if best := nearest(name, names); best != "" {
		text += fmt.Sprintf("; did you mean %s?", best)
	}
	text = upstream.OneLine(fmt.Sprintf("%s (there are: %s)", text, strings.Join(names[:min(len(names), 50)], ", ")))
	return errors.New(cut(text, len(text), maxUnknownTool))
}

// argumentNames are the properties of a schema, the required ones first.
func argumentNames(schema json.RawMessage) string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	_ = json.Unmarshal(schema, &s) // of what is no object nothing can be said
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

// summaryLine is the first line of a description, at most 200 bytes of it.
func summaryLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return upstream.OneLine(cut(s, len(s), 200))
}

type callMCPToolArgs struct {
	mcpTarget `schema:"brief"`
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments,omitempty"`
	TimeoutMS int            `json:"timeout_ms,omitempty" min:"1" max:"600000" default:"45000"`

	raw json.RawMessage
}

// takeRaw keeps the arguments for the server as they were written.
func (a *callMCPToolArgs) takeRaw(raw json.RawMessage) {
	var given struct{ Arguments json.RawMessage }
	_ = json.Unmarshal(raw, &given) // it has been decoded before
	if a.raw = given.Arguments; len(a.Arguments) == 0 {
		a.raw = json.RawMessage("{}")
	}
}

func callMCPToolTool() tool {
	t := define(tool{
		name: "call_mcp_tool", title: "Call MCP tool", toolset: setMCP,
		description: "Calls a tool of an MCP server, given as in list_mcp_tools (process, or command, args, cwd, env).",
		hints:       hints{destructive: true, openWorld: true},
		waits:       func(json.RawMessage) bool { return true },
	}, callMCPTool)
	t.output = nil // the result is the server's
	return t
}

func callMCPTool(ctx context.Context, s *Server, a callMCPToolArgs) (relayedResult, error) {
	calling, cancel := context.WithTimeout(ctx, waitTime(a.TimeoutMS))
	defer cancel()
	var r relayedResult
	err := s.withMCP(calling, a.mcpTarget, func(c *upstream.Conn) error {
		raw, err := c.Call(calling, "tools/call", map[string]any{"name": a.Tool, "arguments": a.raw}, s.progressRelay(ctx))
		if err != nil {
			return err
		}
		r, err = relay(c.Name(), raw)
		return err
	})
	var refused *upstream.RPCError
	switch {
	case err == nil:
		if !mcpserver.IsModernRequest(ctx) {
			r.forLegacy(s.o.Mask.JSON)
		}
		return r, nil
	case errors.As(err, &refused):
		return r, fmt.Errorf("%s: %w\nhint: list_mcp_tools shows the tools, with tools: [\"%s\"] its arguments", a.Tool, err, a.Tool)
	case errors.Is(err, errNotSent) && ctx.Err() == nil:
		return r, fmt.Errorf("no result after %s: %s\nhint: a longer timeout_ms waits for it", waitTime(a.TimeoutMS), stripped(err, context.DeadlineExceeded))
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return r, fmt.Errorf("no result after %s: %s\nhint: the server lives; a longer timeout_ms gives it more time", waitTime(a.TimeoutMS), stripped(err, context.DeadlineExceeded))
	}
	return r, err
}

// stripped is the text of err without that of the cause in front.
func stripped(err, cause error) string { return strings.TrimPrefix(err.Error(), cause.Error()+": ") }

// progressRelay hands the progress of a server's call on to the client; nil for
// a client that did not ask.
func (s *Server) progressRelay(ctx context.Context) func(json.RawMessage) {
	token := progressToken(ctx)
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
		_ = notifyRequest(ctx, methodProgress, own) // a client that is gone needs none
	}
}

// withMCP lets use work with the connection of a server. Where the server has
// died, the error tells how, with the last that it wrote on standard error. A
// server on demand that turns out to be dead before anything was written to it
// is started anew, once.
func (s *Server) withMCP(ctx context.Context, target mcpTarget, use func(*upstream.Conn) error) error {
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
		return errors.New("argument process: args, cwd and env go with command; a process has its own")
	}
	c, err := s.mcpProcess(ctx, target.Process)
	if err != nil {
		return err
	}
	defer s.o.Upstream.Hold(c)()
	return s.explainDeath(ctx, c.Name(), c.Run(), use(c), "")
}

// mcpProcess is the connection of a process once it can be used.
func (s *Server) mcpProcess(ctx context.Context, argument string) (*upstream.Conn, error) {
	name, err := s.resolveName(ctx, argument)
	if err != nil {
		return nil, err
	}
	// What lives here is ours: the run table need not be asked, which would take
	// longer than all else that a call costs.
	if st, err := s.o.Manager.Status(name); err != nil || !st.State.Live() {
		if err := s.ownOnly(ctx, name); err != nil {
			return nil, err
		}
	}
	st, err := s.o.Manager.Await(ctx, name, settled)
	if errors.Is(err, process.ErrUnknown) {
		return nil, fmt.Errorf("%s does not run\nhint: %s", name, startedAgain(name, "start_process with its name"))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s; %w", err, s.nowLine(name), errNotSent)
	}
	c := s.o.Upstream.Conn(name)
	switch {
	case st.Spec.Stdio != process.StdioMCP:
		return nil, fmt.Errorf("%s does not speak MCP as far as pmcp knows\nhint: restart_process with stdio: \"mcp\", if it does", name)
	case st.State != process.Running || c == nil || c.Run() != st.RunID:
		r := ofStatus(&st)
		return nil, fmt.Errorf("%s\nhint: %s; get_logs shows why it ended", r.line(), startedAgain(name, "start_process with its name"))
	}
	if err := c.Ready(ctx); err != nil {
		return nil, s.explainDeath(ctx, name, c.Run(), err, "")
	}
	return c, nil
}

// errNotSent says that a server was waited for in vain.
var errNotSent = errors.New("it was not up, and nothing was sent")

// settled says whether it is worth asking what state a process is in: not while
// it is being started, or will be in a moment by its restart policy.
func settled(st process.Status) bool {
	return st.State != process.Starting && (st.State != process.Backoff || time.Until(st.NextRetry) > backoffPatience)
}

const (
	// backoffPatience is how long a restart by policy may be away for a call to
	// wait for it.
	backoffPatience = 5 * time.Second
	// deathPatience is how long the end of a server that closed its output is
	// waited for, so that the answer can say how it ended. Only a server that lives
	// on without its output is waited for as long.
	deathPatience = 2 * time.Second
	// deathLines is how much of its standard error is shown then.
	deathLines = 20
)
