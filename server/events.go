package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/health"
	"pmcp/logstore"
	"pmcp/logstore/mask"
	"pmcp/process"
)

// maxEvents is how many events wait for the next answer; older ones are
// dropped and counted.
const maxEvents = 20

// event is something that happened by itself, which the client would otherwise
// have to ask for.
type event struct {
	at    time.Time
	level mcp.LoggingLevel // of its log message
	name  string           // of the process; "" if it is about pmcp itself
	run   int              // its number
	runID int64
	stage stage  // how far the run has come with it; 0 for what no state tells, such as its health
	fault string // id of the kind of error that it tells of; "" for other events
	text  string
}

// stage is how far a run has come.
type stage int

const (
	stageStarted stage = iota + 1
	stageReady
	stageEnded
)

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

// told is what an answer says of a process: how far a run of it had come.
type told struct {
	name   string
	run    int   // its number
	runID  int64 // known instead of the number by some; else 0
	stage  stage
	errors map[string]time.Time // the kinds of errors that stand in it, by id, and when each was seen last
	faults bool                 // it shows what went wrong in the run: its errors, or all its output
}

// isOf says whether e is of the run that t is about.
func (t *told) isOf(e *event) bool {
	if t.runID != 0 {
		return t.name == e.name && t.runID == e.runID
	}
	return t.name == e.name && t.run == e.run
}

// aboutProcesses is an answer, or an error, that tells what became of certain
// processes; events of the same moment would only repeat it.
type aboutProcesses interface{ about() []told }

// covering is an answer that has told of a process, and when its call began.
type covering struct {
	told
	began time.Time
}

// covers says whether the answer has told what e tells: it happened during the
// call, to the same run, on the way to where that was told to be; or it is of an
// error that stands in the answer. Another error is told with the end of its run
// only by an answer that shows what went wrong.
func (c covering) covers(e *event) bool {
	if seen, ok := c.errors[e.fault]; ok && c.name == e.name && !e.at.After(seen) {
		return true
	}
	if e.fault != "" && !c.faults {
		return false
	}
	return e.stage != 0 && c.isOf(e) && !e.at.Before(c.began) && e.stage <= c.stage
}

// eventLog collects what happened since the client's last answer. It follows
// the feeds of processes and health until both end.
type eventLog struct {
	store   *logstore.Store
	mask    *mask.Masker
	project string
	done    sync.WaitGroup
	closing chan struct{}
	changed func(name string) // told of every change, for subscriptions
	tell    func(event)       // told of every event, for log messages

	mu      sync.Mutex
	pending []event
	dropped int
	was     map[string]process.Status // by name, as last seen
	seen    time.Time                 // of the latest change of a process
	covered map[string]covering       // by name, the last answer about it: an event of it may come in late
	storage string                    // state of the store, as last told
}

// newEventLog starts to follow the feeds. Events are stored under project.
// changed and tell must not wait.
func newEventLog(store *logstore.Store, masker *mask.Masker, project string, processes *process.Feed, checks *health.Feed, changed func(name string), tell func(event)) *eventLog {
	l := &eventLog{
		store: store, mask: masker, project: project, closing: make(chan struct{}), changed: changed, tell: tell, storage: logstore.StateOK,
		was: make(map[string]process.Status), covered: make(map[string]covering),
	}
	l.done.Go(func() { follow(processes.Next, func(c process.Change) { l.takeProcess(processes, c) }) })
	l.done.Go(func() { follow(checks.Next, l.healthChanged) })
	l.done.Go(l.followFaults)
	return l
}

// follow calls do with everything that next gives until it ends.
func follow[T any](next func(context.Context) (T, error), do func(T)) {
	for {
		change, err := next(context.Background())
		if err != nil {
			return // io.EOF: the feed's owner is closed
		}
		do(change)
	}
}

// close returns when the feeds have ended.
func (l *eventLog) close() {
	close(l.closing)
	l.done.Wait()
}

