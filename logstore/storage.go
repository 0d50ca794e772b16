package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/pack"
)

// A storage is the database file of a Store, with the reasons not to use it. All owners share it; it needs no lock.
type storage struct {
	opts         Options
	limits       limits // sizes of files, transactions and chunks
	log          *slog.Logger
	file         *db.File // nil: memory only
	memoryReason string   // why there is no file
	packer       pack.Packer

	damage   atomic.Pointer[string] // why the file is corrupt; nil if no damage was found
	degraded atomic.Pointer[string] // why the flusher cannot store the log; nil if it can

	ending  atomic.Bool // Close was called
	closed  atomic.Bool // all captures have ended
	closing chan struct{}
}

// openStorage opens the file, or falls back to memory. It returns the session whose block of run ids is in use, too.
func openStorage(ctx context.Context, o Options) (_ *storage, session int64, err error) {
	o = o.withDefaults()
	s := &storage{opts: o, log: o.Logger, limits: limitsOf(o.MaxBytes), closing: make(chan struct{})}
	if o.Path == "" {
		s.memoryReason = "no database file was asked for"
		return s, 1, nil
	}
	if o.ReadOnly {
		f, err := db.OpenReader(ctx, o.Path)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", o.Path, err)
		}
		s.file = f
		return s, 0, nil // no run has this session
	}
	f, err := db.Open(ctx, o.Path, s.limits.Limits, s.anyDead, func(f *db.File) (err error) {
		session, err = db.ReserveSession(ctx, f.WriteDB, o.owner(), time.Now())
		return err
	})
	switch {
	case errors.Is(err, ErrNewerSchema) || errors.Is(err, ErrForeign):
		return nil, 0, fmt.Errorf("%s: %w", o.Path, err)
	case ctx.Err() != nil:
		return nil, 0, err
	case err != nil:
		s.log.Error("cannot use the log database; the log is kept in memory", "path", o.Path, "error", err)
		s.memoryReason = err.Error()
		session = 1
	default:
		if err := o.checkFileSystem(f.Path); err != nil {
			s.log.Warn("the log database is not safe", "error", err)
		}
		if f.Quarantined != "" {
			s.log.Warn("the log database was unusable and has been moved aside", "to", f.Quarantined)
		}
		s.file = f
	}
	return s, session, nil
}

// close records that the session has ended and closes the file. It does not record the end if damage was
// found, so that the next server checks the file. Nor does it record the end if the last lines could not be
// stored, so that the next server seals the runs of this session and adds gaps to them.
func (s *storage) close(stored bool) (err error) {
	switch {
	case s.file == nil:
		return nil
	case s.damage.Load() != nil:
		s.file.CloseUnchanged()
		return nil
	case stored && !s.opts.ReadOnly:
		err = db.EndSession(context.Background(), s.file.WriteDB, s.opts.Session, time.Now())
	}
	return errors.Join(err, s.file.Close())
}

// anyDead reports whether any of the owners is a dead server.
func (s *storage) anyDead(owners []db.Owner) bool {
	return slices.ContainsFunc(owners, func(o db.Owner) bool { return !s.isAlive(o) })
}

// isAlive reports whether the owner is this server or another live server.
func (s *storage) isAlive(o db.Owner) bool {
	return o.UUID == s.opts.Session || o.UUID != "" && s.opts.Alive(o.Registry, o.UUID)
}

// memoryOnly reports whether only memory can be read.
func (s *storage) memoryOnly() bool { return s.file == nil || s.damage.Load() != nil }

// withRead calls fn in a read transaction, or with a nil Querier if there is no readable file. ctx bounds the
// wait for a connection. The context that fn receives is not canceled when ctx ends, since the driver would
// start a goroutine for each statement. If fn reads much, it must check ctx itself.
func (s *storage) withRead(ctx context.Context, fn func(context.Context, db.Querier) error) error {
	if s.memoryOnly() || s.degraded.Load() != nil && !s.fileReadable(ctx) {
		return fn(ctx, nil)
	}
	err := s.file.WithRead(ctx, fn)
	if db.IsCorrupt(err) {
		s.recordDamage(err)
		return fmt.Errorf("%w: %w", errFoundDamage, err)
	}
	if err != nil && ctx.Err() == nil && s.closed.Load() { // the file was closed during the read
		return ErrClosed
	}
	return err
}

// fileReadable reports whether a file that cannot be written can at least be read. If not, readers use memory
// only.
func (s *storage) fileReadable(ctx context.Context) bool {
	var n int
	return s.file.ReadDB.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM session LIMIT 1)`).Scan(&n) == nil || ctx.Err() != nil
}

// update calls fn in a write transaction unless the file is known to be damaged. It may call fn more than
// once: see db.File.RetryWhenFull.
func (s *storage) update(ctx context.Context, fn func(*sql.Tx) error) error {
	if err := s.damageErr(); err != nil {
		return err
	}
	if s.opts.ReadOnly {
		return errReadOnly
	}
	return s.file.Update(ctx, fn)
}

// recordDamage records that the file was damaged while this server had it open. From then on this server
// neither reads nor writes the file, because data stored in it could not be read again. The next server that
// has the file to itself moves it aside.
func (s *storage) recordDamage(err error) {
	why := err.Error()
	if s.damage.CompareAndSwap(nil, &why) {
		s.log.Error("the log database was damaged; the log is kept in memory", "error", err)
	}
}

// damageErr returns why the file is no longer written to, or nil if it is not damaged.
func (s *storage) damageErr() error {
	if why := s.damage.Load(); why != nil {
		return fmt.Errorf("%w: %s", db.ErrCorrupt, *why)
	}
	return nil
}

// nanos returns the stored form of a time: Unix nanoseconds, or 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// timeFromNanos is the inverse of nanos.
func timeFromNanos(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
