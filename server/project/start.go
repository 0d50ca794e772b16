package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pmcp/health"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
)

// Start starts a process and stores its definition. If the process is running in
// another window, Start accepts it as it is and adds it to the group of the request,
// since groups belong to all windows; it fails if the process would have to change.
func (p *Project) Start(ctx context.Context, a StartRequest) (Started, error) {
	a.Definition.read = p.read
	p = p.of(a.Name)
	hint := p.learnSteps(a.Steps)
	p.freshen(ctx, []string{a.Name}) // also for the definition
	last, unread := p.Find(ctx, a.Name)
	if err := p.checkKeep(ctx, a, last, unread); err != nil {
		return Started{}, err
	}
	if err := p.checkRequest(ctx, a); err != nil {
		return Started{}, err
	}
	addressed, err := p.addressMembers(ctx, a.Definition)
	if err != nil {
		return Started{}, err
	}
	a.Definition = addressed
	def, err := p.complete(ctx, a)
	if err != nil {
		return Started{}, err
	}
	if a.Restart {
		a.IfRunning = process.RestartRunning
	}
	a.Wait = cmp.Or(a.Wait, def.defaultWait())
	var removed []string
	if a.Definition.Command == "" {
		removed = a.Definition.Removed
	}
	if len(a.Steps) > 0 {
		if err := p.checkDialogue(a, def); err != nil {
			return Started{}, err
		}
	}
	before := p.liveSettings(ctx, a.Name, def.Group)
	launching := ctx
	if a.IfRunning == process.RestartRunning { // a cancelled call must not leave it stopped
		launching = context.WithoutCancel(ctx)
	}
	started, err := p.launch(launching, a.Name, def, launchOptions{exits: a.Wait == UntilExit && len(a.Steps) == 0, ready: a.Wait == UntilReady, ifRunning: a.IfRunning, removed: removed, unnamed: a.Unnamed, keep: a.Keep, last: &last})
	if err != nil {
		return Started{}, err
	}
	if started.Already && len(a.Steps) > 0 {
		return Started{}, &playedError{a.Name}
	}
	likely := p.withLikelyPorts(a.Name, def)
	started.Wait, started.Line, started.Hint = a.Wait, p.line(&likely), hint
	if started.Run.Owner != nil {
		if err := p.acceptWindow(ctx, &started.Run, def); err != nil {
			return Started{}, err
		}
	}
	started.noLongerKept(last.keptBefore(), a.Keep)
	if started.Already && (started.Run.Owner != nil || before.spec.Name != "") {
		started.Changed = p.liveSettings(ctx, a.Name, def.Group).changes(before)
	}
	return started, nil
}

// defaultWait returns what a start of the definition waits for if the call does not say.
func (a Definition) defaultWait() string {
	if a.Ready != nil || process.SpeaksMCP(a.Stdio) {
		return UntilReady
	}
	return UntilStarted
}

// checkRequest returns an error if the steps of a are wrong, or if a asks for the restart
// of a process that another window runs.
func (p *Project) checkRequest(ctx context.Context, a StartRequest) error {
	err := checkSteps(a.Steps)
	if err == nil && (a.Restart || a.IfRunning == process.RestartRunning) && !a.Unnamed {
		err = p.requireHere(ctx, a.Name)
	}
	return err
}

// acceptWindow checks that def asks for no other definition than the one with which
// another window runs the process, and adds the process to the group of def.
func (p *Project) acceptWindow(ctx context.Context, run *Run, def Definition) error {
	if err := p.checkJoin(ctx, run.Spec.Name, def); err != nil {
		return err
	}
	if err := p.checkSameDefinition(ctx, run, def); err != nil {
		return err
	}
	return p.joinGroup(ctx, run.Spec.Name, def)
}

// complete returns the definition that a asks for, merged over the stored one.
func (p *Project) complete(ctx context.Context, a StartRequest) (Definition, error) {
	def := a.Definition
	if def.Command == "" || a.Restart {
		var err error
		if def, err = p.merge(ctx, a.Name, def); err != nil {
			return def, err
		}
	}
	if base, ok := p.unnamedDefinition(a.Name); ok && def.Command == "" {
		def = base.override(a.Definition, p.name)
	}
	if def.Command != "" {
		def.readLines(p.name)
		return def.withoutFalse(), nil
	}
	stored, err := p.o.Store.Definitions(ctx, p.name)
	if err != nil {
		return def, fmt.Errorf("cannot list the stored definitions: %w", err)
	}
	known := slices.Sorted(maps.Keys(stored))
	offer, offeredNames := p.offeredText(ctx, a.Definition.Cwd)
	name := args.QuoteWithNearest(a.Name, slices.Concat(known, offeredNames))
	if run, ok, err := p.latest(ctx, a.Name); err == nil && ok && run.Owner == nil {
		name = fmt.Sprintf("%s, which was removed, or was started without a name and is no longer listed; its last run was: %.300s", a.Name, p.o.Mask.Text(commandLine(&run)))
	}
	if offer == "" {
		return def, fmt.Errorf("missing argument: command (no definition is stored under the name %s; there are: %s)", name, prose.OrNone(known))
	}
	there := ""
	if len(known) > 0 {
		there = "stored: " + strings.Join(known, ", ")
	}
	return def, fmt.Errorf("missing argument: command (nothing is stored or offered under the name %s)", prose.Join("; ", name, there, offer))
}

