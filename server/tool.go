package server

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"pmcp/logstore/line"
	"pmcp/server/args"
	"pmcp/server/project"
	"pmcp/server/stdio"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// The toolsets: the families of tools that PM_TOOLSETS selects from.
const (
	setLifecycle  = "lifecycle"
	setMonitoring = "monitoring"
	setLogs       = "logs"
	setErrors     = "errors"
	setGroups     = "groups"
	setMCP        = "mcp"
)

func allToolsets() []string {
	return []string{setLifecycle, setMonitoring, setLogs, setErrors, setGroups, setMCP}
}

// ParseToolsets parses a comma-separated list of toolsets for Options.Toolsets; it
// ignores spaces around the names. If "all" is in the list, it returns nil, which
// stands for all of them.
func ParseToolsets(list string) (sets []string, err error) {
	for set := range strings.SplitSeq(list, ",") {
		if set = strings.TrimSpace(set); set == "all" {
			return nil, nil
		}
		sets = append(sets, set)
	}
	for _, set := range sets {
		if !slices.Contains(allToolsets(), set) {
			return nil, fmt.Errorf("want all, or some of %s", strings.Join(allToolsets(), ", "))
		}
	}
	return sets, nil
}

// A tool is one row of the table of tools. Its definition, arguments, result and
// handler are together in the file of its toolset.
type tool struct {
	name, title, toolset string
	// description says what the tool does, not what to do.
	description string
	hints       hints // the annotations
	// app is the URI of the MCP App that a client may show with the answers; "" = none.
	app string

	// args and result are the structs of the arguments and of the answer, and input and output
	// their schemas. output is nil if result is an interface, as of a tool that has answers of
	// several forms.
	args, result  reflect.Type
	input, output json.RawMessage
	call          func(ctx context.Context, s *call, given args.Given) (answer, error)
}

// A call is one call of a tool, or one read of a resource or a prompt.
type call struct {
	*Server
	// project is the one that the arguments project, cwd and command select, else the
	// session's own. named reports whether the argument project was given.
	project *project.Project
	named   bool
	// reads means that the call changes nothing.
	reads bool
	// structured means that the caller reads the structured form of the answer, too.
	structured bool
	// held are the functions that release must call.
	held []func()
}

// release lets what happens to the processes of the call be told again.
func (s *call) release() {
	for _, free := range s.held {
		free()
	}
}

// ownCall returns a read that names no project.
func (s *Server) ownCall() *call { return &call{Server: s, project: s.own, reads: true} }

// newCall returns a call of t in the project that the arguments select. rest are the arguments without project,
// which every tool accepts and which is not passed to handlers.
func (s *Server) newCall(ctx context.Context, t *tool, given args.Given) (c *call, rest args.Given, err error) {
	var named string
	if raw, ok := given["project"]; ok && json.Unmarshal(raw, &named) != nil {
		return nil, nil, fmt.Errorf("argument project: want the path or the label of a project, got %.200s", raw)
	}
	c, rest = &call{Server: s, named: named != "", reads: t.hints.readOnly}, given.Without("project")
	cwd := given.Text("cwd") // Decode reports a wrong type
	var dir string
	if c.project, dir, err = s.own.At(ctx, named, cwd, given.Text("command")); err == nil && dir != cwd {
		rest, err = rest.With("cwd", dir)
	}
	return c, rest, err
}

// schemas holds the golden file of each tool, from which define takes the schemas: reading them
// costs a tenth of generating them from the structs, which was half of a session's start.
// A test generates them and compares.
//
//go:embed testdata/tools/*.json
var schemas embed.FS

// hints are what a tool does. A tool is openWorld if it runs programs or opens connections.
type hints struct{ readOnly, destructive, openWorld bool }

// An answer is the result struct of a tool. Its text, which is complete on its own, is sent
// as the content; a caller that asks for the structured form also gets the struct as
// structuredContent. Some clients hide the text from the model if there is both.
type answer interface{ writer }

// define returns t with the schemas of A and R, and with a call function that
// decodes the arguments and calls handle. The caller of that function encodes the
// answer. A tool that is new has no schemas until its golden file is written.
func define[A any, R answer](t tool, handle func(ctx context.Context, s *call, args A) (R, error)) tool {
	t.args, t.result = reflect.TypeFor[A](), reflect.TypeFor[R]()
	t.input, t.output = t.stored()
	t.call = func(ctx context.Context, s *call, given args.Given) (answer, error) {
		var a A
		if err := given.Decode(&a); err != nil {
			return nil, err
		}
		return handle(ctx, s, a)
	}
	return t
}

