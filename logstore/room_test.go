package logstore

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"

	"pmcp/logstore/fault"
	"pmcp/process/proctest"
)

// TestEveryStreamWaitsForRoom lets both streams of a run wait for room for pending lines, and
// checks that both wait equally long. A stream that did not wait would drop lines at once.
func TestEveryStreamWaitsForRoom(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{Path: filepath.Join(t.TempDir(), "pmcp.db")})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 1)
	flush(t, s) // flush now, so that no later commit makes room
	r := s.ownRun(run)
	r.pending.Add(runBound + 1)
	var streams sync.WaitGroup
	for range 2 {
		streams.Go(func() {
			s.awaitRoom(r)
			now := time.Now()
			if until, _ := r.startRoomWait(now); now.Before(until) {
				t.Errorf("got a wait %s too short, want the whole", until.Sub(now))
			}
		})
	}
	streams.Wait()
}

// TestFlushEndsWhileNewFaultsArrive records a new error during each commit of a flush, and checks that
// the flush still ends.
func TestFlushEndsWhileNewFaultsArrive(t *testing.T) {
	s := openTest(t, Options{Path: filepath.Join(t.TempDir(), "pmcp.db")})
	run := startRun(s, "/p", "web")
	flush(t, s)
	const most = 100
	var noted atomic.Int32
	note := func() int64 {
		if noted.Add(1) < most {
			s.faultLog.record(processKey{"/p", "web"}, run, 1, time.Now(), fault.Fault{Type: "Error", Message: "refused", Fingerprint: "f"})
		}
		return 0
	}
	conn, err := s.file.WriteDB.Conn(t.Context()) // the only connection
	checkError(t, err)
	checkError(t, conn.Raw(func(driver any) error {
		return driver.(*sqlite3.SQLiteConn).RegisterFunc("note", note, false)
	}))
	for _, change := range []string{"INSERT", "UPDATE"} {
		_, err := conn.ExecContext(t.Context(), `CREATE TEMP TRIGGER note_`+change+` AFTER `+change+` ON main.fault BEGIN SELECT note(); END`)
		checkError(t, err)
	}
	checkError(t, conn.Close())
	note()
	if flush(t, s); noted.Load() >= most {
		t.Errorf("got %d commits in one flush, want fewer than %d", noted.Load()-1, most)
	}
}

// TestRunsWithFullChunksWaitOnceAllHoldMuch checks which runs wait for the flusher: a run that exceeds its own bound,
// and each with a full chunk while all runs together exceed the shared bound, but never one with few lines.
func TestRunsWithFullChunksWaitOnceAllHoldMuch(t *testing.T) {
	s := openTest(t, Options{})
	for _, c := range []struct {
		run, all int64
		want     bool
	}{
		{runBound, sharedBound, false},
		{runBound + 1, sharedBound, true},
		{chunkBytes + 1, sharedBound, false},
		{chunkBytes + 1, sharedBound + 1, true},
		{chunkBytes, totalBound, false},
	} {
		r := &runLog{}
		r.pending.Store(c.run)
		before := s.budget.pending.Swap(c.all)
		if got := s.needsRoom(r); got != c.want {
			t.Errorf("run with %d of %d bytes: got wait %v, want %v", c.run, c.all, got, c.want)
		}
		s.budget.pending.Store(before)
	}
}

// TestNothingIsDroppedWhileCommitStalls lets many runs print more than all may hold while nothing can be committed, as
// when the disk is slow to sync, and checks that they wait and lose nothing.
func TestNothingIsDroppedWhileCommitStalls(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{Path: filepath.Join(t.TempDir(), "pmcp.db")})
	s.budget.roomWait = time.Hour
	var runs []int64
	for i := range 24 {
		runs = append(runs, startRun(s, "/p", fmt.Sprint("web-", i)))
	}
	flush(t, s)
	stall, err := s.file.WriteDB.Conn(t.Context()) // the only connection
	checkError(t, err)
	line := append(bytes.Repeat([]byte("x"), 999), '\n')
	var printing sync.WaitGroup
	var printed atomic.Int32
	for _, run := range runs {
		printing.Go(func() {
			defer printed.Add(1)
			for range totalBound / len(line) / 16 {
				s.Capture(run, Stdout, time.Now(), line)
			}
		})
	}
	isWaiting := func(run int64) bool {
		r := s.ownRun(run)
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.roomUntil.IsZero()
	}
	proctest.Await(t, "all runs that still print to wait", func() bool {
		waiting := 0
		for _, run := range runs {
			if isWaiting(run) {
				waiting++
			}
		}
		return waiting+int(printed.Load()) >= len(runs)
	})
	checkError(t, stall.Close())
	printing.Wait()
	flush(t, s)
	if n := s.Status().DroppedLines; n > 0 {
		t.Errorf("got %d lines dropped, want none", n)
	}
}
