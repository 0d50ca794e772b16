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
	st, err := s.o.Manager.Status(name)
	if err != nil || st.RunID == 0 {
		return runResult{}, fmt.Errorf("%s was not started in this session; start_process starts it", name)
	}
	if a.Until == "ready" && st.Ready == nil && st.State.Live() {
		return runResult{}, fmt.Errorf("%s has no readiness rule; give ready to start_process, or wait until log or idle", name)
	}
	defer report(ctx, func() string { return s.nowLine(name) })()
	w := runWait{s: s, a: a, run: st, pattern: pattern}
	if a.Until == "log" || a.Until == "idle" {
		return w.output(ctx)
	}
	return w.state(ctx)
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
	if a.TimeoutMS == 0 {
		a.TimeoutMS = defaultWaitMS
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
	run     process.Status
	pattern *regexp.Regexp
}

// ended says whether the run is over.
func (w *runWait) ended(now process.Status) bool {
	return now.RunID != w.run.RunID || !now.State.Live()
}

// state waits for readiness or the end.
func (w *runWait) state(ctx context.Context) (runResult, error) {
	ready := func(now process.Status) bool { return w.a.Until == "ready" && now.Ready != nil && *now.Ready }
	now, timedOut, err := w.s.awaitRun(ctx, w.run, w.a.TimeoutMS, ready)
	if err != nil {
		return runResult{}, err
	}
	r, err := w.answer(ctx, now, timedOut)
	if err == nil && w.a.Until == "ready" && !ready(now) && w.ended(now) {
		return r, &deathError{endBeforeReady(&now, w.run.RunID), r}
	}
	if timedOut {
		r.Hint = now.NotReady
	}
	return r, err
}

// answer is the state now and the last lines.
func (w *runWait) answer(ctx context.Context, now process.Status, timedOut bool) (runResult, error) {
	r := runResult{processResult: ofStatus(&now), TimedOut: timedOut}
	page, err := w.s.o.Store.Read(ctx, logstore.Query{Runs: []int64{w.run.RunID}, Limit: w.a.Lines, Newest: true})
	if err != nil {
		return r, err
	}
	r.logResult = lastOf(page)
	return r, w.addErrors(ctx, &r, &now)
}

// addErrors adds the errors that are new since the caller's cursor or, without
// one, those of a run that ended badly.
func (w *runWait) addErrors(ctx context.Context, r *runResult, now *process.Status) error {
	if w.a.After == "" {
		return w.s.addErrors(ctx, r, now)
	}
	found, err := getErrors(ctx, w.s, getErrorsArgs{Process: w.run.Spec.Name, After: w.a.After, Limit: answerErrors})
	r.Errors = found.Errors
	return err
}

// output waits for a line that matches, or for silence.
func (w *runWait) output(ctx context.Context) (runResult, error) {
	waiting, cancel := context.WithTimeout(ctx, time.Duration(w.a.TimeoutMS)*time.Millisecond)
	defer cancel()
	living, died := context.WithCancel(waiting)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if _, err := w.s.o.Manager.Await(living, w.run.Spec.Name, w.ended); err == nil {
			died()
		}
	}()
	defer func() { died(); <-watched }()

	q := logstore.Query{Project: w.s.o.Manager.Project(), Names: []string{w.run.Spec.Name}, After: w.a.After, Limit: maxPageLines}
	if w.a.After == "" {
		q.Runs = []int64{w.run.RunID}
	}
	spoken := false
	for {
		page, err := w.next(ctx, living, q, spoken)
		if err != nil {
			return runResult{}, err
		}
		if i := w.match(page); i >= 0 {
			return w.matched(ctx, page, i)
		}
		q.After, q.Runs = page.Next(), nil
		if len(page.Lines) > 0 {
			spoken = true
			continue
		}
		switch {
		case ctx.Err() != nil:
			return runResult{}, ctx.Err()
		case w.a.Until == "idle" && spoken && waiting.Err() == nil:
			return w.settled(ctx, page, false)
		case living.Err() != nil:
			return w.settled(ctx, page, waiting.Err() != nil)
		}
	}
}

// next reads on: until lines come, the run ends, or for idle_ms where silence is
// what is waited for. An empty page says that none came.
func (w *runWait) next(ctx, living context.Context, q logstore.Query, spoken bool) (*logstore.Page, error) {
	if living.Err() != nil {
		return w.s.o.Store.Read(ctx, q) // what was printed last
	}
	if w.a.Until == "idle" && spoken {
		quiet, cancel := context.WithTimeout(living, time.Duration(w.a.IdleMS)*time.Millisecond)
		defer cancel()
		living = quiet
	}
	page, err := w.s.o.Store.Follow(living, q)
	if err == nil && len(page.Lines) == 0 {
		return w.s.o.Store.Read(ctx, q)
	}
	return page, err
}

// match is the first line of page that the pattern matches; -1 without one.
func (w *runWait) match(page *logstore.Page) int {
	if w.a.Until != "log" {
		return -1
	}
	for i := range page.Lines {
		if w.pattern.MatchString(page.Lines[i].Text) {
			return i
		}
	}
	return -1
}

// matched answers with the line and those before it.
func (w *runWait) matched(ctx context.Context, page *logstore.Page, i int) (runResult, error) {
	now, err := w.s.o.Manager.Status(w.run.Spec.Name)
	if err != nil {
		return runResult{}, err
	}
	r := runResult{processResult: ofStatus(&now), Match: cut(page.Lines[i].Text, len(page.Lines[i].Text), defaultMaxLineBytes)}
	// A cursor right behind the line, read backwards, gives the line itself too.
	upTo, err := w.s.o.Store.Read(ctx, logstore.Query{
		Project: w.s.o.Manager.Project(), Names: []string{w.run.Spec.Name}, Before: page.Cursor(i), Limit: w.a.Lines,
	})
	if err != nil {
		return r, err
	}
	r.logResult = lastOf(upTo)
	r.NextCursor = page.Cursor(i)
	return r, w.addErrors(ctx, &r, &now)
}

// settled answers a wait that no line ended: by silence, the run's end, or the
// timeout.
func (w *runWait) settled(ctx context.Context, page *logstore.Page, timedOut bool) (runResult, error) {
	now, err := w.s.o.Manager.Status(w.run.Spec.Name)
	if err != nil {
		return runResult{}, err
	}
	r, err := w.answer(ctx, now, timedOut)
	if err != nil {
		return r, err
	}
	r.NextCursor = page.Next()
	if w.a.Until == "log" && !timedOut {
		return r, &deathError{"ended before a line matched " + w.a.Pattern, r}
	}
	return r, nil
}
