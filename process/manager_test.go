package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process/command"
)

// fakeRun is a run without a process.
type fakeRun struct {
	number  int
	spawned time.Time
	ended   chan struct{}
	// survives makes a stop fail with ErrSurvivors.
	survives bool
	// lingers, if not nil, delays the end of a stopped run until lingers is closed.
	lingers chan struct{}
	// onSettle, if not nil, is called when the time of the last output is asked for.
	onSettle func()

	mu    sync.Mutex
	exit  Exit
	at    time.Time
	over  bool
	stops []stopRequest
}

func (r *fakeRun) PID() int               { return 1000 + r.number }
func (r *fakeRun) Ended() <-chan struct{} { return r.ended }

func (r *fakeRun) printedAt() time.Time {
	if r.onSettle != nil {
		r.onSettle()
	}
	return time.Now()
}

func (r *fakeRun) outputEnded() bool { return false }

func (r *fakeRun) Exit() (Exit, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exit, r.at
}

func (r *fakeRun) input(context.Context, []byte, bool) (int, error) { return 0, nil }

func (r *fakeRun) stop(q stopRequest) *takedown {
	r.mu.Lock()
	r.stops = append(r.stops, q)
	r.mu.Unlock()
	d := newTakedown(0)
	if r.survives {
		d.finish(fmt.Errorf("%w: pid 7", ErrSurvivors))
		return d
	}
	if r.lingers != nil {
		go func() {
			<-r.lingers
			r.finish(Exit{Code: -1, Signal: "SIGTERM", By: q.by})
			d.finish(nil)
		}()
		return d
	}
	r.finish(Exit{Code: -1, Signal: "SIGTERM", By: q.by})
	d.finish(nil)
	return d
}

func (r *fakeRun) finish(exit Exit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.over, r.exit, r.at = true, exit, time.Now()
		close(r.ended)
	}
}

// fakeSpawner implements Manager.spawn without processes.
type fakeSpawner struct {
	mu   sync.Mutex
	runs []*fakeRun
	fail error
	// hold, if not nil, blocks each spawn until hold is closed.
	hold chan struct{}
}

func (f *fakeSpawner) spawn(Spec, command.Executable, int64) (runner, error) {
	f.mu.Lock()
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	r := &fakeRun{number: len(f.runs) + 1, spawned: time.Now(), ended: make(chan struct{})}
	f.runs = append(f.runs, r)
	return r, nil
}

func (f *fakeSpawner) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.runs)
}

func (f *fakeSpawner) last() *fakeRun {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.runs[len(f.runs)-1]
}

var (
	crash = Exit{Code: 1, By: BySelf}
	clean = Exit{Code: 0, By: BySelf}
)

// bubble runs test in a synctest bubble, with a Manager whose runs are fakes.
func bubble(t *testing.T, o Options, test func(t *testing.T, m *Manager, f *fakeSpawner)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o.Journal, o.Project = newMemJournal(), dir
		m := NewManager(o)
		f := &fakeSpawner{}
		m.spawn = f.spawn
		defer func() { _ = m.Close(context.Background()) }()
		test(t, m, f)
	})
}

func sh(name string, policy RestartPolicy) Spec {
	return Spec{Name: name, Command: "/bin/sh", Restart: policy}
}

// state returns the state of the process a once all goroutines of the synctest bubble are blocked.
func state(t *testing.T, m *Manager) State {
	t.Helper()
	synctest.Wait()
	st, err := m.Status("a")
	if err != nil {
		t.Fatal(err)
	}
	return st.State
}

func TestStopDuringSpawnEndsRun(t *testing.T) {
	for _, waits := range []bool{true, false} {
		t.Run(fmt.Sprintf("waits=%v", waits), func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
				f.hold = make(chan struct{})
				go func() { _, _, _ = m.Start(context.Background(), sh("a", RestartAlways), KeepRunning) }()
				if got := state(t, m); got != Starting {
					t.Fatalf("state %s, want starting", got)
				}
				ctx, cancel := context.WithCancel(t.Context())
				stopped := make(chan error, 1)
				go func() { _, err := m.Stop(ctx, "a", StopOptions{}); stopped <- err }()
				synctest.Wait()
				if !waits {
					cancel() // the caller's context ends, but the stop continues
					if err := <-stopped; !errors.Is(err, context.Canceled) {
						t.Errorf("Stop = %v, want the context's error", err)
					}
				}
				close(f.hold)
				synctest.Wait()
				if waits {
					if err := <-stopped; err != nil {
						t.Error(err)
					}
				}
				cancel()
				if got := state(t, m); got != Stopped || f.count() != 1 || len(f.last().stops) == 0 {
					t.Errorf("state %s after %d runs; want the new run stopped", got, f.count())
				}
			})
		})
	}
}

func TestStopDuringFailingSpawnReturns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		f.hold, f.fail = make(chan struct{}), errors.New("no luck")
		go func() { _, _, _ = m.Start(context.Background(), sh("a", RestartAlways), KeepRunning) }()
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { _, err := m.Stop(context.Background(), "a", StopOptions{}); stopped <- err }()
		synctest.Wait()
		close(f.hold)
		if err := <-stopped; err != nil || state(t, m) != Stopped {
			t.Errorf("stop of a spawn that failed: %v, %s; want stopped", err, state(t, m))
		}
	})
}

