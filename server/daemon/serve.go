package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"pmcp/process/guard"
	"pmcp/registry"
	"pmcp/server/socket"
)

// A Host serves the connections of a daemon; package host has one. Its methods may be called
// from several goroutines.
type Host interface {
	// Handle serves a connection, which it closes. ctx ends with the daemon.
	Handle(ctx context.Context, c *net.UnixConn)
	// Busy reports whether a connection is being handled or there is a session.
	Busy() bool
	// Changed gets a value when Busy may have changed.
	Changed() <-chan struct{}
	// Outdated returns a channel that is closed when a caller needs another daemon.
	Outdated() <-chan struct{}
	// Close ends what the host has started, and returns when that has ended.
	Close()
}

// A Daemon is this process as the daemon of a database. All fields but Idle and SocketPath are required.
type Daemon struct {
	// ID is the session, Dir the directory of the records.
	ID, Dir string
	// SocketPath is the path of a socket on which the daemon listens beside the one next to
	// its record; "" for none.
	SocketPath string
	// Record is the record to publish; Transport, Socket and DiesWith are filled in.
	Record registry.Record
	// Life is the connection to the guardian.
	Life *guard.Lifeline
	Host Host
	Log  *slog.Logger
	// File is the file to which Log and the sessions write.
	File *Log
	// Idle is how long the daemon lives without a session and a connection; 0 means ten
	// minutes.
	Idle time.Duration
}

// keepPeriod is how often a daemon checks that its record and its socket are still there.
const keepPeriod = 10 * time.Second

// Serve takes connections until the daemon has been idle for long enough, a signal asks for
// the end, the guardian is dead or ctx ends. Then it ends the host and removes the record. An
// error means that the daemon could not begin, or that something of it is left.
func (d *Daemon) Serve(ctx context.Context, signals *guard.Signals) error {
	own, lock := &ownLock{file: guard.DaemonLock(), dir: d.Dir, database: d.Record.Database, id: d.ID}, d.Life.Lock()
	if own.file == nil || lock == nil {
		return errors.New("a daemon is started by pmcp itself")
	}
	defer func() { _ = own.file.Close() }()
	if err := registry.Publish(lock, d.Dir, d.ID); err != nil {
		return err
	}
	listeners, err := d.listen()
	if err != nil {
		return errors.Join(err, registry.Remove(d.Dir, d.ID))
	}
	d.Record.Transport, d.Record.Socket, d.Record.DiesWith = registry.TransportDaemon, listeners[len(listeners)-1].Path(), diesWith(d.Record)
	record, err := registry.Register(d.Dir, d.ID, d.Record)
	if err == nil {
		err = registry.AnnounceDaemon(own.file, d.ID)
	}
	if err != nil {
		return errors.Join(err, closeAll(listeners), registry.Remove(d.Dir, d.ID))
	}
	d.Log.Info("the daemon serves", "version", d.Record.Version, "pid", d.Record.Server.PID, "guardian", d.Record.Guardian.PID,
		"database", d.Record.Database, "dies_with", d.Record.DiesWith)
	d.untilEnd(ctx, signals, listeners, record, own)
	err = registry.AnnounceDaemon(own.file, "")
	for _, l := range listeners[1:] {
		err = errors.Join(err, l.Remove())
	}
	d.Host.Close()
	err = errors.Join(err, record.Close())
	select {
	case <-d.Life.Gone(): // the guardian cannot do it
		own.replaced = true
	default:
	}
	if own.replaced {
		err = errors.Join(err, registry.RemoveDaemon(own.file, d.Dir, d.Record.Database))
	}
	return err
}

// listen returns the sockets of the daemon, the one beside its record first.
func (d *Daemon) listen() ([]*socket.Listener, error) {
	first, err := socket.Listen(d.Dir, d.ID, d.Log)
	if err != nil || d.SocketPath == "" {
		return []*socket.Listener{first}, err
	}
	second, err := socket.ListenAt(d.SocketPath, d.Log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("PM_DAEMON_SOCKET_PATH=%q: %w", d.SocketPath, err), first.Close())
	}
	return []*socket.Listener{first, second}, nil
}

// closeAll closes the sockets.
func closeAll(listeners []*socket.Listener) (err error) {
	for _, l := range listeners {
		err = errors.Join(err, l.Close())
	}
	return err
}