// launch starts name from def and stores def as its definition. Tools and groups
// start processes only through it. If another window is running the process, and it
// need not be restarted, launch returns that run: any other reason why it could not
// be started here is then irrelevant.
func (p *Project) launch(ctx context.Context, name string, def Definition, o launchOptions) (Started, error) {
	p = p.of(name)
	def.readLines(p.name)
	if o.last == nil {
		run, _, _ := p.latest(ctx, name) // the zero Run has no owner
		o.last = &run
	}
	if o.last.Owner != nil && o.last.State == process.Backoff {
		return atWindow(&WindowError{run: *o.last}, o)
	}
	st, _ := p.o.Manager.Status(name) // the zero Status has left nothing
	before := Run{Status: st}
	if p.endLeft(ctx, o.last) {
		before = *o.last
	}
	st, already, err := p.launchHere(ctx, name, def, o)
	if err == nil {
		started := Started{Run: p.here(&st), Already: already}
		if left := before.Left(); len(left) > 0 && !already {
			started.Ended = fmt.Sprintf("ended what run %d had left: %s", before.Run, strings.Join(left, ", "))
		}
		return started, nil
	}
	var claimed *WindowError
	if errors.As(err, &claimed) {
		return atWindow(claimed, o)
	}
	if run, findErr := p.Find(ctx, name); findErr == nil && run.Owner != nil {
		return atWindow(&WindowError{run: run}, o)
	}
	return Started{Run: p.here(&st)}, err
}

// atWindow is the outcome of a launch of a process that another window is running.
func atWindow(claimed *WindowError, o launchOptions) (Started, error) {
	if o.unnamed {
		return Started{}, fmt.Errorf("%w: %w", ErrNameTaken, claimed)
	}
	if o.ifRunning != process.KeepRunning {
		return Started{}, claimed
	}
	return Started{Run: claimed.run, Already: true}, nil
}

// launchHere is launch for a process that no other window runs.
func (p *Project) launchHere(ctx context.Context, name string, def Definition, o launchOptions) (st process.Status, already bool, err error) {
	withPorts, uses, err := p.assignPorts(ctx, name, def, o.ifRunning)
	if err != nil {
		return st, false, err
	}
	defer func() {
		p.assignments.remove(name, nil)
		if err != nil || len(def.Ports) == 0 && !already {
			p.releasePorts(ctx, name, err != nil)
		}
	}()
	spec, err := p.Spec(name, withPorts, o.exits)
	if err != nil {
		return st, false, err
	}
	check, err := withPorts.healthSpec(def.dir(p.name), p.o.Manager.AllowsAny())
	if err != nil {
		return st, false, err
	}
	if err := p.checkJoin(ctx, name, def); err != nil {
		return st, false, err
	}
	if err := p.o.Health.CheckSet(name, check); err != nil {
		return st, false, err
	}
	if o.ready && spec.Ready == nil && !process.SpeaksMCP(spec.Stdio) {
		spec.Ready = &process.Ready{Port: new(int)} // any port
	}
	spec.Service = !o.exits && def.serves(spec)
	if o.ifRunning == process.KeepRunning {
		def = p.inheritUnset(ctx, &spec, def, o.removed)
	}
	def.unnamed = o.unnamed || def.unnamed && def.Group == ""
	files, err := p.openWatch(ctx, &spec, o)
	if err != nil {
		return st, false, err
	}
	defer files.discard()
	spec.Unnamed, spec.Until = def.unnamed, p.until(ctx, name, o.keep, o.ifRunning == process.RestartRunning)
	if o.changed {
		o.ifRunning = process.RestartUnlessStopped
	}
	resolved, err := p.o.Manager.Resolve(spec)
	if err != nil {
		return st, false, err
	}
	if err := p.checkHealth(spec, check); err != nil {
		return st, false, err
	}
	resolved.Actor = p.by
	st, already, err = p.o.Manager.StartResolved(ctx, resolved, o.ifRunning)
	if differs := new(process.DiffersError); o.unnamed && (errors.As(err, &differs) || already && !st.Spec.Unnamed) {
		return st, already, fmt.Errorf("%w: %w", ErrNameTaken, err)
	}
	if err != nil {
		return st, already, err
	}
	p.assignments.setUsed(name, uses, func(name string) bool { _, err := p.o.Manager.Status(name); return err == nil })
	p.saveDefinition(name, def)
	if !o.changed {
		p.setWatch(files, &st, already)
	}
	if err := p.o.Health.Set(name, check); err != nil {
		return st, already, err
	}
	if already {
		st, err = p.o.Manager.Reconfigure(name, spec)
	}
	if err == nil {
		err = p.joinGroup(ctx, name, def)
	}
	return st, already, err
}

