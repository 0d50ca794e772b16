package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// Limits are the limits, in bytes, of the files beside the database.
type Limits struct {
	WAL        int64 // length of the write-ahead log above which a transaction truncates it
	BlockedWAL int64 // length above which no transaction starts while a reader blocks the truncation
	Reserve    int64 // size of the reserve
}

// A walBlock records since when readers have blocked the truncation of the write-ahead log.
type walBlock struct{ since atomic.Pointer[time.Time] } // nil if no reader blocks

// Since returns when readers started to block the truncation of the write-ahead log, or the zero time if no
// reader blocks it.
func (w *walBlock) Since() (t time.Time) {
	if since := w.since.Load(); since != nil {
		t = *since
	}
	return t
}

// set records whether a reader blocks the truncation now.
func (w *walBlock) set(blocked bool) {
	if now := time.Now(); blocked {
		w.since.CompareAndSwap(nil, &now)
	} else {
		w.since.Store(nil)
	}
}

// fileSize returns the size of the file at path in bytes, 0 if there is none.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// walSize returns the length of the write-ahead log.
func (f *File) walSize() int64 { return fileSize(f.Path + "-wal") }

// truncateWait bounds how long a writer waits until the write-ahead log is within its limit.
const truncateWait = 250 * time.Millisecond

// BoundWAL truncates the write-ahead log if it is longer than its limit. Each server that writes calls BoundWAL
// after each transaction. If another server is truncating, BoundWAL waits for that server; otherwise one server
// would write while the other waits for its turn. While a reader blocks the truncation, BoundWAL leaves it to
// the checkpointer.
func (f *File) BoundWAL(ctx context.Context) {
	if f.walSize() <= f.limits.WAL || !f.WALBlock.Since().IsZero() {
		return
	}
	ok, err := PollUntil(ctx, truncateWait, func() (bool, error) { return f.truncateWAL(ctx, f.limits.WAL) })
	f.WALBlock.set(err == nil && !ok)
}

// truncateWAL copies the write-ahead log into the database and truncates it. It waits briefly for writers
// and readers, and reports whether the log is at most want bytes long.
func (f *File) truncateWAL(ctx context.Context, want int64) (bool, error) {
	err := f.Checkpoint(ctx, "TRUNCATE")
	if IsBusy(err) { // another server is truncating it
		err = nil
	}
	return f.walSize() <= want, err
}

// UnblockWAL tries again to truncate the write-ahead log after a reader blocked the truncation.
func (f *File) UnblockWAL(ctx context.Context) error {
	ok, err := f.truncateWAL(ctx, f.limits.WAL)
	if ok {
		f.WALBlock.set(false)
	}
	return err
}

// ErrWALBlocked means that a read transaction has been open for so long that the write-ahead log is too
// long to continue.
var ErrWALBlocked = errors.New("a transaction that reads the database, perhaps a person's sqlite3, keeps its write-ahead log from being emptied")

const (
	// blockedWait bounds how long the flusher waits for a reader to finish.
	blockedWait = time.Second
	// blockedReportAfter is how long a reader blocks the truncation before BlockedReason reports it.
	blockedReportAfter = 2 * time.Second
)

// AwaitWAL waits while the write-ahead log is longer than its hard limit. It returns ErrWALBlocked if that
// lasts for more than blockedWait.
func (f *File) AwaitWAL(ctx context.Context) error {
	if f.walSize() <= f.limits.BlockedWAL {
		return nil
	}
	ok, err := PollUntil(ctx, blockedWait, func() (bool, error) { return f.truncateWAL(ctx, f.limits.BlockedWAL) })
	if err == nil && !ok {
		err = ErrWALBlocked
	}
	return err
}

// BlockedReason returns a sentence for the user if a reader has blocked the truncation of the write-ahead
// log for a while, or "" if none has.
func (f *File) BlockedReason() string {
	since := f.WALBlock.Since()
	if since.IsZero() || time.Since(since) < blockedReportAfter {
		return ""
	}
	return fmt.Sprintf("%v, for %s now; that has %d MB, and grows until the transaction ends",
		ErrWALBlocked, time.Since(since).Round(time.Second), f.walSize()/1e6)
}

// CopyWAL copies the write-ahead log into the database, and truncates it if it is longer than a third of its
// limit. The copying waits for the disk without blocking writers. The truncation, which blocks writers, then
// has little left to copy.
func (f *File) CopyWAL(ctx context.Context) error {
	err := f.Checkpoint(ctx, "PASSIVE")
	if err == nil && f.walSize() > f.limits.WAL/3 && f.WALBlock.Since().IsZero() {
		_, err = f.truncateWAL(ctx, 0)
	}
	return err
}

// Checkpoint runs a checkpoint in the given mode: it copies the write-ahead log into the database as far as
// readers allow.
func (f *File) Checkpoint(ctx context.Context, mode string) error {
	_, err := f.checkpointDB.ExecContext(ctx, `PRAGMA wal_checkpoint(`+mode+`)`)
	return err
}

// Size returns the size of the database, its write-ahead log and its reserve in bytes.
func (f *File) Size() int64 { return fileSize(f.Path) + f.walSize() + fileSize(f.reservePath()) }
