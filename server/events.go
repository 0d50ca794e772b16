package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/health"
	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/logstore/mask"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/project"
)

// maxShown is how many stretches of output that answers showed are remembered, for
// errors in them that are recognised later.
const maxShown = 16

// maxSurvivors is how many survivors of a run an event names.
const maxSurvivors = 3

// maxEvents is how many events are kept for the next answer. If there are more, the
// oldest are dropped and counted.
const maxEvents = 20

// An event is something that happened although the client did not ask for it.
// Without events, the client would have to poll.
type event struct {
	at      time.Time
	level   mcp.LoggingLevel // of the log message about the event
	kind    logstore.EventKind
	name    string // name of the process; "" if the event is about pmcp itself
	project string // of the process, if it may be none of the session; else ""
	run     int    // number of the process's run
	runID   int64
	stage   stage  // how far the run has come; 0 for events that do not change it, such as health
	fault   string // id of the error that the event reports; "" for other events
	back    bool   // that error was marked as resolved
	lines   span   // the lines of that error
	text    string // one line, without quote
	// quote is output of the process, quoted: the error that the event reports, or the one
	// that the run ended with, whose id is why.
	quote, why string
	quoted     span // the lines that quote is from, of an end

	watched   bool   // a change of watched files has started the run
	restarted bool   // the run follows another one, by the restart policy
	unsent    bool   // as a log message: see eventLog.await
	stored    bool   // the server that runs the process has stored it
	by        string // who did it, "" if nobody
	own       bool   // the client of this session did it, and is not told

	relayed map[string]any // the params of an MCP server's notification, which is not an event of its own; else nil
	method  mcp.MCPMethod  // of that notification; "" for a log message
}

// span is the numbers of the first and the last line of an error. It is zero if the
// error is not in the output.
type span struct{ first, last int64 }

// String returns the event as one line.
func (e *event) String() string {
	switch {
	case e.quote == "":
		return e.text
	case e.fault != "":
		return e.text + ": " + e.quote
	default:
		return e.text + "; " + e.quote
	}
}

func (e *event) addLastLine(text string, number int64) {
	if number > 0 {
		e.quote, e.quoted = "last line "+quoteShortened(text, maxErrorLine), span{number, number}
	}
}

// stage is how far a run has come.
type stage int

const (
	stageStarted stage = iota + 1
	stageReady
	stageEnded
)

// stageOf returns the stage of a run. live reports whether the run is live, and
// *ready whether it is ready; ready is nil for a run without a readiness rule.
func stageOf(live bool, ready *bool) stage {
	switch {
	case !live:
		return stageEnded
	case ready != nil && *ready:
		return stageReady
	default:
		return stageStarted
	}
}

// reported is what an answer reports about a process: how far a run of the process
// had come.
type reported struct {
	name   string
	run    int   // number of the run
	runID  int64 // identifies the run if its number is not known; else 0
	stage  stage
	errors map[string]time.Time // when each error in the answer was last seen, by error id
	faults bool                 // the answer shows what went wrong in the run: its errors, or all of its output
}

func (t *reported) matches(e *event) bool {
	if t.runID != 0 {
		return t.name == e.name && t.runID == e.runID
	}
	return t.name == e.name && t.run == e.run
}

// aboutProcesses is implemented by answers and errors that report what happened to
// certain processes. Events of the same moment would only repeat them.
type aboutProcesses interface{ about() []reported }

// An answerReport is what an answer reported about a process, and the time at which
// the call of the answer began.
type answerReport struct {
	reported
	began time.Time
}

// includes reports whether the answer has already reported e. That is so if e
// happened during the call, to the same run, and is not a later stage than the
// reported one. An event about an error is included only if the answer shows what
// went wrong in the run. An answer that shows that of a run that has ended includes
// also an earlier event of the end.
func (c answerReport) includes(e *event) bool {
	if e.fault != "" && !c.faults {
		return false
	}
	showsEnd := c.faults && c.stage == stageEnded && e.stage == stageEnded && e.fault == ""
	return e.stage != 0 && c.matches(e) && (showsEnd || !e.at.Before(c.began)) && e.stage <= c.stage
}