// serves reports whether spec, made from the definition, asks for a service: for a port or
// for a check that something answers.
func (a Definition) serves(spec process.Spec) bool {
	return spec.Stdio == process.StdioHTTP || spec.Stdio != process.StdioMCP && (spec.Ready != nil || a.Health != nil || len(a.Ports) > 0)
}

// checkHealth returns an error if the command of check cannot be run: such a check would fail
// whatever the process does.
func (p *Project) checkHealth(spec process.Spec, check *health.Spec) error {
	if check == nil || check.Command == "" {
		return nil
	}
	spec.Command, spec.Args = check.Command, check.Args
	if _, err := p.o.Manager.Resolve(spec); err != nil {
		return fmt.Errorf("argument health.command: %w", err)
	}
	return nil
}

// inheritUnset completes spec and def with what a call for a running process left
// unset, or what only its wait determined: otherwise a call with another wait would be
// treated as a call with another definition. It returns def with what the definition of
// the process has, because the process may have a readiness rule only because of a
// wait. A stored definition that cannot be read is replaced. What the call removes is not
// inherited.
func (p *Project) inheritUnset(ctx context.Context, spec *process.Spec, def Definition, removed []string) Definition {
	st, err := p.o.Manager.Status(spec.Name)
	if err != nil || !st.State.Live() {
		return def
	}
	old, ok, err := p.Definition(ctx, spec.Name)
	if err != nil || !ok {
		old = def
	}
	if def.Ready == nil && !slices.Contains(removed, "ready") {
		spec.Ready = st.Spec.Ready
		if def.Stdio != process.StdioMCP { // MCP has no readiness rule
			def.Ready = old.Ready
		}
	}
	if def.Stdin == nil && !slices.Contains(removed, "stdin") {
		spec.Stdin, def.Stdin = st.Spec.Stdin, old.Stdin
	}
	return def
}

// checkDialogue returns an error if steps cannot be played with a process that is
// started from def, or that is running already.
func (p *Project) checkDialogue(a StartRequest, def Definition) error {
	switch {
	case def.Stdio == process.StdioMCP:
		return errors.New("argument steps: with stdio: mcp the standard input carries the protocol; call the tools of the server instead")
	case def.Stdin != nil && !*def.Stdin:
		return errors.New("argument steps: they need an open stdin, and stdin is false")
	case a.IfRunning == process.KeepRunning:
		if st, err := p.o.Manager.Status(a.Name); err == nil && st.State.Live() {
			return &playedError{a.Name}
		}
	}
	return nil
}

// A playedError is returned for a start with steps of a process that runs already.
type playedError struct{ name string }

func (e *playedError) Error() string {
	return fmt.Sprintf("%s is already running, so nothing was sent; send_input with the same steps continues after the last input, and if_running: \"restart\" starts it again", e.name)
}

// restartAtOwner restarts the process of last, a run that another window owns or that the daemon has
// kept, through that window or the daemon, as AtOwner does after the error why. The process gets def,
// its definition, if this session has changed it since last began.
func (p *Project) restartAtOwner(ctx context.Context, last *Run, def Definition, why error) error {
	name := last.Spec.Name
	arguments := map[string]any{"process": name, "wait": UntilStarted, "lines": 1}
	if p.changedSince(name, last.StartedAt) {
		if a := p.AwaitStored(ctx); a.Later != "" { // what the arguments leave out is read there from the database
			return fmt.Errorf("%s was not restarted: its changed definition cannot be stored yet: %s", name, a.Later)
		}
		for argument, value := range def.Arguments() {
			arguments[argument] = value
		}
	}
	given, err := args.Give(arguments)
	if err != nil {
		return err
	}
	a, done, err := p.AtOwner(ctx, "restart_process", given, why)
	switch {
	case !done:
		return err
	case a.IsError:
		return errors.New(a.Text)
	}
	return nil
}