// stored returns the schemas in the tool's golden file, and nil for those that are not there.
func (t tool) stored() (input, output json.RawMessage) {
	file, err := schemas.ReadFile("testdata/tools/" + t.name + ".json")
	if err != nil {
		return nil, nil
	}
	return section(file, "inputSchema"), section(file, "outputSchema")
}

// section returns the object under a key of the golden file, or nil. The files are indented, so
// that it need not parse them: parsing all of them took a twentieth of the start.
func section(file []byte, key string) json.RawMessage {
	_, value, found := bytes.Cut(file, []byte("\n  \""+key+"\": "))
	const end = "\n  }"
	at := bytes.Index(value, []byte(end))
	if !found || at < 0 {
		return nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, value[:at+len(end)]); err != nil {
		panic(fmt.Sprintf("%s in a golden file: %v", key, err)) // found by the first test that lists the tools
	}
	return compact.Bytes()
}

// tools returns the table of tools, in the order of the README. Clients see it
// sorted by name.
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
		readMCPResourceTool(),
		getMCPPromptTool(),
	}
}

// definition returns the description of t in MCP's format, with the schema of the answer
// if structured is set.
func (t tool) definition(structured bool) mcp.Tool {
	d := mcp.NewToolWithRawSchema(t.name, t.description, t.input)
	d.Title = t.title
	if structured {
		d.RawOutputSchema = t.output
	}
	d.Annotations = t.hints.annotations()
	if t.app != "" {
		d.Meta = mcp.NewMetaFromMap(map[string]any{"ui": map[string]any{"resourceUri": t.app}})
	}
	return d
}

// annotations returns h in MCP's format: readOnlyHint or destructiveHint, of which
// directories of MCP servers require one. Clients decide by no other hint.
func (h hints) annotations() (a mcp.ToolAnnotation) {
	if h.readOnly {
		a.ReadOnlyHint = &h.readOnly
	} else {
		a.DestructiveHint = &h.destructive
	}
	return a
}

// handler returns the call function of t in the form that mcp-go requires. An error
// that the model can act on is an isError result, never a protocol error. The
// events since the last answer are appended to the answer.
func (t tool) handler(s *Server) mcpserver.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		start, raw := time.Now(), req.Params.RawArguments // as they were sent, big integers included
		s.storage.trigger()
		s.cpu.trigger()
		structured, structuredErr := metaFlag(req.Params.Meta, structuredKey, s.o.Structured)
		app, appErr := metaFlag(req.Params.Meta, appKey, false)
		by := ""
		if app {
			by = project.ActorPage
		} else {
			defer s.served.Load().messages.attach(ctx)()
		}
		s.o.Mask.LearnSteps(raw)
		given, err := args.Parse(raw)
		var a answer
		if err = cmp.Or(err, structuredErr, appErr); err == nil {
			var release func()
			a, release, err = s.perform(ctx, &t, given, by, structured)
			defer release()
		}
		stdio.EndTask(ctx, err != nil)
		if r, relayed := a.(relayedResult); relayed && err == nil {
			if !structured {
				r.moveStructured(s.o.Mask)
			}
			return r.masked(s.o.Mask), nil
		}
		if errors.As(err, new(mcp.URLElicitationRequiredError)) {
			return nil, err // for the client, not for the model
		}
		var events pendingEvents
		if ctx.Err() == nil && !app { // the client does not see the answer to a cancelled call
			events = s.reportedWith(start, given, a, err)
		}
		if err != nil {
			text := s.errorAnswer(ended(ctx, err))
			return mcp.NewToolResultError(t.name + ": " + text + s.o.Mask.Text(textAfter(text, events))), nil
		}
		if t.toolset == setGroups && !t.hints.readOnly {
			s.notifyChanged("")
		}
		result := mcp.NewToolResultText(s.o.Mask.Text(textOf(a, events)))
		if structured {
			raw, err := withEvents(a, events)
			if err != nil {
				return nil, fmt.Errorf("cannot encode the answer of %s: %w", t.name, err)
			}
			result.StructuredContent = stdio.Encoded(line.VisibleJSON(s.o.Mask.JSON(raw)))
		}
		return result, nil
	}
}

