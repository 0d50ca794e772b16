package health

import (
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
	// maxResults is how many results are kept of each process.
	maxResults = 10
	// maxChecked is how many processes may have a check.
	maxChecked = 1000
	// maxCommands and maxConnections are how many checks run at once: those
	// that start a process, and those that only wait for a socket.
	maxCommands    = 8
	maxConnections = 64
	// tickSlots is at how many moments of a period checks begin.
	tickSlots = 16
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrNoCheck is wrapped when a process has no health check.
	ErrNoCheck = errors.New("no health check")
	// ErrNotRunning is wrapped when there is no run to check.
	ErrNotRunning = errors.New("not running")
	// ErrUnhealthy is wrapped when a process is unhealthy and nothing is being
	// done about it.
	ErrUnhealthy = errors.New("unhealthy")
	// ErrClosed is answered once the Monitor is closed.
	ErrClosed = errors.New("health checks are shutting down")
)

// Processes is what a Monitor needs of the process manager.
type Processes interface {
	// Status returns the process called name; its error wraps
	// process.ErrUnknown.
	Status(name string) (process.Status, error)
	// Recycle ends the run of name that has this number and lets the restart
	// policy treat that as a failure. It does nothing to a later run, nor to a
	// process that is not running.
	Recycle(name string, run int, by process.EndedBy, reason string) error
	// Exec runs Command, Args, Dir and Env of spec to its end, by the rules by
	// which processes are started, with no input, and returns how it ended and
	// the last limit bytes of its output, both streams together. spec.Name is
	// the process on whose behalf it runs; it makes no entry and no run. Output
	// beyond limit is read and dropped. The whole tree is gone when it returns:
	// SIGKILL for what is left when the command has ended, and for everything
	// when ctx ends, which is answered with ctx's error and what was printed.
	Exec(ctx context.Context, spec process.Spec, limit int) (exit process.Exit, output []byte, err error)
}

// Changes is the manager's feed: *process.Feed.
type Changes interface {
	// Next returns the next change, waiting for it; io.EOF after the last.
	Next(ctx context.Context) (process.Change, error)
}

// Journal keeps the last results of each process beyond the session. Its
// methods may be called from several goroutines; SaveHealth must not wait.
type Journal interface {
	// SaveHealth records the health of a process as JSON; nil forgets it.
	SaveHealth(project, name string, health []byte)
	// Health gives what was recorded in a project, by name.
	Health(ctx context.Context, project string) (map[string][]byte, error)
}

// Options configure a Monitor. Processes and Changes are required.
type Options struct {
	// Processes is the process manager.
	Processes Processes
	// Changes is a feed of the manager that nobody else reads.
	Changes Changes
	// Journal keeps results; nil for none.
	Journal Journal
	// Project is what names belong to in the Journal.
	Project string
	// Interval is the default of Spec.Interval (PM_HEALTH_CHECK_INTERVAL). 0
	// means 1 min; less than 100 ms means 100 ms.
	Interval time.Duration
	// Mask takes secrets out of the output and the message of a check; clipped says that the text
	// went on where it ends. Nil takes none.
	Mask func(text string, clipped bool) string
	// Log takes what is worth a line on stderr. Nil discards it.
	Log *slog.Logger
}

// Monitor checks the processes of one session. Its methods may be called from
// several goroutines.
type Monitor struct {
	o       Options
	changes *feed.Feed[Change]
	prober  prober
	epoch   time.Time // that the ticks of all processes count from

	commands, connections chan struct{} // semaphores

	ctx    context.Context // ends when closing begins
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	entries map[string]*entry
	over    map[string]<-chan struct{} // of each name, the end of its latest watch; none if that is over
	added   int                        // entries that were ever made
	closing bool
}

// entry is one process that has a check. Guarded by Monitor.mu.
type entry struct {
	status Status
	phase  float64 // of its ticks, as a share of their period
	tally  tally
	watch  *watch // of the current run; nil while none is watched
}

