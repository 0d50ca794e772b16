// Package wake chooses which of the events of a session wake its model, and words them.
//
// A model is woken by what it must react to and has not caused: a run that ended badly, a give-up,
// readiness or health lost or come back, a limit, a prompt, the end of a run whose call had timed out.
// A line is sent once, within a second of its event; what happens in that time to many processes is
// folded into a few lines that name all of them. An hour has at most MaxHour lines.
package wake

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process/prose"
)

const (
	// MaxLine is the most bytes of a line, MaxLines the most lines at once.
	MaxLine  = 240
	MaxLines = 5
	// MaxHour is the most lines in an hour. The last of them says that more is not told.
	MaxHour = 24

	// window is how long an event waits for others, and for an answer that tells it; after some lines
	// the next ones wait until rest is over.
	window = 200 * time.Millisecond
	rest   = 600 * time.Millisecond
	// quiet is how long something must not have happened to a process to be news again. Readiness or health
	// that was once lost for less than settled, as a watcher that restarts its server does, is told as lost
	// once it has been so for that long.
	quiet   = 10 * time.Minute
	settled = time.Minute
)

// Method is that by which a monitor asks a server for lines; see Request.
const Method = "wake"

// A Request asks for the lines after those that the server had sent as number After; -1 asks only for that
// number. The answer comes once there are lines.
type Request struct {
	After int `json:"after"`
}

// An Answer has lines and the number to ask with next.
type Answer struct {
	Lines []string `json:"lines,omitempty"`
	Next  int      `json:"next"`
}

// prefix begins each line: what reads it gets lines of others, too.
const prefix = "pmcp: "

const closing = prefix + "much happens; no more lines for a while. list_processes shows the states, pmcp events in a shell what happened"

// An Event is one of a process.
type Event struct {
	logstore.Event
	// Awaited means that a call has waited for this and was cut off: a start that became ready and an
	// exit with code 0 wake, too.
	Awaited bool
}

// A Waker turns events into lines. The zero value is ready to use. It has no clock: the caller passes
// the time. It is not safe for concurrent use.
type Waker struct {
	pending []pending // at most one for each process
	seen    map[thing]*seen
	next    time.Time   // before it no lines are sent
	sent    []time.Time // the lines of the last hour
	closed  bool        // the closing line was sent
}

type pending struct {
	Event
	due time.Time
}

// A thing is what may happen to a process again and again.
type thing struct {
	project, name string
	kind          logstore.EventKind
}

type seen struct {
	at       time.Time // the last time
	told     bool
	flickers bool // it was over within settled
}

// undoes says what is over with an event.
var undoes = map[logstore.EventKind]logstore.EventKind{
	logstore.EventReady: logstore.EventUnready, logstore.EventHealthy: logstore.EventUnhealthy,
}

// Add takes an event in. Events come in the order of their times, nearly.
func (w *Waker) Add(e Event) {
	if e.Name == "" || e.Kind == logstore.EventResolved || e.Kind == logstore.EventReopened {
		return
	}
	if e.By != "" { // somebody knows what was before
		w.forget(&e)
		return
	}
	due := e.At.Add(window)
	switch e.Kind {
	case logstore.EventCrashed, logstore.EventGaveUp, logstore.EventExited:
		w.forget(&e)
		if e.Kind == logstore.EventExited && !e.Awaited {
			return
		}
	case logstore.EventUnready, logstore.EventUnhealthy:
		bad := w.thing(&e, e.Kind)
		if bad.at = e.At; bad.flickers {
			due = e.At.Add(settled)
		}
	case logstore.EventReady, logstore.EventHealthy:
		kind := undoes[e.Kind]
		bad := w.thing(&e, kind)
		bad.flickers = bad.flickers || e.At.Sub(bad.at) < settled
		wasTold := bad.told
		bad.told = false
		if w.drop(func(p *pending) bool { return p.same(&e) && p.Kind == kind }) || !wasTold && !e.Awaited {
			return
		}
	case logstore.EventRetries, logstore.EventLimit, logstore.EventSuspended, logstore.EventAsks:
		t := w.thing(&e, e.Kind)
		again := t.told && e.At.Sub(t.at) < quiet
		if t.at, t.told = e.At, again; again {
			return
		}
	default:
		return
	}
	if i := slices.IndexFunc(w.pending, func(p pending) bool { return p.same(&e) }); i >= 0 {
		w.pending[i].Event = e // the later says more
		if due.Before(w.pending[i].due) {
			w.pending[i].due = due
		}
		return
	}
	w.pending = append(w.pending, pending{e, due})
}

func (e *Event) same(o *Event) bool { return e.Project == o.Project && e.Name == o.Name }

// forget drops all that has happened to the process of e.
func (w *Waker) forget(e *Event) {
	w.drop(func(p *pending) bool { return p.same(e) })
	maps.DeleteFunc(w.seen, func(t thing, _ *seen) bool { return t.project == e.Project && t.name == e.Name })
}