func TestStartDuringStopIsRefused(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartNever))
		first := f.last()
		first.survives = true // the stop fails, and the run does not end
		if _, err := m.Stop(t.Context(), "a", StopOptions{}); !errors.Is(err, ErrSurvivors) {
			t.Errorf("Stop = %v, want ErrSurvivors", err)
		}
		var refused *StateError
		_, _, err := m.Start(t.Context(), sh("a", RestartNever), KeepRunning)
		if !errors.As(err, &refused) || refused.State != Stopping {
			t.Errorf("Start during a stop = %v, want a StateError with state stopping", err)
		}
		first.finish(crash)
		if got := state(t, m); got != Stopped {
			t.Fatalf("state %s after the end, want stopped", got)
		}
		first.survives = false
		if st := start(t, m, sh("a", RestartNever)); st.Run != 2 || st.State != Running {
			t.Errorf("start after the stop: run %d, %s; want run 2, running", st.Run, st.State)
		}
	})
}

// TestStopOverridesRestart checks that a stop overrides a restart that waits for the end of the
// earlier run, whether the stop or the restart wakes first.
func TestStopOverridesRestart(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartNever))
		f.last().lingers = make(chan struct{})
		restarted, stopped := make(chan error, 1), make(chan Status, 1)
		go func() {
			_, _, err := m.Start(context.Background(), sh("a", RestartNever), RestartRunning)
			restarted <- err
		}()
		synctest.Wait() // the restart waits for the end of the run
		go func() {
			st, err := m.Stop(context.Background(), "a", StopOptions{})
			if err != nil {
				t.Error(err)
			}
			stopped <- st
		}()
		synctest.Wait()
		close(f.last().lingers)
		if err := <-restarted; !errors.Is(err, ErrCalledOff) {
			t.Errorf("restart = %v, want ErrCalledOff", err)
		}
		if st := <-stopped; st.State != Stopped || f.count() != 1 {
			t.Errorf("after the stop: %s, %d runs; want stopped and one", st.State, f.count())
		}
		if st := start(t, m, sh("a", RestartNever)); st.Run != 2 || st.State != Running {
			t.Errorf("start after both: run %d, %s; want run 2, running", st.Run, st.State)
		}
	})
}

// TestStopOverridesRestartUnlessStopped checks that such a restart starts only what no stop has ended or is ending.
func TestStopOverridesRestartUnlessStopped(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		restart := func(want error) {
			t.Helper()
			if _, _, err := m.Start(context.Background(), sh("a", RestartNever), RestartUnlessStopped); !errors.Is(err, want) {
				t.Errorf("restart after %d runs = %v, want %v", f.count(), err, want)
			}
		}
		restart(ErrCalledOff) // there is no such process
		start(t, m, sh("a", RestartNever))
		restart(nil)
		f.last().finish(Exit{Code: 1})
		synctest.Wait()
		restart(nil)
		f.last().lingers = make(chan struct{})
		stopped := make(chan error, 1)
		go func() {
			_, err := m.Stop(context.Background(), "a", StopOptions{})
			stopped <- err
		}()
		synctest.Wait()
		restart(ErrCalledOff) // it is being stopped
		close(f.last().lingers)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		restart(ErrCalledOff)
		if st, _ := m.Status("a"); f.count() != 3 || st.Stops != 1 {
			t.Errorf("got %d runs and %d stops, want 3 and 1", f.count(), st.Stops)
		}
	})
	bubble(t, Options{NoAutoRestart: true}, func(t *testing.T, m *Manager, _ *fakeSpawner) {
		start(t, m, sh("a", RestartNever))
		if _, _, err := m.Start(context.Background(), sh("a", RestartNever), RestartUnlessStopped); !errors.Is(err, ErrInvalid) {
			t.Errorf("restart = %v, want ErrInvalid", err)
		}
	})
}

// TestRestartOverridesStop checks that a restart overrides a stop that has not completed, and that two
// restarts do not cancel each other.
func TestRestartOverridesStop(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartNever))
		f.last().lingers = make(chan struct{})
		go func() { _, _ = m.Stop(context.Background(), "a", StopOptions{}) }()
		synctest.Wait()
		restarted := make(chan error, 2)
		for range 2 {
			go func() {
				_, _, err := m.Start(context.Background(), sh("a", RestartNever), RestartRunning)
				restarted <- err
			}()
		}
		synctest.Wait()
		close(f.last().lingers)
		for range 2 {
			if err := <-restarted; err != nil {
				t.Error(err)
			}
		}
		if got := state(t, m); got != Running {
			t.Errorf("state %s, want running", got)
		}
	})
}