// NewMonitor returns a Monitor that follows o.Changes until Close.
func NewMonitor(o Options) *Monitor {
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	o.Interval = max(o.Interval, minInterval)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Mask == nil {
		o.Mask = func(text string, _ bool) string { return text }
	}
	m := &Monitor{
		o: o, changes: feed.New[Change](feedSize), prober: prober{o.Processes}, epoch: time.Now(),
		commands: make(chan struct{}, maxCommands), connections: make(chan struct{}, maxConnections),
		entries: make(map[string]*entry), over: make(map[string]<-chan struct{}),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.wg.Go(m.follow)
	return m
}

// Close ends every check, stores the last results and ends every Feed. It must
// not return before the Monitor's goroutines have ended and the trees of the
// commands that they ran are gone. Safe to call twice.
func (m *Monitor) Close() {
	m.mu.Lock()
	m.closing = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()

	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		m.save(e)
	}
	m.changes.Close()
}

// CheckSet answers what Set would say to spec for the process called name, and
// changes nothing.
func (m *Monitor) CheckSet(name string, spec *Spec) error {
	if spec == nil {
		return nil
	}
	if err := spec.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.room(name)
}

// room says why no check can be added for name. Called with m.mu held.
func (m *Monitor) room(name string) error {
	switch {
	case m.closing:
		return ErrClosed
	case m.entries[name] == nil && len(m.entries) >= maxChecked:
		return fmt.Errorf("%w: health: %d processes have a check, which is all there can be", process.ErrInvalid, maxChecked)
	}
	return nil
}

// Set says how the process called name is checked from now on, whether it runs
// or not; nil means not at all. The same Spec again changes nothing. Its error
// wraps process.ErrInvalid or ErrClosed.
func (m *Monitor) Set(name string, spec *Spec) error {
	if spec == nil {
		m.remove(name)
		return nil
	}
	if err := spec.Validate(); err != nil {
		return err
	}
	resolved := spec.resolved(m.o.Interval)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.room(name); err != nil {
		return err
	}
	e := m.entries[name]
	switch {
	case e == nil:
		e = m.add(name)
	case e.status.Spec.equal(resolved):
		return nil
	}
	m.change(e, resolved)
	return nil
}

// add makes an entry. Its phase follows the golden ratio, so that however many
// there are their ticks lie apart evenly, in slots: to wake up costs more than a
// check (50 checks a second take 1.9 % of a core so, 3.9 % at 50 moments).
// Called with m.mu held.
func (m *Monitor) add(name string) *entry {
	_, fraction := math.Modf(float64(m.added) / math.Phi)
	m.added++
	e := &entry{status: Status{Name: name}, phase: math.Floor(fraction*tickSlots) / tickSlots}
	m.entries[name] = e
	return e
}

// change gives e another Spec and, if its process runs, watches it anew; a spec
// that differs only in its figures leaves the state as it is, but one that lets
// an unhealthy process be restarted owes it that. The manager is
// asked under the lock: what happens after its answer comes by the feed, and is
// taken when the lock is free. Called with m.mu held.
func (m *Monitor) change(e *entry, spec Spec) {
	now, before := time.Now(), e.tally
	keep := e.watch != nil && e.status.Spec.sameCheck(spec)
	handed := spec.OnUnhealthy == ActRestart && e.status.Spec.OnUnhealthy != ActRestart
	run := e.status.RunID
	m.end(e)
	e.status.Spec = spec
	if st, err := m.o.Processes.Status(e.status.Name); err == nil && st.State == process.Running {
		m.begin(e, st, now)
		if keep && st.RunID == run {
			e.tally = before
			e.tally.owed = before.owed || before.unhealthy && handed
		}
	}
	if !m.settle(e, now) {
		m.publish(e, e.status.State, now)
	}
}

// remove forgets name. Who waits for its health is woken.
func (m *Monitor) remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[name]
	if e == nil || m.closing {
		return
	}
	from := e.status.State
	m.end(e)
	e.status.State = Unknown
	delete(m.entries, name)
	m.publish(e, from, time.Now())
	if m.o.Journal != nil {
		m.o.Journal.SaveHealth(m.o.Project, name, nil)
	}
}

// Status returns the health of the process called name; false if it has no
// check.
func (m *Monitor) Status(name string) (Status, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[name]
	if e == nil {
		return Status{}, false
	}
	return e.snapshot(), true
}

// List returns the health of every process that has a check, by name.
func (m *Monitor) List() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Status, 0, len(m.entries))
	for _, e := range m.entries {
		list = append(list, e.snapshot())
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

// snapshot is e's status now. Called with Monitor.mu held.
func (e *entry) snapshot() Status {
	st := e.status
	st.Results = slices.Clone(st.Results)
	return st
}