func (w *Waker) thing(e *Event, kind logstore.EventKind) *seen {
	if w.seen == nil {
		w.seen = make(map[thing]*seen)
	}
	t := thing{e.Project, e.Name, kind}
	if w.seen[t] == nil {
		w.seen[t] = &seen{}
	}
	return w.seen[t]
}

// Told is called when the model has been told all that has happened: what waits needs no line any more.
func (w *Waker) Told() {
	for i := range w.pending {
		w.told(&w.pending[i].Event)
	}
	w.pending = nil
}

func (w *Waker) told(e *Event) {
	if s := w.seen[thing{e.Project, e.Name, e.Kind}]; s != nil {
		s.told = true
	}
}

// drop reports whether it has dropped something.
func (w *Waker) drop(gone func(*pending) bool) bool {
	n := len(w.pending)
	w.pending = slices.DeleteFunc(w.pending, func(p pending) bool { return gone(&p) })
	return len(w.pending) < n
}

// Next returns when Lines is to be called, and false if no event waits.
func (w *Waker) Next() (at time.Time, ok bool) {
	for i := range w.pending {
		if due := w.pending[i].due; !ok || due.Before(at) {
			at, ok = due, true
		}
	}
	if at.Before(w.next) {
		at = w.next
	}
	return at, ok
}

// Lines returns the lines that are due, without a newline: at most MaxLines, each of at most MaxLine
// bytes. Text of processes in them is quoted.
func (w *Waker) Lines(now time.Time) []string {
	if at, ok := w.Next(); !ok || now.Before(at) {
		return nil
	}
	var due []Event
	w.drop(func(p *pending) bool {
		gone := !p.due.After(now.Add(window)) // those that have just come, too
		if gone {
			due = append(due, p.Event)
		}
		return gone
	})
	lines := w.bound(words(due), now)
	if len(lines) > 0 {
		w.next = now.Add(rest)
	}
	for i := range due {
		w.told(&due[i])
	}
	return lines
}

// bound cuts lines at MaxHour.
func (w *Waker) bound(lines []string, now time.Time) []string {
	w.sent = slices.DeleteFunc(w.sent, func(at time.Time) bool { return now.Sub(at) >= time.Hour })
	left := MaxHour - len(w.sent)
	if w.closed && left <= MaxLines {
		return nil
	}
	if w.closed = len(lines) >= left; w.closed {
		lines = append(lines[:left-1:left-1], closing)
	}
	for range lines {
		w.sent = append(w.sent, now)
	}
	return lines
}

// words returns the lines for events of different processes.
func words(events []Event) (lines []string) {
	if len(events) <= MaxLines {
		for i := range events {
			lines = append(lines, prefix+cut(events[i].Text, MaxLine-len(prefix)))
		}
		return lines
	}
	slices.SortStableFunc(events, func(a, b Event) int { return kindOf(&a) - kindOf(&b) })
	line := ""
	for i := range events {
		kind, name, more := kindOf(&events[i]), events[i].Name, fmt.Sprintf(" and %d more: list_processes", len(events)-i)
		begin, next := prefix+kinds[kind].words+": "+name, line+", "+name
		if i == 0 || kindOf(&events[i-1]) != kind {
			next = line + "; " + kinds[kind].words + ": " + name
		}
		last, room := len(lines) == MaxLines-1, MaxLine
		if last && i < len(events)-1 {
			room -= len(more)
		}
		switch {
		case line == "":
			line = begin
		case len(next) <= room:
			line = next
		case last:
			return append(lines, line+more)
		default:
			lines, line = append(lines, line), begin
		}
	}
	return append(lines, line)
}

// kinds are the kinds of events that wake, in the order in which folded lines have them.
var kinds = []struct {
	kind  logstore.EventKind
	words string
}{
	{logstore.EventCrashed, "ended badly"},
	{logstore.EventGaveUp, "ended badly, not restarted any more"},
	{logstore.EventRetries, "ended badly, restarted"},
	{logstore.EventUnready, "not ready any more"},
	{logstore.EventUnhealthy, "unhealthy"},
	{logstore.EventLimit, "over a limit"},
	{logstore.EventSuspended, "suspended"},
	{logstore.EventAsks, "waiting for input"},
	{logstore.EventReady, "ready"},
	{logstore.EventHealthy, "healthy again"},
	{logstore.EventExited, "exited with code 0"},
}

func kindOf(e *Event) (index int) {
	for index < len(kinds)-1 && kinds[index].kind != e.Kind {
		index++
	}
	return index
}

// cut returns at most n bytes of a text with quoted parts: a quote that is cut is closed.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "…"
	s = prose.Head(s, n-len(mark)-1)
	quoted, escaped := false, false
	for _, c := range []byte(s) {
		switch {
		case escaped:
			escaped = false
		case c == '\\' && quoted:
			escaped = true
		case c == '"':
			quoted = !quoted
		}
	}
	if escaped {
		s = strings.TrimSuffix(s, `\`)
	}
	if quoted {
		s += `"`
	}
	return s + mark
}
