package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// use starts the named server on demand, if necessary, and calls one of its tools.
func (c *children) use(name string) error {
	l, err := c.hub.OnDemand(testContext(c.t), name, c)
	if err != nil {
		return err
	}
	defer l.Release()
	_, err = callTool(testContext(c.t), l.Conn, "echo", "", nil)
	return err
}

func TestOnDemandEvictsTheLeastRecentlyUsed(t *testing.T) {
	c := newChildren(t, Options{})
	for i := range defaultMaxOnDemand {
		if err := c.use(fmt.Sprintf("plain/%02d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.use("plain/00"); err != nil || len(c.starts) != defaultMaxOnDemand || c.hub.Connections() != defaultMaxOnDemand {
		t.Errorf("got %v, %d starts, %d connections, want %d of both", err, len(c.starts), c.hub.Connections(), defaultMaxOnDemand)
	}
	if err := c.use("plain/16"); err != nil {
		t.Fatal(err)
	}
	alive := c.alive()
	if len(alive) != defaultMaxOnDemand || slices.Contains(alive, "plain/01") || !slices.Contains(alive, "plain/00") {
		t.Errorf("alive: got %v, want %d with plain/00 and without plain/01", alive, defaultMaxOnDemand)
	}
	if c.hub.Conn("plain/01") != nil {
		t.Error("got a connection of the evicted server, want none")
	}
}

func TestOnDemandEvictsNoServerInUse(t *testing.T) {
	c := newChildren(t, Options{MaxOnDemand: 2})
	var leases []*Lease
	for _, name := range []string{"plain/a", "plain/b"} {
		l, err := c.hub.OnDemand(testContext(t), name, c)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
	}
	if err := c.use("plain/c"); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	leases[1].Release()
	leases[1].Release() // a second release has no effect
	if err := c.use("plain/c"); err != nil {
		t.Error(err)
	}
	wantAlive(t, c, "plain/a", "plain/c")
}

// TestHoldCountsAsUseOfServer checks that Hold counts as a use of a server, like OnDemand,
// when the least recently used server is evicted.
func TestHoldCountsAsUseOfServer(t *testing.T) {
	c := newChildren(t, Options{MaxOnDemand: 2})
	for _, name := range []string{"plain/a", "plain/b"} {
		if err := c.use(name); err != nil {
			t.Fatal(err)
		}
	}
	a := c.hub.Conn("plain/a")
	c.hub.Hold(a)() // now a is the most recently used, and no longer in use
	if err := c.use("plain/c"); err != nil {
		t.Fatal(err)
	}
	if alive, want := c.alive(), []string{"plain/a", "plain/c"}; !slices.Equal(alive, want) {
		t.Fatalf("alive: got %v, want %v", alive, want)
	}
	release := c.hub.Hold(a)
	for _, name := range []string{"plain/c", "plain/d"} { // a is the least recently used, and in use
		if err := c.use(name); err != nil {
			t.Fatal(err)
		}
	}
	wantAlive(t, c, "plain/a", "plain/d")
	release()
	release() // a second release has no effect
	if err := c.use("plain/e"); err != nil {
		t.Fatal(err)
	}
	wantAlive(t, c, "plain/d", "plain/e")
	c.hub.Hold(a)() // no longer in the pool
	if err := c.Start(t.Context(), "plain/x"); err != nil {
		t.Fatal(err)
	}
	c.hub.Hold(c.hub.Conn("plain/x"))() // never in the pool
}

// wantAlive checks which processes are alive.
func wantAlive(t *testing.T, c *children, want ...string) {
	t.Helper()
	if alive := c.alive(); !slices.Equal(alive, want) {
		t.Errorf("alive: got %v, want %v", alive, want)
	}
}

// TestOnDemandEvictsServerAtLimitOfProcesses checks that the least recently used server is evicted when
// the limit of processes is reached, as when the limit of servers is.
func TestOnDemandEvictsServerAtLimitOfProcesses(t *testing.T) {
	c := newChildren(t, Options{})
	c.most = 2
	for _, name := range []string{"plain/a", "plain/b", "plain/a", "plain/c"} {
		if err := c.use(name); err != nil {
			t.Fatal(err)
		}
	}
	if alive := c.alive(); !slices.Equal(alive, []string{"plain/a", "plain/c"}) || c.hub.Connections() != 2 {
		t.Errorf("got %v alive and %d connections, want plain/a, plain/c and 2", alive, c.hub.Connections())
	}
	for _, name := range []string{"plain/a", "plain/c"} {
		l, err := c.hub.OnDemand(testContext(t), name, c)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release()
	}
	if err := c.use("plain/d"); !errors.Is(err, ErrNoRoom) {
		t.Errorf("with all in use: got %v, want ErrNoRoom", err)
	}
	wantAlive(t, c, "plain/a", "plain/c")
}

// A slowStop is children whose stop of the process name blocks until the test
// allows it.
type slowStop struct {
	*children
	name  string
	calls chan struct{} // receives a value when a stop of name starts
	may   chan struct{} // closed when stops of name may continue
}

func (c *slowStop) Stop(ctx context.Context, name string) (string, error) {
	if name == c.name {
		c.calls <- struct{}{}
		<-c.may
	}
	return c.children.Stop(ctx, name)
}

// TestOnDemandWaitsForEvictedServerToStop checks that an evicted server is not
// started again before its stop is complete, because the stop would hit the new
// process.
func TestOnDemandWaitsForEvictedServerToStop(t *testing.T) {
	c := newChildren(t, Options{MaxOnDemand: 2})
	for _, name := range []string{"plain/a", "plain/b"} {
		if err := c.use(name); err != nil {
			t.Fatal(err)
		}
	}
	slow := &slowStop{c, "plain/a", make(chan struct{}, 2), make(chan struct{})}
	var calls sync.WaitGroup
	call := func(name string) {
		calls.Go(func() {
			l, err := c.hub.OnDemand(testContext(t), name, slow)
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Release()
			if _, err := callTool(testContext(t), l.Conn, "echo", "", nil); err != nil {
				t.Error(err)
			}
		})
	}
	call("plain/c")
	<-slow.calls
	call("plain/a")
	select {
	case <-slow.calls: // every start begins with a stop
		t.Error("the server is started while it is being stopped, want the start to wait")
	case <-time.After(100 * time.Millisecond):
	}
	close(slow.may)
	calls.Wait()
	wantAlive(t, c, "plain/a", "plain/c")
}

func TestOnDemandStartsOnceForAll(t *testing.T) {
	c := newChildren(t, Options{})
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if err := c.use("plain"); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if len(c.starts) != 1 {
		t.Errorf("got %d starts, want 1", len(c.starts))
	}
}

func TestOnDemandRestartsDeadServer(t *testing.T) {
	for _, how := range []string{"crash", "close"} { // a closed server keeps running without its output
		c := newChildren(t, Options{})
		l, err := c.hub.OnDemand(testContext(t), "plain", c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := callTool(testContext(t), l.Conn, how, "", nil); !errors.Is(err, ErrDisconnected) {
			t.Errorf("%s: got %v, want ErrDisconnected", how, err)
		}
		l.Release()
		if n := c.hub.Connections(); n != 0 {
			t.Errorf("%s: got %d connections, want 0", how, n)
		}
		if err := c.use("plain"); err != nil || len(c.starts) != 2 {
			t.Errorf("%s: got %v, %d starts, want 2 starts", how, err, len(c.starts))
		}
	}
}

func TestServerThatDoesNotStartInTimeIsStopped(t *testing.T) {
	for _, kind := range []string{"silent", "exit", "refuses"} {
		c := newChildren(t, Options{StartTimeout: 200 * time.Millisecond})
		err := c.use(kind)
		var start *StartError
		if !errors.As(err, &start) || start.Run != 1 || start.End == "" {
			t.Errorf("%s: got %v, want a StartError of run 1 with its end", kind, err)
		}
		if alive := c.alive(); len(alive) > 0 || c.hub.Connections() != 0 {
			t.Errorf("%s: got %v alive and %d connections, want none", kind, alive, c.hub.Connections())
		}
		if err := c.use(kind); !errors.As(err, &start) || len(c.starts) != 2 {
			t.Errorf("%s again: got %v, %d starts, want a StartError and 2 starts", kind, err, len(c.starts))
		}
	}
}

func TestOnDemandStartOutlivesTheCall(t *testing.T) {
	c := newChildren(t, Options{discoverAfter: 4 * time.Second})
	_, err := c.hub.OnDemand(within(t, time.Millisecond), "only modern", c)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "its start continues") {
		t.Errorf("got %v, want DeadlineExceeded and that the start continues", err)
	}
	if err := c.use("only modern"); err != nil || len(c.starts) != 1 {
		t.Errorf("got %v, %d starts, want 1 start", err, len(c.starts))
	}
}

func TestOnDemandFailsAfterClose(t *testing.T) {
	c := newChildren(t, Options{})
	waiting := make(chan error, 1)
	go func() { waiting <- c.use("silent") }()
	proctest.Await(t, "the connection", func() bool { return c.hub.Conn("silent") != nil })
	c.hub.Close()
	if err := <-waiting; err == nil {
		t.Error("got a lease after Close, want an error")
	}
	if err := c.use("plain"); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}
