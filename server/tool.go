package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// The toolsets, families of tools that PM_TOOLSETS chooses from.
const (
	setLifecycle  = "lifecycle"
	setMonitoring = "monitoring"
	setLogs       = "logs"
	setErrors     = "errors"
	setGroups     = "groups"
	setMCP        = "mcp"
)

// everyToolset are the names of all toolsets.
func everyToolset() []string {
	return []string{setLifecycle, setMonitoring, setLogs, setErrors, setGroups, setMCP}
}

// ParseToolsets reads a list of toolsets, as Options.Toolsets takes it: commas
// between, spaces around them ignored. An "all" in the list means all, which is
// nil.
func ParseToolsets(list string) (sets []string, err error) {
	for set := range strings.SplitSeq(list, ",") {
		if set = strings.TrimSpace(set); set == "all" {
			return nil, nil
		}
		sets = append(sets, set)
	}
	for _, set := range sets {
		if !slices.Contains(everyToolset(), set) {
			return nil, fmt.Errorf("want all, or some of %s", strings.Join(everyToolset(), ", "))
		}
	}
	return sets, nil
}

// tool is one row of the table of tools. Its definition, arguments, result and
// handler stand together in the file of its toolset.
type tool struct {
	name, title, toolset string
	// description is for the model: what it does, not what to do.
	description string
	// hints are the annotations; all four are always sent.
	hints hints
	// waits says whether a call with these arguments may wait long: such calls
	// never take the room of quick ones. nil: none does.
	waits func(arguments json.RawMessage) bool

	input, output json.RawMessage
	call          func(ctx context.Context, s *Server, raw json.RawMessage) (answer, error)
}

// hints are a tool's annotations.
type hints struct{ readOnly, destructive, idempotent, openWorld bool }

// An answer is the result struct of a tool: it is sent as structuredContent,
// and its text stands alone beside that.
type answer interface {
	// text is the whole answer in terse lines, for clients that show the model
	// nothing else.
	text() string
}

// define completes t with the schemas of A and R and a call that decodes the
// arguments, calls handle and encodes nothing itself. A mistake in the structs
// is a mistake in the program, so it panics.
func define[A any, R answer](t tool, handle func(ctx context.Context, s *Server, args A) (R, error)) tool {
	var err error
	if t.input, err = inputSchema(reflect.TypeFor[A]()); err != nil {
		panic(fmt.Sprintf("tool %s: %v", t.name, err))
	}
	if t.output, err = outputSchema(indirect(reflect.TypeFor[R]())); err != nil {
		panic(fmt.Sprintf("tool %s: %v", t.name, err))
	}
	t.call = func(ctx context.Context, s *Server, raw json.RawMessage) (answer, error) {
		var args A
		if err := decodeArguments(raw, &args); err != nil {
			return nil, err
		}
		if taker, ok := any(&args).(rawTaker); ok {
			taker.takeRaw(raw)
		}
		return handle(ctx, s, args)
	}
	return t
}

// rawTaker is an argument struct that also wants the arguments as they came: to
// lay them over a stored definition.
type rawTaker interface{ takeRaw(raw json.RawMessage) }

// tools is the table, in the order of the README. Clients see it by name.
func tools() []tool {
	return []tool{
		startProcessTool(),
		stopProcessTool(),
		restartProcessTool(),
		killProcessTool(),
		removeProcessTool(),
		listProcessesTool(),
		waitForProcessTool(),
		sendInputTool(),

		getProcessInfoTool(),
		getProcessStatsTool(),
		checkProcessHealthTool(),
		getSystemStatsTool(),
		getServerInfoTool(),

		getLogsTool(),
		tailLogsTool(),
		searchLogsTool(),
		clearLogsTool(),

		getErrorsTool(),
		getLatestErrorsTool(),
		markErrorResolvedTool(),

		createGroupTool(),
		addToGroupTool(),
		removeFromGroupTool(),
		listGroupsTool(),
		startGroupTool(),
		stopGroupTool(),

		listMCPToolsTool(),
		callMCPToolTool(),
	}
}

// definition is t as MCP describes it.
func (t tool) definition() mcp.Tool {
	d := mcp.NewToolWithRawSchema(t.name, t.description, t.input)
	d.Title = t.title
	d.RawOutputSchema = t.output
	d.Annotations = mcp.ToolAnnotation{
		ReadOnlyHint:    &t.hints.readOnly,
		DestructiveHint: &t.hints.destructive,
		IdempotentHint:  &t.hints.idempotent,
		OpenWorldHint:   &t.hints.openWorld,
	}
	return d
}

// handler is t's call as mcp-go wants it: what the model can act on is an
// isError result, never a protocol error. Events that happened meanwhile stand
// at the end.
func (t tool) handler(s *Server) mcpserver.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		began := time.Now()
		defer s.accompany(ctx)()
		a, err := t.answer(ctx, s, req)
		if result, relayed := isRelayed(a); relayed && err == nil {
			return s.maskRelayed(result), nil
		}
		var about aboutProcesses
		if err == nil {
			about, _ = a.(aboutProcesses)
		} else if !errors.As(err, &about) {
			about = nil
		}
		var events []string
		if ctx.Err() == nil { // else nobody would see them
			var all []told
			if about != nil {
				all = about.about()
			}
			events = s.events.take(began, all)
		}
		if err == nil && t.toolset == setGroups && !t.hints.readOnly {
			s.changed("")
		}
		if err != nil {
			return mcp.NewToolResultError(s.o.Mask.Text(t.name + ": " + explain(err) + eventsText(events))), nil
		}
		structured, err := withEvents(a, events)
		if err != nil {
			return nil, fmt.Errorf("cannot encode the answer of %s: %w", t.name, err)
		}
		return mcp.NewToolResultStructured(json.RawMessage(s.o.Mask.JSON(structured)), s.o.Mask.Text(a.text()+eventsText(events))), nil
	}
}

// answer is the call itself.
func (t tool) answer(ctx context.Context, s *Server, req mcp.CallToolRequest) (answer, error) {
	if err := s.limits.allow(&t); err != nil {
		return nil, err
	}
	raw, err := rawArguments(req)
	if err != nil {
		return nil, err
	}
	return t.call(ctx, s, raw)
}

// withEvents is the answer as JSON with its events as one more key.
func withEvents(a answer, events []string) (json.RawMessage, error) {
	raw, err := json.Marshal(a)
	if err != nil || len(events) == 0 {
		return raw, err
	}
	list, err := json.Marshal(events)
	if err != nil {
		return nil, err
	}
	raw = bytes.TrimSuffix(raw, []byte("}"))
	if !bytes.HasSuffix(raw, []byte("{")) {
		raw = append(raw, ',')
	}
	return slices.Concat(raw, []byte(`"events":`), list, []byte("}")), nil
}

func eventsText(events []string) string {
	if len(events) == 0 {
		return ""
	}
	return "\nevents since the last answer:\n" + strings.Join(events, "\n") + "\n"
}

// rawArguments returns the arguments as they were written, big integers and
// all.
func rawArguments(req mcp.CallToolRequest) (json.RawMessage, error) {
	if req.Params.RawArguments != nil {
		return req.Params.RawArguments, nil
	}
	if req.Params.Arguments == nil {
		return nil, nil
	}
	raw, err := json.Marshal(req.Params.Arguments)
	if err != nil {
		return nil, fmt.Errorf("cannot read the arguments: %w", err)
	}
	return raw, nil
}
