package logstore

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// TestReaderThatBlocksCheckpointIsReported checks what happens when a reader's transaction keeps
// the write-ahead log from being emptied: the status names the reader, the write-ahead log stays
// below a limit, and lines beyond it are dropped and counted. When the transaction ends, storage
// recovers.
func TestReaderThatBlocksCheckpointIsReported(t *testing.T) {
	t.Parallel()
	const size = 5e6
	s := openTest(t, Options{Path: filepath.Join(t.TempDir(), "pmcp.db"), MaxBytes: size})
	dir := filepath.Dir(s.opts.Path)
	run := startRun(s, "/p", "web")
	put(s, run, 1, 100)
	flush(t, s)
	reader, err := raw(t, s).BeginTx(t.Context(), nil)
	checkError(t, err)
	var n int
	checkError(t, reader.QueryRow(`SELECT count(*) FROM run`).Scan(&n)) // the reader holds its snapshot from here on

	putMore := func() {
		s.Capture(run, Stdout, time.Now(), []byte(noise(4000)+"\n"))
	}
	peak := int64(0)
	for s.Status().DroppedLines == 0 && peak < 2*minBlockedWAL { // go on until the write-ahead log is at its limit
		putMore()
		peak = max(peak, sizeOf(t, dir))
	}
	if limit := int64(minBlockedWAL + 1.1*size); peak > limit {
		t.Errorf("got a directory of %d bytes, want at most %d", peak, limit)
	}
	st := s.Status()
	if st.State != StateDegraded || !strings.Contains(st.Reason, "a transaction that reads the database") {
		t.Errorf("got state %s: %s; want degraded by a reader", st.State, st.Reason)
	}
	checkError(t, reader.Rollback())

	proctest.Await(t, "that the next retry succeeds", func() bool { putMore(); return s.Status().State == StateOK })
	proctest.Await(t, "the next transaction to truncate the old log", func() bool {
		putMore()
		flush(t, s)
		return sizeOf(t, dir) <= size
	})
}

// TestStatusNamesReaderThatBlocksCheckpoint checks that the status names a reader that keeps the
// write-ahead log from being emptied, although all lines are stored, until the reader's transaction
// ends.
func TestStatusNamesReaderThatBlocksCheckpoint(t *testing.T) {
	t.Parallel()
	const size = 5e6
	s := openTest(t, Options{Path: filepath.Join(t.TempDir(), "pmcp.db"), MaxBytes: size})
	run := startRun(s, "/p", "web")
	flush(t, s)
	reader, err := raw(t, s).BeginTx(t.Context(), nil)
	checkError(t, err)
	var n int
	checkError(t, reader.QueryRow(`SELECT count(*) FROM run`).Scan(&n))
	fill(t, s, run, time.Now(), 2e6)
	await := func(state string) (st Status) {
		t.Helper()
		proctest.Await(t, "the state "+state, func() bool { st = s.Status(); return st.State == state })
		return st
	}
	if st := await(StateDegraded); !strings.Contains(st.Reason, "a transaction that reads the database") || st.PendingBytes != 0 || st.DroppedLines != 0 {
		t.Errorf("got %+v, want a reader as the reason and nothing pending or dropped", st)
	}
	checkError(t, reader.Rollback())
	await(StateOK)
	if got := sizeOf(t, filepath.Dir(s.opts.Path)); got > size {
		t.Errorf("got a directory of %d bytes, want at most %d", got, int64(size))
	}
}
