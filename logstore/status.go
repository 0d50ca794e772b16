package logstore

import (
	"context"
	"os"
	"time"
)

// The states of a Store's storage.
const (
	// StateOK: the file takes what is written.
	StateOK = "ok"
	// StateDegraded: the file fails at the moment, or was deleted or replaced. The newest log is kept
	// in memory, and writing is tried again.
	StateDegraded = "degraded"
	// StateMemory: there is no usable file. The newest log is kept in memory until the Store is closed.
	StateMemory = "memory"
)

// Status describes a Store at one moment.
type Status struct {
	// Path is the database file; empty with memory only.
	Path string
	// Bytes is the size of the file and its write-ahead log.
	Bytes int64
	// State is StateOK, StateDegraded or StateMemory, Reason why it is not StateOK.
	State, Reason string
	// PendingBytes is text in memory that no commit covers yet.
	PendingBytes int64
	// DroppedLines and DroppedBytes count what this Store had to give up because the storage did not keep up.
	DroppedLines, DroppedBytes int64
	// RetiredLines and RetiredBytes count what this Store removed by age or size.
	RetiredLines, RetiredBytes int64
	// Quarantined is where a corrupt file found at Path was moved; empty if none was.
	Quarantined string
	// Runs and Chunks count the rows of the database.
	Runs, Chunks int64
}

// Status describes the Store. It does not wait for writers.
func (s *Store) Status() Status {
	st := Status{
		State:        StateMemory,
		Reason:       s.memoryReason + keptInMemory,
		PendingBytes: s.pending.Load(),
		DroppedLines: s.lost.lines.Load(),
		DroppedBytes: s.lost.bytes.Load(),
		RetiredLines: s.retired.lines.Load(),
		RetiredBytes: s.retired.bytes.Load(),
	}
	if s.file == nil {
		return st
	}
	st.Path, st.Quarantined, st.Bytes = s.file.path, s.file.quarantined, s.file.bytes()
	st.State, st.Reason = StateOK, s.flusher.why()
	if why := s.damage.Load(); why != nil && st.Reason == "" {
		st.Reason = *why
	}
	if st.Reason != "" {
		st.Reason += keptInMemory
	} else {
		st.Reason = s.file.missing()
	}
	if st.Reason != "" {
		st.State = StateDegraded
	}
	if s.closed.Load() {
		return st
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	err := s.file.read.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM chunk)`).Scan(&st.Runs, &st.Chunks)
	if err != nil && ctx.Err() == nil && st.Reason == "" { // slow readers before it are no fault of the file
		st.State, st.Reason = StateDegraded, err.Error()
	}
	return st
}

// keptInMemory ends the reason why nothing is written at the moment.
const keptInMemory = "; the log is kept in memory"

// statusTime bounds the counting of rows for Status, which takes its turn after other readers.
const statusTime = time.Second

// bytes is the size of the file and its write-ahead log.
func (f *file) bytes() (n int64) {
	for _, path := range []string{f.path, f.path + "-wal"} {
		if info, err := os.Stat(path); err == nil {
			n += info.Size()
		}
	}
	return n
}
