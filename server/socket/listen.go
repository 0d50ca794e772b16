package socket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"pmcp/registry"
)

// The bounds of a listener.
const (
	maxConns   = 256                   // connections at once, those whose request has not come yet included
	maxRequest = 2 << 20               // bytes of a request
	maxAnswer  = 16 << 20              // bytes of a response
	helloTime  = 5 * time.Second       // until the request must have come
	writeTime  = 5 * time.Second       // until the peer must have read the response
	pulseTime  = 5 * time.Second       // between two signs of life of a call that is being performed
	silentTime = 6 * pulseTime         // after which a caller gives up on a server that gives none
	acceptRest = 50 * time.Millisecond // after an accept that failed, such as for want of descriptors
)

// protocol is the version of requests and responses. Servers of different versions
// refuse each other's calls.
const protocol = 1

// A request is the line that a caller sends.
type request struct {
	Protocol int             `json:"pmcp"`
	Method   string          `json:"method"`
	Millis   int64           `json:"timeout_ms,omitempty"` // 0: no deadline
	Params   json.RawMessage `json:"params,omitempty"`
}

// A response is the line that a listener sends: a result, or why there is none. Refused
// means that nothing was done.
type response struct {
	Result  json.RawMessage `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
	Refused bool            `json:"refused,omitempty"`
	Busy    bool            `json:"busy,omitempty"` // refused because there are too many connections
}

// A Handler performs a call. Its context ends when the caller closes the connection, its
// deadline passes, or Serve ends. An error that is a Refusal means that nothing was done.
type Handler func(ctx context.Context, method string, params json.RawMessage) (result any, err error)

// A Refusal is the reason why the other side has not begun to perform a call.
type Refusal string

// Error returns the reason.
func (r Refusal) Error() string { return string(r) }

// A Listener is the socket of this server.
type Listener struct {
	net  *net.UnixListener
	path string
	file os.FileInfo // of the socket
	log  *slog.Logger

	conns int           // how many are served at once; maxConns
	bytes int64         // of a request; maxRequest
	hello time.Duration // helloTime
	write time.Duration // writeTime
	pulse time.Duration // pulseTime
}

// Listen creates the socket of the session called id in the registry directory dir,
// mode 0600. registry.Remove removes it. The directory must be safe (see
// registry.ErrUnsafeDir).
func Listen(dir, id string, log *slog.Logger) (*Listener, error) {
	path, temp, err := registry.SocketPaths(dir, id)
	if err != nil {
		return nil, err
	}
	return start(path, temp, log)
}

// ListenAt creates a socket at path, mode 0600; Remove removes it. A socket of this user on
// which nobody listens is replaced, and nothing else.
func ListenAt(path string, log *slog.Logger) (*Listener, error) {
	if err := checkUnused(path); err != nil {
		return nil, err
	}
	return start(path, path+".tmp", log)
}

// start creates the socket at temp and moves it to path, so that it listens as soon as it is there.
func start(path, temp string, log *slog.Logger) (*Listener, error) {
	listener, err := listenAt(temp)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	file, err := os.Lstat(temp)
	if err == nil {
		err = os.Chmod(temp, 0o600)
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot create the socket: %w", err), listener.Close())
	}
	return &Listener{
		net: listener, path: path, file: file, log: log,
		conns: maxConns, bytes: maxRequest, hello: helloTime, write: writeTime, pulse: pulseTime,
	}, nil
}

// checkUnused returns an error if there is something at path that is no socket of this user,
// or on which another process listens.
func checkUnused(path string) error {
	err := checkFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	c, err := connect(context.Background(), path)
	if err != nil {
		return nil
	}
	return errors.Join(fmt.Errorf("another process listens on %s", path), c.Close())
}

// listenAt listens on a new socket at path, which may be longer than the address of a socket.
func listenAt(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false) // the path is another one by then
	}
	return l, err
}

// Remove removes the socket, unless another has taken its place.
func (l *Listener) Remove() error {
	if found, err := os.Lstat(l.path); err != nil || !os.SameFile(found, l.file) {
		return nil
	}
	return os.Remove(l.path)
}

// Path returns the path of the socket.
func (l *Listener) Path() string { return l.path }

// Close closes the listener. Serve does it at its end.
func (l *Listener) Close() error { return l.net.Close() }

// Serve performs the calls of peers with handle until ctx ends. Then it closes the socket,
// cancels the calls that are being performed and returns when they have ended. It must not
// be called twice.
func (l *Listener) Serve(ctx context.Context, handle Handler) {
	l.ServeConns(ctx, func(ctx context.Context, c *net.UnixConn) { l.serve(ctx, c, handle) })
}

// ServeConns is Serve for another protocol: it calls handle, which closes the connection, with
// each connection whose peer is a process of this user in the same namespaces.
func (l *Listener) ServeConns(ctx context.Context, handle func(ctx context.Context, c *net.UnixConn)) {
	ctx, cancel := context.WithCancel(ctx)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	free := make(chan struct{}, l.conns)
	for ctx.Err() == nil {
		c, err := l.net.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			l.log.Warn("cannot accept a connection of another server", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptRest):
			}
			continue
		}
		select {
		case free <- struct{}{}:
			conns.Go(func() {
				defer func() { <-free }()
				if pid, err := checkPeer(c); err != nil {
					level := slog.LevelWarn
					if errors.Is(err, os.ErrNotExist) { // the peer has ended
						level = slog.LevelDebug
					}
					l.log.Log(ctx, level, "refused a connection to the socket", "pid", pid, "error", err)
					l.respond(c, response{Refused: true, Error: "refused: " + err.Error()})
					return
				}
				handle(ctx, c)
			})
		default:
			l.respond(c, response{Refused: true, Busy: true, Error: "too many connections; try again"})
		}
	}
}

// serve performs the call of one connection and closes it.
func (l *Listener) serve(ctx context.Context, c *net.UnixConn, handle Handler) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = c.SetReadDeadline(time.Now().Add(l.hello))
	if ctx.Err() != nil { // it may have ended before the deadline was set
		_ = c.Close()
		return
	}
	r, err := l.read(c)
	if err != nil {
		l.respond(c, response{Refused: true, Error: err.Error()})
		return
	}
	if r.Millis > 0 {
		var expire context.CancelFunc
		ctx, expire = context.WithTimeout(ctx, time.Duration(r.Millis)*time.Millisecond)
		defer expire()
	}
	_ = c.SetReadDeadline(time.Time{})
	if ctx.Err() != nil {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
	gone := make(chan struct{})
	go func() { // ends when the caller closes the connection, or when ctx ends
		defer close(gone)
		_, _ = c.Read(make([]byte, 1))
		cancel()
	}()
	stopPulse := l.beat(c)
	done := l.call(ctx, r, handle)
	stopPulse()
	cancel()
	<-gone
	l.respond(c, done)
}

// beat sends an empty line now and every l.pulse until stop, which waits for it, is called.
func (l *Listener) beat(c *net.UnixConn) (stop func()) {
	var beating sync.WaitGroup
	end := make(chan struct{})
	beating.Go(func() {
		ticker := time.NewTicker(l.pulse)
		defer ticker.Stop()
		for {
			_ = c.SetWriteDeadline(time.Now().Add(l.write))
			if _, err := c.Write([]byte{'\n'}); err != nil {
				return // the caller is gone, which the read notices
			}
			select {
			case <-ticker.C:
			case <-end:
				return
			}
		}
	})
	return func() { close(end); beating.Wait() }
}

// read reads the request of a connection.
func (l *Listener) read(c *net.UnixConn) (r request, err error) {
	line, err := readLine(c, l.bytes)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return r, fmt.Errorf("no request came within %s", l.hello)
	case err != nil:
		return r, fmt.Errorf("invalid request: %w", err)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("invalid request: %w", err)
	}
	if r.Protocol != protocol {
		return r, fmt.Errorf("the servers are of different versions (protocol %d, not %d): restart the older one", r.Protocol, protocol)
	}
	return r, nil
}

// call performs a request. A panic of the handler ends only this call.
func (l *Listener) call(ctx context.Context, r request, handle Handler) (done response) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("panic in a call of another server", "method", r.Method, "panic", fmt.Sprint(p))
			done = response{Error: "performing the call failed unexpectedly; the log of its server has the reason"}
		}
	}()
	result, err := handle(ctx, r.Method, r.Params)
	if err == nil {
		done.Result, err = json.Marshal(result)
	}
	if err != nil {
		var refusal Refusal
		done = response{Error: err.Error(), Refused: errors.As(err, &refusal)}
	}
	return done
}

// respond sends the response and closes the connection. The peer may be gone.
func (l *Listener) respond(c *net.UnixConn, r response) {
	defer func() { _ = c.Close() }()
	line, err := json.Marshal(r)
	if err != nil {
		l.log.Error("cannot encode a response to another server", "error", err)
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(l.write))
	_, _ = c.Write(append(line, '\n'))
}

// errTooLong is returned for a line over the limit, of which no more is read.
var errTooLong = errors.New("the message is too long")

// readLine reads a line of at most limit bytes. It may read what follows the line.
func readLine(r io.Reader, limit int64) ([]byte, error) {
	var line []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		part, _, found := bytes.Cut(buf[:n], []byte{'\n'})
		if line = append(line, part...); int64(len(line)) > limit {
			return nil, fmt.Errorf("%w: more than %d bytes", errTooLong, limit)
		}
		switch {
		case found:
			return line, nil
		case err != nil:
			return nil, err
		}
	}
}