// An ownLock is the lock of this daemon. Only lost is used by several goroutines.
type ownLock struct {
	file              *os.File
	dir, database, id string
	replaced          bool        // whether file is not the one that the guardian holds, too
	lost              atomic.Bool // whether another daemon has taken over
}

// restore creates the lock again if others have removed it, as when the directory of the
// records was emptied.
func (l *ownLock) restore(log *slog.Logger) {
	if l.lost.Load() || registry.IsDaemonLock(l.file, l.dir, l.database) {
		return
	}
	file, err := registry.LockDaemon(l.dir, l.database)
	if err == nil {
		_ = l.file.Close() // of a file that is gone
		l.file, l.replaced = file, true
		err = registry.AnnounceDaemon(file, l.id)
	}
	switch {
	case errors.Is(err, registry.ErrDaemonLives):
		l.lost.Store(true)
		log.Warn("the lock was gone, and another daemon has it now; this one ends when it keeps nothing")
	case err != nil:
		log.Warn("the lock is gone and cannot be restored; trying again", "error", err)
	default:
		log.Warn("the lock was gone and is restored")
	}
}

// untilEnd serves until there is a reason to end.
func (d *Daemon) untilEnd(ctx context.Context, signals *guard.Signals, listeners []*socket.Listener, record *registry.Registration, own *ownLock) {
	var watchers sync.WaitGroup
	defer watchers.Wait()
	serving, end := guard.Serving(ctx, &watchers, signals, d.Life)
	defer end(nil)
	watchers.Go(func() {
		select {
		case <-d.Host.Outdated():
			end(errors.New("a caller has another version, and there is no session"))
		case <-serving.Done():
		}
	})
	watchers.Go(func() {
		limit := d.Idle
		if limit == 0 {
			limit = idleLimit
		}
		outdated := func() bool { return own.lost.Load() || d.Record.Replaced() }
		if awaitIdle(serving, d.Host, limit, outdated) == nil {
			end(errors.New("it has nothing to do"))
		}
	})
	watchers.Go(func() { registry.SweepDying(serving, serving, d.Dir, d.Log) })
	watchers.Go(func() {
		record.Keep(serving, keepPeriod, d.Log, func() {
			for _, l := range listeners {
				l.Restore()
			}
			own.restore(d.Log)
			d.File.Bound()
			if now := diesWith(registry.Describe(d.Life.Guardian())); now != record.Record().DiesWith {
				_ = record.Update(func(r *registry.Record) { r.DiesWith = now }) // tried again in a while
			}
		})
	})
	for _, l := range listeners[1:] {
		watchers.Go(func() { l.ServeConns(serving, d.Host.Handle) })
	}
	listeners[0].ServeConns(serving, d.Host.Handle)
	d.Log.Info("the daemon ends", "reason", context.Cause(serving))
}

// checkLimit is how long Check waits for a daemon that takes no connections.
const checkLimit = 2 * time.Second

// Check reports on the daemon of a database, for the doctor. An error means that a daemon does
// not take connections or is stopped by a signal, that the last one has failed, or that
// another process has its TCP port.
func Check(ctx context.Context, o Options) (string, error) {
	text, err := check(ctx, o)
	if o.TCP != "" {
		err = errors.Join(err, checkTCP(o.TCP, registry.DaemonRecord(o.Dir, o.Database).Server.PID))
	}
	return text, err
}

func check(ctx context.Context, o Options) (string, error) {
	log := registry.DaemonLog(o.Dir, o.Database)
	record := registry.DaemonRecord(o.Dir, o.Database)
	if why := record.Stopped(); why != "" { // the kernel takes its connections
		return log, fmt.Errorf("pid %d, %s", record.Server.PID, why)
	}
	o.Start, o.limit = nil, checkLimit
	c, err := Dial(ctx, o)
	switch {
	case err == nil:
		_ = c.Close()
		return fmt.Sprintf("pid %d, log %s", registry.DaemonRecord(o.Dir, o.Database).Server.PID, log), nil
	case !errors.Is(err, ErrNone):
		return log, err
	}
	if _, err := os.Stat(log); err == nil {
		return log, fmt.Errorf("the last daemon was killed or has failed: %s", cmp.Or(lastError(log), "its log names no error"))
	}
	return "none", nil
}

// RemoveLog removes the log of the daemon for a database: one that has ended without an error
// has nothing to say.
func RemoveLog(dir, database string) error {
	if err := os.Remove(registry.DaemonLog(dir, database)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
