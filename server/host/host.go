package host

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// The bounds of a Host.
const (
	maxSessions = 64               // at once, those that have lost their client included
	helloTime   = 5 * time.Second  // until the Hello must have come
	startTime   = 25 * time.Second // until a keeper must have begun
	writeTime   = 5 * time.Second  // until the peer must have read the answer
	acceptRest  = time.Second      // after an accept that failed, such as for want of descriptors
)

// Options configure a Host. The zero value of each field but Log is allowed.
type Options struct {
	// Token is what every Hello must have, and what both sides of a TCP connection prove to know;
	// "" means that none is needed, and that there is no TCP.
	Token string
	// Version is that of the daemon's program. A Host without a session is outdated once a
	// caller on its socket is of another one; "" means that it never is.
	Version string
	// Stderr receives the log of the sessions; nil drops it.
	Stderr *os.File
	// Died, unless nil, is called when a session has not ended in the ordinary way: it cleans up what
	// a session has left whose guardian was killed too, which this process then adopts. Until ctx
	// ends it may wait.
	Died func(ctx context.Context)
	// Log is required.
	Log *slog.Logger
}

// A Host starts and ends sessions. Its methods may be called from several goroutines.
type Host struct {
	o         Options
	sessions  int           // at once; maxSessions
	hello     time.Duration // helloTime
	strangers int           // at once; maxStrangers
	proof     time.Duration // proofTime
	changed   chan struct{} // one slot; see Changed
	outdated  chan struct{} // closed with mu held; see Outdated
	running   sync.WaitGroup
	ending    context.Context // ends when Close begins
	end       context.CancelFunc

	mu      sync.Mutex // guards the fields below
	closing bool
	busy    int // connections that are being handled
	live    map[*session]bool
	keepers map[[sha256.Size]byte]*keeper
}

// A session is a process that a Host has started.
type session struct{ cmd *exec.Cmd }

// A keeper is a session without a client. id and err are valid once ready is closed.
type keeper struct {
	ready chan struct{}
	id    string
	err   error
}

// New returns a Host without sessions.
func New(o Options) *Host {
	ending, end := context.WithCancel(context.Background())
	return &Host{
		ending: ending, end: end,
		o: o, sessions: maxSessions, hello: helloTime, strangers: maxStrangers, proof: proofTime, changed: make(chan struct{}, 1), outdated: make(chan struct{}),
		live: make(map[*session]bool), keepers: make(map[[sha256.Size]byte]*keeper),
	}
}

// Busy reports whether a connection is being handled or a session has not ended.
func (h *Host) Busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.busy > 0 || len(h.live) > 0
}

// Changed returns a channel with one slot that gets a value when Busy may have changed.
func (h *Host) Changed() <-chan struct{} { return h.changed }

// Outdated returns a channel that is closed when the daemon is to end because a caller of another
// version has come while there was no session: another daemon is to serve it. Until the daemon's
// context ends, such callers wait; then they find the end of the connection and dial again.
func (h *Host) Outdated() <-chan struct{} { return h.outdated }

// retire reports whether a caller, which can start another daemon, is to be served by that: err is that of
// its Hello.
func (h *Host) retire(hello *Hello, err error) bool {
	if h.o.Version == "" || hello.Version == "" || !errors.Is(err, errOtherVersion) && (err != nil || hello.Version == h.o.Version) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closing && len(h.live) == 0 {
		h.closing = true
		close(h.outdated)
	}
	return h.closing
}

func (h *Host) wake() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// Close ends every session and returns when their processes have ended: they have 12 s, after
// which their guardians kill what is left. Connections that come later are refused.
func (h *Host) Close() {
	h.end()
	h.mu.Lock()
	h.closing = true
	for s := range h.live {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it has ended otherwise
	}
	h.mu.Unlock()
	h.running.Wait()
}

