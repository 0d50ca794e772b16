package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Keep restores the session's files that others have removed or damaged. It checks
// them every period until ctx ends: without these files, other servers and the doctor
// cannot see this one. It then calls each of more, which check what else lies beside the
// record. It must not be called twice.
func (r *Registration) Keep(ctx context.Context, period time.Duration, log *slog.Logger, more ...func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for failed := false; ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		restored, err := r.restore()
		switch {
		case err != nil && !failed:
			log.Warn("the record is gone and cannot be restored; trying again", "error", err)
		case restored:
			log.Warn("the record was gone or damaged and is restored", "path", r.Path())
		}
		failed = err != nil
		for _, restore := range more {
			restore()
		}
	}
}

// restore writes what is missing and reports whether anything was. The lock comes
// first, so that no record exists without one. A lock file cannot get its name back:
// restore makes a new lock, which this server alone holds.
func (r *Registration) restore() (restored bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.procs == nil {
		return false, nil
	}
	missing := func(suffix string) bool {
		_, err := os.Lstat(file(r.dir, r.id, suffix))
		return errors.Is(err, os.ErrNotExist)
	}
	if missing(lockSuffix) {
		lock, err := Prepare(r.dir, r.id)
		if err != nil {
			return false, err
		}
		if err := Publish(lock, r.dir, r.id); err != nil {
			return false, errors.Join(err, lock.Close(), removeFile(unfinished(r.dir, r.id, lockSuffix)))
		}
		if r.lock != nil {
			_ = r.lock.Close() // of a file that is gone
		}
		r.lock, restored = lock, true
	}
	if missing(procsSuffix) {
		restored = true
		if err := r.procs.rewrite(); err != nil {
			return false, fmt.Errorf("cannot restore the list of processes: %w", err)
		}
	}
	if _, err := readRecord(r.dir, r.id); err != nil {
		restored = true
		if err := r.updateLocked(func(*Record) {}); err != nil {
			return false, err
		}
	}
	return restored, nil
}
