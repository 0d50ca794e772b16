package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/project"
)

const (
	defaultIdleMS = 1000
	maxMatch      = 500 // bytes of the line that matched
)

type waitArgs struct {
	Process    string `json:"process"`
	Until      string `json:"until" enum:"ready|exit|log|idle"`
	Pattern    string `json:"pattern,omitempty" jsonschema:"RE2"`
	After      string `json:"after,omitempty"`
	IdleMS     int    `json:"idle_ms,omitempty" schema:"brief" min:"1" max:"600000"`
	TimeoutMS  *int   `json:"timeout_ms,omitempty" min:"0" max:"600000"`
	outputArgs `schema:"brief"`
}

func waitForProcessTool() tool {
	return define(tool{
		name: "wait_for_process", title: "Wait for process", toolset: setLifecycle,
		description: "Waits until a process is ready, exits, prints a matching line or falls silent (idle_ms).",
		hints:       hints{readOnly: true},
	}, waitForProcess)
}

func waitForProcess(ctx context.Context, s *call, a waitArgs) (runResult, error) {
	name, err := s.project.ResolveOne(ctx, a.Process, s.reads)
	if err != nil {
		return runResult{}, err
	}
	request, err := a.request(name)
	if err != nil {
		return runResult{}, err
	}
	request.Shown = &s.shown
	defer s.reportStatus(ctx, name)()
	if run := s.project.Here(name); run != nil {
		s.events.wake.await(name, run.RunID, awaitedStage(a.Until))
	}
	began := time.Now()
	waited, err := s.project.Wait(ctx, request)
	if err != nil {
		return runResult{}, err
	}
	return waitResult(ctx, s, a, &waited, began)
}

func (a *waitArgs) forOutput() bool { return a.Until == "log" || a.Until == "idle" }

// request returns what a waits for. It sets defaults and rejects combinations of
// arguments that exclude each other.
func (a *waitArgs) request(name string) (project.WaitRequest, error) {
	w := project.WaitRequest{
		Name: name, Until: a.Until, After: a.After, Timeout: defaultWaitMS * time.Millisecond,
		Idle: time.Duration(cmp.Or(a.IdleMS, defaultIdleMS)) * time.Millisecond,
	}
	if a.After == afterShown { // what a wait without after does
		w.After = ""
	}
	if err := logstore.CheckCursor(w.After); err != nil {
		return w, err
	}
	if a.TimeoutMS != nil {
		w.Timeout = time.Duration(*a.TimeoutMS) * time.Millisecond
	}
	if (a.Until == "log") != (a.Pattern != "") {
		return w, errors.New("argument pattern: until: log requires it, and only until: log takes it")
	}
	if a.Pattern == "" {
		return w, nil
	}
	var err error
	if w.Pattern, err = project.LinePattern(a.Pattern); err != nil {
		err = fmt.Errorf("argument pattern: %w", err)
	}
	return w, err
}

