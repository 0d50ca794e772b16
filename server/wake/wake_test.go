package wake

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pmcp/logstore"
)

var start = time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)

// A day is a Waker with a clock of its own, and what it has sent.
type day struct {
	Waker
	now   time.Time
	times []time.Time
	lines []string
}

func newDay() *day { return &day{now: start} }

// pass lets time pass and takes the lines of it.
func (d *day) pass(t time.Duration) {
	end := d.now.Add(t)
	for {
		at, ok := d.Next()
		if !ok || at.After(end) {
			d.now = end
			return
		}
		d.now = at
		for _, l := range d.Lines(d.now) {
			d.times, d.lines = append(d.times, d.now), append(d.lines, l)
		}
	}
}

func (d *day) event(name string, kind logstore.EventKind, text string) {
	d.Add(event(d.now, name, kind, text))
}

func event(at time.Time, name string, kind logstore.EventKind, text string) Event {
	return Event{Event: logstore.Event{At: at, Project: "/p", Name: name, Kind: kind, Text: name + " " + text}}
}

// want fails the test unless the lines begin with these texts, and are due within a second.
func (d *day) want(t *testing.T, texts ...string) {
	t.Helper()
	if !slices.EqualFunc(d.lines, texts, func(l, text string) bool { return strings.HasPrefix(l, prefix+text) }) {
		t.Errorf("got %q, want %q", d.lines, texts)
	}
	d.lines, d.times = nil, nil
}

// TestWhatWakes checks which events have a line, within a second and once.
func TestWhatWakes(t *testing.T) {
	for kind, want := range map[logstore.EventKind]bool{
		logstore.EventStarted: false, logstore.EventRestarted: false, logstore.EventStopped: false, logstore.EventInput: false,
		logstore.EventExited: false, logstore.EventReady: false, logstore.EventHealthy: false, logstore.EventError: false, "": false,
		logstore.EventCrashed: true, logstore.EventRetries: true, logstore.EventGaveUp: true, logstore.EventUnready: true,
		logstore.EventSuspended: true, logstore.EventUnhealthy: true, logstore.EventLimit: true,
	} {
		d := newDay()
		d.event("web", kind, "did it")
		d.pass(time.Second)
		if got := len(d.lines) == 1; got != want {
			t.Errorf("%q: got %q, want a line: %v", kind, d.lines, want)
		}
		d.pass(time.Hour)
		if len(d.lines) > 1 {
			t.Errorf("%q: got %q, want it once", kind, d.lines)
		}
		by := event(d.now, "web", kind, "did it")
		by.By = "the agent"
		d.lines = nil
		d.Add(by)
		if d.pass(time.Hour); len(d.lines) > 0 {
			t.Errorf("%q by somebody: got %q, want nothing", kind, d.lines)
		}
	}
}

// TestAwaitedAndRecoveredWake checks what wakes only after something else.
func TestAwaitedAndRecoveredWake(t *testing.T) {
	d := newDay()
	e := event(d.now, "build", logstore.EventExited, "exited with code 0")
	e.Awaited = true
	d.Add(e)
	d.pass(time.Second)
	d.want(t, "build exited with code 0")

	for bad, good := range map[logstore.EventKind]logstore.EventKind{logstore.EventUnready: logstore.EventReady, logstore.EventUnhealthy: logstore.EventHealthy} {
		d = newDay()
		d.event("web", good, "is good")
		d.pass(time.Hour)
		d.want(t)
		d.event("web", bad, "is bad")
		d.pass(time.Second)
		d.event("web", good, "is good again")
		d.pass(time.Second)
		d.want(t, "web is bad", "web is good again")
		for range 20 { // a flicker
			d.event("web", bad, "is bad")
			d.pass(2 * time.Second)
			d.event("web", good, "is good again")
			d.pass(2 * time.Second)
		}
		d.want(t)
		d.event("web", bad, "is bad for good")
		d.pass(time.Minute)
		d.want(t, "web is bad for good")
		d.event("web", bad, "is bad")
		d.event("web", logstore.EventCrashed, "failed")
		d.pass(time.Second)
		d.want(t, "web failed")
	}
}

