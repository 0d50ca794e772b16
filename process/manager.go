package process

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pmcp/process/feed"
)

// maxEntries bounds the table: beyond it, the processes that ended longest ago
// are forgotten when a new name comes.
const maxEntries = 1000

// Manager is the table of processes of one session. Its methods may be called
// from several goroutines.
type Manager struct {
	o       Options
	deps    runDeps
	meter   *meter
	changes *feed.Feed[Change]
	// spawn starts a run; tests put a fake in its place.
	spawn func(spec Spec, exe executable, run int64) (runner, error)

	ctx    context.Context // ends when closing begins
	cancel context.CancelFunc
	wg     tasks    // supervisors, sampler, readiness, Exec
	runs   tasks    // goroutines of runs
	open   sync.Map // *Run whose streams are still read

	mu      sync.Mutex
	entries map[string]*entry
	ends    endLog
	closing bool
	execs   int64 // id of the latest Exec, counted down
}

// entry is one name. Everything in it is guarded by Manager.mu.
type entry struct {
	status Status
	exe    executable
	run    runner // current or last run; nil before the first
	spawn  *spawn // the latest
	// stopping is the stop that came during the spawn.
	stopping *stopRequest
	// stopCalls counts the calls of Stop; entry and count outlast a removal, for
	// a Start that waits.
	stopCalls int
	// recycled says why the current run is being ended to be run again.
	recycled string
	// endNoted is the id of the run whose end stands in Manager.ends.
	endNoted int64
	retries  retries
	limits   limitWatch
	// noRetry ends the wait of a backoff; nil unless in Backoff.
	noRetry context.CancelFunc
}

// spawn is one attempt to start a run. run and id are valid once done is closed;
// of an attempt that failed they are those of the run before.
type spawn struct {
	done chan struct{}
	run  runner
	id   int64
}

// NewManager returns a Manager that runs its sampler until Close.
func NewManager(o Options) *Manager {
	o = o.withDefaults()
	m := &Manager{o: o, changes: feed.New[Change](feedSize), entries: make(map[string]*entry)}
	s := &spawner{}
	m.deps = runDeps{
		spawner: s, tree: newTree(s, o.Session, o.Subreaper, o.Recorder, o.Log), journal: o.Journal, oom: newOOMWatch(), log: o.Log,
		owner: &m.runs, open: &m.open, takeStdio: o.TakeStdio,
	}
	m.meter = newMeter(m.deps.tree, o.OnSample)
	m.spawn = m.startRun
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.wg.Go(m.sample)
	return m
}

// Project is the directory that names belong to.
func (m *Manager) Project() string { return m.o.Project }

// IfRunning says what Start does with a process that runs already.
type IfRunning string

// The values of IfRunning; the zero value is KeepRunning.
const (
	// KeepRunning answers the running process if it has the same Spec, and a
	// DiffersError if not.
	KeepRunning IfRunning = ""
	// RestartRunning stops it first.
	RestartRunning IfRunning = "restart"
	// RefuseRunning answers a StateError.
	RefuseRunning IfRunning = "error"
)

// Start runs spec under its name. already says that the process ran before with
// the same Spec and was left alone. A Spec that cannot run changes nothing. A
// Stop that comes while Start waits for something of the earlier run is the later
// wish: nothing is started then.
//
// Errors wrap ErrInvalid, ErrNoExecutable, ErrNotAllowed, ErrTooMany, ErrClosed,
// ErrCalledOff or ErrSurvivors, or are a *StateError or *DiffersError.
func (m *Manager) Start(ctx context.Context, spec Spec, ifRunning IfRunning) (st Status, already bool, err error) {
	spec, exe, err := m.check(spec)
	if err != nil {
		return Status{}, false, err
	}
	var waited *inTheWay // what was first in the way
	for {
		e, in, err := m.begin(spec, exe, ifRunning, waited)
		if waited == nil {
			waited = &in
		}
		switch {
		case err != nil:
			return in.status, false, err
		case e != nil:
			err := m.launch(e)
			st, _ = m.Status(spec.Name)
			return st, false, err
		case in.spawned != nil: // another start is at it: its outcome is ours
			if err := wait(ctx, in.spawned); err != nil {
				return in.status, false, err
			}
		case in.status.State.Live() && ifRunning == KeepRunning:
			return in.status, true, nil
		default: // something of the earlier run is in the way
			if _, err := m.stop(ctx, spec.Name, StopOptions{By: ByUser}, false); err != nil {
				return in.status, false, err
			}
		}
	}
}

// Resolve gives the file that Start would execute for spec now, absolute and
// before symbolic links are resolved, or says why it would refuse spec. It
// starts nothing.
func (m *Manager) Resolve(spec Spec) (executable string, err error) {
	_, exe, err := m.check(spec)
	return exe.argv0, err
}

// check returns spec made absolute and what it would execute, or why it cannot
// run.
func (m *Manager) check(spec Spec) (Spec, executable, error) {
	spec, err := spec.resolved(m.o.Project)
	if err != nil {
		return spec, executable{}, err
	}
	switch {
	case spec.mcp() && m.o.TakeStdio == nil:
		return spec, executable{}, fmt.Errorf("%w: stdio mcp is not available here", ErrInvalid)
	case spec.Ready != nil && spec.Ready.Log != "" && m.o.AwaitLine == nil:
		return spec, executable{}, fmt.Errorf("%w: ready.log is not available here", ErrInvalid)
	}
	if err := checkAllowedEnv(spec.Env, m.o.Allowed); err != nil {
		return spec, executable{}, err
	}
	env := environ(m.o.Environ, spec.Env, spec.Dir, m.o.Session, 0)
	exe, err := resolve(spec.Command, spec.Dir, lookupEnv(env, "PATH"), m.o.Allowed)
	return spec, exe, err
}