func TestStartEnforcesMaxProcesses(t *testing.T) {
	bubble(t, Options{MaxProcesses: 2}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartAlways))
		f.last().finish(crash)
		synctest.Wait()
		start(t, m, sh("b", RestartNever))
		if _, _, err := m.Start(t.Context(), sh("c", RestartNever), KeepRunning); !errors.Is(err, ErrTooMany) {
			t.Errorf("third process = %v, want ErrTooMany", err)
		}
		if _, err := m.Status("c"); !errors.Is(err, ErrUnknown) {
			t.Errorf("Status after a refused start = %v, want ErrUnknown", err)
		}
		// The process a waits for its restart and counts towards MaxProcesses. If the caller starts
		// a, it must not count twice.
		start(t, m, sh("a", RestartAlways))
	})
}

func TestFullManagerEvictsOldestEndedProcess(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		for i := range maxEntries + 1 {
			start(t, m, sh(fmt.Sprintf("p%d", i), RestartNever))
			step(t, f, time.Millisecond, clean)
		}
		if n := len(m.List()); n != maxEntries {
			t.Errorf("%d entries, want %d", n, maxEntries)
		}
		if _, err := m.Status("p0"); !errors.Is(err, ErrUnknown) {
			t.Errorf("Status of the oldest = %v, want ErrUnknown", err)
		}
		if _, err := m.Status("p1"); err != nil {
			t.Error(err)
		}
	})
}

func TestListSortsActiveThenLatestEnd(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		for _, name := range []string{"old", "new", "z", "m"} {
			start(t, m, sh(name, RestartNever))
			if name == "old" || name == "new" {
				step(t, f, time.Second, crash)
			}
		}
		var names []string
		for _, st := range m.List() {
			names = append(names, st.Spec.Name)
		}
		if want := []string{"m", "z", "new", "old"}; !slices.Equal(names, want) {
			t.Errorf("order %v, want %v", names, want)
		}
	})
}

func TestStartObeysIfRunning(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		start(t, m, sh("a", RestartNever))
		if st, already, err := m.Start(t.Context(), sh("a", RestartAlways), KeepRunning); err != nil || !already || st.Run != 1 {
			t.Errorf("same spec: %v, already %v, run %d; want already running run 1", err, already, st.Run)
		}
		other := sh("a", RestartNever)
		other.Args, other.Env, other.Stdin = []string{"-x"}, map[string]string{"A": "1"}, true
		var differs *DiffersError
		_, _, err := m.Start(t.Context(), other, KeepRunning)
		if !errors.As(err, &differs) || !slices.Equal(differs.Fields, []string{"args", "env", "stdin"}) {
			t.Errorf("other spec: %v, want a DiffersError for args, env, stdin", err)
		}
		var state *StateError
		if _, _, err = m.Start(t.Context(), other, RefuseRunning); !errors.As(err, &state) {
			t.Errorf("if_running error: %v, want a StateError", err)
		}
		if st, already, err := m.Start(t.Context(), other, RestartRunning); err != nil || already || st.Run != 2 || !st.Spec.Stdin {
			t.Errorf("if_running restart: %+v, %v, %v; want run 2 with stdin", st, already, err)
		}
	})
}

func TestConcurrentStartsMakeOneRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		f.hold = make(chan struct{})
		const callers = 20
		fresh := make(chan bool, callers)
		for range callers {
			go func() {
				st, already, err := m.Start(context.Background(), sh("a", RestartNever), KeepRunning)
				if err != nil || st.PID == 0 {
					t.Errorf("Start = %+v, %v; want a pid", st, err)
				}
				fresh <- !already
			}()
		}
		synctest.Wait()
		close(f.hold)
		n := 0
		for range callers {
			if <-fresh {
				n++
			}
		}
		if n != 1 || f.count() != 1 {
			t.Errorf("%d callers started a run, %d runs; want one of each", n, f.count())
		}
	})
}

func TestCloseDuringSpawnEndsRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		f.hold = make(chan struct{})
		go func() { _, _, _ = m.Start(context.Background(), sh("a", RestartAlways), KeepRunning) }()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- m.Close(context.Background()) }()
		synctest.Wait()
		close(f.hold)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if got := state(t, m); got != Stopped || len(f.last().stops) == 0 {
			t.Errorf("state %s, %d stops after Close during the spawn; want stopped", got, len(f.last().stops))
		}
	})
}

func TestRemoveDeletesOnlyEndedProcess(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		feed := m.Watch()
		start(t, m, sh("a", RestartNever))
		var refused *StateError
		if err := m.Remove(t.Context(), "a"); !errors.As(err, &refused) || refused.State != Running {
			t.Errorf("Remove of a running process = %v, want a StateError", err)
		}
		f.last().finish(clean)
		synctest.Wait()
		if err := m.Remove(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if err := m.Remove(t.Context(), "a"); !errors.Is(err, ErrUnknown) {
			t.Errorf("second Remove = %v, want ErrUnknown", err)
		}
		for removed := false; !removed; {
			c, err := feed.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			removed = c.Removed
		}
		if st := start(t, m, sh("a", RestartNever)); st.State != Running {
			t.Errorf("start of the removed name: %s, want running", st.State)
		}
	})
}
