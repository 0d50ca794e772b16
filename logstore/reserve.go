package logstore

import (
	"context"
	"os"
)

// reserveBytes is room enough to remove the largest log: a few pages of the write-ahead log for each transaction.
const reserveBytes = 2 << 20

// Removing log from a full disk needs a little room of its own, in the write-ahead log. A file
// beside the database keeps it.

func (f *file) reservePath() string { return f.path + ".reserve" }

// keepReserve fills the reserve if it is not there. Without room for it there is none.
func (f *file) keepReserve() error {
	if info, err := os.Stat(f.reservePath()); err == nil && info.Size() >= reserveBytes {
		return nil
	}
	err := os.WriteFile(f.reservePath(), make([]byte, reserveBytes), 0o600)
	if diskFull(err) {
		f.freeReserve()
		return nil
	}
	return err
}

// freeReserve gives the room to who asks first, and tells whether there was any.
func (f *file) freeReserve() bool {
	info, err := os.Stat(f.reservePath())
	return err == nil && info.Size() > 0 && os.Truncate(f.reservePath(), 0) == nil
}

// withRoom runs write, which changes all or nothing. If the disk is full it runs once more with the
// write-ahead log copied into the file, after which that is written anew from its start, and once
// more with the reserve.
func (f *file) withRoom(ctx context.Context, write func() error) error {
	err := write()
	if diskFull(err) && f.checkpoint(ctx, "RESTART") == nil {
		err = write()
	}
	if diskFull(err) && f.freeReserve() {
		err = write()
	}
	return err
}