// TestAnswersAndPeopleComeFirst checks that what an answer tells, or somebody ends, within the window
// wakes nobody. Who resolves an error does not know of a crash.
func TestAnswersAndPeopleComeFirst(t *testing.T) {
	d := newDay()
	d.event("web", logstore.EventCrashed, "failed")
	d.event("docs", logstore.EventUnready, "is not ready")
	d.Told()
	d.event("api", logstore.EventCrashed, "failed")
	d.event("db", logstore.EventCrashed, "failed")
	restart := event(d.now, "api", logstore.EventRestarted, "was restarted")
	restart.By = "a person"
	d.Add(restart)
	for _, kind := range []logstore.EventKind{logstore.EventResolved, logstore.EventReopened} {
		mark := event(d.now, "db", kind, "error 1")
		mark.By = "a person"
		d.Add(mark)
	}
	d.pass(time.Hour)
	d.want(t, "db failed")
	d.event("docs", logstore.EventReady, "is ready again")
	d.pass(time.Second)
	d.want(t, "docs is ready again")
}

// TestCrashLoopIsTwoLines checks that of 100 deaths the first and the give-up are told, and the next
// loop after somebody's restart as well.
func TestCrashLoopIsTwoLines(t *testing.T) {
	d := newDay()
	for range 2 {
		for i := range 99 {
			d.event("api", logstore.EventRetries, fmt.Sprintf("(run %d) ended: exit code 1; it restarts", i+1))
			d.pass(30 * time.Second)
			d.event("api", logstore.EventRestarted, "was restarted by its restart policy")
			d.pass(time.Second)
		}
		d.event("api", logstore.EventGaveUp, "(run 100) failed")
		d.pass(time.Hour)
		d.want(t, "api (run 1) ended", "api (run 100) failed")
		again := event(d.now, "api", logstore.EventStarted, "was started")
		again.By = "the agent"
		d.Add(again)
	}
}

// TestManyAreFoldedAndNamed checks that 50 processes that die within a second have at most MaxLines lines that
// name all of them, and that names which do not fit are counted.
func TestManyAreFoldedAndNamed(t *testing.T) {
	d := newDay()
	for i := range 50 {
		d.event(fmt.Sprintf("worker-%02d", i), []logstore.EventKind{logstore.EventCrashed, logstore.EventRetries}[i%2], "failed")
		d.pass(15 * time.Millisecond)
	}
	d.pass(time.Second)
	all := strings.Join(d.lines, "\n")
	for i := range 50 {
		if name := fmt.Sprintf("worker-%02d", i); strings.Count(all, name) != 1 {
			t.Errorf("%s is named %d times, want once", name, strings.Count(all, name))
		}
	}
	if len(d.lines) > MaxLines || !d.times[len(d.times)-1].Before(start.Add(50*15*time.Millisecond+time.Second)) {
		t.Errorf("got %q at %v, want at most %d lines, within a second", d.lines, d.times, MaxLines)
	}
	d = newDay()
	for i := range 50 {
		d.event(fmt.Sprintf("%060d", i), logstore.EventCrashed, "failed")
	}
	d.pass(time.Second)
	named := strings.Count(strings.Join(d.lines, "\n"), "000000")
	if last := d.lines[len(d.lines)-1]; len(d.lines) != MaxLines || !strings.HasSuffix(last, "more: list_processes") {
		t.Errorf("got %d names in %q, want the rest counted", named, d.lines)
	}
	for _, l := range d.lines {
		if len(l) > MaxLine {
			t.Errorf("got %d bytes, want at most %d: %s", len(l), MaxLine, l)
		}
	}
}

