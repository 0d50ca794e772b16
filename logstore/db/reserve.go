package db

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// ReserveBytes is enough room to remove the largest log: a few pages of the write-ahead log for each
// transaction. The reserve of a small log is smaller; see Limits.
const ReserveBytes = 2 << 20

// reserveSuffix is appended to the database path to name the reserve: a file that occupies the room that
// the write-ahead log needs to remove log from a full disk.
const reserveSuffix = ".reserve"

func (f *File) reservePath() string { return f.Path + reserveSuffix }

// EnsureReserve creates the reserve if it does not exist or has the wrong size. On a full disk it creates no
// reserve and returns nil.
func (f *File) EnsureReserve() error {
	info, err := os.Lstat(f.reservePath())
	if err == nil && info.Mode().IsRegular() && info.Size() == f.limits.Reserve {
		return nil
	}
	f.freeReserve()
	made, err := os.OpenFile(f.reservePath(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // does not follow links
	if errors.Is(err, fs.ErrExist) {                                                    // another server just created it
		return nil
	}
	if err != nil {
		return err
	}
	_, err = made.Write(make([]byte, f.limits.Reserve))
	if err = errors.Join(err, made.Close()); IsDiskFull(err) {
		f.freeReserve()
		return nil
	}
	return err
}

// freeReserve deletes the reserve and reports whether there was one. If several callers compete, it returns
// true for only one of them.
func (f *File) freeReserve() bool { return os.Remove(f.reservePath()) == nil }

// RetryWhenFull calls write, which must be atomic. If the disk is full, it copies the write-ahead log into
// the database, so that SQLite can reuse the log from its start, and calls write again. If the disk is
// still full, it deletes the reserve and calls write a third time.
func (f *File) RetryWhenFull(ctx context.Context, write func() error) error {
	err := write()
	if IsDiskFull(err) && f.Checkpoint(ctx, "RESTART") == nil {
		err = write()
	}
	if IsDiskFull(err) && f.freeReserve() {
		err = write()
	}
	if err == nil {
		f.BoundWAL(ctx)
	}
	return err
}
