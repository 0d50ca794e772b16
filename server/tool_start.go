package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pmcp/health"
	"pmcp/logstore"
	"pmcp/process"
)

type startArgs struct {
	Name string `json:"name" jsonschema:"unique in the project"`
	specArgs
	Wait      string `json:"wait,omitempty" jsonschema:"default ready if ready is given, else started" enum:"started|ready|exit"`
	TimeoutMS int    `json:"timeout_ms,omitempty" jsonschema:"of the wait" min:"1" max:"600000"`
	IfRunning string `json:"if_running,omitempty" enum:"keep|restart|error"`

	raw json.RawMessage
}

// runResult is the answer of a tool that starts, waits for or stops a process.
type runResult struct {
	processResult
	AlreadyRunning bool `json:"already_running,omitempty"`
	TimedOut       bool `json:"timed_out,omitempty"`
	// Match is the line that a wait for a pattern ended at.
	Match string `json:"match,omitempty"`
	logResult
	Errors []errorResult `json:"errors,omitempty"`
	Hint   string        `json:"hint,omitempty"`

	faults bool // it shows what went wrong: the errors of the run, or all that it printed
}

// addErrors adds errors, whose messages are output, to an answer that has its log.
// where are the arguments of get_errors that give all of them.
func (r *runResult) addErrors(found runErrors, where string) {
	if r.Errors = found.shown; len(r.Errors) > 0 {
		r.Notice = outputNotice
	}
	r.Hint = joinHints(r.Hint, found.rest(where))
}

func (r runResult) about() []told {
	t := r.told()
	t.errors, t.faults = idsOf(r.Errors), r.faults
	return []told{t}
}

func (r runResult) text() string {
	var b strings.Builder
	b.WriteString(r.line())
	if r.AlreadyRunning {
		b.WriteString(" (already running)")
	}
	b.WriteString("\n")
	if r.TimedOut {
		b.WriteString("timed out; it goes on\n")
	}
	b.WriteString(r.where())
	b.WriteString(r.logResult.text())
	if r.Match != "" {
		fmt.Fprintf(&b, "match: %s\n", r.Match)
	}
	b.WriteString(markedErrors(r.Errors, r.Lines))
	if r.Hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", r.Hint)
	}
	return b.String()
}

func startProcessTool() tool {
	return define(tool{
		name: "start_process", title: "Start process", toolset: setLifecycle,
		description: "Starts a program in the background and keeps its output; with wait: exit runs a build or test to its end.",
		hints:       hints{openWorld: true},
		waits: waitsIf(func(a startArgs) bool {
			return a.Wait == "exit" || a.Wait == "ready" || a.Wait == "" && (a.Ready != nil || a.Stdio == process.StdioMCP)
		}),
	}, startProcess)
}

// takeRaw keeps what was given, so that it can be laid over a definition.
func (a *startArgs) takeRaw(raw json.RawMessage) { a.raw = raw }

// overStored lays the arguments over the stored definition of name, if there is
// one; decode decodes all of them into a struct that begins with a definition.
func (s *Server) overStored(ctx context.Context, name string, raw json.RawMessage, decode func(base specArgs) (specArgs, error)) (specArgs, error) {
	base, ok, err := s.definition(ctx, name)
	if err != nil || !ok {
		return specArgs{}, err
	}
	return base.decodeOver(raw, s.o.Manager.Project(), decode)
}

func startProcess(ctx context.Context, s *Server, a startArgs) (runResult, error) {
	if err := s.completeFromStored(ctx, &a); err != nil {
		return runResult{}, err
	}
	if a.Wait == "" {
		a.Wait = "started"
		if a.Ready != nil || a.Stdio == process.StdioMCP {
			a.Wait = "ready"
		}
	}
	foreign, err := s.foreignRun(ctx, a.Name)
	switch {
	case err != nil:
		return runResult{}, err
	case foreign != nil && ifRunningOf(a.IfRunning) != process.KeepRunning:
		return runResult{}, ownedElsewhere(foreign)
	case foreign != nil:
		return s.alreadyForeign(ctx, foreign, a)
	}
	defer report(ctx, func() string { return s.nowLine(a.Name) })()
	before := s.changeable(ctx, a.Name, a.Group)
	st, already, err := s.launch(ctx, a.Name, a.specArgs, launchOptions{
		exits: a.Wait == "exit", ready: a.Wait == "ready", ifRunning: ifRunningOf(a.IfRunning),
	})
	if err != nil {
		return runResult{}, err
	}
	changed := ""
	if already {
		changed = s.changeable(ctx, a.Name, a.Group).since(before)
	}
	r, err := s.awaitStart(ctx, st, a.Wait, a.TimeoutMS)
	r.AlreadyRunning, r.Hint = already, joinHints(changed, r.Hint)
	return r, err
}

// completeFromStored lays a call without a command over the stored definition
// of its name.
func (s *Server) completeFromStored(ctx context.Context, a *startArgs) error {
	if a.Command != "" {
		return nil
	}
	merged, err := s.overStored(ctx, a.Name, a.raw, func(base specArgs) (specArgs, error) {
		over := startArgs{specArgs: base}
		err := decodeArguments(a.raw, &over)
		return over.specArgs, err
	})
	if err != nil {
		return err
	}
	if merged.Command == "" {
		return s.undefined(ctx, a.Name)
	}
	a.specArgs = merged
	return nil
}

