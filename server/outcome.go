package server

import (
	"context"
	"errors"
	"fmt"

	"pmcp/logstore"
	"pmcp/process"
)

// Waiting, in milliseconds: clients give up at 60 s.
const (
	defaultWaitMS = 45_000
	lastLines     = 20 // of output in an answer that is not about output
)

// awaitStart waits for what the call asked for and answers it.
func (s *Server) awaitStart(ctx context.Context, st process.Status, wait string, timeoutMS int) (runResult, error) {
	reached := map[string]func(process.Status) bool{
		"started": func(process.Status) bool { return true },
		"ready":   readyOrUnchecked,
		"exit":    never,
	}[wait]
	now, timedOut, err := s.awaitRun(ctx, st.Spec.Name, st.RunID, timeoutMS, reached)
	if err != nil {
		return runResult{}, err
	}
	r := runResult{processResult: now.processResult, TimedOut: timedOut, Hint: now.since}
	whole := wait == "exit" && now.over
	unread, err := unreadHint(s.addOutput(ctx, &r, &now, whole))
	if err != nil {
		return r, err
	}
	switch {
	case whole: // nothing is left to wait for
	case wait == "ready" && now.over:
		r.Hint = joinNonEmpty(r.Hint, unread)
		return r, &deathError{now.endBeforeReady(), r}
	case wait == "ready" && timedOut:
		r.Hint = notReadyYet(now.notReady) + "; wait_for_process with until: ready waits on"
	case wait == "exit":
		r.Hint = "wait_for_process with until: exit waits on"
	case wait == "ready" && now.Ready == nil && !now.stored:
		r.Hint = "readiness was not checked: it runs without a readiness rule; if_running: \"restart\" with ready gives it one"
	case now.Ready == nil && !now.over:
		r.Hint = joinHints("readiness was not checked", r.Hint)
	}
	r.Hint = joinNonEmpty(r.Hint, unread)
	return r, nil
}

// readyOrUnchecked says that a run is ready, or runs without a readiness rule.
func readyOrUnchecked(now process.Status) bool {
	if now.Ready == nil {
		return now.State != process.Starting // it is not known yet
	}
	return *now.Ready
}

// notReadyYet says what a process is still waited for, if that is known.
func notReadyYet(what string) string {
	if what == "" {
		return "not ready yet"
	}
	return "not ready yet: " + what
}

// addOutput adds what a run printed, whole or the last lines of it, and the
// errors of one that ended badly.
func (s *Server) addOutput(ctx context.Context, r *runResult, now *runNow, whole bool) (err error) {
	if whole {
		r.logResult, err = s.wholeOutput(ctx, now.id, 0)
	} else {
		r.logResult, err = s.lastOutput(ctx, now.id)
	}
	if err != nil {
		return err
	}
	r.faults = r.isAll()
	return s.addErrors(ctx, r, now)
}

// lastOutput is the last lines of a run.
func (s *Server) lastOutput(ctx context.Context, run int64) (logResult, error) {
	page, err := s.o.Store.Read(ctx, logstore.Query{Runs: []int64{run}, Limit: lastLines, Newest: true})
	if err != nil {
		return logResult{}, err
	}
	return lastOf(page), nil
}

// unreadHint turns an error of the log into a hint of an answer whose call has
// done what it was for: what is done is not to be told as failed. A call that
// was given up stays an error.
func unreadHint(err error) (hint string, _ error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return "", err
	}
	return fmt.Sprintf("(its output is missing here: %v)", err), nil
}

// addErrors adds the errors of a run that ended badly.
func (s *Server) addErrors(ctx context.Context, r *runResult, now *runNow) (err error) {
	if now.bad {
		var found runErrors
		found, err = s.runErrors(ctx, now.id)
		r.addErrors(found, ofRunErrors(r.Name, r.Run))
	}
	r.faults = r.faults || now.bad && err == nil
	return err
}