// followFaults tells of kinds of errors that are new, or were resolved.
func (l *eventLog) followFaults() {
	for {
		select {
		case f := <-l.store.NewFaults():
			what := "new error"
			if f.Again {
				what = "resolved error is back"
			}
			text := fmt.Sprintf("%s (run %d): %s %s: %s%s", f.Name, f.RunNumber, what, f.ID, firstLine80(f.Message), atPlace(f.File, f.Line))
			l.add(event{
				at: f.LastSeen, level: mcp.LoggingLevelWarning, name: f.Name, run: f.RunNumber, runID: f.LastRun,
				stage: stageEnded, // see told.faults
				fault: f.ID,
				text:  text + "; get_logs before: " + f.Cursor(),
			})
			l.changed(f.Name)
		case <-l.closing:
			return
		}
	}
}

// firstLine80 is the first line of a message, at most 80 bytes of it.
func firstLine80(message string) string {
	line, _, _ := strings.Cut(message, "\n")
	return cut(line, len(line), 80)
}

// takeProcess tells of one change. After a gap it tells every end that it was
// not told of, and how things are now.
func (l *eventLog) takeProcess(feed *process.Feed, c process.Change) {
	if c.Missed == 0 {
		l.processChanged(c)
		return
	}
	ends, entries := feed.Resync()
	for _, end := range ends {
		if end.At.After(l.seen) {
			l.processChanged(end)
		}
	}
	gone := maps.Clone(l.was)
	for i := range entries {
		st := entries[i]
		delete(gone, st.Spec.Name)
		l.processChanged(process.Change{At: time.Now(), From: l.stateBefore(&st), To: st.State, Status: st})
	}
	for _, st := range gone {
		l.processChanged(process.Change{At: time.Now(), From: st.State, To: st.State, Removed: true, Status: st})
	}
}

// stateBefore is the state from which st was reached, as far as is known: a run
// that was not seen yet has been started.
func (l *eventLog) stateBefore(st *process.Status) process.State {
	if was := l.was[st.Spec.Name]; was.RunID == st.RunID {
		return was.State
	}
	return process.Starting
}

func (l *eventLog) processChanged(c process.Change) {
	st := &c.Status
	name := st.Spec.Name
	l.mu.Lock()
	was := l.was[name]
	l.mu.Unlock()
	if !c.Removed {
		for _, e := range processNews(&was, st, c.From) {
			e.at, e.name, e.run, e.runID = c.At, name, st.Run, st.RunID
			e.text += l.where(&c)
			l.add(e)
		}
	}
	l.mu.Lock()
	l.seen = c.At
	if c.Removed {
		delete(l.was, name)
		delete(l.covered, name)
	} else {
		l.was[name] = *st
	}
	l.mu.Unlock()
	l.changed(name)
}

// processNews says in sentences what is worth telling in the step from was to
// st, whose state was from. What the client asked for is not.
func processNews(was, st *process.Status, from process.State) []event {
	name := fmt.Sprintf("%s (run %d)", st.Spec.Name, st.Run)
	byClient := st.Exit != nil && (st.Exit.By == process.ByUser || st.Exit.By == process.BySession)
	ended := st.Exit != nil && !byClient && st.State != from
	now := stageOf(st.State.Live(), st.Ready)
	var news []event
	tell := func(level mcp.LoggingLevel, reached stage, format string, args ...any) {
		news = append(news, event{level: level, stage: reached, text: fmt.Sprintf(format, args...)})
	}
	switch {
	case ended && st.State == process.Exited:
		tell(mcp.LoggingLevelInfo, now, "%s exited with code 0", name)
	case ended && st.State == process.Crashed:
		tell(mcp.LoggingLevelError, now, "%s crashed: %s, ended by %s", name, st.Exit, st.Exit.By)
	case ended && st.State == process.Backoff:
		tell(mcp.LoggingLevelWarning, now, "%s ended: %s; it is started again at %s", name, st.Exit, formatTime(st.NextRetry))
	case st.State == process.Failed && from != process.Failed:
		tell(mcp.LoggingLevelError, now, "%s failed: %s", name, st.Reason)
	case st.State == process.Running && from == process.Starting && st.Restarts > 0:
		tell(mcp.LoggingLevelNotice, now, "%s was started again by its restart policy", name)
	}
	if st.Ready != nil && *st.Ready && (was.RunID != st.RunID || was.Ready == nil || !*was.Ready) {
		tell(mcp.LoggingLevelInfo, now, "%s became ready", name)
	}
	if st.LimitExceeded != "" && st.LimitExceeded != was.LimitExceeded {
		tell(mcp.LoggingLevelWarning, 0, "%s: %s", name, st.LimitExceeded)
	}
	return news
}

