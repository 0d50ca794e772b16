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

// refreshPeriod is how often a daemon checks its log, and what it dies with.
const refreshPeriod = 10 * time.Second

// Serve takes connections until the daemon has been idle for long enough, a signal asks for
// the end, the guardian is dead or ctx ends. Then it ends the host and removes the record. An
// error means that the daemon could not begin, or that something of it is left.
func (d *Daemon) Serve(ctx context.Context, signals *guard.Signals) error {
	own, lock := guard.DaemonLock(), d.Life.Lock()
	if own == nil || lock == nil {
		return errors.New("a daemon is started by pmcp itself")
	}
	defer func() { _ = own.Close() }()
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
		err = registry.AnnounceDaemon(own, d.ID)
	}
	if err != nil {
		return errors.Join(err, closeAll(listeners), registry.Remove(d.Dir, d.ID))
	}
	d.Log.Info("the daemon serves", "version", d.Record.Version, "pid", d.Record.Server.PID, "guardian", d.Record.Guardian.PID,
		"database", d.Record.Database, "dies_with", d.Record.DiesWith)
	d.untilEnd(ctx, signals, listeners, record)
	err = registry.AnnounceDaemon(own, "")
	for _, l := range listeners[1:] {
		err = errors.Join(err, l.Remove())
	}
	d.Host.Close()
	err = errors.Join(err, record.Close())
	select {
	case <-d.Life.Gone(): // the guardian cannot do it
		err = errors.Join(err, registry.RemoveDaemon(own, d.Dir, d.Record.Database))
	default:
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

func closeAll(listeners []*socket.Listener) (err error) {
	for _, l := range listeners {
		err = errors.Join(err, l.Close())
	}
	return err
}

// untilEnd serves until there is a reason to end.
func (d *Daemon) untilEnd(ctx context.Context, signals *guard.Signals, listeners []*socket.Listener, record *registry.Registration) {
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
		if awaitIdle(serving, d.Host, limit, d.Record.Replaced) == nil {
			end(errors.New("it has nothing to do"))
		}
	})
	watchers.Go(func() { registry.SweepDying(serving, serving, d.Dir, d.Log) })
	watchers.Go(func() { d.refresh(serving, record) })
	for _, l := range listeners[1:] {
		watchers.Go(func() { l.ServeConns(serving, d.Host.Handle) })
	}
	listeners[0].ServeConns(serving, d.Host.Handle)
	d.Log.Info("the daemon ends", "reason", context.Cause(serving))
}

// refresh keeps the log of the daemon within its limit and the record up to date, until ctx ends.
func (d *Daemon) refresh(ctx context.Context, record *registry.Registration) {
	ticker := time.NewTicker(refreshPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		d.File.Bound()
		if now := diesWith(registry.Describe(d.Life.Guardian())); now != record.Record().DiesWith {
			_ = record.Update(func(r *registry.Record) { r.DiesWith = now }) // tried again in a while
		}
	}
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