// nowLine is what a process does at the moment, for progress messages.
func (s *Server) nowLine(name string) string {
	st, err := s.o.Manager.Status(name)
	if err != nil {
		return name + ": gone"
	}
	r := ofStatus(&st)
	return s.o.Mask.Text(r.line())
}

// awaitRun waits until a run of name ends or reached holds for it, for at most
// timeoutMS (0: the default). It answers how the run is then.
func (s *Server) awaitRun(ctx context.Context, name string, run int64, timeoutMS int, reached func(process.Status) bool) (now runNow, timedOut bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, waitTime(timeoutMS))
	defer cancel()
	now, err = s.awaitEnd(waiting, name, run, reached)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return now, true, nil
	}
	return now, false, err
}

// omittedLineBytes is room for the line between head and tail.
const omittedLineBytes = 100

// wholeOutput is everything that a run has printed, head and tail of it where
// that is over maxBytes (0: the default).
func (s *Server) wholeOutput(ctx context.Context, run int64, maxBytes int) (logResult, error) {
	if maxBytes == 0 {
		maxBytes = defaultMaxBytes
	}
	q := logstore.Query{Runs: []int64{run}, Limit: maxPageLines, MaxBytes: maxBytes}
	page, err := s.o.Store.Read(ctx, q)
	if err != nil {
		return logResult{}, err
	}
	whole := logView{maxBytes: maxBytes}.render(page)
	if !whole.More {
		whole.PrevCursor = ""
		return whole, nil
	}
	// Folded repeats make thousands of lines short: the ends must not overlap.
	stats, err := s.o.Store.RunStats(ctx, run)
	if err != nil {
		return logResult{}, err
	}
	half := (maxBytes - omittedLineBytes) / 2
	q.MaxBytes = half
	q.Limit = int(min(maxPageLines, (stats.Lines+1)/2))
	headPage, err := s.o.Store.Read(ctx, q)
	if err != nil {
		return logResult{}, err
	}
	q.Newest = true
	q.Limit = int(min(maxPageLines, stats.Lines/2))
	tailPage, err := s.o.Store.Read(ctx, q)
	if err != nil {
		return logResult{}, err
	}
	head := logView{maxBytes: half}.render(headPage)
	tail := logView{maxBytes: half, newest: true}.render(tailPage)
	return headAndTail(head, tail, stats.Lines), nil
}

// headAndTail joins the two ends of an output of so many lines.
func headAndTail(head, tail logResult, lines int64) logResult {
	r := tail
	r.More, r.PrevCursor, r.Omitted = false, "", nil
	r.Lines, r.Gaps = head.Lines, append(head.Gaps, tail.Gaps...)
	if left := lines - int64(head.shown+tail.shown); left > 0 {
		r.Omitted = &omitted{Lines: left, Cursor: head.NextCursor}
		r.Lines = append(r.Lines, fmt.Sprintf("--- %s omitted; get_logs with %safter: %s ---", lineCount(left), head.ofProcess(), head.NextCursor))
	}
	r.Lines = append(r.Lines, tail.Lines...)
	return r
}

// deathError says that a process ended although the call waited for something
// else of it. Its text is the whole answer.
type deathError struct {
	what string
	r    runResult
}

func (e *deathError) about() []told { return e.r.about() }

// Error gives state, exit, last lines, cursor and the next step.
func (e *deathError) Error() string {
	r := e.r // a copy: the hints are added each time
	if len(r.Lines) > 0 {
		r.Hint = joinHints(r.Hint, "the last lines are above; get_logs shows all")
	}
	if len(r.Survivors) > 0 {
		r.Hint = joinHints(r.Hint, "what it started goes on in the background: start it in the foreground, without a daemon option, and readiness, exit and restarts are those of the program itself; stop_process stops what goes on")
	}
	return fmt.Sprintf("%s %s\n%s", r.Name, e.what, r.text())
}
