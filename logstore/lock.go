package logstore

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

// lockSuffix makes the name of a database's fileLock. The file stays when nobody holds the lock.
const lockSuffix = ".lock"

// fileLock is an advisory lock between servers. The kernel drops it when the process dies.
type fileLock struct {
	f *os.File
}

func openLock(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock file: %w", err)
	}
	return &fileLock{f: f}, nil
}

// try takes the lock if it is free at once.
func (l *fileLock) try(exclusive bool) (bool, error) {
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

// take waits up to lockWait for the lock.
func (l *fileLock) take(ctx context.Context, exclusive bool) (bool, error) {
	return awaitLock(ctx, func() (bool, error) { return l.try(exclusive) })
}

func awaitLock(ctx context.Context, try func() (bool, error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
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

func (l *fileLock) unlock() { _ = unix.Flock(int(l.f.Fd()), unix.LOCK_UN) }

// close drops the lock. Safe on nil and twice.
func (l *fileLock) close() {
	if l != nil {
		_ = l.f.Close()
	}
}

// soleLock is exclusive between servers and within this one: the kernel's lock alone belongs to the
// open file, which the goroutines of a server share.
type soleLock struct {
	servers *fileLock
	own     sync.Mutex
}

func openSoleLock(path string) (*soleLock, error) {
	l, err := openLock(path)
	if err != nil {
		return nil, err
	}
	return &soleLock{servers: l}, nil
}

// try takes the lock if it is free at once.
func (l *soleLock) try() (bool, error) {
	if !l.own.TryLock() {
		return false, nil
	}
	ok, err := l.servers.try(true)
	if !ok {
		l.own.Unlock()
	}
	return ok, err
}

// take waits up to lockWait for the lock.
func (l *soleLock) take(ctx context.Context) (bool, error) { return awaitLock(ctx, l.try) }

func (l *soleLock) unlock() {
	l.servers.unlock()
	l.own.Unlock()
}

// close is safe on nil and twice.
func (l *soleLock) close() {
	if l != nil {
		l.servers.close()
	}
}
