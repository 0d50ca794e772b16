package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"pmcp/registry"
	"pmcp/server/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stand-in starts daemons in this process, as often as it is asked to.
type standIn struct {
	t       *testing.T
	o       Options
	started atomic.Int32 // how many took connections
	asked   atomic.Int32
	ctx     context.Context
	running sync.WaitGroup
}

// newStandIn returns a standIn whose daemons end with the test.
func newStandIn(t *testing.T) *standIn {
	ctx, cancel := context.WithCancel(t.Context())
	s := &standIn{t: t, ctx: ctx}
	s.o = Options{Dir: t.TempDir(), Database: filepath.Join(t.TempDir(), "pmcp.db"), Start: s.start}
	if err := os.Chmod(s.o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); s.running.Wait() })
	return s
}

// start is Options.Start: the daemon answers each connection with its session.
func (s *standIn) start() error {
	s.asked.Add(1)
	s.running.Go(func() {
		lock, err := registry.LockDaemon(s.o.Dir, s.o.Database)
		if errors.Is(err, registry.ErrDaemonLives) {
			return
		}
		if err != nil {
			s.t.Error(err)
			return
		}
		defer func() { _ = lock.Close() }()
		id := registry.NewID(s.o.Dir)
		listener, err := socket.Listen(s.o.Dir, id, slog.New(slog.DiscardHandler))
		if err == nil {
			err = registry.AnnounceDaemon(lock, id)
		}
		if err != nil {
			s.t.Error(err)
			return
		}
		s.started.Add(1)
		listener.ServeConns(s.ctx, func(_ context.Context, c *net.UnixConn) {
			_, _ = io.WriteString(c, id)
			_ = c.Close()
		})
	})
	return nil
}

// TestCallersAtOnceGetOneDaemon checks that ten callers that find no daemon at the same time get the same.
func TestCallersAtOnceGetOneDaemon(t *testing.T) {
	s := newStandIn(t)
	ids := make([]string, 10)
	var callers sync.WaitGroup
	for i := range ids {
		callers.Go(func() {
			c, err := Dial(t.Context(), s.o)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			id, err := io.ReadAll(c)
			if ids[i] = string(id); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Errorf("the callers met %q, want one daemon", ids)
			break
		}
	}
	if n := s.started.Load(); n != 1 {
		t.Errorf("%d daemons took connections, want 1 (of %d starts)", n, s.asked.Load())
	}
}

// TestDialStartsNothingUnasked checks that without Start a daemon is only looked for.
func TestDialStartsNothingUnasked(t *testing.T) {
	s := newStandIn(t)
	o := s.o
	o.Start = nil
	if c, err := Dial(t.Context(), o); !errors.Is(err, ErrNone) || c != nil {
		t.Errorf("Dial = %v, %v; want ErrNone", c, err)
	}
	if c, err := Dial(t.Context(), s.o); err != nil {
		t.Error(err)
	} else if err := c.Close(); err != nil {
		t.Error(err)
	}
	if c, err := Dial(t.Context(), o); err != nil {
		t.Errorf("Dial with a daemon = %v, want a connection", err)
	} else if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestDialNamesReason checks that a start that fails, and a caller that gives up, end Dial.
func TestDialNamesReason(t *testing.T) {
	s := newStandIn(t)
	broken := errors.New("no guardian")
	o := s.o
	o.Start = func() error { return broken }
	if _, err := Dial(t.Context(), o); !errors.Is(err, broken) {
		t.Errorf("Dial = %v, want %v", err, broken)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o.Start = func() error { cancel(); return nil }
	if _, err := Dial(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial = %v, want context.Canceled", err)
	}
	if err := os.WriteFile(registry.DaemonLog(o.Dir, o.Database), []byte("pmcp: first\nlevel=ERROR the disk is full\nlevel=INFO a session\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.notStarted(nil); !errors.Is(err, ErrNotStarted) || !strings.Contains(err.Error(), "the disk is full") || strings.Contains(err.Error(), "first") || strings.Contains(err.Error(), "session") {
		t.Errorf("got %v, want ErrNotStarted and the last error in the log", err)
	}
}

// TestFailingDaemonIsNotStartedForEver checks that Dial gives up on a daemon that ends while it starts.
func TestFailingDaemonIsNotStartedForEver(t *testing.T) {
	s := newStandIn(t)
	o := s.o
	o.limit = time.Hour
	starts := 0
	o.Start = func() error {
		starts++
		lock, err := registry.LockDaemon(o.Dir, o.Database)
		if errors.Is(err, registry.ErrDaemonLives) {
			return nil
		}
		if err != nil {
			return err
		}
		s.running.Go(func() {
			select { // Dial sees that the lock is held
			case <-time.After(10 * maxDialPoll):
			case <-s.ctx.Done():
			}
			_ = registry.RemoveDaemon(lock, o.Dir, o.Database)
			_ = lock.Close()
		})
		return nil
	}
	if _, err := Dial(t.Context(), o); !errors.Is(err, ErrNotStarted) {
		t.Errorf("Dial = %v after %d starts, want ErrNotStarted", err, starts)
	}
}

// TestDialPrefersRecord checks that a daemon that has a record is reached whatever PM_DAEMON_SOCKET_PATH is.
func TestDialPrefersRecord(t *testing.T) {
	s := newStandIn(t)
	s.o.SocketPath = filepath.Join(t.TempDir(), "none")
	for range 2 {
		c, err := Dial(t.Context(), s.o)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDialUsesItsPath checks that a daemon is reached at PM_DAEMON_SOCKET_PATH, whose longest form does
// not fit into the address of a socket, and that what is not a socket of this user is refused at once.
func TestDialUsesItsPath(t *testing.T) {
	s := newStandIn(t)
	s.o.Start = nil
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	s.o.SocketPath = filepath.Join(dir, "pmcp.sock")
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(s.o.SocketPath, link)); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), s.o); !errors.Is(err, ErrNone) {
		t.Errorf("Dial = %v, want ErrNone", err)
	}
	listener, err := socket.ListenAt(s.o.SocketPath, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.running.Go(func() {
		listener.ServeConns(s.ctx, func(_ context.Context, c *net.UnixConn) { _ = c.Close() })
	})
	c, err := Dial(t.Context(), s.o)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if _, err := socket.ListenAt(s.o.SocketPath, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a second daemon takes the socket of the first, want an error")
	}
	for _, path := range []string{link, dir} {
		o := s.o
		o.SocketPath = path
		if _, err := Dial(t.Context(), o); err == nil || !strings.Contains(err.Error(), "is not a socket") {
			t.Errorf("Dial at %s = %v, want a refusal", path, err)
		}
		if _, err := socket.ListenAt(path, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("ListenAt %s succeeds, want a refusal", path)
		}
	}
	if err := errors.Join(listener.Remove(), listener.Remove()); err != nil {
		t.Error(err)
	}
}

// busyHost is a Host that is as busy as the test says.
type busyHost struct {
	Host    // nil: only what follows is called
	busy    atomic.Bool
	changed chan struct{}
}

func (h *busyHost) Busy() bool               { return h.busy.Load() }
func (h *busyHost) Changed() <-chan struct{} { return h.changed }
func (h *busyHost) set(busy bool)            { h.busy.Store(busy); h.changed <- struct{}{} }

// TestIdleDaemonEnds checks that a daemon ends ten minutes after it was busy for the last time.
func TestIdleDaemonEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &busyHost{changed: make(chan struct{}, 1)}
		start := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- awaitIdle(t.Context(), h, idleLimit, current) }()
		time.Sleep(9 * time.Minute)
		h.set(true)
		time.Sleep(24 * time.Hour)
		h.set(false)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 24*time.Hour+19*time.Minute {
			t.Errorf("it ended after %v, want 24h19m", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := awaitIdle(ctx, h, idleLimit, current); err == nil {
			t.Error("awaitIdle = nil after the end of its context, want an error")
		}
	})
}

// current is the version of a daemon whose program was not replaced.
func current() bool { return false }

// TestOutdatedDaemonEndsEarly checks that a daemon whose program was replaced, even before its start, ends
// when it was not used for a minute, and not before.
func TestOutdatedDaemonEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &busyHost{changed: make(chan struct{}, 1)}
		start := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- awaitIdle(t.Context(), h, idleLimit, func() bool { return true }) }()
		time.Sleep(59 * time.Second)
		h.set(true)
		time.Sleep(time.Hour)
		h.set(false)
		if err := <-ended; err != nil || time.Since(start) != time.Hour+119*time.Second {
			t.Errorf("got %v after %v, want the end a minute after it was busy", err, time.Since(start))
		}
	})
}

