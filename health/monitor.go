package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"pmcp/process"
	"pmcp/process/feed"
)

const (
	// maxResults is the number of results kept of each process.
	maxResults = 10
	// maxChecked is the maximum number of processes with a check.
	maxChecked = 1000
	// maxCommands is the maximum number of concurrent checks that start a process,
	// maxConnections that of concurrent checks that only wait for a socket.
	maxCommands    = 8
	maxConnections = 64
	// tickSlots is the number of moments in a period at which checks begin.
	tickSlots = 16
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrNoCheck is wrapped if a process has no health check.
	ErrNoCheck = errors.New("no health check")
	// ErrNotRunning is wrapped if there is no run to check.
	ErrNotRunning = errors.New("not running")
	// ErrUnhealthy is wrapped if a process is unhealthy and is not restarted for
	// that.
	ErrUnhealthy = errors.New("unhealthy")
	// ErrClosed is returned once the Monitor is closed.
	ErrClosed = errors.New("health checks are shutting down")
)

// Processes is the part of the process manager that a Monitor needs.
type Processes interface {
	// Status returns the process called name. The error wraps
	// process.ErrUnknown.
	Status(name string) (process.Status, error)
	// Recycle ends the run of name with this number and lets the restart policy
	// treat that as a failure. It does nothing to a later run or to a process
	// that is not running.
	Recycle(name string, run int, by process.EndedBy, reason string) error
	// SetHealth sets what is wrong with the health of a run, since when; see
	// process.Status.Unhealthy. run is its number.
	SetHealth(name string, run int, unhealthy string, since time.Time)
	// Exec runs the command of spec and returns how the command ended and the last
	// limit bytes of its output; see process.Manager.Exec. No process of the
	// command is left when Exec returns, also when ctx ends.
	Exec(ctx context.Context, spec process.Spec, limit int) (exit process.Exit, output []byte, err error)
}

// Changes is the manager's feed, a *process.Feed.
type Changes interface {
	// Next waits for the next change and returns it, or io.EOF after the last.
	Next(ctx context.Context) (process.Change, error)
}

// Options configure a Monitor. Processes and Changes are required.
type Options struct {
	// Processes is the process manager.
	Processes Processes
	// Changes is a feed of the manager with no other reader.
	Changes Changes
	// Interval is the default of Spec.Interval (PM_HEALTH_CHECK_INTERVAL). 0
	// means 1 min; less than 100 ms means 100 ms.
	Interval time.Duration
	// Mask masks secrets in the output and the message of a check. clipped is
	// set if the original text continues after its end. Nil masks nothing.
	Mask func(text string, clipped bool) string
	// Log receives messages for stderr. Nil discards them.
	Log *slog.Logger
}

// Monitor checks the processes of one session. Its methods may be called
// concurrently.
type Monitor struct {
	o       Options
	changes *feed.Feed[Change]
	epoch   time.Time // origin of the ticks of all processes

	commands, connections chan struct{} // semaphores

	ctx    context.Context // ends when Close is called
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	entries   map[string]*entry
	watchDone map[string]<-chan struct{} // by name: closed when the latest watch has ended, then deleted
	added     int                        // number of entries ever added
	closing   bool
}

// entry is one process with a check. It is guarded by Monitor.mu.
type entry struct {
	status Status
	phase  float64 // offset of the ticks, as a fraction of their period
	tally  tally
	watch  *watch // the watch of the current run; nil if no run is watched
}

