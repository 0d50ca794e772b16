package server

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/logstore"
	"pmcp/server/stdio/stdiotest"
	waking "pmcp/server/wake"
)

// TestWakerLeavesWhatAnswersSay checks that what a running call will report waits for its answer and then needs no
// line, that it has one if the call was cut off, and that the end of a run whose call has timed out has one
// even if its code is 0.
func TestWakerLeavesWhatAnswersSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaker()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.run(ctx) })
		defer running.Wait()
		defer cancel()
		next := 0
		want := func(texts ...string) {
			t.Helper()
			began := time.Now()
			for _, text := range texts {
				a, err := w.follow(ctx, next)
				stdiotest.NoErr(t, err)
				if next = a.Next; len(a.Lines) != 1 || !strings.HasSuffix(a.Lines[0], text) || time.Since(began) > time.Second {
					t.Errorf("after %s: got %q, want %q within a second", time.Since(began), a.Lines, text)
				}
			}
			time.Sleep(time.Minute) // of the test's clock
			if now, err := w.follow(ctx, -1); err != nil || now.Next != next || len(now.Lines) > 0 {
				t.Errorf("got %d lines more (%v), want none", now.Next-next, err)
			}
		}
		ends := func(name string, kind logstore.EventKind) {
			w.add("/p", &event{at: time.Now(), name: name, runID: 7, kind: kind, stage: stageEnded, text: name + " ended"})
		}
		free := w.hold("build")
		ends("build", logstore.EventCrashed)
		ends("web", logstore.EventCrashed)
		want("web ended")
		w.told()
		free()
		want()

		free = w.hold("build")
		ends("build", logstore.EventCrashed)
		time.Sleep(time.Minute)
		free() // cancelled
		want("build ended")

		ends("build", logstore.EventExited)
		want()
		w.await("build", 7, stageEnded)
		w.answered(&reported{name: "build", stage: stageStarted}) // it has timed out
		ends("build", logstore.EventExited)
		want("build ended")
		ends("build", logstore.EventExited)
		want()

		free = w.hold() // of a group
		ends("web", logstore.EventCrashed)
		want()
		free()
		want("web ended")
	})
}

// TestMonitorGetsLinesOnce checks what a monitor gets that begins with the first line, with a later one, or late.
func TestMonitorGetsLinesOnce(t *testing.T) {
	w := newWaker()
	start := time.Now()
	for i := range 2 * waking.MaxHour {
		at := start.Add(time.Duration(i) * time.Hour)
		w.add("/p", &event{at: at, name: "web", kind: logstore.EventCrashed, text: "web ended"})
		w.send(at.Add(time.Minute))
	}
	for after, lines := range map[int]int{-1: 0, 0: waking.MaxHour, waking.MaxHour + 3: waking.MaxHour - 3, 2*waking.MaxHour - 1: 1} {
		if a, err := w.follow(t.Context(), after); err != nil || len(a.Lines) != lines || a.Next != 2*waking.MaxHour {
			t.Errorf("after %d: got %d lines, then %d (%v); want %d, then %d", after, len(a.Lines), a.Next, err, lines, 2*waking.MaxHour)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.follow(ended, 2*waking.MaxHour); err == nil {
		t.Error("without a line, the wait ends without an error, want that of the context")
	}
}
