package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"testing"
	"time"

	"pmcp/process"
)

// fakeProcesses is a process manager whose processes are entries of a table,
// and whose commands are a function.
type fakeProcesses struct {
	changes chan process.Change
	// exec is what a check of a process does. Nil: success at once.
	exec func(ctx context.Context, name string) (process.Exit, error)
	// recycle is what Recycle does; nil: it only counts.
	recycle func(name string)
	// recycleErr is what Recycle answers.
	recycleErr error

	mu       sync.Mutex
	table    map[string]process.Status
	lastRun  int64
	recycled map[string]int
	// began and ended are the times of checks; most is how many ran at once.
	began     map[string][]time.Time
	running   map[string]int
	all, most int
	overlap   bool
}

func newFakeProcesses() *fakeProcesses {
	return &fakeProcesses{
		changes: make(chan process.Change, 10_000), table: map[string]process.Status{}, recycled: map[string]int{},
		began: map[string][]time.Time{}, running: map[string]int{},
	}
}

// Next is the feed.
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
	f.all++
	f.most = max(f.most, f.all)
	f.overlap = f.overlap || f.running[spec.Name] > 1
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running[spec.Name]--
		f.all--
		f.mu.Unlock()
	}()
	if f.exec == nil {
		return process.Exit{}, nil, nil
	}
	exit, err := f.exec(ctx, spec.Name)
	return exit, []byte("output"), err
}

// enter makes name what state says; a new run if that is Running.
func (f *fakeProcesses) enter(name string, state process.State) {
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

func (f *fakeProcesses) times(name string) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began[name]
}

func (f *fakeProcesses) recycles(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.recycled[name]
}

// results makes an exec that answers ok, fail, ok … as verdicts says, then as
// the last.
func results(verdicts ...bool) func(context.Context, string) (process.Exit, error) {
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

// hang waits for d, or as long as the check is let.
func hang(d time.Duration) func(context.Context, string) (process.Exit, error) {
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

// memJournal keeps health in memory.
type memJournal struct {
	mu    sync.Mutex
	rows  map[string][]byte
	saves int
}

func (j *memJournal) SaveHealth(project, name string, health []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.rows == nil {
		j.rows = map[string][]byte{}
	}
	j.saves++
	if health == nil {
		delete(j.rows, name)
		return
	}
	j.rows[name] = health
}

func (j *memJournal) Health(context.Context, string) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	rows := map[string][]byte{}
	maps.Copy(rows, j.rows)
	return rows, nil
}

// newMonitor returns a Monitor over f that the test closes at its end.
func newMonitor(t testing.TB, f *fakeProcesses, o Options) *Monitor {
	t.Helper()
	o.Processes, o.Changes = f, f
	m := NewMonitor(o)
	t.Cleanup(m.Close)
	return m
}

// set gives name a check and fails the test if it is refused.
func set(t testing.TB, m *Monitor, name string, spec Spec) {
	t.Helper()
	if err := m.Set(name, &spec); err != nil {
		t.Fatal(err)
	}
}

func stateOf(t *testing.T, m *Monitor, name string) State {
	t.Helper()
	st, ok := m.Status(name)
	if !ok {
		t.Fatalf("%s has no health", name)
	}
	return st.State
}
