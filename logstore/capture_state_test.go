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

// onlyItsEnd is a condition with which WaitRun waits only for the end of a run.
func onlyItsEnd(*Run) bool { return false }

// TestWaitRunSeesEndInOtherServer checks that WaitRun for a run of another server returns when that
// server ends the run, and when that server dies.
func TestWaitRunSeesEndInOtherServer(t *testing.T) {
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
			t.Errorf("cancelled: got %+v, %v; want the running run", r, err)
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
			t.Errorf("server dies %v: got %+v, %v; want the end of run %d", dies, got.run, got.err, run)
		}
		if r, err := s.WaitRun(gone, run, onlyItsEnd); err != nil || r.ID != run {
			t.Errorf("after the end: got %+v, %v; want run %d", r, err, run)
		}
	}
	if _, err := s.WaitRun(t.Context(), 1<<40, onlyItsEnd); !errors.Is(err, ErrUnknownRun) {
		t.Errorf("unknown run: got %v, want ErrUnknownRun", err)
	}
}

// TestWaitRunSeesInfoOfOtherServer checks that WaitRun for a change of another server's run returns
// when that server stores the change.
func TestWaitRunSeesInfoOfOtherServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	other := openTest(t, Options{Path: path, Session: "other"})
	s := openTest(t, Options{Path: path, Session: "own", Alive: func(string, string) bool { return true }})
	run := startRun(other, "/p", "web")
	save := func(info string) {
		other.SaveRun(run, time.Now(), time.Time{}, []byte(info))
		checkError(t, other.Flush(t.Context()))
	}
	save(`{"ready":false}`)
	infos := make(chan string, 100)
	seen := make(chan error, 1)
	go func() {
		r, err := s.WaitRun(t.Context(), run, func(r *Run) bool {
			select {
			case infos <- string(r.Info):
			default:
			}
			return string(r.Info) == `{"ready":true}`
		})
		if err == nil && (r.ID != run || !r.Ended.IsZero()) {
			err = fmt.Errorf("got %+v, want run %d without an end", r, run)
		}
		seen <- err
	}()
	if info := <-infos; info != `{"ready":false}` {
		t.Errorf("first info: got %s, want not ready", info)
	}
	save(`{"ready":true}`)
	checkError(t, <-seen)
}

// leaveMemory stores a run that has ended, so that it is in the file alone.
func leaveMemory(t *testing.T, s *Store, run int64) {
	t.Helper()
	s.SaveRun(run, time.Now(), time.Now(), nil)
	checkError(t, s.Flush(t.Context()))
	if s.ownRun(run) != nil {
		t.Fatal("got the run in memory, want it only in the file")
	}
}

// TestReadingBackFromEndReturnsLastLines checks that reading backwards from the end of a run
// returns its last lines, both from memory and after the run has left memory.
func TestReadingBackFromEndReturnsLastLines(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 5)
	s.EndCapture(run)
	for _, stored := range []bool{false, true} {
		end, _ := s.EndOfRuns([]int64{run})
		if stored {
			leaveMemory(t, s, run)
			end = cursor{run: unknownLine}.String() // as events of earlier versions have it
		}
		p, err := s.Read(t.Context(), Query{Before: end, Limit: 2})
		if err != nil || len(p.Lines) != 2 || p.Lines[1].Number != 5 {
			t.Errorf("stored %v: got %+v, %v; want lines 4 and 5", stored, p, err)
		}
	}
}

// TestLinesOfStopOutliveRunInMemory checks that the lines around a stop and the last output are known while a run is in
// memory and after it has left it, and that a second stop of the same run changes nothing.
func TestLinesOfStopOutliveRunInMemory(t *testing.T) {
	s := openTest(t, Options{})
	run, other := startRun(s, "/p", "web"), startRun(s, "/p", "other")
	put(s, other, 1, 3)
	put(s, run, 1, 2)
	s.StopBegan(run)
	put(s, run, 3, 4)
	s.StopBegan(run)
	s.Capture(run, Stderr, time.Now(), []byte("bye\n \n"))
	s.EndCapture(run)
	s.RunEnded(run, 0, "")
	for _, stored := range []bool{false, true} {
		if stored {
			leaveMemory(t, s, run)
		}
		if before, last := s.StopLines(run); before != 2 || last != 6 {
			t.Errorf("stored %v: got the lines %d to %d, want 2 to 6", stored, before, last)
		}
		if text, number := s.LastOutput(run); text != "bye" || number != 5 {
			t.Errorf("stored %v: got %q in line %d, want bye in line 5", stored, text, number)
		}
	}
	if before, last := s.StopLines(other); before != 0 || last != 0 {
		t.Errorf("run that goes on: got the lines %d to %d, want 0", before, last)
	}
}

// TestReasonOfEndOutlivesRunInMemory checks that an event that is written late knows why a run
// ended, also after the run has left memory, and that the reasons are bounded.
func TestReasonOfEndOutlivesRunInMemory(t *testing.T) {
	s := openTest(t, Options{})
	var runs []int64
	for i := range maxReasons + 1 {
		run := startRun(s, "/p", "web")
		s.Capture(run, Stderr, time.Now(), fmt.Appendf(nil, "oh %d\n", i))
		s.EndCapture(run)
		s.RunEnded(run, 3, "")
		s.SaveRun(run, time.Now(), time.Now(), nil)
		if f := s.WhyEnded(run); f.Message != fmt.Sprint("oh ", i) {
			t.Errorf("run %d in memory: got %+v, want its last output", i, f)
		}
		runs = append(runs, run)
	}
	checkError(t, s.Flush(t.Context()))
	known := 0
	for i, run := range runs {
		if s.ownRun(run) != nil {
			t.Fatal("got the run in memory, want it only in the file")
		}
		f := s.WhyEnded(run)
		if f.Message != "" {
			known++
		}
		if f.Message != "" && (f.Message != fmt.Sprint("oh ", i) || f.ID == "" || f.Name != "web") {
			t.Errorf("stored run %d: got %+v, want its last output", i, f)
		}
	}
	if known != maxReasons || cap(s.captureTable.reasons) > 4*maxReasons {
		t.Errorf("got the reasons of %d runs and room for %d, want %d", known, cap(s.captureTable.reasons), maxReasons)
	}
}

func checkError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReasonOfEndIsFirstOfCascade checks that the error which explains the end of a run is the one that answers name as
// the cause: not a later one that followed from it, nor an earlier one that was long before.
func TestReasonOfEndIsFirstOfCascade(t *testing.T) {
	s := openTest(t, Options{})
	run, at := startRun(s, "/p", "web"), time.Now()
	for _, line := range []struct {
		at   time.Duration
		text string
	}{{0, "TypeError: long ago"}, {time.Minute, "npm error Lifecycle script `dev` failed with error:"}, {time.Minute, "ERROR cannot reach the database"}, {time.Minute + 2*time.Second, "Error: no pool"}} {
		s.Capture(run, Stderr, at.Add(line.at), []byte(line.text+"\n\n"))
		for range quietTicks {
			s.tickQuiet()
		}
	}
	s.EndCapture(run)
	s.RunEnded(run, 1, "")
	if f := s.WhyEnded(run); f.Message != "cannot reach the database" {
		t.Errorf("got %+v, want the first of those before the end", f.Fault)
	}
}
