package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"pmcp/process/proctab"
	"pmcp/registry"
	"pmcp/server/socket"
)

var (
	// ErrNone is returned by Dial if there is no daemon and none may be started.
	ErrNone = errors.New("there is no daemon")
	// ErrNotStarted is wrapped by Dial's error if the daemon does not take connections in
	// time. The error has the last error in its log.
	ErrNotStarted = errors.New("the daemon takes no connections")
)

// Options say which daemon is meant. Dir and Database are required.
type Options struct {
	// Dir is the directory of the records.
	Dir string
	// Database is the absolute path of the database.
	Database string
	// SocketPath is where a daemon listens that has no record in Dir; "" for nowhere.
	SocketPath string
	// TCP is the address on which the daemon listens beside its sockets, "" for none. Only
	// Check uses it.
	TCP string
	// Start starts a daemon outside of the process tree of this session, and returns
	// without waiting for it. Nil: none may be started.
	Start func() error

	limit time.Duration // how long Dial waits; 0: startLimit
}

// How long Dial waits. A daemon that is ending needs 12 s at most.
const (
	startLimit  = 20 * time.Second
	startAgain  = 2 * time.Second // after which another start is tried, as the one before may have met a dying daemon
	dialPoll    = 2 * time.Millisecond
	maxDialPoll = 50 * time.Millisecond
	dialLag     = 10 // a pause is at most this part of the time that Dial has waited: a start takes 50 ms
)

// Dial connects to the daemon and starts it if there is none. A daemon that is starting or
// ending is waited for, 20 s at most. The error wraps ErrNone, ErrNotStarted or that of ctx,
// or says why the daemon cannot be trusted or started. Any number of callers may dial at once.
func Dial(ctx context.Context, o Options) (net.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, cmp.Or(o.limit, startLimit))
	defer cancel()
	began := time.Now()
	var started time.Time
	var failed bool // whether a daemon has been starting since then
	for {
		id, lives := registry.Daemon(o.Dir, o.Database)
		var err error
		if id != "" || o.SocketPath != "" {
			var c net.Conn
			if c, err = o.connect(limited, id); err == nil {
				return c, nil
			}
			if !passing(err) {
				return nil, fmt.Errorf("cannot connect to the daemon: %w", err)
			}
		}
		failed = failed || lives && id == "" && !started.IsZero()
		switch {
		case !lives && o.Start == nil:
			return nil, ErrNone
		case !lives && failed && time.Since(started) > startAgain:
			return nil, o.notStarted(err)
		case o.Start != nil && time.Since(started) > startAgain && (!lives || id != ""):
			if err := o.Start(); err != nil {
				return nil, err
			}
			started = time.Now()
		}
		select {
		case <-time.After(min(max(dialPoll, time.Since(began)/dialLag), maxDialPoll)):
		case <-limited.Done():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, o.notStarted(err)
		}
	}
}

func (o Options) connect(ctx context.Context, id string) (net.Conn, error) {
	if id == "" {
		return socket.DialPath(ctx, o.SocketPath)
	}
	return socket.Dial(ctx, o.Dir, id)
}

// passing reports whether a connection failed because the daemon is starting or ending.
func passing(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, context.DeadlineExceeded)
}

// notStarted returns the error for a daemon that does not take connections; last is that of
// the last attempt.
func (o Options) notStarted(last error) error {
	text := registry.DaemonLog(o.Dir, o.Database)
	if line := lastError(text); line != "" {
		text += ": " + line
	}
	if last != nil {
		return fmt.Errorf("%w (%w); its log is %s", ErrNotStarted, last, text)
	}
	return fmt.Errorf("%w; its log is %s", ErrNotStarted, text)
}

// lastError returns the last line of a log that reports an error, at most 500 bytes of it, ""
// if there is none: sessions of the daemon write to the log, too.
func lastError(path string) (last string) {
	content, err := os.ReadFile(path) // of at most 1 MiB: see Log
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, "level=ERROR") || strings.HasPrefix(line, "pmcp:") {
			last = line
		}
	}
	return proctab.Printable(fmt.Sprintf("%.500s", strings.TrimSpace(last)))
}
