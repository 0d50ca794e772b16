package upstream

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// use calls a tool of a server on demand.
func (c *children) use(name string) error {
	l, err := c.hub.OnDemand(testContext(c.t), name, c)
	if err != nil {
		return err
	}
	defer l.Release()
	_, err = callTool(testContext(c.t), l.Conn, "echo", "", nil)
	return err
}

func TestOnDemandKeepsTheLatest(t *testing.T) {
	c := newChildren(t, Options{})
	for i := range defaultMaxOnDemand {
		if err := c.use(fmt.Sprintf("plain/%02d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.use("plain/00"); err != nil || len(c.starts) != defaultMaxOnDemand || c.hub.Connections() != defaultMaxOnDemand {
		t.Errorf("%v; %d starts, %d live", err, len(c.starts), c.hub.Connections())
	}
	if err := c.use("plain/16"); err != nil {
		t.Fatal(err)
	}
	alive := c.alive()
	if len(alive) != defaultMaxOnDemand || slices.Contains(alive, "plain/01") || !slices.Contains(alive, "plain/00") {
		t.Errorf("alive: %v", alive)
	}
	if c.hub.Conn("plain/01") != nil {
		t.Error("what was given up is still known")
	}
}

func TestOnDemandGivesUpNoneAtWork(t *testing.T) {
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
		t.Error(err)
	}
	leases[1].Release()
	leases[1].Release() // twice is once
	if err := c.use("plain/c"); err != nil {
		t.Error(err)
	}
	if alive := c.alive(); !slices.Equal(alive, []string{"plain/a", "plain/c"}) {
		t.Errorf("alive: %v", alive)
	}
}

// TestHoldIsAUse of a server on demand, like one by its command line.
func TestHoldIsAUse(t *testing.T) {
	c := newChildren(t, Options{MaxOnDemand: 2})
	for _, name := range []string{"plain/a", "plain/b"} {
		if err := c.use(name); err != nil {
			t.Fatal(err)
		}
	}
	a := c.hub.Conn("plain/a")
	c.hub.Hold(a)() // the later use, and over
	if err := c.use("plain/c"); err != nil {
		t.Fatal(err)
	}
	if alive := c.alive(); !slices.Equal(alive, []string{"plain/a", "plain/c"}) {
		t.Fatalf("alive: %v", alive)
	}
	release := c.hub.Hold(a)
	for _, name := range []string{"plain/c", "plain/d"} { // a was used longest ago, and is in use
		if err := c.use(name); err != nil {
			t.Fatal(err)
		}
	}
	if alive := c.alive(); !slices.Equal(alive, []string{"plain/a", "plain/d"}) {
		t.Errorf("alive: %v", alive)
	}
	release()
	release() // twice is once
	if err := c.use("plain/e"); err != nil {
		t.Fatal(err)
	}
	if alive := c.alive(); !slices.Equal(alive, []string{"plain/d", "plain/e"}) {
		t.Errorf("alive: %v", alive)
	}
	c.hub.Hold(a)() // not kept any more
	if err := c.Start(t.Context(), "plain/x"); err != nil {
		t.Fatal(err)
	}
	c.hub.Hold(c.hub.Conn("plain/x"))() // never was
}

// TestOnDemandMakesRoom: where no more processes may run, the server that was
// used longest ago goes, as where no more servers may.
func TestOnDemandMakesRoom(t *testing.T) {
	c := newChildren(t, Options{})
	c.most = 2
	for _, name := range []string{"plain/a", "plain/b", "plain/a", "plain/c"} {
		if err := c.use(name); err != nil {
			t.Fatal(err)
		}
	}
	if alive := c.alive(); !slices.Equal(alive, []string{"plain/a", "plain/c"}) || c.hub.Connections() != 2 {
		t.Errorf("alive: %v, %d counted", alive, c.hub.Connections())
	}
	for _, name := range []string{"plain/a", "plain/c"} {
		l, err := c.hub.OnDemand(testContext(t), name, c)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release()
	}
	if err := c.use("plain/d"); !errors.Is(err, ErrNoRoom) {
		t.Errorf("with all at work: %v", err)
	}
	if alive := c.alive(); !slices.Equal(alive, []string{"plain/a", "plain/c"}) {
		t.Errorf("alive: %v", alive)
	}
}

// slowStop stops one of the children only when it may.
type slowStop struct {
	*children
	name  string
	calls chan struct{} // one for each stop of it that begins
	may   chan struct{}
}

func (c *slowStop) Stop(ctx context.Context, name string) (string, error) {
	if name == c.name {
		c.calls <- struct{}{}
		<-c.may
	}
	return c.children.Stop(ctx, name)
}

// TestOnDemandGivenUpAndCalledAgain: a server is not started anew before the one
// that was given up is stopped, for that stop would take the new one.
func TestOnDemandGivenUpAndCalledAgain(t *testing.T) {
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
	case <-slow.calls: // what a start begins with
		t.Error("it is started while it is being stopped")
	case <-time.After(100 * time.Millisecond):
	}
	close(slow.may)
	calls.Wait()
	if alive := c.alive(); !slices.Equal(alive, []string{"plain/a", "plain/c"}) {
		t.Errorf("alive: %v", alive)
	}
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
		t.Errorf("%d starts", len(c.starts))
	}
}

func TestOnDemandStartsTheDeadAnew(t *testing.T) {
	for _, how := range []string{"crash", "close"} { // the second lives on without its output
		c := newChildren(t, Options{})
		l, err := c.hub.OnDemand(testContext(t), "plain", c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := callTool(testContext(t), l.Conn, how, "", nil); !errors.Is(err, ErrDisconnected) {
			t.Error(err)
		}
		l.Release()
		if n := c.hub.Connections(); n != 0 {
			t.Errorf("%d live", n)
		}
		if err := c.use("plain"); err != nil || len(c.starts) != 2 {
			t.Errorf("%v, %d starts", err, len(c.starts))
		}
	}
}

func TestOnDemandThatDoesNotComeUpIsStopped(t *testing.T) {
	for _, kind := range []string{"silent", "exit", "refuses"} {
		c := newChildren(t, Options{StartTimeout: 200 * time.Millisecond})
		err := c.use(kind)
		var start *StartError
		if !errors.As(err, &start) || start.Run != 1 || start.End == "" {
			t.Errorf("%s: %v", kind, err)
		}
		if alive := c.alive(); len(alive) > 0 || c.hub.Connections() != 0 {
			t.Errorf("alive: %v", alive)
		}
		if err := c.use(kind); !errors.As(err, &start) || len(c.starts) != 2 {
			t.Errorf("%s again: %v, %d starts", kind, err, len(c.starts))
		}
	}
}

func TestOnDemandStartOutlivesTheCall(t *testing.T) {
	c := newChildren(t, Options{discoverAfter: 4 * time.Second})
	_, err := c.hub.OnDemand(within(t, time.Millisecond), "only modern", c)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "its start goes on") {
		t.Error(err)
	}
	if err := c.use("only modern"); err != nil || len(c.starts) != 1 {
		t.Errorf("%v, %d starts", err, len(c.starts))
	}
}

func TestOnDemandAfterClose(t *testing.T) {
	c := newChildren(t, Options{})
	waiting := make(chan error, 1)
	go func() { waiting <- c.use("silent") }()
	for c.hub.Conn("silent") == nil {
		runtime.Gosched()
	}
	c.hub.Close()
	if err := <-waiting; err == nil {
		t.Error("a start survived Close")
	}
	if err := c.use("plain"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