// TestCheckFindsProblem checks what the doctor reports about a daemon: nothing is wrong with none and with one
// that takes connections; one that cannot be reached, and one that left its log, are problems.
func TestCheckFindsProblem(t *testing.T) {
	s := newStandIn(t)
	if text, err := Check(t.Context(), s.o); text != "none" || err != nil {
		t.Errorf("Check = %q, %v; want none", text, err)
	}
	log := registry.DaemonLog(s.o.Dir, s.o.Database)
	if err := os.WriteFile(log, []byte("first\npmcp: it was killed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), s.o); err == nil || !strings.Contains(err.Error(), "it was killed") {
		t.Errorf("Check = %v, want the last error in the log", err)
	}
	c, err := Dial(t.Context(), s.o)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if text, err := Check(t.Context(), s.o); err != nil || !strings.Contains(text, log) {
		t.Errorf("Check = %q, %v; want the path of the log", text, err)
	}
	id, _ := registry.Daemon(s.o.Dir, s.o.Database)
	if err := registry.Remove(s.o.Dir, id); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), s.o); err == nil {
		t.Error("Check = nil with a daemon without a socket, want an error")
	}
}

// TestLogIsBounded checks that a log that grows keeps its latest messages.
func TestLogIsBounded(t *testing.T) {
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	l := NewLog(file)
	l.limit = 1000
	for i := range 1000 {
		fmt.Fprintf(l, "message %d\n", i)
		if info, err := file.Stat(); err != nil || info.Size() > 1000 {
			t.Fatalf("the log is %v, %v; want at most 1000 bytes", info.Size(), err)
		}
	}
	if _, err := file.Write(bytes.Repeat([]byte("of a session\n"), 100)); err != nil {
		t.Fatal(err)
	}
	l.Bound()
	if info, err := file.Stat(); err != nil || info.Size() > 1000 {
		t.Errorf("the log is %v, %v after Bound; want at most 1000 bytes", info.Size(), err)
	}
	for _, line := range []string{"message 998", "message 999"} {
		fmt.Fprintln(l, line)
	}
	content, err := os.ReadFile(file.Name())
	if err != nil || !bytes.HasSuffix(content, []byte("message 998\nmessage 999\n")) || !bytes.HasPrefix(content, []byte("pmcp: older messages are dropped\nof a session\n")) {
		t.Errorf("got %v and\n%s", err, content)
	}
}
