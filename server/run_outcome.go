package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/project"
	"pmcp/server/stdio"
)

// Defaults for calls that wait.
const (
	defaultWaitMS = 45_000 // clients time out after 60 s
	lastLines     = 20     // lines of output in an answer that is not about output
	newsLines     = 3      // those of a wait that timed out
)

// waitTimeout returns a timeout_ms argument as a duration; 0 stands for the
// default.
func waitTimeout(ms int) time.Duration {
	return time.Duration(cmp.Or(ms, defaultWaitMS)) * time.Millisecond
}

// startTimeout returns the timeout_ms of a start as a duration: nil stands for the
// default, 0 means not to wait.
func startTimeout(ms *int) time.Duration {
	if ms == nil {
		return waitTimeout(0)
	}
	return time.Duration(*ms) * time.Millisecond
}

// awaitStart waits for the condition that the call asked for and returns the
// answer.
func awaitStart(ctx context.Context, p *project.Project, started project.Started, timeout time.Duration, output outputArgs) (r runResult, now project.Run, err error) {
	wait, asked := started.Wait, time.Time{}
	if started.Already {
		asked = time.Now()
	}
	now, timedOut, watched, err := p.AwaitStart(ctx, started, timeout)
	if err != nil {
		return r, now, err
	}
	if started.Already {
		p.LookAtSources(ctx, &now)
	}
	r = newRunResult(&now)
	r.TimedOut = timedOut && timeout > 0
	r.addHTTP(p, &now, asked)
	exited := wait == project.UntilExit && now.Over()
	unread, err := unreadHint(addOutput(ctx, p, &r, &now, excerpt{outputArgs: output, brief: exited && !now.EndedBadly()}))
	if err != nil {
		return r, now, err
	}
	if !exited { // else there is nothing left to wait for
		r.setStart(&now, wait, timedOut, watched)
	}
	if r.TimedOut && unread == "" {
		r.setSilence(r.lastSeen(), now.StartedAt)
	}
	if !started.Already {
		r.Hint = prose.Join("; ", append(p.PortNotes(&now, watched > 0 || wait == project.UntilReady && !timedOut), r.Hint)...)
	}
	r.Hint = prose.Join(" ", r.Hint, unread)
	return r, now, nil
}

// setStart adds the result of the wait of a start whose run continues, and what the wait has not checked.
func (r *runResult) setStart(now *project.Run, wait string, timedOut bool, watched time.Duration) {
	switch {
	case wait == project.UntilReady && now.Over() && !(timedOut && now.State.Active()):
		r.setDeath(describeEnd(now))
	case watched > 0 && now.EndedBadly() && now.State != process.Stopped:
		r.setDeath("ended soon after its start")
	case wait == project.UntilReady && now.Stalled():
		r.TimedOut = false
		r.setDeath("is not ready")
	case wait == project.UntilReady && timedOut:
		r.setNotReady(now)
	case now.Asks != "":
		r.Hint = prose.Join("; ", now.Asks, r.Hint)
	case now.Serves != "":
		r.setServes(now)
	case wait == project.UntilExit:
		r.Hint = "wait_for_process with until: exit continues the wait"
	case wait == project.UntilReady && now.Ready == nil && !now.Stored:
		r.Hint = "readiness unchecked: it runs without a readiness rule; if_running: \"restart\" with ready gives it one"
	case watched > 0 && !now.Over():
		r.Hint = prose.Join("; ", fmt.Sprintf("alive after %.1f s, readiness unchecked", watched.Seconds()), r.Hint)
	case now.Ready == nil && !now.Over():
		r.Hint = prose.Join("; ", "readiness unchecked", r.Hint)
	}
}

// setServes adds that the run will hardly exit by itself.
func (r *runResult) setServes(now *project.Run) {
	r.Hint = prose.Join("; ", "still running: "+now.Serves+"; it may never exit by itself: use what it serves, or stop_process ends it", r.Hint)
}

// setNotReady adds why the run is not ready, and how to wait longer unless that is futile.
func (r *runResult) setNotReady(now *project.Run) {
	if !now.Over() && now.Refuses() {
		r.TimedOut = false
		r.Hint = prose.Join("; ", "not ready: "+now.NotReady, r.Hint)
		return
	}
	r.Hint = prose.Join("; ", prose.Join(": ", "not ready yet", now.NotReady), r.Hint) + "; wait_for_process with until: ready continues the wait"
}

// describeEnd describes the end of a run that was expected to become ready. What else
// the answer shows explains it: the exit, the first error and the last lines. Only an
// MCP server may have ended because of its connection.
func describeEnd(r *project.Run) string {
	const ended = "ended before it was ready"
	switch {
	case r.Stored:
		return "has ended"
	case !r.ReadyAt.IsZero():
		return "was ready, and has ended since"
	case process.SpeaksMCP(r.Spec.Stdio) && r.NotReady != "":
		return ended + " (" + r.NotReady + ")"
	default:
		return ended
	}
}