// waitResult returns the answer of a wait, with the last lines of output: of the run or,
// after a wait for output, of what the wait has read. If the caller gave a cursor, it has
// only lines after it. began is when the wait began.
func waitResult(ctx context.Context, s *call, a waitArgs, w *project.Waited, began time.Time) (r runResult, err error) {
	s.project.LookAtSources(ctx, &w.Run)
	r = newRunResult(&w.Run)
	r.TimedOut = w.TimedOut
	stalled := a.Until == project.UntilReady && w.Run.Stalled()
	failed := w.Match == nil && a.Until == "log" && !w.TimedOut || a.Until == project.UntilReady && w.Run.Over() || stalled
	if a.Until == project.UntilReady {
		r.addHTTP(s.project, &w.Run, began)
	}
	e := excerpt{outputArgs: a.outputArgs, after: w.After}
	if a.forOutput() {
		e.end, e.none = w.End, w.Seen == 0 || w.Older
	}
	if err := addOutput(ctx, s.project, &r, &w.Run, e); err != nil {
		return r, err
	}
	if failed && len(r.Lines) == 0 && w.After != "" { // an error says everything, also what was shown before
		w.After, w.Since = "", w.Run.StartedAt
		if err := addOutput(ctx, s.project, &r, &w.Run, excerpt{outputArgs: a.outputArgs}); err != nil {
			return r, err
		}
	}
	if len(r.Lines) > 0 && r.Screen == "" {
		r.since, r.Since = w.Since, args.FormatTime(w.Since)
	}
	if w.TimedOut || w.Older {
		last := w.LastOutput
		if r.drawn.After(last) {
			last = r.drawn
		}
		r.setSilence(last, w.Run.StartedAt)
	}
	r.faults = w.Run.EndedBadly() || !a.forOutput() && w.After == "" && r.Screen == "" && r.isComplete()
	if w.Match != nil {
		r.Match, r.Older = cutAround(w.Match.Text, w.Offset, maxMatch), w.Older
		r.MatchAt, r.printed = args.FormatTime(w.Match.At), w.Match.At
	}
	r.setUnready(w, &a)
	switch {
	case failed && a.Until == "log":
		r.setDeath(fmt.Sprintf("ended before a line matched %.500q", a.Pattern))
	case stalled:
		r.setDeath("is not ready")
	case failed:
		r.setDeath(describeEnd(&w.Run))
	}
	r.fit(a.limit())
	if l := w.Match; l != nil { // may be a message, which is not among the lines
		r.seen = append(r.seen, project.ShownLines{Run: l.Run, First: l.Number, Last: l.Number, At: l.At})
	}
	if a.forOutput() {
		r.seen = append(r.seen, project.ShownLines{Run: w.Run.RunID, Pending: w.Pending})
	}
	return r, r.deathError()
}

// setUnready adds why a wait for a state timed out, or why waiting for readiness makes no sense.
func (r *runResult) setUnready(w *project.Waited, a *waitArgs) {
	switch {
	case w.Run.Asks != "":
		r.Hint = prose.Join("; ", w.Run.Asks, r.Hint)
	case a.forOutput() || w.Run.Over() || w.Run.Stalled():
	case a.Until == project.UntilReady && w.Run.Refuses():
		r.setNotReady(&w.Run)
	case w.Run.Serves != "":
		r.setServes(&w.Run)
	case w.TimedOut:
		r.Hint = prose.Join("; ", w.Run.NotReady, r.Hint)
	}
}

// timesResult is what the answer of a wait says about time. Its zero value is that of
// other answers.
type timesResult struct {
	// Since is when the output before the lines of the answer was printed, or when the
	// run started.
	Since string `json:"since,omitempty"`
	// LastOutput is when the run last printed something, or when it started.
	LastOutput string `json:"last_output,omitempty" schema:"extra"`
	// Older means that Match is a line before what was last shown.
	Older   bool   `json:"older,omitempty" schema:"extra"`
	MatchAt string `json:"match_at,omitempty" schema:"extra"`

	since, silent, printed time.Time
}

// setSilence sets since when nothing has come: the last output, or the start of the run if
// that is zero.
func (r *timesResult) setSilence(last, started time.Time) {
	if r.silent = last; last.IsZero() {
		r.silent = started
	}
	r.LastOutput = args.FormatTime(r.silent)
}

// writeHead completes the first line of an answer with where its output began.
func (r *timesResult) writeHead(t *answerText) {
	if !r.since.IsZero() {
		t.part(", output since %s", clockTime(r.since))
	}
}

// writeSilence writes how long nothing has come, after a timeout or before an older match.
func (r *timesResult) writeSilence(t *answerText, timedOut bool) {
	var parts []string
	if timedOut {
		parts = append(parts, "timed out")
	}
	if r.Older {
		parts = append(parts, "nothing new matches; the match is an older line of "+clockTime(r.printed))
	}
	if ago := time.Since(r.silent); !r.silent.IsZero() && ago < time.Second {
		parts = append(parts, "silent for less than 1s")
	} else if !r.silent.IsZero() {
		parts = append(parts, fmt.Sprintf("nothing since %s, %s ago", clockTime(r.silent), ago.Round(time.Second)))
	} else if timedOut {
		parts = append(parts, "it is still running")
	}
	if len(parts) > 0 {
		t.line("%s", strings.Join(parts, "; "))
	}
}

// clockTime returns the time of day, with the date if that is not today's.
func clockTime(at time.Time) string {
	at = at.Local()
	if at.Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
		return at.Format(time.DateTime)
	}
	return at.Format(time.TimeOnly)
}
