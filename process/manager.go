package process

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"pmcp/process/command"
	"pmcp/process/feed"
	"pmcp/process/proctab"
	"pmcp/process/prose"
)

// maxEntries bounds the table. Beyond it, a new name evicts the process that ended
// longest ago.
const maxEntries = 1000

// Manager is the table of processes of one session. Its methods are safe for
// concurrent use.
type Manager struct {
	o       Options
	deps    runDeps
	meter   *meter
	changes *feed.Feed[Change]
	// spawn starts a run; tests replace it.
	spawn func(spec Spec, exe command.Executable, run int64) (runner, error)
	watch watchLimits // tests replace it
	// closeGrace bounds the grace period of children at shutdown; tests lengthen it.
	closeGrace time.Duration

	ctx    context.Context // cancelled when closing begins
	cancel context.CancelFunc
	wg     tasks    // supervisors, sampler, readiness, Exec
	runs   tasks    // the goroutines of runs
	open   sync.Map // each *Run whose streams are still being read

	mu      sync.Mutex // guards the fields below
	entries map[string]*entry
	ends    endLog
	closing bool
	execs   int64                                                 // id of the latest Exec; counts down
	taken   func(ctx context.Context, run int64, spec Spec) []int // see SetTakenPorts
}

// entry is the state of one name. Its fields are guarded by Manager.mu.
type entry struct {
	restorable
	run   runner        // current or last run; nil before the first
	start *startAttempt // the latest
	// pendingStop is the stop that was requested during the spawn.
	pendingStop *stopRequest
	// stopCalls counts the calls of Stop. A waiting Start still reads stopCalls
	// after the entry was removed.
	stopCalls int
	// recycleReason is why pmcp is ending the current run to restart it, or "" if
	// it is not.
	recycleReason string
	// rollback is what a refused start restores.
	rollback restorable
	// recordedEnd is the id of the latest run whose end is in Manager.ends.
	recordedEnd int64
	limits      limitWatch
	// footing is what the readiness of the current run rests on; nil unless it is ready by rules.
	footing *footing
	// activity is that of the current run.
	activity activity
	// cancelRetry cancels the wait of a backoff; nil unless in Backoff.
	cancelRetry context.CancelFunc
}

// startAttempt is one attempt to start a run. run and id are valid once done is
// closed. After a failed attempt they are those of the previous run.
type startAttempt struct {
	done chan struct{}
	run  runner
	id   int64
}

// restorable is the part of an entry that a start changes and, if it is refused,
// restores.
type restorable struct {
	status  Status
	exe     command.Executable
	retries retries
}

// NewManager returns a Manager. Its sampler runs until Close.
func NewManager(o Options) *Manager {
	o = o.withDefaults()
	m := &Manager{o: o, changes: feed.New[Change](feedSize), watch: defaultWatch, closeGrace: closeGrace, entries: make(map[string]*entry)}
	s := &spawner{}
	m.deps = runDeps{
		spawner: s, tree: newTree(s, o.Session, o.Subreaper, o.Recorder, o.Log), journal: o.Journal, oom: newOOMWatch(), log: o.Log,
		owner: &m.runs, open: &m.open, takeStdio: o.TakeStdio, mcpExit: mcpExitTimeout,
	}
	m.meter = newMeter(o.OnSample)
	m.spawn = m.spawnRun
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.wg.Go(m.sample)
	return m
}

// Project returns the directory that the names of processes belong to.
func (m *Manager) Project() string { return m.o.Project }

// IfRunning selects what Start does with a process that is already running.
type IfRunning string

