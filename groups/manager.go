package groups

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"pmcp/process"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrUnknown is wrapped when the project has no group of a name, or the
	// group no member of it.
	ErrUnknown = errors.New("no such group")
	// ErrClosed is answered once the Manager is closed.
	ErrClosed = errors.New("groups are shutting down")
)

// Processes is what groups need of the process manager.
type Processes interface {
	// Status returns the process called name; its error wraps
	// process.ErrUnknown.
	Status(name string) (process.Status, error)
	// Await returns the status of name as soon as until holds for it, or the
	// status at that moment and ctx's error when that ends first.
	Await(ctx context.Context, name string, until func(process.Status) bool) (process.Status, error)
	// Stop ends the process called name with its whole tree. A stop that ctx
	// cuts short goes on.
	Stop(ctx context.Context, name string, o process.StopOptions) (process.Status, error)
}

// Health is what groups need of health checks.
type Health interface {
	// AwaitHealthy returns nil as soon as the run of name with the id run, or a
	// later one, is healthy, and an error when that cannot be expected (there is
	// no check, or it has failed for good) or ctx ends.
	AwaitHealthy(ctx context.Context, name string, run int64) error
}

// Starter starts members.
type Starter interface {
	// StartMember starts the process called name by its definition and returns
	// its status once the run has begun.
	StartMember(ctx context.Context, name string, ifRunning process.IfRunning) (process.Status, error)
}

// Journal keeps definitions. Its methods may be called from several goroutines;
// SaveGroup must not wait, and what it saved is what Groups gives from then on.
type Journal interface {
	// SaveGroup records a definition as JSON; nil forgets it.
	SaveGroup(project, name string, definition []byte)
	// Groups gives the definitions of a project by name.
	Groups(ctx context.Context, project string) (map[string][]byte, error)
}

// Options configure a Manager. Processes and Journal are required.
type Options struct {
	// Processes is the process manager.
	Processes Processes
	// Journal keeps definitions.
	Journal Journal
	// Health answers the condition healthy; nil refuses it.
	Health Health
	// Elsewhere tells which members other servers run; nil if there are none.
	Elsewhere Elsewhere
	// Project is what definitions belong to.
	Project string
	// Log takes what is worth a line on stderr. Nil discards it.
	Log *slog.Logger
}

// Manager knows the groups of one project and what is being done with them.
// Definitions are read from the Journal each time, so that those which another
// session of the project writes are seen. Its methods may be called from
// several goroutines.
type Manager struct {
	o Options

	ctx    context.Context // ends when closing begins
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // operations

	edit sync.Mutex // held from reading a definition to writing it

	mu      sync.Mutex
	ops     map[string]*operation // the current or last one of each group
	closing bool
}

// New returns a Manager. Close ends what it begins.
func New(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{o: o, ops: make(map[string]*operation)}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	return m
}

// Close calls off every start and every stop under way; processes stay as they
// are. It must not return before the Manager's goroutines have ended. Safe to
// call twice.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closing = true
	m.mu.Unlock()
	m.cancel(ErrClosed)
	m.wg.Wait()
}
