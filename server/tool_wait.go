package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

const defaultIdleMS = 1000

type waitArgs struct {
	Process   string `json:"process"`
	Until     string `json:"until" jsonschema:"idle: silent for idle_ms" enum:"ready|exit|log|idle"`
	Pattern   string `json:"pattern,omitempty" jsonschema:"RE2"`
	After     string `json:"after,omitempty" jsonschema:"cursor"`
	IdleMS    int    `json:"idle_ms,omitempty" min:"1" max:"600000"`
	Lines     int    `json:"lines,omitempty" min:"1" max:"1000"`
	TimeoutMS int    `json:"timeout_ms,omitempty" min:"1" max:"600000"`
}

func waitForProcessTool() tool {
	return define(tool{
		name: "wait_for_process", title: "Wait for process", toolset: setLifecycle,
		description: "Waits until a process is ready, exits, prints a matching line or falls silent; at once if it has.",
		hints:       hints{readOnly: true, idempotent: true},
		waits:       func(json.RawMessage) bool { return true },
	}, waitForProcess)
}

func waitForProcess(ctx context.Context, s *Server, a waitArgs) (runResult, error) {
	name, err := s.resolveName(ctx, a.Process)
	if err != nil {
		return runResult{}, err
	}
	pattern, err := a.check()
	if err != nil {
		return runResult{}, err
	}
	run, err := s.runToAwait(ctx, name, waitTime(a.TimeoutMS))
	if err != nil {
		return runResult{}, err
	}
	if a.Until == "ready" && run.unchecked() {
		return runResult{}, run.noReadiness()
	}
	nowLine := func() string { return s.nowLine(name) }
	if run.stored {
		nowLine = run.line
	}
	defer report(ctx, nowLine)()
	w := runWait{s: s, a: a, name: name, run: run.id, pattern: pattern}
	if a.Until == "log" || a.Until == "idle" {
		return w.output(ctx)
	}
	return w.state(ctx)
}

// unchecked says that a run goes on without a readiness rule.
func (r *runNow) unchecked() bool {
	return r.Ready == nil && !r.over && r.State != process.Starting.String()
}

// noReadiness says why a run cannot be waited for to become ready.
func (r *runNow) noReadiness() error {
	if r.stored {
		return fmt.Errorf("%s has no readiness rule, and only the pmcp server that owns it could give it one; wait until log, idle or exit", r.Name)
	}
	return fmt.Errorf("%s has no readiness rule; give ready to start_process, or wait until log or idle", r.Name)
}

// check compiles the pattern and finds arguments that do not go together.
func (a *waitArgs) check() (*regexp.Regexp, error) {
	if (a.Until == "log") != (a.Pattern != "") {
		return nil, errors.New("argument pattern: it goes with until: log, and until: log needs it")
	}
	if a.Lines == 0 {
		a.Lines = lastLines
	}
	if a.IdleMS == 0 {
		a.IdleMS = defaultIdleMS
	}
	pattern, err := regexp.Compile(a.Pattern)
	if err != nil {
		return nil, fmt.Errorf("argument pattern: %w", err)
	}
	return pattern, nil
}

// runWait is one wait for one run.
type runWait struct {
	s       *Server
	a       waitArgs
	name    string
	run     int64
	pattern *regexp.Regexp
	seen    int       // lines that a wait for output has read
	last    time.Time // of the last of them
}

// state waits for readiness or the end.
func (w *runWait) state(ctx context.Context) (runResult, error) {
	reached := never
	if w.a.Until == "ready" {
		reached = readyOrUnchecked
	}
	now, timedOut, err := w.s.awaitRun(ctx, w.name, w.run, w.a.TimeoutMS, reached)
	if err != nil {
		return runResult{}, err
	}
	if w.a.Until == "ready" && now.unchecked() {
		return runResult{}, now.noReadiness()
	}
	r := runResult{processResult: now.processResult, TimedOut: timedOut, Hint: now.since}
	if r.logResult, err = w.lastLines(ctx); err != nil {
		return r, err
	}
	r.faults = w.a.After == "" && r.isAll()
	if err := w.addErrors(ctx, &r, &now); err != nil {
		return r, err
	}
	if w.a.Until == "ready" && now.over {
		return r, &deathError{now.endBeforeReady(), r}
	}
	if timedOut {
		r.Hint = joinHints(now.notReady, r.Hint)
	}
	return r, nil
}

// lastLines are the last lines of the run, of those behind the caller's cursor
// if there is one.
func (w *runWait) lastLines(ctx context.Context) (logResult, error) {
	q := logstore.Query{Runs: []int64{w.run}, Limit: w.a.Lines, After: w.a.After, Newest: w.a.After == ""}
	page, err := w.s.o.Store.Read(ctx, q)
	if err != nil {
		return logResult{}, err
	}
	if w.a.After != "" {
		page.MoreBefore = false // the caller has that
		if page.MoreAfter {
			q.After, q.Newest = "", true
			if page, err = w.s.o.Store.Read(ctx, q); err != nil {
				return logResult{}, err
			}
		}
	}
	return lastOf(page), nil
}