// Handle reads the Hello of a connection and starts the session that it asks for. It closes
// its copy of the connection and returns when the session has begun, or was refused with
// one line. ctx bounds only this.
func (h *Host) Handle(ctx context.Context, c *net.UnixConn) {
	defer h.begins()()
	h.handle(ctx, c, h.o.Token)
}

// begins makes the host busy until end is called.
func (h *Host) begins() (end func()) {
	h.mu.Lock()
	h.busy++
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		h.busy--
		h.mu.Unlock()
		h.wake()
	}
}

// A conn is a connection that can be passed on to another process.
type conn interface {
	net.Conn
	File() (*os.File, error)
}

// handle is Handle. token is what the Hello must have; "" for a caller that has proved it.
func (h *Host) handle(ctx context.Context, c conn, token string) {
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	hello, err := h.read(ctx, c, token)
	if _, local := c.(*net.UnixConn); local && h.retire(&hello, err) {
		<-ctx.Done()
		return
	}
	if err != nil {
		h.refuse(c, err)
		return
	}
	defer h.begins()() // a TCP connection of a stranger does not keep the daemon alive
	if hello.Keeper {
		id, err := h.keeper(ctx, &hello)
		if err != nil {
			h.refuse(c, err)
			return
		}
		h.respond(c, answer{Session: id})
		return
	}
	if err := h.serve(&hello, c); err != nil {
		h.refuse(c, err)
	}
}

// refuse answers a Hello with an error. A caller that finds the end of the connection instead
// tries again: by then there is another daemon.
func (h *Host) refuse(c net.Conn, err error) {
	if errors.Is(err, errEnding) {
		return
	}
	level := slog.LevelWarn
	if errors.Is(err, io.EOF) || errors.Is(err, errBusy) { // as the doctor does, to see that it can connect; or a flood
		level = slog.LevelDebug
	}
	h.o.Log.Log(context.Background(), level, "refused a connection", "error", err)
	h.respond(c, answer{Error: err.Error(), Busy: errors.Is(err, errBusy)})
}

// read reads and checks the Hello.
func (h *Host) read(ctx context.Context, c net.Conn, token string) (hello Hello, err error) {
	_ = c.SetReadDeadline(time.Now().Add(h.hello))
	if ctx.Err() != nil { // it may have ended before the deadline was set
		return hello, errEnding
	}
	line, err := readHello(c)
	switch {
	case ctx.Err() != nil:
		return hello, errEnding
	case errors.Is(err, os.ErrDeadlineExceeded):
		return hello, fmt.Errorf("no hello came within %s", h.hello)
	case err != nil:
		return hello, fmt.Errorf("invalid hello: %w", err)
	}
	if err := json.Unmarshal(line, &hello); err != nil {
		return hello, errors.New("invalid hello: it is not the JSON that pmcp sends") // err would quote it
	}
	return hello, hello.check(token)
}

// readHello reads a line of at most maxHello bytes, after which nothing may come yet.
func readHello(c net.Conn) ([]byte, error) {
	var line []byte
	part := make([]byte, 32<<10)
	for {
		n, err := c.Read(part)
		line = append(line, part[:n]...)
		end := bytes.IndexByte(part[:n], '\n')
		switch {
		case len(line) > maxHello:
			return nil, fmt.Errorf("it is longer than %d bytes", maxHello)
		case end >= 0 && end == n-1:
			return line, nil
		case end >= 0:
			return nil, errors.New("more than a line before it was answered")
		case err != nil:
			return nil, err
		}
	}
}

// respond sends the answer. The peer may be gone.
func (h *Host) respond(c net.Conn, a answer) {
	line, err := json.Marshal(a)
	if err != nil {
		h.o.Log.Error("cannot encode an answer", "error", err)
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(writeTime))
	_, _ = c.Write(append(line, '\n'))
}

// errEnding means that the Host is being closed.
var errEnding = errors.New("the daemon is ending")

