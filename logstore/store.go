package logstore

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// A Store is an open log. Its methods may be called from several goroutines.
//
// The embedded owners do the work, each with its own lock; see the package comment. Their exported methods are
// methods of the Store. The Store's own methods are those that need several owners.
type Store struct {
	*storage
	*captureTable
	*faultLog
	*writer
	*maintainer
	*reader
	*projectTable
	*portTable

	closeOnce sync.Once
	closeErr  error
}

// Open opens or creates the log. Its error names the path and wraps ErrNewerSchema or ErrForeign if this
// version must not write to the file. A corrupt file is moved aside. If the file cannot be used at all, Open
// returns a Store that keeps the newest log in memory. Status reports both cases. ctx bounds Open only.
func Open(ctx context.Context, o Options) (*Store, error) {
	st, session, err := openStorage(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Store{storage: st, faultLog: newFaultLog(st)}
	queue := newFlushQueue()
	s.captureTable = newCaptureTable(st, newRunIDs(st, session), queue, s.faultLog)
	filters := &filterCache{limit: filterCacheBytes, searched: make(chan struct{}, 1)}
	s.reader = &reader{storage: st, captures: s.captureTable, filters: filters}
	s.maintainer = newMaintainer(st, s.captureTable, filters)
	s.projectTable, s.portTable = newProjectTable(st), newPortTable(st, s.captureTable)
	s.writer = newWriter(st, queue, s.captureTable, s.faultLog, s.maintainer, newClaimer(st, s.captureTable, s.portTable))
	return s, nil
}

// Close stores what was captured, waits for the Store's goroutines, and closes the file. It may be called
// more than once.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.ending.Store(true)
		s.endAll()
		s.closed.Store(true)
		close(s.closing)
		s.maintainer.cancel() // the last commit does not wait until the maintainer is done
		s.captureTable.Close()
		err := s.writer.Close()
		s.maintainer.Close()
		s.closeErr = errors.Join(err, s.storage.close(err == nil))
	})
	return s.closeErr
}

// The states of a Store's storage.
const (
	// StateOK: the file accepts writes.
	StateOK = "ok"
	// StateDegraded: the file currently fails, was deleted or replaced, or a reader blocks the truncation of its
	// write-ahead log. Lines that cannot be stored are kept in memory as far as there is room, and the Store
	// retries.
	StateDegraded = "degraded"
	// StateMemory: there is no usable file. The newest log is kept in memory until the Store is closed.
	StateMemory = "memory"
)

// A Status describes a Store at one moment.
type Status struct {
	// Path is the database file. It is empty for a Store in memory.
	Path string
	// Bytes is the size of the file, its write-ahead log and its reserve.
	Bytes int64
	// State is StateOK, StateDegraded or StateMemory. Reason says why it is not StateOK.
	State, Reason string
	// PendingBytes is the size of the text in memory that is not committed yet.
	PendingBytes int64
	// DroppedLines and DroppedBytes count the output that this Store dropped because the storage was too slow.
	DroppedLines, DroppedBytes int64
	// RetiredLines and RetiredBytes count the output that this Store removed because of age or size.
	RetiredLines, RetiredBytes int64
	// Quarantined is the path that a corrupt file found at Path was moved to, or empty.
	Quarantined string
	// Runs and Chunks count the rows of the database.
	Runs, Chunks int64
}

// Status returns the current state of the Store. It does not wait for writers.
func (s *Store) Status() Status {
	st := Status{
		PendingBytes: s.budget.pending.Load(),
		DroppedLines: s.budget.lost.lines.Load(),
		DroppedBytes: s.budget.lost.bytes.Load(),
		RetiredLines: s.retired.lines.Load(),
		RetiredBytes: s.retired.bytes.Load(),
	}
	if s.file == nil {
		st.State, st.Reason = StateMemory, s.memoryReason+keptInMemory
		return st
	}
	st.State, st.Path, st.Quarantined, st.Bytes = StateOK, s.file.Path, s.file.Quarantined, s.file.Size()
	if why := cmp.Or(s.degraded.Load(), s.damage.Load()); why != nil {
		st.Reason = *why + keptInMemory
	} else {
		st.Reason = cmp.Or(s.file.MissingReason(), s.file.BlockedReason())
	}
	if st.Reason != "" {
		st.State = StateDegraded
	}
	if s.closed.Load() {
		return st
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	err := s.file.ReadDB.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM chunk)`).Scan(&st.Runs, &st.Chunks)
	if err != nil && ctx.Err() == nil && st.Reason == "" { // waiting for slow readers is not a fault of the file
		st.State, st.Reason = StateDegraded, err.Error()
	}
	return st
}

// keptInMemory is appended to the reason why nothing is being written.
const keptInMemory = "; the log is kept in memory"

// statusTime bounds Status's count of rows, which may have to wait for other readers.
const statusTime = time.Second