// where gives the error that a run ended with, where that happened, and the
// cursor behind its last line: read backwards from that shows all. It does not
// wait: the feed would fall behind.
func (l *eventLog) where(c *process.Change) (text string) {
	st := &c.Status
	if c.From == c.To || st.State != process.Crashed && st.State != process.Backoff && st.State != process.Failed {
		return ""
	}
	if message, file, line := l.store.WhyEnded(st.RunID); message != "" {
		text = "; " + firstLine80(message) + atPlace(file, line)
	}
	if cursor := l.store.EndOfRun(st.RunID); cursor != "" {
		text += "; get_logs before: " + cursor
	}
	return text
}

// atPlace is " at FILE:LINE"; "" if the file is not known.
func atPlace(file string, line int) string {
	if file == "" {
		return ""
	}
	return fmt.Sprintf(" at %s:%d", file, line)
}

func (l *eventLog) healthChanged(c health.Change) {
	e := event{at: c.At, name: c.Status.Name, run: c.Status.Run, runID: c.Status.RunID}
	switch {
	case c.From == c.To:
	case c.To == health.Unhealthy:
		e.level, e.text = mcp.LoggingLevelError, fmt.Sprintf("%s (run %d) became unhealthy", e.name, e.run)
		if last := c.Status.Last(); last != nil {
			e.text += ": " + last.Message
		}
		l.add(e)
	case c.From == health.Unhealthy && c.To == health.Healthy:
		e.level, e.text = mcp.LoggingLevelNotice, fmt.Sprintf("%s (run %d) is healthy again", e.name, e.run)
		l.add(e)
	}
	l.changed(c.Status.Name)
}

// storageIs notes how the store is, and tells of a change.
func (l *eventLog) storageIs(state, reason string) {
	l.mu.Lock()
	was := l.storage
	l.storage = state
	l.mu.Unlock()
	switch {
	case was == state:
	case state == logstore.StateOK:
		l.add(event{at: time.Now(), level: mcp.LoggingLevelNotice, text: "storage works again"})
	default:
		l.add(event{at: time.Now(), level: mcp.LoggingLevelCritical, text: fmt.Sprintf("storage is %s: %s", state, reason)})
	}
}

// add keeps e for the next answer, unless the last one has told it already, and
// in the store, for later sessions.
func (l *eventLog) add(e event) {
	e.text = l.mask.Text(e.text)
	l.tell(e)
	if e.name != "" {
		l.store.SaveEvent(l.project, e.name, e.runID, e.at, e.text)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.covered[e.name].covers(&e) {
		return
	}
	l.pending = append(l.pending, e)
	if n := len(l.pending) - maxEvents; n > 0 {
		l.pending = slices.Delete(l.pending, 0, n)
		l.dropped += n
	}
}

// take returns what has not been told yet, oldest first, for an answer to a call
// that began then. What the answer itself is about is left out.
func (l *eventLog) take(began time.Time, about []told) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range about {
		l.covered[t.name] = covering{t, began}
	}
	var texts []string
	if l.dropped > 0 {
		texts = append(texts, fmt.Sprintf("%d earlier events are not shown", l.dropped))
	}
	for i := range l.pending {
		if e := &l.pending[i]; !l.covered[e.name].covers(e) {
			texts = append(texts, formatTime(e.at)+" "+e.text)
		}
	}
	l.pending, l.dropped = nil, 0
	return texts
}
