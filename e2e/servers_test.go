package e2e

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	serversInARow = flag.Int("servers.n", 3, "servers started one after the other in TestManyServersLeaveNothing")
	serversAtOnce = flag.Int("servers.together", 3, "servers that run at the same time in TestManyServersLeaveNothing")
)

// serverEnds returns the ways in which TestManyServersLeaveNothing ends a server, keyed by name.
// Only "kill both" leaves a record, which the next start removes.
func serverEnds() map[string]func(v *victim) error {
	send := func(sig syscall.Signal) func(*victim) error {
		return func(v *victim) error { return v.signal(sig) }
	}
	return map[string]func(v *victim) error{
		"EOF":         func(v *victim) error { return v.in.Close() },
		"SIGTERM":     send(syscall.SIGTERM),
		"SIGINT":      send(syscall.SIGINT),
		"SIGHUP":      send(syscall.SIGHUP),
		"SIGKILL":     send(syscall.SIGKILL),
		"kill server": killServer,
		"reads no more": func(v *victim) error {
			if err := v.out.Close(); err != nil {
				return err
			}
			err := v.tell(nil)
			if errors.Is(err, syscall.EPIPE) { // the server exited while it wrote an answer
				err = nil
			}
			return err
		},
		"kill both": func(v *victim) error {
			pid, err := v.awaitServer()
			if err := errors.Join(err, v.signal(syscall.SIGKILL)); err != nil {
				return err
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != syscall.ESRCH { // ESRCH: the server may have exited because the guardian died
				return err
			}
			return nil
		},
	}
}

// startAndEnd starts one pmcp server and ends the server in a random way.
func (a *arena) startAndEnd(rnd *rand.Rand, name string, together *sync.WaitGroup) (err error) {
	v, err := a.launchVictim(false)
	if err != nil {
		together.Done()
		return err
	}
	kinds := treeKinds[:len(treeKinds)-2] // leave out the last two kinds: "kill both" may leave their processes, see TestKilledGuardianAndServerLeaveNothing
	starts := []args{a.tree(name, kinds[rnd.IntN(len(kinds))], false)}[:rnd.IntN(2)]
	err = v.tell(starts)
	if rnd.IntN(4) > 0 { // in the other quarter, the server is ended during the start
		err = errors.Join(err, v.await(1+rnd.IntN(len(starts)+1)))
	}
	together.Done()
	together.Wait()
	ends := serverEnds()
	how := []string{"EOF", "SIGTERM", "SIGINT", "SIGHUP", "SIGKILL", "kill server", "reads no more", "kill both"}[rnd.IntN(len(ends))]
	<-time.After(time.Duration(rnd.Int64N(int64(20 * time.Millisecond))))
	if err := errors.Join(err, ends[how](v), v.close()); err != nil {
		return fmt.Errorf("%s, %s: %w", name, how, err)
	}
	return nil
}

// TestManyServersLeaveNothing starts pmcp servers and ends them in random ways, one at a
// time and many at once, with one database and one registry, and checks that no process
// and no record is left and that the database is intact.
func TestManyServersLeaveNothing(t *testing.T) {
	t.Parallel()
	seed := chaosBegin(t)
	for _, c := range []struct {
		name   string
		n      int
		atOnce bool
	}{{"one after the other", *serversInARow, false}, {"at once", *serversAtOnce, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t)
			a.set("PM_STOP_TIMEOUT", "200")
			errs := make([]error, c.n)
			var together, running sync.WaitGroup
			together.Add(c.n)
			for i := range c.n {
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				if c.atOnce {
					running.Go(func() { errs[i] = a.startAndEnd(rnd, fmt.Sprint("server", i), &together) })
					continue
				}
				var alone sync.WaitGroup
				alone.Add(1)
				errs[i] = a.startAndEnd(rnd, fmt.Sprint("server", i), &alone)
			}
			running.Wait()
			check(t, errors.Join(errs...))
			a.checkCleanUp(t)
		})
	}
}

// checkCleanUp starts one more server, which cleans up, and checks that this server itself
// leaves nothing.
func (a *arena) checkCleanUp(t *testing.T) {
	t.Helper()
	check(t, a.visit(func() (bool, error) {
		files := a.records(t)
		return len(files) == 4, fmt.Errorf("got the records %v, want the server's own 4", files)
	}))
	check(t, a.aftermath())
	var left []string
	if !poll(endsWithin, func() bool { left = append(a.remains(), a.records(t)...); return len(left) == 0 }) {
		t.Errorf("got %q left, want nothing", left)
	}
}

// TestTooManyServersAreReported checks that every pmcp server sees all others, and reports
// when there are more than PM_MAX_SERVERS.
func TestTooManyServersAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("PM_MAX_SERVERS", "2")
	for n := 1; n <= 3; n++ {
		r := w.open(t).ok(t, "get_server_info", args{}).want(t, args{"total_server_processes": n})
		current := 0
		for _, p := range objects(r.Data["server_processes"]) {
			if p["is_current"] == true && p["pid"] == r.Data["current_pid"] {
				current++
			}
			if p["status"] != "running" || p["client"] != "e2e 1" || p["cwd"] != w.project {
				t.Errorf("got %v, want running, client e2e 1 in %s", p, w.project)
			}
		}
		if current != 1 {
			t.Errorf("got %d current servers, want 1: %s", current, r.Text)
		}
		want := "healthy"
		if n > 2 {
			want = "degraded"
		}
		r.want(t, args{"health": want})
	}
	text, code, err := w.doctor()
	if err != nil || code != 0 {
		t.Errorf("got %v, code %d, want 0:\n%s", err, code, text)
	}
	result{Text: text}.says(t, "3 live", "advice: 3 servers are alive, more than 2")
}