// The values of IfRunning; the zero value is KeepRunning.
const (
	// KeepRunning returns the running process if it has the same Spec, and a
	// DiffersError if not.
	KeepRunning IfRunning = ""
	// RestartRunning stops the running process first.
	RestartRunning IfRunning = "restart"
	// RefuseRunning returns a StateError.
	RefuseRunning IfRunning = "error"
	// RestartUnlessStopped is RestartRunning for a start that no caller asks for: it returns ErrCalledOff if
	// a stop has ended the process or is ending it, also for a restart, and if there is no such process, and an error
	// wrapping ErrInvalid where NoAutoRestart is set.
	RestartUnlessStopped IfRunning = "restart unless stopped"
)

// Start runs spec under its name. already reports that the process was already
// running with the same Spec and was left alone. A Spec that cannot run changes
// nothing. A Stop that arrives while Start waits for the end of the earlier run
// overrides Start, which then starts nothing.
// Start does not end what an ended run has left unless ifRunning is RestartRunning.
//
// Errors wrap ErrInvalid, ErrNoExecutable, ErrNotAllowed, ErrTooMany, ErrClosed,
// ErrCalledOff, ErrLeft or ErrSurvivors, are a *StateError or *DiffersError, or come from
// Journal.NewRun.
func (m *Manager) Start(ctx context.Context, spec Spec, ifRunning IfRunning) (st Status, already bool, err error) {
	r, err := m.Resolve(spec)
	if err != nil {
		return Status{}, false, err
	}
	return m.StartResolved(ctx, r, ifRunning)
}

// StartResolved is Start for a Spec that was resolved a moment ago.
func (m *Manager) StartResolved(ctx context.Context, r Resolved, ifRunning IfRunning) (st Status, already bool, err error) {
	spec := r.spec
	var first *obstacle
	for {
		e, obs, err := m.tryStart(r, ifRunning, first)
		if first == nil {
			first = &obs
		}
		switch {
		case err != nil:
			return obs.status, false, err
		case e != nil:
			err := m.launch(e)
			st, _ = m.Status(spec.Name)
			return st, false, err
		case obs.spawned != nil: // another call is starting the process: share its outcome
			if err := wait(ctx, obs.spawned); err != nil {
				return obs.status, false, err
			}
		case obs.status.State.Live() && ifRunning == KeepRunning:
			return obs.status, true, nil
		default: // the earlier run, or the processes that it left, must end first
			if ifRunning == KeepRunning && !obs.status.State.Live() {
				if left := m.awaitLeft(ctx, obs.status.RunID); len(left) > 0 {
					return obs.status, false, fmt.Errorf("%s has ended (run %d), but %w: %s", spec.Name, obs.status.Run, ErrLeft, proctab.Describe(left))
				}
			}
			if _, err := m.stop(ctx, spec.Name, StopOptions{By: ByUser, Actor: r.Actor}, false); err != nil {
				return obs.status, false, err
			}
		}
	}
}

// leftPause is how long the processes that a run has left may take to end: those of a run that was killed
// often follow it.
const leftPause = 500 * time.Millisecond

// awaitLeft returns the processes that an ended run has left and that do not end soon.
func (m *Manager) awaitLeft(ctx context.Context, run int64) (left []proctab.Proc) {
	ctx, cancel := context.WithTimeout(ctx, leftPause)
	defer cancel()
	for {
		if left = m.living(run); len(left) == 0 {
			return nil
		}
		select {
		case <-time.After(leftPause / 10):
		case <-ctx.Done():
			return left
		}
	}
}

// Allowed returns the files and directories that executables may come from; nil means
// any. The caller must not change it.
func (m *Manager) Allowed() []string { return m.o.Allowed }

// AllowsAny reports whether any executable may be started.
func (m *Manager) AllowsAny() bool { return m.o.Allowed == nil }

// A Resolved is a Spec that can run, with absolute paths, and its executable.
type Resolved struct {
	// Actor is the By of the Ask that a start makes.
	Actor string

	spec Spec
	exe  command.Executable
}

// Executable returns the absolute path of the file that is executed, before symbolic links are
// resolved.
func (r Resolved) Executable() string { return r.exe.Argv0 }

