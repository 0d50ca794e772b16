package groups

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"pmcp/process"
)

// program is how a fake process behaves. The zero value runs until it is
// stopped and has no readiness rule.
type program struct {
	refuses    bool          // cannot be started …
	attempts   bool          // … which takes an attempt to find out
	rule       bool          // has a readiness rule …
	readyAfter time.Duration // … that holds after this, if it has not ended
	ends       bool          // ends by itself …
	endsAfter  time.Duration // … after this …
	code       int           // … with this exit code
	retries    int           // by a policy that starts it so often again, after a second
	health     string        // "" no check, "well", "ill" …
	healthIn   time.Duration // … which is known after this
	stopTakes  time.Duration
	survives   bool // cannot be stopped
	startsOver bool // is started by somebody else as soon as it is stopped
	startTakes time.Duration
}

// span is a stretch of time.
type span struct{ from, to time.Time }

// world is a process manager, health checks and a Starter, all of them fake.
type world struct {
	programs map[string]program
	// onStart looks at the world when a member is about to start. Called with mu
	// held.
	onStart func(name string)

	mu       sync.Mutex
	table    map[string]process.Status
	healthy  map[string]error     // by process, once known: nil or ErrUnhealthy
	holds    map[string]time.Time // "process condition" → since when it has held
	starts   map[string][]time.Time
	stops    map[string]span
	forced   map[string]bool
	lastRun  int64
	changed  chan struct{}
	ifStarts map[string]process.IfRunning
}

func newWorld(programs map[string]program) *world {
	return &world{
		programs: programs, table: map[string]process.Status{}, healthy: map[string]error{}, holds: map[string]time.Time{},
		starts: map[string][]time.Time{}, stops: map[string]span{}, forced: map[string]bool{}, changed: make(chan struct{}),
		ifStarts: map[string]process.IfRunning{},
	}
}

// alter changes the entry of name, and wakes who waits. Called with mu held.
func (w *world) alter(name string, change func(st *process.Status)) {
	st := w.table[name]
	st.Spec.Name = name
	change(&st)
	w.table[name] = st
	w.wake()
}

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

// now is the entry of name.
func (w *world) now(name string) process.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table[name]
}

// await waits until look, called with mu held, has an answer.
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

// StartMember starts a run of name.
func (w *world) StartMember(ctx context.Context, name string, ifRunning process.IfRunning) (process.Status, error) {
	p := w.programs[name]
	w.mu.Lock()
	w.starts[name] = append(w.starts[name], time.Now())
	w.ifStarts[name] = ifRunning
	if w.onStart != nil {
		w.onStart(name)
	}
	w.mu.Unlock()
	if err := pass(ctx, p.startTakes); err != nil {
		return process.Status{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.refuses {
		w.alter(name, func(st *process.Status) { st.State, st.Reason = process.Failed, errRefused.Error() })
		if !p.attempts {
			return process.Status{}, errRefused
		}
		w.lastRun++
		w.alter(name, func(st *process.Status) { st.RunID, st.Run = w.lastRun, st.Run+1 })
		return w.table[name], errRefused
	}
	w.begin(name, p, p.retries)
	return w.table[name], nil
}

// pass lets d go by.
func pass(ctx context.Context, d time.Duration) error {
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

// begin makes a run of name. Called with mu held.
func (w *world) begin(name string, p program, retries int) {
	w.lastRun++
	run := w.lastRun
	ready := false
	w.alter(name, func(st *process.Status) {
		st.State, st.RunID, st.Run, st.StartedAt, st.Exit = process.Running, run, st.Run+1, time.Now(), nil
		st.EndedAt = time.Time{}
		if p.rule {
			st.Spec.Ready, st.Ready = &process.Ready{HTTP: "/"}, &ready
		}
	})
	w.hold(name, Started)
	if p.rule && (!p.ends || p.readyAfter < p.endsAfter) {
		w.later(name, run, p.readyAfter, func(st *process.Status) {
			ready := true
			st.Ready = &ready
			w.hold(name, Ready)
		})
	}
	if p.health != "" {
		w.later(name, run, p.healthIn, func(*process.Status) {
			w.healthy[name] = nil
			if p.health == "ill" {
				w.healthy[name] = errUnhealthy
			} else {
				w.hold(name, Healthy)
			}
		})
	}
	if p.ends {
		w.later(name, run, p.endsAfter, func(st *process.Status) { w.end(st, p, retries) })
	}
}

// hold notes that a condition holds from now on. Called with mu held.
func (w *world) hold(name string, c Condition) {
	key := name + " " + string(c)
	if _, already := w.holds[key]; !already {
		w.holds[key] = time.Now()
	}
}

// later changes a run after d, if it is still the one.
func (w *world) later(name string, run int64, d time.Duration, change func(st *process.Status)) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if st := w.table[name]; st.RunID == run && st.State == process.Running {
			w.alter(name, change)
		}
	})
}

// end ends a run by itself. Called with mu held.
func (w *world) end(st *process.Status, p program, retries int) {
	st.Exit, st.EndedAt, st.Ready = &process.Exit{Code: p.code, By: process.BySelf}, time.Now(), nil
	switch {
	case p.code == 0:
		st.State = process.Exited
		w.hold(st.Spec.Name, ExitedOK)
	case retries > 0:
		st.State = process.Backoff
		name, run := st.Spec.Name, st.RunID
		time.AfterFunc(time.Second, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if st := w.table[name]; st.RunID == run && st.State == process.Backoff {
				if retries == 1 { // the last one goes well
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
		w.alter(name, func(st *process.Status) { st.State = process.Stopping })
	}
	w.forced[name] = o.Force
	began := time.Now()
	w.stops[name] = span{from: began}
	w.mu.Unlock()
	takes := p.stopTakes
	if o.Force {
		takes = 0
	}
	if err := pass(ctx, takes); err != nil {
		return st, err
	}
	if p.survives {
		return st, fmt.Errorf("%w: pid 4711 (%s)", process.ErrSurvivors, name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alter(name, func(st *process.Status) { st.State, st.EndedAt = process.Stopped, time.Now() })
	w.stops[name] = span{from: began, to: time.Now()}
	if p.startsOver {
		w.begin(name, p, 0)
	}
	return w.table[name], nil
}

// memJournal keeps definitions in memory.
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

// newManager returns a Manager over w with one group, "g".
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

// on makes a member of a name and of what it depends on: "db", "db ready".
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

// outcomes are the results of a report by process.
func outcomes(r Report) map[string]Outcome {
	by := map[string]Outcome{}
	for _, o := range r.Members {
		by[o.Process] = o
	}
	return by
}