// undefined says that name has no definition, and which names have.
func (s *Server) undefined(ctx context.Context, name string) error {
	stored, err := s.o.Store.Definitions(ctx, s.o.Manager.Project())
	if err != nil {
		return fmt.Errorf("cannot list the stored definitions: %w", err)
	}
	known := slices.Sorted(maps.Keys(stored))
	return fmt.Errorf("missing argument: command (no definition is stored under the name %s; there are: %s)", quoteWithNearest(name, known), orNone(known))
}

func ifRunningOf(argument string) process.IfRunning {
	if argument == "keep" {
		return process.KeepRunning
	}
	return process.IfRunning(argument)
}

// launchOptions say how a definition is put to work.
type launchOptions struct {
	// exits: the call waits for the end; ready: it waits for readiness, which
	// without a rule of its own is any port.
	exits, ready bool
	ifRunning    process.IfRunning
}

// launch starts name as def says and remembers def for it: the one way in which
// tools and groups start processes.
func (s *Server) launch(ctx context.Context, name string, def specArgs, o launchOptions) (st process.Status, already bool, err error) {
	spec, err := s.specOf(ctx, name, def, o.exits)
	if err != nil {
		return st, false, err
	}
	check, err := def.healthSpec(def.dir(s.o.Manager.Project()))
	if err != nil {
		return st, false, err
	}
	if err := def.checkGrouping(); err != nil {
		return st, false, err
	}
	if err := s.checkJoin(ctx, name, def); err != nil {
		return st, false, err
	}
	if err := s.o.Health.CheckSet(name, check); err != nil {
		return st, false, err
	}
	if err := s.checkRuns(spec, check); err != nil {
		return st, false, err
	}
	if o.ready && spec.Ready == nil && spec.Stdio != process.StdioMCP {
		anyPort := 0
		spec.Ready = &process.Ready{Port: &anyPort}
	}
	if o.ifRunning == process.KeepRunning {
		s.adoptUnsaid(&spec, def)
	}
	if st, already, err = s.o.Manager.Start(ctx, spec, o.ifRunning); err != nil {
		return st, already, err
	}
	if already {
		def = s.withUnsaid(ctx, name, def)
	}
	s.keepDefinition(name, def)
	if err := s.o.Health.Set(name, check); err != nil {
		return st, already, err
	}
	if already {
		st, err = s.o.Manager.Reconfigure(name, spec)
	}
	if err == nil {
		err = s.joinGroup(ctx, name, def)
	}
	return st, already, err
}

// checkRuns refuses a health check whose command cannot be run: it would fail
// whatever the process does. What is wrong with the process itself Start says.
func (s *Server) checkRuns(spec process.Spec, check *health.Spec) error {
	if check == nil || check.Command == "" {
		return nil
	}
	if _, err := s.o.Manager.Resolve(spec); err != nil {
		return nil //nolint:nilerr // Start will answer it
	}
	_, err := s.o.Manager.Resolve(process.Spec{Name: spec.Name, Command: check.Command, Args: check.Args, Dir: spec.Dir, Env: spec.Env})
	if err != nil {
		return fmt.Errorf("argument health.command: %w", err)
	}
	return nil
}

// adoptUnsaid takes from a process that runs what the call left open and only
// its wait decided, so that a call with another wait does not count as another
// definition.
func (s *Server) adoptUnsaid(spec *process.Spec, a specArgs) {
	st, err := s.o.Manager.Status(spec.Name)
	if err != nil || !st.State.Live() {
		return
	}
	if a.Ready == nil {
		spec.Ready = st.Spec.Ready
	}
	if a.Stdin == nil {
		spec.Stdin = st.Spec.Stdin
	}
}

// withUnsaid is def with what adoptUnsaid adopts, as the definition of name has
// it: what runs may have a rule that only a wait gave it. What cannot be read is
// replaced.
func (s *Server) withUnsaid(ctx context.Context, name string, def specArgs) specArgs {
	old, ok, err := s.definition(ctx, name)
	if err != nil || !ok {
		return def
	}
	if def.Ready == nil && def.Stdio != process.StdioMCP { // which has none
		def.Ready = old.Ready
	}
	if def.Stdin == nil {
		def.Stdin = old.Stdin
	}
	return def
}

// alreadyForeign answers a start of what another live server runs. It waits as
// it would for a process of its own, and puts it into the group that a names:
// groups are everybody's.
func (s *Server) alreadyForeign(ctx context.Context, run *logstore.Run, a startArgs) (runResult, error) {
	if err := a.checkGrouping(); err != nil {
		return runResult{}, err
	}
	if err := s.checkSameElsewhere(ctx, run, a.specArgs); err != nil {
		return runResult{}, err
	}
	before := changeable{member: s.membership(ctx, a.Name, a.Group)}
	if err := s.joinGroup(ctx, a.Name, a.specArgs); err != nil {
		return runResult{}, err
	}
	changed := changedHint(changeable{member: s.membership(ctx, a.Name, a.Group)}.differs(before))
	now := storedRunNow(run)
	defer report(ctx, now.line)()
	r, err := s.awaitStart(ctx, statusOfRun(run), a.Wait, a.TimeoutMS)
	r.AlreadyRunning = true
	if r.Owner != nil { // it has not ended meanwhile
		r.Hint = joinHints(changed, joinHints("another pmcp server (another editor window) owns it; its log can be read here", r.Hint))
	}
	return r, err
}
