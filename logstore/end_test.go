package logstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// onlyItsEnd is what WaitRun is asked for by who waits for the end only.
func onlyItsEnd(*Run) bool { return false }

// TestEndOfAnotherServer: its run ends, or it dies.
func TestEndOfAnotherServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	other := openTest(t, Options{Path: path, Session: "other"})
	var alive atomic.Bool
	alive.Store(true)
	s := openTest(t, Options{Path: path, Session: "own", Alive: func(string, string) bool { return alive.Load() }})
	for _, dies := range []bool{false, true} {
		run := startRun(other, "/p", "web")
		other.SaveRun(run, time.Now(), time.Time{}, []byte(`{}`))
		checkError(t, other.Flush(t.Context()))

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if r, err := s.WaitRun(gone, run, onlyItsEnd); !errors.Is(err, context.Canceled) || r.ID != run || !r.Ended.IsZero() {
			t.Errorf("a wait that is over: %+v, %v", r, err)
		}
		type outcome struct {
			run Run
			err error
		}
		over := make(chan outcome, 1)
		go func() {
			r, err := s.WaitRun(context.Background(), run, onlyItsEnd)
			over <- outcome{r, err}
		}()
		if dies {
			alive.Store(false)
		} else {
			other.EndCapture(run)
			other.SaveRun(run, time.Now(), time.Now(), []byte(`{"state":"exited"}`))
			checkError(t, other.Flush(t.Context()))
		}
		got := <-over
		if got.err != nil || got.run.ID != run || got.run.Lost != dies || got.run.Ended.IsZero() != dies {
			t.Errorf("dies %v: %+v, %v", dies, got.run, got.err)
		}
		if r, err := s.WaitRun(gone, run, onlyItsEnd); err != nil || r.ID != run {
			t.Errorf("what has happened already: %+v, %v", r, err)
		}
	}
	if _, err := s.WaitRun(t.Context(), 1<<40, onlyItsEnd); !errors.Is(err, ErrUnknownRun) {
		t.Errorf("no run: %v", err)
	}
}

// TestWaitRunOfAnotherServer: what is waited for is seen when that has stored it.
func TestWaitRunOfAnotherServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	other := openTest(t, Options{Path: path, Session: "other"})
	s := openTest(t, Options{Path: path, Session: "own", Alive: func(string, string) bool { return true }})
	run := startRun(other, "/p", "web")
	save := func(info string) {
		other.SaveRun(run, time.Now(), time.Time{}, []byte(info))
		checkError(t, other.Flush(t.Context()))
	}
	save(`{"ready":false}`)
	looked := make(chan string, 100)
	seen := make(chan error, 1)
	go func() {
		r, err := s.WaitRun(t.Context(), run, func(r *Run) bool {
			select {
			case looked <- string(r.Info):
			default:
			}
			return string(r.Info) == `{"ready":true}`
		})
		if err == nil && (r.ID != run || !r.Ended.IsZero()) {
			err = fmt.Errorf("%+v", r)
		}
		seen <- err
	}()
	if info := <-looked; info != `{"ready":false}` {
		t.Errorf("first seen: %s", info)
	}
	save(`{"ready":true}`)
	checkError(t, <-seen)
}

// TestEndOfRun: the cursor shows the last lines, whether the run is still in
// memory or has left it.
func TestEndOfRun(t *testing.T) {
	s := openTest(t, Options{})
	if silent := startRun(s, "/p", "silent"); s.EndOfRun(silent) != "" {
		t.Error("a run without output has an end to read from")
	}
	run := startRun(s, "/p", "web")
	put(s, run, 1, 5)
	s.EndCapture(run)
	for _, stored := range []bool{false, true} {
		if stored {
			s.SaveRun(run, time.Now(), time.Now(), nil)
			checkError(t, s.Flush(t.Context()))
			if s.ownRun(run) != nil {
				t.Fatal("the run is still in memory")
			}
		}
		p, err := s.Read(t.Context(), Query{Before: s.EndOfRun(run), Limit: 2})
		if err != nil || len(p.Lines) != 2 || p.Lines[1].Number != 5 {
			t.Errorf("stored %v: %+v, %v", stored, p, err)
		}
	}
}

func checkError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
