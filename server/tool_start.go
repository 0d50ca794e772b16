package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/project"
)

type startArgs struct {
	Name string `json:"name,omitempty"`
	project.Definition
	Wait      string `json:"wait,omitempty" enum:"started|ready|exit"`
	TimeoutMS *int   `json:"timeout_ms,omitempty" jsonschema:"0: do not wait" min:"0" max:"600000"`
	IfRunning string `json:"if_running,omitempty" enum:"keep|restart|error"`
	// Keep is not part of the definition.
	Keep string `json:"keep,omitempty" jsonschema:"outlives the session: 8h"`
	// Steps are played after the start; they are not part of the definition.
	Steps []project.Step `json:"steps,omitempty" schema:"flat" jsonschema:"dialogue: expect, send, secret"`
	// Project is read by newCall, for every tool.
	Project    string `json:"project,omitempty" schema:"brief"`
	outputArgs `schema:"brief"`
}

// runResult is the answer of a tool that starts, waits for or stops a process.
type runResult struct {
	processResult
	AlreadyRunning bool `json:"already_running,omitempty"`
	TimedOut       bool `json:"timed_out,omitempty"`
	// Match is the line that ended a wait for a pattern.
	Match string       `json:"match,omitempty"`
	HTTP  []httpResult `json:"http,omitempty" schema:"extra"`
	timesResult
	logResult
	// FirstError is the id of the error that a person would name as the cause, if the run
	// failed or was not ready in time.
	FirstError string `json:"first_error,omitempty"`
	// From is the file that offers the program.
	From   string     `json:"from,omitempty" schema:"extra"`
	Errors []runError `json:"errors,omitempty"`
	Hint   string     `json:"hint,omitempty"`

	root     string               // the directory of the project, if Command is set
	death    string               // what the process did, if the call fails because of it
	faults   bool                 // the answer shows the errors of the run, or all of its output
	reported map[string]time.Time // when each error of the answer was last seen, by id
	found    runErrors            // what Errors is from
	where    string               // the arguments of get_errors that show all of them
}

// newRunResult returns the answer about a run, without its output. It leaves out what the
// caller gave or did not ask for.
func newRunResult(run *project.Run) runResult {
	r := runResult{processResult: resultOf(run), Hint: run.Since}
	r.commandResult, r.StartedAt, r.CPUPercent, r.MemoryBytes = commandResult{}, "", nil, 0
	return r
}

// addErrors adds the errors of the run to an answer that already has its output. The
// messages of the errors are output. after is the cursor after which errors count. If
// failed is set, they explain what the answer reports: all of them count, the cause first.
func (r *runResult) addErrors(ctx context.Context, p *project.Project, run *project.Run, after string, failed bool) error {
	found, err := findRunErrors(ctx, p, run.RunID, after, &r.logResult, failed)
	if err != nil {
		return err
	}
	if r.Errors, r.reported = found.shown, found.reported; len(r.Errors) > 0 {
		r.Notice = outputNotice
		if failed {
			r.FirstError = r.Errors[0].ErrorID
		}
	}
	where := runErrorsArguments(r.Name, r.Run)
	if after != "" {
		where = fmt.Sprintf("process: %q and after: %s", r.Name, after)
	}
	r.found, r.where = found, where
	r.Hint = prose.Join("; ", r.Hint, found.restHint(where))
	return nil
}

// dropError drops the last error, and counts it in the hint.
func (r *runResult) dropError() {
	before := r.found.restHint(r.where)
	r.Errors = r.Errors[:len(r.Errors)-1]
	r.found.shown = r.Errors
	if now := r.found.restHint(r.where); before == "" {
		r.Hint = prose.Join("; ", r.Hint, now)
	} else {
		r.Hint = strings.Replace(r.Hint, before, now, 1)
	}
}

func (r runResult) about() []reported {
	t := r.processResult.reported()
	t.errors, t.faults = r.reported, r.faults
	return []reported{t}
}