// An eventLog collects what happened since the client's last answer. It follows the
// feeds of processes and health until both feeds end.
type eventLog struct {
	store    *project.Store
	mask     *mask.Masker
	project  string
	done     sync.WaitGroup
	ctx      context.Context // ends with close
	end      context.CancelFunc
	tree     func(name string) ([]process.Member, error)
	asking   func(ctx context.Context, run int64) (r project.Run, prompt logstore.Line, asks bool)
	onChange func(name string) // called for every change, for subscriptions
	onEvent  func(event)       // called for every event, for log messages

	lastChange time.Time // of the latest change of a process; used only by the goroutine of the process feed
	storage    string    // state of the store, as last reported; used only by the goroutine that calls setStorage

	mu       sync.Mutex                // guards the fields below
	pending  []event                   // events that are not reported yet
	dropped  int                       // number of events that were dropped because pending was full
	last     map[string]process.Status // keyed by process name, as last seen; written only by the goroutine of the process feed
	shown    []project.ShownLines      // what the last answers showed, at most maxShown of them
	reported map[string]reportedErrors // the errors that answers and events have reported, keyed by process name
	answered map[string]answerReport   // last answer about each process, keyed by name: an event that the answer includes may arrive after it
	awaited  map[string]int            // how many calls wait for a process, keyed by name
	cutOff   map[string]int64          // the run, keyed by name, whose end a call was cut off from and no answer has reported since
	wake     *waker                    // gets what no answer has reported
	kept     map[string]keptRun        // what the daemon keeps for this session, keyed by name, as last seen; nil unless watchKept runs
}

