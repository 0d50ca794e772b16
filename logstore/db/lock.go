package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockPoll = 20 * time.Millisecond
	lockWait = 5 * time.Second
)

const (
	// LockSuffix and MaintSuffix are appended to the database path to name its lock files. The files stay
	// when the locks are free.
	LockSuffix  = ".lock"
	MaintSuffix = ".maint"
)

// A FileLock is an advisory lock between servers. The kernel releases it when the process dies.
type FileLock struct {
	f *os.File
}

// OpenLock opens the lock file at path and creates it if needed. It does not acquire the lock.
func OpenLock(path string) (*FileLock, error) {
	f, err := openPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock file: %w", err)
	}
	return &FileLock{f: f}, nil
}

// tryAcquire acquires the lock, exclusive or shared, if it is free. It reports whether it succeeded and
// never waits.
func (l *FileLock) tryAcquire(exclusive bool) (bool, error) {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	for {
		err := unix.Flock(int(l.f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return false, fmt.Errorf("cannot lock %s: %w", l.f.Name(), err)
		}
	}
}

// PollUntil calls try every 20 ms until it returns true or an error, timeout has passed, or ctx ends. It
// reports whether try succeeded. A timeout is not an error.
func PollUntil(ctx context.Context, timeout time.Duration, try func() (bool, error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for {
		if ok, err := try(); ok || err != nil {
			return ok, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-poll.C:
		}
	}
}

// release releases the lock but keeps the file open.
func (l *FileLock) release() { _ = unix.Flock(int(l.f.Fd()), unix.LOCK_UN) }

// Close releases the lock. It may be called on nil and more than once.
func (l *FileLock) Close() {
	if l != nil {
		l.release() // by itself: a child between fork and exec has the file open, too
		_ = l.f.Close()
	}
}

// An ExclusiveLock excludes other servers and the other goroutines of this server. The lock of the kernel is
// not enough for the goroutines: it belongs to the open file, which all of them share.
type ExclusiveLock struct {
	file *FileLock  // excludes other servers
	mu   sync.Mutex // excludes the goroutines of this server
}

// TryAcquire acquires the lock if it is free and reports whether it did.
func (l *ExclusiveLock) TryAcquire() (bool, error) {
	if !l.mu.TryLock() {
		return false, nil
	}
	ok, err := l.file.tryAcquire(true)
	if !ok {
		l.mu.Unlock()
	}
	return ok, err
}

// Acquire waits up to lockWait for the lock and reports whether it was acquired.
func (l *ExclusiveLock) Acquire(ctx context.Context) (bool, error) {
	return PollUntil(ctx, lockWait, l.TryAcquire)
}

// Release releases the lock, which the caller must hold.
func (l *ExclusiveLock) Release() {
	l.file.release()
	l.mu.Unlock()
}
