package groups

import (
	"context"
	"errors"
	"sync"

	"pmcp/process"
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrUnknown is wrapped if the project has no group with the requested name,
	// or the group has no such member.
	ErrUnknown = errors.New("no such group")
	// ErrClosed is returned once the Manager is closed.
	ErrClosed = errors.New("groups are shutting down")
)

// Processes is the part of the process manager that groups need.
type Processes interface {
	// Status returns the process called name. The error wraps
	// process.ErrUnknown.
	Status(name string) (process.Status, error)
	// Await returns the status of name as soon as until returns true for it. If
	// ctx ends first, Await returns the status at that moment and ctx's error.
	Await(ctx context.Context, name string, until func(process.Status) bool) (process.Status, error)
	// WatchStart watches a run for a short time after its start, or until the run has
	// ended. It is fast for a run that was started earlier.
	WatchStart(ctx context.Context, name string, run int64) (process.Status, error)
	// Stop ends the process called name with its whole tree. A stop continues
	// after ctx ends.
	Stop(ctx context.Context, name string, o process.StopOptions) (process.Status, error)
}

// Health is the part of health checking that groups need.
type Health interface {
	// AwaitHealthy returns nil once the run of name with the id run, or a later
	// one, is healthy. It returns an error if ctx ends, if name has no check, or
	// if the check has failed and the process will not be restarted for that.
	AwaitHealthy(ctx context.Context, name string, run int64) error
}

// Starter starts members.
type Starter interface {
	// StartMember starts the process called name from its definition and
	// returns its status once the run has begun.
	StartMember(ctx context.Context, name string, ifRunning process.IfRunning) (process.Status, error)
	// RanUnchanged reports whether st, the latest run of a process in this server,
	// ran what StartMember would start now.
	RanUnchanged(ctx context.Context, st process.Status) bool
}

// Journal stores definitions. Its methods may be called concurrently.
type Journal interface {
	// SaveGroup stores a definition as JSON; nil deletes the definition. SaveGroup
	// must not block, and from then on Groups must return what it stored.
	SaveGroup(project, name string, definition []byte)
	// Groups returns the definitions of a project by name.
	Groups(ctx context.Context, project string) (map[string][]byte, error)
}

// Options configure a Manager. Processes and Journal are required.
type Options struct {
	// Processes is the process manager.
	Processes Processes
	// Journal stores definitions.
	Journal Journal
	// Health decides the condition Healthy. If it is nil, that condition fails.
	Health Health
	// Elsewhere finds the members that other servers run. It is nil if there
	// are no other servers.
	Elsewhere Elsewhere
	// Project is the project that the definitions belong to.
	Project string
}

// Manager holds the groups of one project and the operations on them. Its methods
// may be called concurrently.
type Manager struct {
	definitions
	o Options

	ctx    context.Context // ends when Close is called
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // operations

	mu      sync.Mutex            // guards the fields below
	ops     map[string]*operation // the current or last operation of each group
	closing bool
}

// New returns a Manager, which must be closed.
func New(o Options) *Manager {
	m := &Manager{o: o, definitions: definitions{journal: o.Journal, project: o.Project}, ops: make(map[string]*operation)}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	return m
}

// Close cancels every start and stop in progress; processes stay as they are.
// It returns once the Manager's goroutines have ended. It may be called twice.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closing = true
	m.mu.Unlock()
	m.cancel(ErrClosed)
	m.wg.Wait()
}
