package logstore

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"

	"pmcp/logstore/fault"
)

// TestEveryStreamWaitsForRoom: where one stream of a run waits for room, another does too. Who does not
// drops lines at once.
func TestEveryStreamWaitsForRoom(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{Path: filepath.Join(t.TempDir(), "pmcp.db")})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 1)
	flush(t, s) // so that no commit makes room below
	r := s.ownRun(run)
	var streams sync.WaitGroup
	for range 2 {
		streams.Go(func() {
			s.awaitRoom(r)
			now := time.Now()
			if until, _ := r.waitsForRoom(now); now.Before(until) {
				t.Errorf("it has waited %s too short", until.Sub(now))
			}
		})
	}
	streams.Wait()
}

// TestFlushEndsWhileErrorsCome: an error that is noted during each commit does not keep the flusher
// from what else there is.
func TestFlushEndsWhileErrorsCome(t *testing.T) {
	s := openTest(t, Options{Path: filepath.Join(t.TempDir(), "pmcp.db")})
	run := startRun(s, "/p", "web")
	flush(t, s)
	const most = 100
	var noted atomic.Int32
	note := func() int64 {
		if noted.Add(1) < most {
			s.faults.note(processKey{"/p", "web"}, run, 1, time.Now(), fault.Fault{Type: "Error", Message: "refused", Fingerprint: "f"})
		}
		return 0
	}
	conn, err := s.file.write.Conn(t.Context()) // the one there is
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
		t.Errorf("%d commits of one flush", noted.Load()-1)
	}
}
