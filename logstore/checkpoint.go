package logstore

import (
	"context"
	"time"
)

const (
	// checkpointBytes is how much may be stored before the write-ahead log is copied into the file.
	checkpointBytes = 8 << 20
	// truncateAfter is how long after the last checkpoint the write-ahead log is cut to nothing.
	truncateAfter = 30 * time.Second
)

// checkpointer copies the write-ahead log into the file, on a connection of its own: so the flusher
// does not wait for the disk to sync, and a fast child does not run into its bound meanwhile. That
// connection never waits for a lock.
func (s *Store) checkpointer(ctx context.Context) {
	var idle <-chan time.Time
	for {
		mode := "PASSIVE"
		select {
		case <-s.checkpoint:
			idle = time.After(truncateAfter)
		case <-idle:
			idle, mode = nil, "TRUNCATE"
		case <-ctx.Done():
			return
		}
		if s.unreadable() {
			continue
		}
		if err := s.file.checkpoint(ctx, mode); err != nil && ctx.Err() == nil {
			s.log.Debug("cannot checkpoint the log database now", "error", err)
		}
	}
}

// checkpoint copies the write-ahead log into the file, as far as readers let it.
func (f *file) checkpoint(ctx context.Context, mode string) error {
	_, err := f.check.ExecContext(ctx, `PRAGMA wal_checkpoint(`+mode+`)`)
	return err
}