// Resolve finds what Start would execute for spec, or returns the error with which Start would
// refuse spec. It starts nothing.
func (m *Manager) Resolve(spec Spec) (r Resolved, err error) {
	if r.spec, err = spec.resolved(m.o.Project); err != nil {
		return r, err
	}
	spec = r.spec
	switch {
	case spec.mcp() && m.o.TakeStdio == nil:
		return r, fmt.Errorf("%w: stdio mcp is not available here", ErrInvalid)
	case spec.Stdio == StdioHTTP && m.o.TakeHTTP == nil:
		return r, fmt.Errorf("%w: stdio mcp-http is not available here", ErrInvalid)
	case spec.Ready != nil && spec.Ready.Log != "" && m.o.AwaitLine == nil:
		return r, fmt.Errorf("%w: ready.log is not available here", ErrInvalid)
	}
	if err := command.CheckAllowedEnv(spec.Env, m.o.Allowed); err != nil {
		return r, err
	}
	path, own := spec.Env["PATH"]
	if !own {
		path = os.Getenv("PATH")
	}
	r.exe, err = command.Resolve(spec.Command, spec.Dir, path, m.o.Allowed)
	if err != nil && spec.PathFile != "" && !strings.Contains(spec.Command, "/") {
		err = fmt.Errorf("%w; PATH comes from %s", err, spec.PathFile)
	}
	return r, err
}

func (m *Manager) environ(spec Spec, run int64) []string {
	own := spec.Env
	if _, set := own["TERM"]; spec.PTY && !set {
		own = maps.Clone(own)
		if own == nil {
			own = make(map[string]string)
		}
		own["TERM"] = terminalName
	}
	return command.Environ(os.Environ(), own, spec.Dir, m.o.Session, run)
}

// An obstacle is what prevents the start of an entry: the entry is alive, or left
// processes behind. spawned is set while another call is starting the entry.
type obstacle struct {
	status  Status
	spawned <-chan struct{}

	entry     *entry
	stopCalls int // of entry when the obstacle was found
}

// tryStart moves the entry of spec to Starting and returns it, or returns the
// obstacle. first is the first obstacle that the caller waited for, or nil.
func (m *Manager) tryStart(r Resolved, ifRunning IfRunning, first *obstacle) (*entry, obstacle, error) {
	spec := r.spec
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return nil, obstacle{}, ErrClosed
	}
	e := m.entries[spec.Name]
	if first != nil && first.entry != nil && first.entry.stopCalls != first.stopCalls { // a Stop has arrived since
		return nil, obstacle{status: m.snapshotLocked(first.entry)}, fmt.Errorf("%s was %w", spec.Name, ErrCalledOff)
	}
	if ifRunning == RestartUnlessStopped {
		switch {
		case e == nil, e.status.State == Stopping, e.status.State == Stopped && first == nil: // later, this start has stopped it
			return nil, obstacle{}, fmt.Errorf("%s was %w", spec.Name, ErrCalledOff)
		case m.o.NoAutoRestart:
			return nil, obstacle{}, noAutoRestart(spec.Name)
		}
	}
	if e != nil {
		obs := obstacle{status: m.snapshotLocked(e), entry: e, stopCalls: e.stopCalls}
		state := obs.status.State
		switch {
		case state == Stopping && ifRunning != RestartRunning, state.Live() && ifRunning == RefuseRunning:
			return nil, obs, &StateError{Name: spec.Name, State: state, Event: "start"}
		case state.Live() && ifRunning == KeepRunning:
			if differs := obs.status.Spec.Differs(spec); len(differs) > 0 {
				return nil, obs, &DiffersError{Name: spec.Name, Fields: differs}
			}
			if state == Starting {
				obs.spawned = e.start.done
			}
			return nil, obs, nil
		case obs.status.Alive():
			return nil, obs, nil
		}
	}
	if n := m.activeExceptLocked(e); n >= m.o.MaxProcesses {
		return nil, obstacle{}, fmt.Errorf("%w: %d run, PM_MAX_PROCESSES allows %d; stop one first", ErrTooMany, n, m.o.MaxProcesses)
	}
	if e == nil {
		e = m.addEntryLocked(spec.Name)
	}
	e.rollback = e.restorable
	e.retries = retries{}
	e.exe = r.exe
	e.status.Spec, e.status.Executable, e.status.Restarts = spec, r.Executable(), 0
	what := AskStart
	if ifRunning == RestartRunning || ifRunning == RestartUnlessStopped {
		what = AskRestart
	}
	e.status.Asked = Ask{what, r.Actor}
	m.transitionLocked(e, evStart)
	return e, obstacle{}, nil
}