// inTheWay is what keeps an entry from being started: it lives, or left
// something. With spawned it is being started at this moment.
type inTheWay struct {
	status  Status
	spawned <-chan struct{}

	entry     *entry
	stopCalls int // of entry, at that moment
}

// calledOff says whether a Stop came since. Called with Manager.mu held.
func (in *inTheWay) calledOff() bool {
	return in != nil && in.entry != nil && in.entry.stopCalls != in.stopCalls
}

// begin moves the entry of spec to Starting and returns it, or returns what is
// in the way of that. waited is what was in the way at first, nil at first.
func (m *Manager) begin(spec Spec, exe executable, ifRunning IfRunning, waited *inTheWay) (*entry, inTheWay, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return nil, inTheWay{}, ErrClosed
	}
	e := m.entries[spec.Name]
	if waited.calledOff() {
		return nil, inTheWay{status: m.snapshot(waited.entry)}, fmt.Errorf("%s was %w", spec.Name, ErrCalledOff)
	}
	if e != nil {
		in := inTheWay{status: m.snapshot(e), entry: e, stopCalls: e.stopCalls}
		state := in.status.State
		switch {
		case state == Stopping && ifRunning != RestartRunning, state.Live() && ifRunning == RefuseRunning:
			return nil, in, &StateError{Name: spec.Name, State: state, Event: "start"}
		case state.Live() && ifRunning == KeepRunning:
			if differs := in.status.Spec.Differs(spec); len(differs) > 0 {
				return nil, in, &DiffersError{Name: spec.Name, Fields: differs}
			}
			if state == Starting {
				in.spawned = e.spawn.done
			}
			return nil, in, nil
		case in.status.Alive():
			return nil, in, nil
		}
	}
	if n := m.liveBut(e); n >= m.o.MaxProcesses {
		return nil, inTheWay{}, fmt.Errorf("%w: %d run, PM_MAX_PROCESSES allows %d; stop one first", ErrTooMany, n, m.o.MaxProcesses)
	}
	if e == nil {
		e = m.add(spec.Name)
	}
	e.retries = retries{}
	e.exe = exe
	e.status.Spec, e.status.Executable, e.status.Restarts = spec, exe.argv0, 0
	m.transition(e, evStart)
	return e, inTheWay{}, nil
}

// add makes the entry of a new name. Called with m.mu held.
func (m *Manager) add(name string) *entry {
	if len(m.entries) >= maxEntries {
		oldest := ""
		for name, e := range m.entries {
			if st := m.snapshot(e); !st.GoesOn() && (oldest == "" || st.EndedAt.Before(m.entries[oldest].status.EndedAt)) {
				oldest = name
			}
		}
		if e := m.entries[oldest]; e != nil {
			m.forget(e)
		}
	}
	e := &entry{}
	m.entries[name] = e
	return e
}

// forget takes e off the table and publishes that. Called with m.mu held.
func (m *Manager) forget(e *entry) {
	st := m.snapshot(e)
	delete(m.entries, st.Spec.Name)
	m.changes.Publish(Change{At: time.Now(), From: st.State, To: st.State, Removed: true, Status: st})
}

// liveBut counts the entries that run, or will by themselves, without e. Called
// with m.mu held.
func (m *Manager) liveBut(e *entry) int {
	n := 0
	for _, other := range m.entries {
		if other != e && other.status.State.Active() {
			n++
		}
	}
	return n
}

// transition is the only place that writes an entry's state. It publishes the
// change and answers false if ev does not fit. Called with m.mu held.
func (m *Manager) transition(e *entry, ev event) bool {
	from := e.status.State
	to, ok := from.next(ev)
	if !ok {
		return false
	}
	e.status.State = to
	if to == Starting {
		e.spawn = &spawn{done: make(chan struct{})}
	}
	if from == Backoff {
		e.status.NextRetry = time.Time{}
		e.noRetry()
		e.noRetry = nil
	}
	m.publish(e, from)
	return true
}

// publish tells every Feed what e is now. Called with m.mu held.
func (m *Manager) publish(e *entry, from State) {
	c := Change{At: time.Now(), From: from, To: e.status.State, Status: m.snapshot(e)}
	m.noteEnd(e, c)
	m.changes.Publish(c)
}

// update lets change alter the status of e and publishes that, if run is still
// its current run and change answers true.
func (m *Manager) update(e *entry, run runner, change func(*Status) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.run == run && e.status.State == Running && change(&e.status) {
		m.publish(e, e.status.State)
	}
}

// lookup returns the entry called name. Called with m.mu held.
func (m *Manager) lookup(name string) (*entry, error) {
	if e := m.entries[name]; e != nil {
		return e, nil
	}
	if len(m.entries) == 0 {
		return nil, fmt.Errorf("%w: %q; no process was started in this session", ErrUnknown, name)
	}
	names := slices.Sorted(maps.Keys(m.entries))
	const most = 50
	if len(names) > most {
		names = append(names[:most], "…")
	}
	return nil, fmt.Errorf("%w: %q; there are: %s", ErrUnknown, name, strings.Join(names, ", "))
}

// wait returns when done is closed (nil is closed already) or with ctx's error.
func wait(ctx context.Context, done <-chan struct{}) error {
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
