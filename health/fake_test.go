package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"pmcp/process"
)

// fakeProcesses is a process manager without processes: their statuses are in a table,
// and exec decides how the commands of checks end.
type fakeProcesses struct {
	changes chan process.Change
	// exec runs the command of a check of the process called name. If it is nil,
	// every command succeeds at once.
	exec func(ctx context.Context, name string) (process.Exit, error)
	// recycle is called by Recycle. If it is nil, calls are only counted.
	recycle func(name string)
	// recycleErr is the error that Recycle returns.
	recycleErr error

	mu       sync.Mutex
	table    map[string]process.Status
	lastRun  int64
	recycled map[string]int    // number of calls of Recycle, by process
	trouble  map[string]string // what SetHealth has set, by process
	// began holds the start times of checks by process; maxRunning is the
	// highest number of concurrent checks.
	began                    map[string][]time.Time
	running                  map[string]int
	totalRunning, maxRunning int
	overlap                  bool // whether two checks of one process were concurrent
}

func newFakeProcesses() *fakeProcesses {
	return &fakeProcesses{
		changes: make(chan process.Change, 10_000), table: map[string]process.Status{}, recycled: map[string]int{}, trouble: map[string]string{},
		began: map[string][]time.Time{}, running: map[string]int{},
	}
}

// Next implements Changes.
func (f *fakeProcesses) Next(ctx context.Context) (process.Change, error) {
	select {
	case c, ok := <-f.changes:
		if !ok {
			return c, io.EOF
		}
		return c, nil
	case <-ctx.Done():
		return process.Change{}, ctx.Err()
	}
}

func (f *fakeProcesses) Status(name string) (process.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st, ok := f.table[name]
	if !ok {
		return st, fmt.Errorf("%w: %q", process.ErrUnknown, name)
	}
	return st, nil
}

func (f *fakeProcesses) Recycle(name string, run int, by process.EndedBy, reason string) error {
	f.mu.Lock()
	f.recycled[name]++
	f.mu.Unlock()
	if by != process.ByHealth || reason == "" || run == 0 {
		return errors.New("recycled without a reason or a run")
	}
	if f.recycle != nil {
		f.recycle(name)
	}
	return f.recycleErr
}

func (f *fakeProcesses) Exec(ctx context.Context, spec process.Spec, limit int) (process.Exit, []byte, error) {
	f.mu.Lock()
	f.began[spec.Name] = append(f.began[spec.Name], time.Now())
	f.running[spec.Name]++
	f.totalRunning++
	f.maxRunning = max(f.maxRunning, f.totalRunning)
	f.overlap = f.overlap || f.running[spec.Name] > 1
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running[spec.Name]--
		f.totalRunning--
		f.mu.Unlock()
	}()
	if f.exec == nil {
		return process.Exit{}, nil, nil
	}
	exit, err := f.exec(ctx, spec.Name)
	return exit, []byte("output"), err
}

// setState sets the state of name and publishes the change. Running begins a new run.
func (f *fakeProcesses) setState(name string, state process.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.table[name]
	from := st.State
	st.Spec.Name, st.State = name, state
	if state == process.Running {
		f.lastRun++
		st.RunID, st.Run, st.StartedAt = f.lastRun, st.Run+1, time.Now()
	}
	f.table[name] = st
	f.changes <- process.Change{At: time.Now(), From: from, To: state, Status: st}
}

// checkTimes returns when each check of name began.
func (f *fakeProcesses) checkTimes(name string) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began[name]
}

// recycles returns how often Recycle was called for name.
func (f *fakeProcesses) recycles(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.recycled[name]
}

// resultSequence returns an exec whose commands succeed or fail as verdicts lists. The
// last verdict holds for all further commands.
func resultSequence(verdicts ...bool) func(context.Context, string) (process.Exit, error) {
	var mu sync.Mutex
	return func(context.Context, string) (process.Exit, error) {
		mu.Lock()
		defer mu.Unlock()
		ok := verdicts[0]
		if len(verdicts) > 1 {
			verdicts = verdicts[1:]
		}
		if ok {
			return process.Exit{}, nil
		}
		return process.Exit{Code: 1}, nil
	}
}

// hangFor returns an exec whose commands take d, or end when their context ends.
func hangFor(d time.Duration) func(context.Context, string) (process.Exit, error) {
	return func(ctx context.Context, _ string) (process.Exit, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return process.Exit{}, nil
		case <-ctx.Done():
			return process.Exit{Code: -1}, ctx.Err()
		}
	}
}

// newMonitor returns a Monitor of the processes of f. The Monitor is closed when the
// test ends.
func newMonitor(t testing.TB, f *fakeProcesses, o Options) *Monitor {
	t.Helper()
	o.Processes, o.Changes = f, f
	m := NewMonitor(o)
	t.Cleanup(m.Close)
	return m
}

// set gives name a check and fails the test on an error.
func set(t testing.TB, m *Monitor, name string, spec Spec) {
	t.Helper()
	if err := m.Set(name, &spec); err != nil {
		t.Fatal(err)
	}
}

// stateOf returns the state of name, which must have a check.
func stateOf(t *testing.T, m *Monitor, name string) State {
	t.Helper()
	st, ok := m.Status(name)
	if !ok {
		t.Fatalf("%s: got no health, want a status", name)
	}
	return st.State
}

func (f *fakeProcesses) SetHealth(name string, _ int, unhealthy string, _ time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trouble[name] = unhealthy
}
