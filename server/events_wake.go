package server

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"pmcp/logstore"
	"pmcp/server/project"
	"pmcp/server/socket"
	waking "pmcp/server/wake"
)

// A waker has the lines that wake the model. It gets each event that no answer has reported; an answer
// that comes before the line of the event takes its place.
type waker struct {
	changed chan struct{} // one slot: room has changed

	mu      sync.Mutex // guards the fields below
	room    waking.Waker
	calls   map[string]int     // how many calls under way will report how the run of a process goes on, by name; "" stands for all
	held    []waking.Event     // what happened to those
	awaited map[string]awaited // what calls wait for, or were cut off from, by name
	lines   []string           // the last lines, at most waking.MaxHour
	sent    int                // how many lines there were
	more    chan struct{}      // closed with the next line
}

// An awaited is a stage of a run that no answer has reported yet.
type awaited struct {
	run   int64
	stage stage
}

func newWaker() *waker {
	return &waker{changed: make(chan struct{}, 1), calls: make(map[string]int), awaited: make(map[string]awaited), more: make(chan struct{})}
}

// add takes an event in.
func (w *waker) add(dir string, e *event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	want, waits := w.awaited[e.name]
	waits = waits && want.run == e.runID && e.stage >= want.stage && e.fault == ""
	if waits || e.kind == logstore.EventStopped {
		delete(w.awaited, e.name)
	}
	event := waking.Event{Awaited: waits, Event: logstore.Event{At: e.at, Project: dir, Name: e.name, Run: e.runID, Kind: e.kind, By: e.by, Text: e.String()}}
	if (e.stage > stageStarted || e.kind == logstore.EventAsks) && e.fault == "" && w.calls[e.name]+w.calls[""] > 0 {
		w.held = append(w.held, event)
		return
	}
	w.room.Add(event)
	wake(w.changed)
}

// hold says that a call will report what becomes of the runs of processes, or of all if there are no
// names, until free is called: that is held back until the call has answered, or was cut off.
func (w *waker) hold(names ...string) (free func()) {
	if len(names) == 0 {
		names = []string{""}
	}
	count := func(n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, name := range names {
			if w.calls[name] += n; w.calls[name] == 0 {
				delete(w.calls, name)
			}
		}
		w.held = slices.DeleteFunc(w.held, func(e waking.Event) bool {
			free := w.calls[e.Name]+w.calls[""] == 0
			if free {
				e.At = time.Now() // the answer comes first, if there is one
				w.room.Add(e)
			}
			return free
		})
		wake(w.changed)
	}
	count(1)
	return func() { count(-1) }
}

// await says that a call waits until a run reaches a stage. If no answer reports that, it wakes.
func (w *waker) await(name string, run int64, s stage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.awaited[name] = (awaited{run, s}); s == 0 {
		delete(w.awaited, name)
	}
}

// awaitedStage returns the stage that a call waits for. One that waits for output learns of the end, too; one that
// waits only for the start has waited for nothing else.
func awaitedStage(until string) stage {
	switch until {
	case project.UntilStarted:
		return 0
	case project.UntilReady:
		return stageReady
	default:
		return stageEnded
	}
}

// answered is called with what an answer reports.
func (w *waker) answered(t *reported) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if want, ok := w.awaited[t.name]; ok && t.stage >= want.stage {
		delete(w.awaited, t.name)
	}
}

// told is called when an answer has reported all events so far.
func (w *waker) told() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.held {
		w.room.Add(e)
	}
	w.held = nil
	w.room.Told()
}

// run makes lines until ctx ends.
func (w *waker) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.changed:
		case <-ctx.Done():
			return
		}
		if at, waits := w.send(time.Now()); waits {
			timer.Reset(time.Until(at))
		} else {
			timer.Stop()
		}
	}
}

// send makes the lines that are due now and returns when to call it next, if something waits.
func (w *waker) send(now time.Time) (next time.Time, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lines := w.room.Lines(now); len(lines) > 0 {
		w.sent += len(lines)
		w.lines = append(w.lines, lines...)
		w.lines = slices.Clone(w.lines[max(0, len(w.lines)-waking.MaxHour):])
		close(w.more)
		w.more = make(chan struct{})
	}
	return w.room.Next()
}

// follow returns the lines that were made after the first n, of those that are kept, once there are some. For
// n = -1 it returns at once, with the number of all so far.
func (w *waker) follow(ctx context.Context, n int) (waking.Answer, error) {
	for {
		w.mu.Lock()
		lines, sent, more := w.lines, w.sent, w.more
		w.mu.Unlock()
		if fresh := sent - max(n, 0); n < 0 || fresh > 0 {
			if n < 0 {
				fresh = 0
			}
			return waking.Answer{Lines: lines[max(0, len(lines)-fresh):], Next: sent}, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return waking.Answer{}, ctx.Err()
		}
	}
}

// answerMonitor answers a monitor that follows this session.
func (s *Server) answerMonitor(ctx context.Context, params json.RawMessage) (any, error) {
	var r waking.Request
	if err := json.Unmarshal(params, &r); err != nil {
		return nil, socket.Refusal("invalid request of a monitor")
	}
	if s.o.Channel {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.events.wake.follow(ctx, r.After)
}