// addEntryLocked creates the entry of a new name. A full table evicts the entry
// that ended longest ago.
func (m *Manager) addEntryLocked(name string) *entry {
	if len(m.entries) >= maxEntries {
		oldest := ""
		for name, e := range m.entries {
			if st := m.snapshotLocked(e); !st.GoesOn() && (oldest == "" || st.EndedAt.Before(m.entries[oldest].status.EndedAt)) {
				oldest = name
			}
		}
		if e := m.entries[oldest]; e != nil {
			m.removeEntryLocked(e)
		}
	}
	e := &entry{}
	m.entries[name] = e
	return e
}

func (m *Manager) removeEntryLocked(e *entry) {
	st := m.snapshotLocked(e)
	delete(m.entries, st.Spec.Name)
	m.changes.Publish(Change{At: time.Now(), From: st.State, To: st.State, Removed: true, Status: st})
}

// activeExceptLocked counts the active entries other than e.
func (m *Manager) activeExceptLocked(e *entry) int {
	n := 0
	for _, other := range m.entries {
		if other != e && other.status.State.Active() {
			n++
		}
	}
	return n
}

// transitionLocked is the only function that writes an entry's state, except
// undoStart, which restores one. It publishes the change and reports whether ev
// fits the state.
func (m *Manager) transitionLocked(e *entry, ev event) bool {
	from := e.status.State
	to, ok := from.next(ev)
	if !ok {
		return false
	}
	e.status.State = to
	if to == Starting {
		e.start = &startAttempt{done: make(chan struct{})}
	}
	if from == Backoff {
		e.status.NextRetry = time.Time{}
		e.cancelRetry()
		e.cancelRetry = nil
	}
	m.publishLocked(e, from)
	return true
}

// publishLocked sends the current status of e to every Feed.
func (m *Manager) publishLocked(e *entry, from State) {
	c := Change{At: time.Now(), From: from, To: e.status.State, Status: m.snapshotLocked(e)}
	if st := &c.Status; !st.EndedAt.IsZero() && st.RunID != e.recordedEnd { // the first Change to report this end
		e.recordedEnd = st.RunID
		m.ends.add(c)
	}
	m.changes.Publish(c)
}

// update calls change with the status of e, and publishes the result if change
// returns true. It does nothing unless run is still the current run of e and Running.
func (m *Manager) update(e *entry, run runner, change func(*Status) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.run == run && e.status.State == Running && change(&e.status) {
		m.publishLocked(e, e.status.State)
	}
}

// lookupLocked returns the entry called name. Its error wraps ErrUnknown and lists
// the names that exist.
func (m *Manager) lookupLocked(name string) (*entry, error) {
	if e := m.entries[name]; e != nil {
		return e, nil
	}
	if len(m.entries) == 0 {
		return nil, fmt.Errorf("%w: %q; no process was started in this session", ErrUnknown, name)
	}
	return nil, fmt.Errorf("%w: %q; there are: %s", ErrUnknown, name, prose.OrNone(slices.Sorted(maps.Keys(m.entries))))
}

// wait blocks until done is closed (a nil done counts as closed) or returns ctx's
// error.
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