// NewMonitor returns a Monitor that follows o.Changes until Close.
func NewMonitor(o Options) *Monitor {
	o.Interval = max(cmp.Or(o.Interval, defaultInterval), minInterval)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Mask == nil {
		o.Mask = func(text string, _ bool) string { return text }
	}
	m := &Monitor{
		o: o, changes: feed.New[Change](feedSize), epoch: time.Now(),
		commands: make(chan struct{}, maxCommands), connections: make(chan struct{}, maxConnections),
		entries: make(map[string]*entry), watchDone: make(map[string]<-chan struct{}),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.wg.Go(m.follow)
	return m
}

// Close ends every check and every Feed. It returns once the Monitor's goroutines
// have ended and no process of their commands is left. It may be called twice.
func (m *Monitor) Close() {
	m.mu.Lock()
	m.closing = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()

	m.changes.Close()
}

// CheckSet returns the error that Set would return, without changing anything.
func (m *Monitor) CheckSet(name string, spec *Spec) error {
	if spec == nil {
		return nil
	}
	if err := spec.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.checkRoomLocked(name)
}

// checkRoomLocked returns an error if name has no check and can get none.
func (m *Monitor) checkRoomLocked(name string) error {
	switch {
	case m.closing:
		return ErrClosed
	case m.entries[name] == nil && len(m.entries) >= maxChecked:
		return fmt.Errorf("%w: health: %d processes have a check, the maximum", process.ErrInvalid, maxChecked)
	}
	return nil
}

// Set sets how the process called name is checked from now on, whether the process
// is running or not; nil removes the check. Setting the same Spec again changes
// nothing. The error wraps process.ErrInvalid or ErrClosed.
func (m *Monitor) Set(name string, spec *Spec) error {
	if spec == nil {
		m.remove(name)
		return nil
	}
	if err := spec.Validate(); err != nil {
		return err
	}
	resolved := spec.withDefaults(m.o.Interval)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.checkRoomLocked(name); err != nil {
		return err
	}
	e := m.entries[name]
	switch {
	case e == nil:
		e = m.addLocked(name)
	case e.status.Spec.equal(resolved):
		return nil
	}
	m.changeSpecLocked(e, resolved)
	return nil
}

// addLocked adds an entry for name. The phases of entries follow the golden ratio,
// which spaces the ticks of any number of entries evenly. They are rounded to slots,
// because a wake-up costs more than a check: 50 checks a second take 1.9 % of a core
// in 16 slots, and 3.9 % at 50 moments.
func (m *Monitor) addLocked(name string) *entry {
	_, fraction := math.Modf(float64(m.added) / math.Phi)
	m.added++
	e := &entry{status: Status{Name: name}, phase: math.Floor(fraction*tickSlots) / tickSlots}
	m.entries[name] = e
	return e
}

// changeSpecLocked gives e another Spec and, if the process is running, begins a
// new watch. A spec that makes the same check with other limits keeps the state; if
// that spec newly allows restarts, an unhealthy process is due a restart. The status
// of the process is read with the lock held: later changes arrive through the feed,
// and are applied once the lock is free.
func (m *Monitor) changeSpecLocked(e *entry, spec Spec) {
	now, before := time.Now(), e.tally
	sameCheck := e.watch != nil && e.status.Spec.sameCheck(spec)
	restartAdded := spec.OnUnhealthy == ActRestart && e.status.Spec.OnUnhealthy != ActRestart
	run := e.status.RunID
	m.endWatchLocked(e)
	e.status.Spec = spec
	if st, err := m.o.Processes.Status(e.status.Name); err == nil && st.State == process.Running {
		m.beginWatchLocked(e, st, now)
		if sameCheck && st.RunID == run {
			e.tally = before
			e.tally.owesRestart = before.owesRestart || before.state == Unhealthy && restartAdded
		}
	}
	if !m.updateStateLocked(e, now) {
		m.publishLocked(e, e.status.State, now)
	}
}

// remove deletes the check of name and wakes the callers that wait for its
// health.
func (m *Monitor) remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[name]
	if e == nil || m.closing {
		return
	}
	from := e.status.State
	m.endWatchLocked(e)
	e.status.State = Unknown
	delete(m.entries, name)
	m.publishLocked(e, from, time.Now())
}

// Status returns the health of the process called name. It returns false if the
// process has no check.
func (m *Monitor) Status(name string) (Status, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[name]
	if e == nil {
		return Status{}, false
	}
	return e.snapshotLocked(), true
}

// List returns the health of every process with a check, sorted by name.
func (m *Monitor) List() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Status, 0, len(m.entries))
	for _, e := range m.entries {
		list = append(list, e.snapshotLocked())
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Watch returns a Feed of every change from now on.
func (m *Monitor) Watch() *Feed { return &Feed{m.changes.Reader()} }

func noCheck(name string) error {
	return fmt.Errorf("%s has %w: give it one with health", name, ErrNoCheck)
}

func notRunning(name string) error {
	return fmt.Errorf("%s is %w, so there is nothing to check", name, ErrNotRunning)
}

func (e *entry) snapshotLocked() Status {
	st := e.status
	st.Results = slices.Clone(st.Results)
	return st
}