// serve starts a session on the connection. The session answers the Hello.
func (h *Host) serve(hello *Hello, c conn) error {
	_ = c.SetReadDeadline(time.Time{})
	f, err := c.File()
	if err != nil {
		return fmt.Errorf("cannot pass the connection on: %w", err)
	}
	defer func() { _ = f.Close() }()
	_, err = h.start(hello, f, f, nil)
	return err
}

// start starts the process of a session with these streams. stdin may be nil. ended, unless
// nil, is called when the process has ended.
func (h *Host) start(hello *Hello, stdin, stdout *os.File, ended func()) (*session, error) {
	program := "/proc/self/exe"
	if own, err := os.Executable(); err == nil && isProgram(own) {
		program = own
	}
	if isProgram(hello.Program) {
		program = hello.Program
	}
	cmd := exec.Command(program)
	cmd.Args, cmd.Dir, cmd.Env, cmd.Stdout = []string{"pmcp"}, hello.Dir, hello.environ(), stdout
	if stdin != nil {
		cmd.Stdin = stdin
	}
	if h.o.Stderr != nil {
		cmd.Stderr = h.o.Stderr
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closing:
		return nil, errEnding
	case len(h.live) >= h.sessions:
		return nil, fmt.Errorf("it runs %d sessions, which is its limit: end one, or set PM_DAEMON_MODE=disabled in a client that needs no daemon", len(h.live))
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start a session: %w", err)
	}
	s := &session{cmd}
	h.live[s] = true
	h.o.Log.Info("started a session", "pid", cmd.Process.Pid, "keeper", hello.Keeper, "version", hello.Version, "cwd", hello.Dir)
	h.running.Go(func() {
		err := cmd.Wait()
		h.o.Log.Info("a session has ended", "pid", cmd.Process.Pid, "error", err)
		h.mu.Lock()
		delete(h.live, s)
		h.mu.Unlock()
		if ended != nil {
			ended()
		}
		if err != nil && h.o.Died != nil {
			h.o.Died(h.ending)
		}
		h.wake()
	})
	return s, nil
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && path[0] == '/' && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// keeper returns the id of the keeper for hello, which it starts if there is none.
func (h *Host) keeper(ctx context.Context, hello *Hello) (string, error) {
	key := hello.key()
	h.mu.Lock()
	if h.closing {
		h.mu.Unlock()
		return "", errEnding
	}
	k := h.keepers[key]
	if k == nil || k.isGone(hello.Gone) {
		k = &keeper{ready: make(chan struct{})}
		h.keepers[key] = k
		h.running.Go(func() { h.begin(k, key, hello) })
	}
	h.mu.Unlock()
	select {
	case <-k.ready:
		return k.id, k.err
	case <-ctx.Done():
		return "", errEnding
	}
}

// isGone reports whether k failed to begin, or is the keeper that a caller could not reach.
func (k *keeper) isGone(id string) bool {
	select {
	case <-k.ready:
		return k.err != nil || k.id == id
	default:
		return false
	}
}

// begin starts a keeper and waits until it can be called.
func (h *Host) begin(k *keeper, key [sha256.Size]byte, hello *Hello) {
	forget := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.keepers[key] == k {
			delete(h.keepers, key)
		}
	}
	k.id, k.err = h.launch(hello, forget)
	if k.err != nil {
		forget()
	}
	close(k.ready)
}

// launch starts a keeper and returns its id.
func (h *Host) launch(hello *Hello, ended func()) (id string, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer func() { _ = read.Close() }()
	s, err := h.start(hello, nil, write, ended)
	_ = write.Close()
	if err != nil {
		return "", err
	}
	_ = read.SetReadDeadline(time.Now().Add(startTime))
	line, err := bufio.NewReaderSize(read, maxAnswer).ReadSlice('\n')
	var a answer
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		return "", fmt.Errorf("the session did not begin: %w; its log has the reason", err)
	}
	if a.Error != "" || a.Session == "" {
		return "", errors.New(cmp.Or(a.Error, "the session has no record"))
	}
	return a.Session, nil
}
