package groups

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pmcp/process"
)

// program is the behaviour of a fake process. The zero value runs until it is
// stopped and has no readiness rule.
type program struct {
	refuses    bool          // the process cannot be started
	attempts   bool          // a refused start counts as an attempt
	rule       bool          // the process has a readiness rule
	service    bool          // a service was asked for
	readyAfter time.Duration // when the rule holds, unless the process has ended
	ends       bool          // the process exits on its own
	endsAfter  time.Duration // when the process ends
	code       int           // exit code
	retries    int           // number of restarts by the restart policy, each after a second
	health     string        // result of the health check, "well" or "ill"; "" without a check
	healthIn   time.Duration // when the result is known
	stopTakes  time.Duration
	survives   bool // the process cannot be stopped
	startsOver bool // another caller starts the process again once it is stopped
	startTakes time.Duration
}

// interval is a period of time.
type interval struct{ from, to time.Time }

// world is a fake process manager, a fake health check and a fake Starter.
type world struct {
	programs map[string]program
	// onStart is called when a member is about to start, with mu held.
	onStart  func(name string)
	other    *otherServer  // nil without another server
	restarts bool          // other restarts what it runs
	watch    time.Duration // how long WatchStart watches

	mu       sync.Mutex
	table    map[string]process.Status
	healthy  map[string]error     // result of the health check by process, once known: nil or errUnhealthy
	holds    map[string]time.Time // "process condition" → when it first held
	starts   map[string][]time.Time
	stops    map[string]interval
	forced   map[string]bool
	lastRun  int64
	changed  chan struct{}
	ifStarts map[string]process.IfRunning
	edited   map[string]bool // whether the definition has changed since the latest run
}

func newWorld(programs map[string]program) *world {
	return &world{
		programs: programs, table: map[string]process.Status{}, healthy: map[string]error{}, holds: map[string]time.Time{},
		starts: map[string][]time.Time{}, stops: map[string]interval{}, forced: map[string]bool{}, changed: make(chan struct{}),
		ifStarts: map[string]process.IfRunning{}, edited: map[string]bool{},
	}
}

// update changes the entry of name and wakes the waiters. w.mu must be held.
func (w *world) update(name string, change func(st *process.Status)) {
	st := w.table[name]
	st.Spec.Name = name
	change(&st)
	w.table[name] = st
	w.wake()
}

// wake wakes the waiters. w.mu must be held.
func (w *world) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) Status(name string) (process.Status, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st, ok := w.table[name]
	if !ok {
		return st, fmt.Errorf("%w: %q", process.ErrUnknown, name)
	}
	return st, nil
}

// entry returns the entry of name.
func (w *world) entry(name string) process.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table[name]
}

// await waits until look, which await calls with w.mu held, returns true.
func (w *world) await(ctx context.Context, look func() bool) error {
	for {
		w.mu.Lock()
		done, changed := look(), w.changed
		w.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *world) Await(ctx context.Context, name string, until func(process.Status) bool) (st process.Status, err error) {
	known := true
	err = w.await(ctx, func() bool {
		st, known = w.table[name]
		return !known || until(st)
	})
	if !known {
		return st, fmt.Errorf("%w: %q", process.ErrUnknown, name)
	}
	return st, err
}

// WatchStart returns once the run has ended, and at the latest watch after its start.
func (w *world) WatchStart(ctx context.Context, name string, run int64) (process.Status, error) {
	ctx, cancel := context.WithDeadline(ctx, w.entry(name).StartedAt.Add(w.watch))
	defer cancel()
	_ = w.await(ctx, func() bool { st := w.table[name]; return st.RunID != run || st.State != process.Running })
	return w.entry(name), nil
}

var (
	errNoCheck   = errors.New("no health check")
	errUnhealthy = errors.New("unhealthy")
)

func (w *world) AwaitHealthy(ctx context.Context, name string, run int64) (err error) {
	if w.programs[name].health == "" {
		return errNoCheck
	}
	waitErr := w.await(ctx, func() bool {
		var known bool
		err, known = w.healthy[name]
		return known && w.table[name].RunID >= run
	})
	return errors.Join(waitErr, err)
}

var errRefused = errors.New("cannot find the executable")

// StartMember starts a run of name, unless name refuses to start or the other server
// runs it.
func (w *world) StartMember(ctx context.Context, name string, ifRunning process.IfRunning) (process.Status, error) {
	if w.other != nil && (w.restarts || ifRunning == process.KeepRunning) {
		if run := w.other.RunsElsewhere(ctx, []string{name})[name]; run.Owner != "" {
			return process.Status{}, &ElsewhereError{ForeignRun: run, Restarted: ifRunning == process.RestartRunning}
		}
	}
	p := w.programs[name]
	w.mu.Lock()
	w.starts[name] = append(w.starts[name], time.Now())
	w.ifStarts[name] = ifRunning
	if w.onStart != nil {
		w.onStart(name)
	}
	w.mu.Unlock()
	if err := sleep(ctx, p.startTakes); err != nil {
		return process.Status{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.refuses {
		w.update(name, func(st *process.Status) { st.State, st.Reason = process.Failed, errRefused.Error() })
		if !p.attempts {
			return process.Status{}, errRefused
		}
		w.lastRun++
		w.update(name, func(st *process.Status) { st.RunID, st.Run = w.lastRun, st.Run+1 })
		return w.table[name], errRefused
	}
	w.begin(name, p, p.retries)
	return w.table[name], nil
}

// RanUnchanged reports whether the definition of the process is not among those that
// have changed.
func (w *world) RanUnchanged(_ context.Context, st process.Status) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.edited[st.Spec.Name]
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin starts a run of name. w.mu must be held.
func (w *world) begin(name string, p program, retries int) {
	w.lastRun++
	run := w.lastRun
	ready := false
	w.update(name, func(st *process.Status) {
		st.State, st.RunID, st.Run, st.StartedAt, st.Exit = process.Running, run, st.Run+1, time.Now(), nil
		st.EndedAt, st.Spec.Service = time.Time{}, p.service
		if p.rule {
			st.Spec.Ready, st.Ready = &process.Ready{HTTP: "/"}, &ready
		}
	})
	w.noteHolds(name, Started)
	if p.rule && (!p.ends || p.readyAfter < p.endsAfter) {
		w.afterDelay(name, run, p.readyAfter, func(st *process.Status) {
			ready := true
			st.Ready = &ready
			w.noteHolds(name, Ready)
		})
	}
	if p.health != "" {
		w.afterDelay(name, run, p.healthIn, func(*process.Status) {
			w.healthy[name] = nil
			if p.health == "ill" {
				w.healthy[name] = errUnhealthy
			} else {
				w.noteHolds(name, Healthy)
			}
		})
	}
	if p.ends {
		w.afterDelay(name, run, p.endsAfter, func(st *process.Status) { w.end(st, p, retries) })
	}
}

// noteHolds records that a condition holds from now on. w.mu must be held.
func (w *world) noteHolds(name string, c Condition) {
	key := name + " " + string(c)
	if _, already := w.holds[key]; !already {
		w.holds[key] = time.Now()
	}
}

// afterDelay changes the run of name after d, if the run is still the current one.
func (w *world) afterDelay(name string, run int64, d time.Duration, change func(st *process.Status)) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if st := w.table[name]; st.RunID == run && st.State == process.Running {
			w.update(name, change)
		}
	})
}