// fit shortens the answer to limit bytes: first its lines, then its errors.
func (r *runResult) fit(limit int) {
	notice := r.Notice
	size := func() int {
		for i := range r.Errors {
			r.Errors[i].place(&r.logResult)
		}
		if r.death != "" { // the answer is the text of deathError
			return answerSize(r) + len(r.Name) + len(r.death) + len(" \n")
		}
		return answerSize(r)
	}
	r.logResult.fit(limit, size)
	r.Notice = notice
	for size() > limit && len(r.Errors) > 1 {
		r.dropError()
	}
}

func (r runResult) write(t *answerText) {
	t.part("%s", r.line())
	if r.AlreadyRunning {
		t.part(" (already running)")
	}
	r.writeHead(t)
	t.line("")
	r.writeSilence(t, r.TimedOut)
	for _, a := range r.HTTP {
		a.write(t)
	}
	if r.Command != "" {
		t.part("$ %s", quoteCommand(r.Command, r.Args))
		if r.Cwd != r.root {
			t.part(" (in %s)", r.Cwd)
		}
		t.optPart(", from %s", r.From)
		t.line("")
	}
	t.optLine("%s", r.Screen)
	lines, errors := r.withErrors(r.Errors, r.FirstError != "")
	if r.Match != "" && !slices.ContainsFunc(r.Lines, func(l string) bool { return strings.HasSuffix(l, r.Match) }) {
		lines = append(lines, "match: "+r.Match)
	}
	if r.FirstError != "" {
		t.output(append(errors, lines...), nil)
	} else {
		t.output(append(lines, errors...), nil)
	}
	r.writeOmitted(t)
	t.hint(r.Hint)
}

func startProcessTool() tool {
	return define(tool{
		name: "start_process", title: "Start process", toolset: setLifecycle,
		description: "Starts a program in the background and keeps its output; wait: exit runs it to its end. watch: [src] restarts it on change. Also env_files, merge_output, limits, stop, max_restarts, group, depends_on, project.",
		hints:       hints{openWorld: true},
	}, startProcess)
}

func startProcess(ctx context.Context, s *call, a startArgs) (runResult, error) {
	if a.IfRunning == "keep" {
		a.IfRunning = string(process.KeepRunning)
	}
	request := project.StartRequest{Name: a.Name, Definition: a.Definition, Wait: a.Wait, IfRunning: process.IfRunning(a.IfRunning), Steps: a.Steps, Keep: a.Keep}
	if a.Name == "" {
		return s.startUnnamed(ctx, request, a.TimeoutMS, a.outputArgs)
	}
	var err error
	if request.Name, err = s.project.NewAddress(ctx, a.Name, s.project.Names); err != nil {
		return runResult{}, err
	}
	if request, err = s.project.TakeOffered(ctx, request); err != nil {
		return runResult{}, err
	}
	return s.start(ctx, request, a.TimeoutMS, a.outputArgs)
}

// startUnnamed is start for a process to which the call gives no name.
func (s *call) startUnnamed(ctx context.Context, request project.StartRequest, timeoutMS *int, output outputArgs) (r runResult, err error) {
	def := &request.Definition
	switch {
	case request.Wait != project.UntilExit:
		return r, errors.New(`missing argument: name; it may be left out with wait: "exit"`)
	case def.Command == "":
		return r, errors.New("missing argument: name, or command")
	case def.Group != "" || len(def.DependsOn) > 0:
		return r, errors.New("argument group: a process without a name joins no group; give name")
	}
	request.Unnamed = true
	const tries = 10 // each fails only if another call takes the name in the same moment
	for range tries {
		if request.Name, err = s.project.UnnamedName(ctx, *def); err != nil {
			return r, err
		}
		if r, err = s.start(ctx, request, timeoutMS, output); !errors.Is(err, project.ErrNameTaken) {
			return r, err
		}
	}
	return r, err
}