// perform performs a call of t that was made for by (see project.Project.For), here or in the window that owns the
// process. release must be called when the answer is complete.
func (s *Server) perform(ctx context.Context, t *tool, given args.Given, by string, structured bool) (a answer, release func(), err error) {
	if err := s.limits.allow(t); err != nil {
		return nil, func() {}, err
	}
	c, rest, err := s.newCall(ctx, t, given)
	if err != nil {
		return nil, func() {}, err
	}
	c.project, c.structured = c.project.For(by), structured
	a, err = t.call(ctx, c, rest)
	if err != nil {
		a, err = c.atOwner(ctx, t, rest, a, err)
	}
	return a, c.release, err
}

// reportedWith returns the events to report with an answer or an error, and records what that
// shows.
func (s *Server) reportedWith(start time.Time, given args.Given, a answer, err error) pendingEvents {
	var about []reported
	if by, ok := outcomeAs[aboutProcesses](a, err); ok {
		about = by.about()
	}
	var shown []project.ShownLines
	if by, ok := outcomeAs[outputAnswer](a, err); ok {
		shown = by.showed()
	}
	events := s.events.drain(start, about, shown...)
	events.bound(eventsRoom(given), 0)
	for _, lines := range shown {
		s.shown.Move(lines)
	}
	return events
}

// The keys of a call's _meta. structuredKey asks for the structured form of the answer. appKey marks a call of the MCP App:
// the model does not see its answer, so that it takes no events and moves no position, and a person has made it.
const (
	structuredKey = "pmcp/structured"
	appKey        = "pmcp/app"
)

// metaFlag returns the value of a key in the _meta of a call, which may be nil, or otherwise if it is not there.
func metaFlag(meta *mcp.Meta, key string, otherwise bool) (bool, error) {
	if meta == nil || meta.AdditionalFields[key] == nil {
		return otherwise, nil
	}
	set, ok := meta.AdditionalFields[key].(bool)
	if !ok {
		return false, fmt.Errorf("_meta %s: want true or false, got %.100v", key, meta.AdditionalFields[key])
	}
	return set, nil
}

// An outputAnswer is an answer, or an error, that shows output of processes.
type outputAnswer interface{ showed() []project.ShownLines }

func outcomeAs[T any](a answer, err error) (t T, ok bool) {
	if err != nil {
		return t, errors.As(err, &t)
	}
	t, ok = a.(T)
	return t, ok
}

// withEvents returns the answer as JSON, with events as an additional key. If some of the
// events quote output, it adds the notice that answers with output have.
func withEvents(a answer, events pendingEvents) (raw stdio.Encoded, err error) {
	if raw, err = stdio.Encode(a); err != nil || len(events.texts) == 0 {
		return raw, err
	}
	var own, extra struct {
		Events []string `json:"events"`
		Notice string   `json:"notice,omitempty"`
	}
	if err := json.Unmarshal(raw, &own); err != nil {
		return nil, err
	}
	extra.Events = events.texts
	if events.output && own.Notice == "" {
		extra.Notice = outputNotice
	}
	more, err := stdio.Encode(extra)
	if err != nil || string(raw) == "{}" {
		return more, err
	}
	return slices.Concat(raw[:len(raw)-1], []byte(","), more[1:]), nil
}

// rateLimits bounds the calls of each tool that changes something or that, like a
// health check on request, runs programs and opens connections. Tools that only
// read or wait are exempt.
type rateLimits struct {
	perSecond int // 0: no limit

	mu     sync.Mutex
	byTool map[string]*rate.Limiter // guarded by mu
}

// burst is how many calls a tool accepts at once after a pause, as a multiple of
// its calls per second.
const burst = 3

// allow returns an error if the tool has been called too often. The error has the
// time at which the next call is accepted.
func (l *rateLimits) allow(t *tool) error {
	if l.perSecond == 0 || t.hints.readOnly && !t.hints.openWorld {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock() // held throughout: of concurrent reservations only the last can be cancelled in full
	if l.byTool == nil {
		l.byTool = make(map[string]*rate.Limiter)
	}
	limiter := l.byTool[t.name]
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Limit(l.perSecond), burst*l.perSecond)
		l.byTool[t.name] = limiter
	}
	now := time.Now()
	reservation := limiter.ReserveN(now, 1)
	delay := reservation.DelayFrom(now)
	if delay == 0 {
		return nil
	}
	reservation.CancelAt(now)
	return fmt.Errorf("called more than %d times a second (PM_RATE_LIMIT); try again in %d ms", l.perSecond, delay.Round(time.Millisecond).Milliseconds()+1)
}