// newEventLog returns an eventLog that follows what happens to the processes of
// manager, and their health. onChange and onEvent must not block.
func newEventLog(own *project.Project, store *project.Store, masker *mask.Masker, manager *process.Manager, checks *health.Feed, onChange func(name string), onEvent func(event)) *eventLog {
	processes := manager.Watch()
	l := &eventLog{
		store: store, mask: masker, project: manager.Project(), tree: manager.Tree, asking: own.Asking, onChange: onChange, onEvent: onEvent, storage: logstore.StateOK,
		last: make(map[string]process.Status), answered: make(map[string]answerReport), reported: make(map[string]reportedErrors), cutOff: make(map[string]int64), awaited: make(map[string]int), wake: newWaker(),
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.done.Go(func() { follow(processes.Next, func(c process.Change) { l.handleChange(processes, c) }) })
	l.done.Go(func() { follow(checks.Next, l.addHealthEvent) })
	l.done.Go(l.followFaults)
	l.done.Go(func() { l.wake.run(l.ctx) })
	return l
}

// follow calls do with each value of next until next fails.
func follow[T any](next func(context.Context) (T, error), do func(T)) {
	for {
		change, err := next(context.Background())
		if err != nil {
			return // io.EOF: the feed's owner is closed
		}
		do(change)
	}
}

func (l *eventLog) close() {
	l.end()
	l.done.Wait()
}

// followFaults reports kinds of errors that are new or have come back after they
// were resolved, and prompts.
func (l *eventLog) followFaults() {
	for {
		select {
		case f := <-l.store.NewFaults():
			f.Name = l.store.Address(&f.Fault)
			l.addError(&f.Fault, f.Again, false)
		case run := <-l.store.Pauses():
			l.addPrompt(run)
		case <-l.ctx.Done():
			return
		}
	}
}

// addError adds the event of an error, whose Name is the address of the process, that is new or, if
// back is set, has occurred after it was resolved. stored means that it is of another server.
func (l *eventLog) addError(f *logstore.Fault, back, stored bool) {
	what := "new error"
	if back {
		what = "resolved error is back"
	}
	l.add(event{
		at: f.LastSeen, level: mcp.LoggingLevelWarning, kind: logstore.EventError, name: f.Name, run: f.RunNumber, runID: f.LastRun,
		stage: stageEnded, // see reported.faults
		fault: f.ID, back: back, lines: linesOf(f),
		text: fmt.Sprintf("%s (run %d): %s", f.Name, f.RunNumber, what), quote: l.quoteError(f), stored: stored,
	})
	l.onChange(f.Name)
}

// addPrompt adds the event of a run that waits for input, unless an answer has shown the prompt.
func (l *eventLog) addPrompt(run int64) {
	r, prompt, asks := l.asking(l.ctx, run)
	if !asks {
		return
	}
	l.add(event{
		at: time.Now(), level: mcp.LoggingLevelWarning, kind: logstore.EventAsks, name: r.Spec.Name, run: r.Status.Run, runID: run, lines: span{prompt.Number, prompt.Number},
		text: fmt.Sprintf("%s (run %d) waits for input", r.Spec.Name, r.Status.Run), quote: strconv.Quote(prompt.Text),
	})
}

func linesOf(f *logstore.Fault) span {
	if f.IsEnd() {
		return span{}
	}
	return span{f.FirstLine, f.LastLine}
}

// quoteError returns an error for an event, quoted: its whole line if that says more than
// the message, and the place if it is not there.
func (l *eventLog) quoteError(f *logstore.Fault) string {
	if whole := withoutTime(wholeLine(l.ctx, l.store, f)); whole != "" {
		return strconv.Quote(whole) + missingPlace(whole, f)
	}
	return quoteTitle(f)
}

// timeInFront matches the time, with its date, with which a line of a log begins, also as a field.
var timeInFront = regexp.MustCompile(`^(\{?)(?:"?@?(?:time|timestamp|ts)"?[=:] ?)?["\[(]?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?["\])]?[,:]? *`)

// withoutTime returns a line of a log without the time in front, which may be that of another zone than the event's own.
func withoutTime(text string) string { return timeInFront.ReplaceAllString(text, "$1") }

// quoteTitle returns the first line of the title of an error, quoted, and its place.
func quoteTitle(f *logstore.Fault) string {
	title, _, _ := strings.Cut(f.Title(), "\n")
	return quoteShortened(title, maxErrorLine) + missingPlace(title, f)
}

// missingPlace returns the place of an error as " at FILE:LINE", or "" if the text has it or
// it is not known.
func missingPlace(text string, f *logstore.Fault) string {
	if namesPlace(text, f.File, f.Line) {
		return ""
	}
	return " at " + placeResult{File: f.File, Line: f.Line}.String()
}

// handleChange reports one change. After a gap in the feed it reports every end of
// a run that fell into the gap, then the current state of every process.
func (l *eventLog) handleChange(feed *process.Feed, c process.Change) {
	if c.Missed == 0 {
		l.addProcessEvents(c)
		return
	}
	ends, entries := feed.Resync()
	for _, end := range ends {
		if end.At.After(l.lastChange) {
			l.addProcessEvents(end)
		}
	}
	gone := maps.Clone(l.last)
	for i := range entries {
		st := entries[i]
		delete(gone, st.Spec.Name)
		l.addProcessEvents(process.Change{At: time.Now(), From: l.stateBefore(&st), To: st.State, Status: st})
	}
	for _, st := range gone {
		l.addProcessEvents(process.Change{At: time.Now(), From: st.State, To: st.State, Removed: true, Status: st})
	}
}

// stateBefore returns the last known state before st of the same run. For a run
// that was not seen before it returns process.Starting.
func (l *eventLog) stateBefore(st *process.Status) process.State {
	if was := l.last[st.Spec.Name]; was.RunID == st.RunID {
		return was.State
	}
	return process.Starting
}

// addProcessEvents adds the events of c and remembers the new status of the
// process.
func (l *eventLog) addProcessEvents(c process.Change) {
	st := &c.Status
	name := st.Spec.Name
	if !c.Removed {
		was := l.last[name]
		for _, e := range append(l.askedEvents(&c), processEvents(&was, st, c.From)...) {
			e.at, e.name, e.run, e.runID = c.At, name, st.Run, st.RunID
			e.text += l.survivors(&c)
			l.addEndDetails(&c, &e)
			l.add(e)
		}
	}
	l.lastChange = c.At
	l.mu.Lock()
	if c.Removed {
		delete(l.last, name)
		delete(l.answered, name)
		delete(l.cutOff, name)
		delete(l.reported, name)
	} else {
		l.last[name] = *st
	}
	l.mu.Unlock()
	l.onChange(name)
}

// processEvents returns an event for each thing worth reporting in the step from
// was to st. from is the state before the step. What the client asked for is not
// reported.
func processEvents(was, st *process.Status, from process.State) []event {
	name := fmt.Sprintf("%s (run %d)", st.Spec.Name, st.Run)
	byClient := st.Exit != nil && (st.Exit.By == process.ByUser || st.Exit.By == process.BySession)
	ended := st.Exit != nil && !byClient && st.State != from
	now := stageOf(st.State.Live(), st.Ready)
	var events []event
	add := func(kind logstore.EventKind, level mcp.LoggingLevel, reached stage, format string, args ...any) {
		events = append(events, event{kind: kind, level: level, stage: reached, text: fmt.Sprintf(format, args...)})
	}
	switch kind, level, text := endOf(st, ended); {
	case text != "":
		add(kind, level, now, "%s %s", name, text)
	case st.State == process.Lost && from != process.Lost:
		add(logstore.EventCrashed, mcp.LoggingLevelError, now, "%s was lost: the server that ran it was killed", name)
	case st.State == process.Failed && from != process.Failed:
		kind = logstore.EventCrashed
		if st.Exit != nil {
			kind = logstore.EventGaveUp
		}
		add(kind, mcp.LoggingLevelError, now, "%s failed: %s", name, st.Reason)
	case st.State == process.Running && from == process.Starting && st.Restarts > 0:
		add(logstore.EventRestarted, mcp.LoggingLevelNotice, now, "%s was restarted %s", name, restartCause(was))
		events[len(events)-1].restarted = true
	}
	same := was.RunID == st.RunID
	wasReady := same && was.Ready != nil && *was.Ready
	switch isReady := st.Ready != nil && *st.Ready; {
	case strings.HasPrefix(st.Spec.Name, project.OnDemandPrefix):
	case isReady && !wasReady && same && !was.ReadyAt.IsZero():
		add(logstore.EventReady, mcp.LoggingLevelNotice, 0, "%s is ready again", name)
	case isReady && !wasReady:
		add(logstore.EventReady, mcp.LoggingLevelInfo, now, "%s became ready", name)
	case st.Suspended != "" && was.Suspended == "":
		add(logstore.EventSuspended, mcp.LoggingLevelWarning, 0, "%s: %s", name, st.Suspended)
	case st.Ready != nil && !isReady && (wasReady && st.Lost != "" || st.Stalled() && !(same && was.Stalled())):
		if wasReady { // it goes back: an earlier answer does not report that
			now = 0
		}
		add(logstore.EventUnready, mcp.LoggingLevelError, now, "%s is not ready: %s", name, st.NotReady)
	}
	if st.LimitExceeded != "" && st.LimitExceeded != was.LimitExceeded {
		add(logstore.EventLimit, mcp.LoggingLevelWarning, 0, "%s: %s", name, st.LimitExceeded)
	}
	return events
}

// endOf returns what the state st says of the end of a run, "" unless ended is set.
func endOf(st *process.Status, ended bool) (kind logstore.EventKind, level mcp.LoggingLevel, text string) {
	switch {
	case !ended:
	case st.State == process.Exited:
		return logstore.EventExited, mcp.LoggingLevelInfo, "exited with code 0"
	case st.State == process.Crashed:
		text = fmt.Sprintf("%s: %s", st.StateText(), st.Exit)
		if st.Exit.By != process.BySelf {
			text += fmt.Sprintf(", ended by %s", st.Exit.By)
		}
		return logstore.EventCrashed, mcp.LoggingLevelError, text
	case st.State == process.Backoff && st.NextRetry.IsZero(): // of another server
		return logstore.EventRetries, mcp.LoggingLevelWarning, fmt.Sprintf("ended: %s; it restarts", st.Exit)
	case st.State == process.Backoff:
		return logstore.EventRetries, mcp.LoggingLevelWarning, fmt.Sprintf("ended: %s; it restarts at %s", st.Exit, clockTime(st.NextRetry))
	}
	return "", "", ""
}

// restartCause returns why a run was restarted automatically. was is the status
// before the restart and has the end of the earlier run.
func restartCause(was *process.Status) string {
	switch {
	case was.Exit != nil && was.Exit.By == process.ByHealth:
		return "because it was unhealthy"
	case was.Exit != nil && was.Exit.By == process.ByLimit:
		return "because it exceeded a limit"
	default:
		return "by its restart policy"
	}
}

// addEndDetails adds to the event of a run's end the error that the run ended with, or else
// the last line. It must not block: the feed would fall behind.
func (l *eventLog) addEndDetails(c *process.Change, e *event) {
	st := &c.Status
	switch {
	case c.From == c.To:
		return
	case st.State == process.Exited && e.stage == stageEnded:
		e.addLastLine(l.store.LastOutput(st.RunID))
		return
	case st.State != process.Crashed && st.State != process.Backoff && st.State != process.Failed:
		return
	}
	f := l.store.WhyEnded(st.RunID)
	if e.why = f.ID; f.Message != "" {
		e.quote, e.quoted = quoteTitle(&f), linesOf(&f)
	} else {
		e.addLastLine(l.store.LastOutput(st.RunID))
	}
}

// survivors returns which processes of a run that has ended live on, and the ports on
// which they listen: "; pid 729 (node) lives on, port 4321".
func (l *eventLog) survivors(c *process.Change) string {
	if c.From == c.To || c.Status.Exit == nil || len(c.Status.Survivors) == 0 {
		return ""
	}
	members, err := l.tree(c.Status.Spec.Name)
	if err != nil {
		return ""
	}
	var t answerText
	for i, m := range members {
		if i == maxSurvivors {
			t.part(" and %d more", len(members)-i)
			break
		}
		t.part("; pid %d lives on", m.PID)
		t.optPart(", port %s", prose.Ints(m.Ports))
	}
	return t.l.String()
}

// addHealthEvent adds an event if c makes a process unhealthy or healthy again.
func (l *eventLog) addHealthEvent(c health.Change) {
	e := event{at: c.At, name: c.Status.Name, run: c.Status.Run, runID: c.Status.RunID}
	switch {
	case c.From == c.To:
	case c.To == health.Unhealthy:
		e.kind, e.level, e.text = logstore.EventUnhealthy, mcp.LoggingLevelError, fmt.Sprintf("%s (run %d) became unhealthy", e.name, e.run)
		if last := c.Status.Last(); last != nil {
			e.text += ": " + last.Message
		}
		l.add(e)
	case c.From == health.Unhealthy && c.To == health.Healthy:
		e.kind, e.level, e.text = logstore.EventHealthy, mcp.LoggingLevelNotice, fmt.Sprintf("%s (run %d) is healthy again", e.name, e.run)
		l.add(e)
	}
	l.onChange(c.Status.Name)
}

// setStorage records the state of the store. If the state has changed, it reports
// the change.
func (l *eventLog) setStorage(state, reason string) {
	if state == l.storage {
		return
	}
	l.storage = state
	e := event{at: time.Now(), level: mcp.LoggingLevelNotice, text: "storage works again"}
	if state != logstore.StateOK {
		e.level, e.text = mcp.LoggingLevelCritical, fmt.Sprintf("storage is %s: %s", state, reason)
	}
	l.add(e)
}

// add saves e in the store, for later sessions. It also keeps e for the next
// answer, unless the last answer has already reported e.
func (l *eventLog) add(e event) {
	for _, s := range []*string{&e.text, &e.quote, &e.by} {
		*s = line.Visible(l.mask.Text(*s))
	}
	if e.name != "" && !e.stored {
		l.store.SaveEvent(logstore.Event{At: e.at, Project: cmp.Or(e.project, l.project), Name: e.name, Run: e.runID, Kind: e.kind, By: e.by, Text: e.String()})
	}
	if e.own {
		l.wake.add(l.project, &e)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isReportedLocked(&e) {
		return
	}
	l.wake.add(l.project, &e)
	if e.unsent = l.awaited[e.name] > 0; !e.unsent {
		l.onEvent(e)
	}
	l.pending = append(l.pending, e)
	if n := len(l.pending) - maxEvents; n > 0 {
		l.pending = slices.Delete(l.pending, 0, n)
		l.dropped += n
	}
}

// await defers the log messages about the processes that a call waits for, as its answer reports what happens to them.
func (l *eventLog) await(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		l.awaited[name]++
	}
}

// endAwait ends what await has begun, once the call is answered. cancelled means that the client does not see the
// answer: the deferred messages are sent.
func (l *eventLog) endAwait(names []string, cancelled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if l.awaited[name]--; l.awaited[name] == 0 {
			delete(l.awaited, name)
		}
	}
	for i := range l.pending {
		if e := &l.pending[i]; cancelled && e.unsent && l.awaited[e.name] == 0 {
			e.unsent = false
			l.onEvent(*e)
		}
	}
}

// isReportedLocked reports whether an answer has reported e or the error that e is about, or
// shows all lines of that error.
func (l *eventLog) isReportedLocked(e *event) bool {
	return l.reported[e.name].includes(e) || l.answered[e.name].includes(e) || e.lines.last > 0 && l.isShownLocked(e.runID, e.lines)
}

func (l *eventLog) isShownLocked(run int64, lines span) bool {
	return slices.ContainsFunc(l.shown, func(s project.ShownLines) bool {
		return s.Run == run && s.First <= lines.first && lines.last <= s.Last
	})
}