// start starts a process and returns the answer once what the request waits for has
// happened.
func (s *call) start(ctx context.Context, request project.StartRequest, timeoutMS *int, output outputArgs) (runResult, error) {
	defer s.reportStatus(ctx, request.Name)()
	if r, ok, err := s.cutOffEnd(ctx, request, output); ok {
		return r, err
	}
	started, err := s.project.Start(ctx, request)
	if err != nil {
		if run := s.project.Here(request.Name); run != nil && run.State == process.Failed && strings.HasSuffix(err.Error(), run.Reason) {
			err = &composedError{text: errorText(err), cause: err, reports: reportedDeath(request.Name, run.RunID, true)} // its event says the same
		}
		return runResult{}, err
	}
	if output.Lines == 0 {
		output.Lines = min(started.Line.Tail, maxPageLines) // of a | tail that was left out
	}
	left, err := s.playSteps(ctx, started, request.Steps, timeoutMS, output)
	if err != nil {
		return runResult{}, err
	}
	if started.Wait == project.UntilExit {
		s.events.setCutOff(request.Name, started.Run.RunID)
	}
	s.events.wake.await(request.Name, started.Run.RunID, awaitedStage(started.Wait))
	r, now, err := awaitStart(ctx, s.project, started, left, output)
	if err != nil {
		return runResult{}, err
	}
	r.AlreadyRunning = started.Already
	if (request.Definition.Command == "" || request.From != "") && !request.Restart {
		r.commandResult, r.root, r.From = commandOf(&now), s.project.Dir(), request.From
	}
	changed, owned, ends := "", "", ""
	if len(started.Changed) > 0 {
		changed = "changed without a restart: " + strings.Join(started.Changed, ", ")
	}
	if r.Owner != nil {
		owned = "another pmcp server (another editor window) owns it; its log, input, stop and restart work from here"
	}
	if r.KeptFor != "" && request.Keep != "" && s.o.Keep.DiesWith != "" {
		ends = "the daemon, and what it keeps, may end with " + s.o.Keep.DiesWith
	}
	r.Hint = prose.Join("; ", append(started.Line.Notes, changed, owned, ends, started.Ended, started.Hint, request.Hint, r.Hint)...)
	r.fit(output.limit())
	return r, r.deathError()
}

// playSteps plays the steps of a start, if there are any. It returns what is left of
// timeoutMS for the wait that follows.
func (s *call) playSteps(ctx context.Context, started project.Started, steps []project.Step, timeoutMS *int, output outputArgs) (left time.Duration, err error) {
	left = startTimeout(timeoutMS)
	if len(steps) == 0 {
		return left, nil
	}
	begun, each := time.Now(), time.Duration(0)
	if timeoutMS != nil {
		each = left
	}
	run, err := s.project.Play(ctx, started, steps, each)
	var stopped *project.StepError
	if errors.As(err, &stopped) {
		err = stepError(ctx, s.project, &run, stopped, started.Hint, output)
	}
	if each > 0 {
		left = max(time.Millisecond, left-time.Since(begun))
	}
	return left, err
}

// cutOffEnd returns the end of the run that an earlier call with the same request was
// waiting for when it was cancelled or timed out, so that the client can repeat a call that
// it gave up on. ok is false if there is no such run, or its end was already reported.
func (s *call) cutOffEnd(ctx context.Context, request project.StartRequest, output outputArgs) (r runResult, ok bool, err error) {
	run := s.events.cutOffRun(request.Name)
	if run == 0 || request.Wait != project.UntilExit || request.Restart || request.IfRunning != process.KeepRunning {
		return r, false, nil
	}
	started, ok := s.project.Ended(ctx, request, run)
	if !ok {
		return r, false, nil
	}
	r, _, err = awaitStart(ctx, s.project, started, startTimeout(nil), output)
	ago := args.FormatAge(time.Since(started.Run.EndedAt))
	r.Hint = prose.Join("; ", "this run ended "+ago+" ago, after an earlier call had stopped waiting; the same call now runs it again", r.Hint)
	r.fit(output.limit())
	return r, true, err
}