// addErrors adds the errors that are new since the caller's cursor or, without
// one, those of the run.
func (w *runWait) addErrors(ctx context.Context, r *runResult, now *runNow) (err error) {
	if w.a.After == "" {
		all, err := w.s.runErrors(ctx, w.run)
		r.addErrors(all, ofRunErrors(r.Name, r.Run))
		r.faults = r.faults || now.bad && err == nil
		return err
	}
	found, err := getErrors(ctx, w.s, getErrorsArgs{Process: w.name, After: w.a.After, Limit: answerErrors})
	r.addErrors(runErrors{found.Errors, found.Total}, fmt.Sprintf("process: %q and after: %s", w.name, w.a.After))
	r.faults = now.bad && err == nil
	return err
}

// output waits for a line that matches, or for silence.
func (w *runWait) output(ctx context.Context) (runResult, error) {
	waiting, cancel := context.WithTimeout(ctx, waitTime(w.a.TimeoutMS))
	defer cancel()
	living, died := context.WithCancel(waiting)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if _, err := w.s.awaitEnd(living, w.name, w.run, never); err == nil {
			died()
		}
	}()
	defer func() { died(); <-watched }()

	q := logstore.Query{Project: w.s.o.Manager.Project(), Names: []string{w.name}, UpTo: w.run, After: w.a.After, Limit: maxPageLines}
	if w.a.After == "" {
		q.Runs = []int64{w.run}
	}
	for {
		last := waiting.Err() != nil // one more look at what was printed, however much more comes
		page, err := w.next(ctx, living, q)
		if err != nil {
			return runResult{}, err
		}
		if i, offset := w.match(page); i >= 0 {
			w.seen += i + 1
			return w.matched(ctx, page, i, offset)
		}
		q.After, q.Runs = page.Next(), nil
		if len(page.Lines) > 0 {
			w.seen += len(page.Lines)
			w.last = page.Lines[len(page.Lines)-1].At
			if !last {
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			return runResult{}, ctx.Err()
		case page.MoreAfter:
			return w.settled(ctx, page.Next(), true)
		case w.a.Until == "idle" && w.seen > 0 && (waiting.Err() == nil || w.untilIdle() == 0):
			return w.settled(ctx, page.Next(), false)
		case living.Err() != nil:
			return w.settled(ctx, page.Next(), waiting.Err() != nil)
		}
	}
}

// next reads on: until lines come, the run ends, or the last line is idle_ms old
// where silence is what is waited for. An empty page says that none came.
func (w *runWait) next(ctx, living context.Context, q logstore.Query) (*logstore.Page, error) {
	if living.Err() != nil {
		return w.s.o.Store.Read(ctx, q) // what was printed last
	}
	if w.a.Until == "idle" && w.seen > 0 {
		quiet, cancel := context.WithTimeout(living, w.untilIdle())
		defer cancel()
		living = quiet
	}
	page, err := w.s.o.Store.Follow(living, q)
	if err == nil && len(page.Lines) == 0 {
		return w.s.o.Store.Read(ctx, q)
	}
	return page, err
}

// untilIdle is how much longer there must be silence after the last line.
func (w *runWait) untilIdle() time.Duration {
	idle := time.Duration(w.a.IdleMS) * time.Millisecond
	return max(0, min(idle, idle-time.Since(w.last))) // the clock may have been set back
}

// match is the first line of page that the pattern matches, and where in it; -1
// without one.
func (w *runWait) match(page *logstore.Page) (i, offset int) {
	if w.a.Until != "log" {
		return -1, 0
	}
	for i := range page.Lines {
		if text := page.Lines[i].Text; w.pattern.MatchString(text) {
			return i, w.pattern.FindStringIndex(text)[0]
		}
	}
	return -1, 0
}

// matched answers with the line and those before it.
func (w *runWait) matched(ctx context.Context, page *logstore.Page, i, offset int) (runResult, error) {
	r, err := w.answer(ctx, page.Cursor(i), false)
	r.Match = cutAround(page.Lines[i].Text, offset, defaultMaxLineBytes)
	return r, err
}

// settled answers a wait that no line ended: by silence, the run's end, or the
// timeout.
func (w *runWait) settled(ctx context.Context, end string, timedOut bool) (runResult, error) {
	r, err := w.answer(ctx, end, timedOut)
	if err == nil && w.a.Until == "log" && !timedOut {
		return r, &deathError{fmt.Sprintf("ended before a line matched %.500q", w.a.Pattern), r}
	}
	return r, err
}

// answer is the state now and the last of the lines that were read, which end at
// the cursor end.
func (w *runWait) answer(ctx context.Context, end string, timedOut bool) (runResult, error) {
	now, err := w.s.runNow(ctx, w.name, w.run)
	if err != nil {
		return runResult{}, err
	}
	r := runResult{processResult: now.processResult, TimedOut: timedOut, Hint: now.since}
	if w.seen > 0 {
		page, err := w.s.o.Store.Read(ctx, logstore.Query{
			Project: w.s.o.Manager.Project(), Names: []string{w.name}, Before: end, Limit: min(w.a.Lines, w.seen),
		})
		if err != nil {
			return r, err
		}
		page.MoreBefore = page.MoreBefore && w.seen > w.a.Lines
		r.logResult = lastOf(page)
	}
	r.NextCursor = end
	return r, w.addErrors(ctx, &r, &now)
}