// An httpResult is the last answer to one request of ready.http.
type httpResult struct {
	Request string `json:"request"`
	Status  int    `json:"status"`
	Type    string `json:"type,omitempty"`
	Bytes   int64  `json:"bytes"`
	More    bool   `json:"more,omitempty"` // the body is longer than bytes
	MS      int64  `json:"ms"`
	By      string `json:"by,omitempty"`   // who answered, if it is not of the process tree
	Body    string `json:"body,omitempty"` // its beginning, if it is text
}

// addHTTP adds the answers to the requests of ready.http, unless the run was ready before since, when the call
// began: they say nothing about now. Their bodies are output.
func (r *runResult) addHTTP(p *project.Project, run *project.Run, since time.Time) {
	if !run.ReadyAt.IsZero() && run.ReadyAt.Before(since) {
		return
	}
	for _, a := range p.HTTPAnswers(run) {
		r.HTTP = append(r.HTTP, httpResult{a.Request, a.Status, a.Type, a.Bytes, a.More, a.Took.Milliseconds(), a.By, a.Body})
	}
}

// write writes the answer on one line: GET http://127.0.0.1:3000/ → 200 text/html 1.2 KiB in 35 ms: "…".
func (r httpResult) write(t *answerText) {
	t.part("%s → %d", r.Request, r.Status)
	t.optPart(" %s", r.Type)
	t.part(" %s", formatBytes(r.Bytes))
	if r.More {
		t.part(" or more")
	}
	t.part(" in %d ms", r.MS)
	t.optPart(", answered by %s", r.By)
	t.optPart(": %q", r.Body)
	t.line("")
}

// addOutput adds the lines of e, an excerpt of the output of a run, and the errors that
// belong to them.
func addOutput(ctx context.Context, p *project.Project, r *runResult, now *project.Run, e excerpt) (err error) {
	e.name, e.run, e.room = now.Spec.Name, now.RunID, e.limit()
	failed := now.EndedBadly() || r.TimedOut && e.after == "" && now.IsUnready() // a watcher outlives what failed below it
	if r.TimedOut && !failed {
		e.Lines = cmp.Or(e.Lines, newsLines)
	}
	if r.logResult, err = e.read(ctx, p); err != nil {
		return err
	}
	screen, full := screenOf(ctx, p, now)
	if full {
		r.logResult = logSource{screen: &screen, view: logView{actionRun: e.run, maxBytes: e.room}, next: r.NextCursor}.render()
	}
	if failed {
		if taken := p.TakenPort(ctx, now); !strings.Contains(r.Hint, taken) {
			r.Hint = prose.Join("; ", r.Hint, taken)
		}
	}
	err = r.addErrors(ctx, p, now, e.after, failed)
	r.faults = e.after == "" && !full && r.isComplete() || failed && err == nil
	return err
}

// unreadHint turns an error of reading the log into a hint for a call that has
// otherwise succeeded: such a call must not be reported as failed. If the call was
// cancelled or has expired, unreadHint returns the error.
func unreadHint(err error) (hint string, _ error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return "", err
	}
	return fmt.Sprintf("(its output is missing here: %v)", err), nil
}

// reportStatus sends the current status of the named processes as progress of the
// call of ctx until stop is called. What happens to them wakes nobody, and log messages about them wait, until the
// client has the answer, which says it.
func (s *call) reportStatus(ctx context.Context, names ...string) (stop func()) {
	s.held = append(s.held, s.events.wake.hold(names...))
	if s.project.By() == "" { // else the client does not see the answer
		s.events.await(names)
		s.held = append(s.held, func() { s.events.endAwait(names, ctx.Err() != nil) })
	}
	return reportProgress(ctx, func() string {
		lines := make([]string, len(names))
		for i, name := range names {
			if run, err := s.project.Find(ctx, name); err == nil {
				lines[i] = lineOf(&run)
			} else {
				lines[i] = name + ": " + err.Error()
			}
		}
		return s.o.Mask.Text(strings.Join(lines, "; "))
	})
}

// reportProgress sends progress of the call of ctx every few seconds until stop is
// called. It escapes control characters in the messages.
func reportProgress(ctx context.Context, message func() string) (stop func()) {
	return stdio.ReportProgress(ctx, func() string { return line.Visible(message()) })
}

// outputArgs are the arguments of every tool that shows lines, with maxPageLines as the
// bound of Lines.
type outputArgs struct {
	Lines    int `json:"lines,omitempty" min:"1" max:"10000"`
	MaxBytes int `json:"max_bytes,omitempty" min:"512" max:"8388608"`
}

// pageArgs are the outputArgs of a tool that calls the number of lines limit.
type pageArgs struct {
	Limit    int `json:"limit,omitempty" natural:"lines" min:"1" max:"10000"`
	MaxBytes int `json:"max_bytes,omitempty" schema:"brief" min:"512" max:"8388608"`
}

// limit returns the most bytes that the answer may have beside the events.
func (a outputArgs) limit() int { return withoutEvents(cmp.Or(a.MaxBytes, actionMaxBytes)) }

