package logstore

import (
	"context"
	"path/filepath"
	"testing"

	"pmcp/logstore/db"
)

// TestCloseDoesNotWaitForWriter closes a Store while another connection holds the write lock, and
// checks that Close does not wait for the lock: Close leaves the clean-up of the file to the
// servers that still have it open.
func TestCloseDoesNotWaitForWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	f, err := db.Open(t.Context(), path, limitsOf(defaultMaxBytes).Limits, s.anyDead, func(*db.File) error { return nil })
	checkError(t, err)
	for i := range 20 { // store rows, so that PRAGMA optimize has something to do
		run := startRun(s, "/p", "web")
		put(s, run, 1, 10*(i+1))
		endRun(s, run)
	}
	flush(t, s)
	for id := range 8 { // this query uses the index
		_, err := f.WriteDB.Exec(`SELECT * FROM run WHERE process = ? AND started > 0 ORDER BY started`, id)
		checkError(t, err)
	}
	conn, err := s.file.WriteDB.Conn(t.Context())
	checkError(t, err)
	_, err = conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	checkError(t, err)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	_, err = conn.ExecContext(context.Background(), `ROLLBACK`)
	checkError(t, err)
	checkError(t, conn.Close())
}
