package logstore

import (
	"context"
	"path/filepath"
	"testing"
)

// TestCloseBesideAWriter: what a server tidies when it closes the file it leaves to those who
// have it open, if one of them writes at that moment.
func TestCloseBesideAWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	f, err := openFile(t.Context(), path, s.anyDead, func(*file) error { return nil })
	checkError(t, err)
	for i := range 20 { // that PRAGMA optimize has something to do
		run := startRun(s, "/p", "web")
		put(s, run, 1, 1000*(i+1))
		endRun(s, run)
	}
	flush(t, s)
	for id := range 8 { // a query by that index
		_, err := f.write.Exec(`SELECT * FROM run WHERE process = ? AND started > 0 ORDER BY started`, id)
		checkError(t, err)
	}
	conn, err := s.file.write.Conn(t.Context())
	checkError(t, err)
	_, err = conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	checkError(t, err)
	if err := f.close(); err != nil {
		t.Error(err)
	}
	_, err = conn.ExecContext(context.Background(), `ROLLBACK`)
	checkError(t, err)
	checkError(t, conn.Close())
}