// An excerpt selects the output of a run that the answer of an action shows. The messages
// of an MCP connection, which get_logs shows, are not part of it.
type excerpt struct {
	outputArgs
	// room is the most bytes that the lines may take.
	room int
	// name and run are the process and the id of its run.
	name string
	run  int64
	// after is the cursor after which lines are shown, which may be in an earlier run; "" =
	// from the start of the run. end is the cursor before which they are shown; "" = to the
	// end.
	after, end string
	none       bool // nothing is shown
	// brief shows all lines if they are few, or else only the last ones: the output of a
	// command that has succeeded.
	brief bool
}

const (
	briefBytes = 2 << 10 // the most output of which a brief excerpt shows everything
	briefLines = 10      // the lines that it shows otherwise

	outputStreams = 1<<logstore.Stdout | 1<<logstore.Stderr // the streams of an excerpt
)

// read returns the newest lines of the excerpt.
func (e excerpt) read(ctx context.Context, p *project.Project) (logResult, error) {
	if e.none {
		return logResult{NextCursor: e.end}, nil
	}
	first, next, err := e.start(ctx, p)
	if err != nil || first.Number == 0 {
		return logResult{NextCursor: cmp.Or(e.end, next)}, err
	}
	q := logstore.Query{Names: []string{e.name}, UpTo: e.run, Streams: outputStreams, Limit: cmp.Or(e.Lines, lastLines), Newest: true, Before: e.end}
	if e.after == "" {
		q.Runs = []int64{e.run}
	}
	brief := e.brief && e.Lines == 0
	if brief {
		q.Limit, q.MaxBytes = maxPageLines, briefBytes
	}
	page, err := p.Read(ctx, q)
	if err == nil && brief && (page.MoreBefore || textBytes(page) > briefBytes) {
		q.Limit, q.MaxBytes = briefLines, 0
		page, err = p.Read(ctx, q)
	}
	if err == nil && page.MoreBefore {
		page, err = readMore(ctx, p, q, page)
	}
	if err != nil {
		return logResult{}, err
	}
	s := logSource{page: page, view: logView{newest: true, actionRun: e.run, maxBytes: e.room}, next: e.end}
	at := slices.IndexFunc(page.Lines, func(l logstore.Line) bool { return l.Run == first.Run && l.Number == first.Number })
	here := p.Here(e.name)
	switch {
	case at >= 0:
		s.view.skip = at
	case here != nil && process.SpeaksMCP(here.Spec.Stdio): // the numbers of the lines count the messages too
		s.left = -1
	case len(page.Lines) > 0 && page.Lines[0].Run == first.Run:
		s.left = max(0, page.Lines[0].Number-first.Number)
	case len(page.Lines) > 0:
		s.left = -1
	}
	return s.renderNoting(p), nil
}

// readMore returns page, the result of q, with as many earlier lines as one line in place of
// the frames of libraries makes room for.
func readMore(ctx context.Context, p *project.Project, q logstore.Query, page *logstore.Page) (*logstore.Page, error) {
	n := q.Limit
	if _, folds := lastShown(page, n); !folds {
		return page, nil
	}
	q.Limit += maxFoldedLines
	page, err := p.Read(ctx, q)
	if err != nil {
		return nil, err
	}
	if q.Limit, _ = lastShown(page, n); q.Limit == len(page.Lines) {
		return page, nil
	}
	return p.Read(ctx, q)
}

// start returns the first line of the excerpt, or the zero value if it has none, and the
// cursor after that line.
func (e excerpt) start(ctx context.Context, p *project.Project) (first logstore.Line, next string, err error) {
	q := logstore.Query{Names: []string{e.name}, UpTo: e.run, Streams: outputStreams, After: e.after, Limit: 1}
	switch e.after {
	case "":
		q.Runs = []int64{e.run}
	case e.end:
		return first, e.end, nil
	}
	page, err := p.Read(ctx, q)
	if err != nil {
		return first, "", err
	}
	if len(page.Lines) > 0 {
		first = page.Lines[0]
	}
	return first, page.Next(), nil
}

func textBytes(p *logstore.Page) (n int) {
	for i := range p.Lines {
		n += len(p.Lines[i].Text) + 1
	}
	return n
}

// setDeath makes the answer the error of deathError, with a hint if the process has put
// others into the background. It comes before fit, which counts all of the text.
func (r *runResult) setDeath(text string) {
	r.death = text
	if len(r.Survivors) > 0 {
		r.Hint = prose.Join("; ", r.Hint, "what it started is still running in the background: start it in the foreground; stop_process stops what is still running")
	}
}

// deathError returns the error of a call that waited for something else than the end of
// the process, if that came: r.death is set. Its text is the whole answer: the state, the
// exit, the last lines, the cursor and the next step.
func (r *runResult) deathError() error {
	if r.death == "" {
		return nil
	}
	var t answerText
	t.line("%s %s", r.Name, r.death)
	r.write(&t)
	return &composedError{text: t.b.String(), reports: r.about(), seen: r.seen}
}