// end ends the run of st, as if its process had exited. w.mu must be held.
func (w *world) end(st *process.Status, p program, retries int) {
	st.Exit, st.EndedAt, st.Ready = &process.Exit{Code: p.code, By: process.BySelf}, time.Now(), nil
	switch {
	case p.code == 0:
		st.State = process.Exited
		w.noteHolds(st.Spec.Name, ExitedOK)
	case retries > 0:
		st.State = process.Backoff
		name, run := st.Spec.Name, st.RunID
		time.AfterFunc(time.Second, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if st := w.table[name]; st.RunID == run && st.State == process.Backoff {
				if retries == 1 { // the last retry succeeds
					p.ends = false
				}
				w.begin(name, p, retries-1)
			}
		})
	case p.retries > 0:
		st.State, st.Reason = process.Failed, "gave up"
	default:
		st.State = process.Crashed
	}
}

func (w *world) Stop(ctx context.Context, name string, o process.StopOptions) (process.Status, error) {
	p := w.programs[name]
	w.mu.Lock()
	st, ok := w.table[name]
	if !ok {
		w.mu.Unlock()
		return st, process.ErrUnknown
	}
	if st.State.Live() {
		w.update(name, func(st *process.Status) { st.State = process.Stopping })
	}
	w.forced[name] = o.Force
	began := time.Now()
	w.stops[name] = interval{from: began}
	w.mu.Unlock()
	takes := p.stopTakes
	if o.Force {
		takes = 0
	}
	if err := sleep(ctx, takes); err != nil {
		return st, err
	}
	if p.survives {
		return st, fmt.Errorf("%w: pid 4711 (%s)", process.ErrSurvivors, name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.update(name, func(st *process.Status) { st.State, st.EndedAt = process.Stopped, time.Now() })
	w.stops[name] = interval{from: began, to: time.Now()}
	if p.startsOver {
		w.begin(name, p, 0)
	}
	return w.table[name], nil
}

// memJournal stores definitions in memory.
type memJournal struct {
	mu   sync.Mutex
	rows map[string][]byte
	err  error
}

func (j *memJournal) SaveGroup(_, name string, definition []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.rows == nil {
		j.rows = map[string][]byte{}
	}
	if definition == nil {
		delete(j.rows, name)
		return
	}
	j.rows[name] = definition
}

func (j *memJournal) Groups(context.Context, string) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.rows), j.err
}

// newManager returns a Manager with the processes of w and with g as its only group,
// called "g".
func newManager(t *testing.T, w *world, g Group) *Manager {
	t.Helper()
	m := New(Options{Processes: w, Health: w, Journal: &memJournal{}})
	t.Cleanup(m.Close)
	g.Name = "g"
	if _, _, err := m.Save(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	return m
}

// on returns a member called name. Each dependency is the name of a process, with or
// without a condition: "db" or "db ready".
func on(name string, dependencies ...string) Member {
	m := Member{Process: name}
	for _, text := range dependencies {
		var d Dependency
		if n, _ := fmt.Sscan(text, &d.Process, &d.Condition); n == 1 {
			d.Condition = IfReady
		}
		m.DependsOn = append(m.DependsOn, d)
	}
	return m
}

// outcomesByProcess returns the outcomes of a report by process.
func outcomesByProcess(r Report) map[string]Outcome {
	by := map[string]Outcome{}
	for _, o := range r.Members {
		by[o.Process] = o
	}
	return by
}

// failed reports whether any member failed or was blocked.
func failed(r Report) bool {
	return slices.ContainsFunc(r.Members, func(o Outcome) bool { return o.Result == HasFailed || o.Blocked })
}