// TestLongTextKeepsItsQuote checks that a line is cut at MaxLine, with the quote of a process's text closed.
func TestLongTextKeepsItsQuote(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", 300), strings.Repeat(`\\`, 300), `a\"` + strings.Repeat("b", 300), strings.Repeat(`\"`, 300) + "x"} {
		d := newDay()
		for pad := range 3 {
			d.event("web", logstore.EventCrashed, strings.Repeat("x", pad)+`failed: exit code 1; "`+text+`"`)
			d.pass(time.Minute)
		}
		for _, l := range d.lines {
			rest := strings.NewReplacer(`\\`, "", `\"`, "").Replace(l)
			if len(l) > MaxLine || !strings.HasSuffix(l, `"…`) || strings.Count(rest, `"`) != 2 {
				t.Errorf("got %d bytes: %s", len(l), l)
			}
		}
	}
}

// TestHardBound checks that an hour has at most MaxHour lines, the last of which says so.
func TestHardBound(t *testing.T) {
	d := newDay()
	for i := range 3600 {
		d.event(fmt.Sprint("job", i), logstore.EventCrashed, "failed")
		d.pass(time.Second)
	}
	if len(d.lines) != MaxHour || d.lines[MaxHour-1] != closing || len(closing) > MaxLine {
		t.Errorf("got %d lines, the last is %q; want %d", len(d.lines), d.lines[len(d.lines)-1], MaxHour)
	}
	d.lines = nil
	d.pass(time.Hour)
	d.event("web", logstore.EventCrashed, "failed")
	d.pass(time.Second)
	d.want(t, "web failed")
}

// TestOrdinaryDayIsQuiet plays 8 hours of work: 6 processes, 40 edits, a restart of servers by their watchers after
// each, a broken one now and then that the agent mends and restarts, a build that outlasts its call. No hour has more
// than 12 lines.
func TestOrdinaryDayIsQuiet(t *testing.T) {
	d := newDay()
	by := func(name string, kind logstore.EventKind) {
		e := event(d.now, name, kind, "was restarted")
		e.By = "the agent"
		d.Add(e)
	}
	for _, name := range []string{"web", "api", "worker", "db", "docs", "test"} {
		by(name, logstore.EventStarted)
		d.event(name, logstore.EventReady, "became ready")
		d.pass(5 * time.Second)
	}
	for edit := range 40 {
		reload := func(name string, took time.Duration) {
			d.event(name, logstore.EventUnready, "is not ready: its socket is closed")
			d.pass(took)
			d.event(name, logstore.EventReady, "is ready again")
		}
		reload("web", 250*time.Millisecond)
		reload("api", 4*time.Second)
		switch {
		case edit%5 == 1: // a syntax error in what the policy restarts
			for range 4 {
				d.event("worker", logstore.EventRetries, `ended: exit code 1; "SyntaxError: oh"`)
				d.event("worker", logstore.EventError, `new error: "SyntaxError: oh"`)
				d.pass(4 * time.Second)
			}
			d.event("worker", logstore.EventGaveUp, "failed")
			d.pass(time.Minute)
			by("worker", logstore.EventRestarted)
		case edit%5 == 3: // in a server whose watcher waits for the next edit
			d.event("api", logstore.EventUnready, "is not ready: its program has crashed")
			d.pass(2 * time.Minute)
			d.event("api", logstore.EventReady, "is ready again")
		case edit%8 == 0:
			e := event(d.now, "build", logstore.EventExited, "exited with code 0")
			e.Awaited = true
			d.Add(e)
		}
		d.event("test", logstore.EventCrashed, "failed: exit code 1") // in a call, whose answer says so
		d.Told()
		if edit == 20 {
			d.event("db", logstore.EventLimit, "uses 1.1 GiB")
		}
		d.pass(12*time.Minute - d.now.Sub(start)%(12*time.Minute))
	}
	hours := make(map[int]int)
	for _, at := range d.times {
		hours[int(at.Sub(start)/time.Hour)]++
	}
	most := 0
	for _, n := range hours {
		most = max(most, n)
	}
	if t.Logf("%d lines in %v, at most %d in an hour", len(d.lines), d.now.Sub(start), most); most > 12 || most == 0 || d.now.Sub(start) < 8*time.Hour {
		t.Errorf("got %d lines in an hour, want 1 to 12; all:\n%s", most, strings.Join(d.lines, "\n"))
	}
}
