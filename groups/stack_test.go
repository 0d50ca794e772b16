package groups

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"pmcp/process"
	"pmcp/process/proctest"
)

// logs is a process.Journal that keeps what runs print, by process.
type logs struct {
	mu    sync.Mutex
	runs  int64
	names map[int64]string
	text  map[string]*bytes.Buffer
	more  chan struct{} // closed when text grows
}

func (l *logs) NewRun(_, name string) (int64, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs++
	l.names[l.runs] = name
	if l.text[name] == nil {
		l.text[name] = &bytes.Buffer{}
	}
	return l.runs, int(l.runs), nil
}

func (l *logs) Capture(run int64, _ uint8, _ time.Time, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text[l.names[run]].Write(p)
	close(l.more)
	l.more = make(chan struct{})
}

func (l *logs) StopBegan(int64) {}

func (l *logs) RunEnded(int64, int, string) bool { return false }

func (l *logs) EndCapture(int64) {}

func (l *logs) Failing(int64) (failing bool, last int64) { return false, 0 }

// printedAt returns when name printed the event what, or the zero time if it did not.
func (l *logs) printedAt(name, what string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text[name] == nil {
		return time.Time{}
	}
	for line := range strings.Lines(l.text[name].String()) {
		var us int64
		if n, _ := fmt.Sscan(line, &us); n == 1 && strings.HasSuffix(line, " "+what+"\n") {
			return time.UnixMicro(us)
		}
	}
	return time.Time{}
}

// await waits until name has printed the event what, and fails the test if ctx ends
// first.
func (l *logs) await(ctx context.Context, t *testing.T, name, what string) {
	t.Helper()
	for {
		l.mu.Lock()
		more := l.more
		l.mu.Unlock()
		if !l.printedAt(name, what).IsZero() {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("got no line %q from %s, want one", what, name)
		}
	}
}

// realStack runs the programs of main_test.go as real processes.
type realStack struct {
	*process.Manager
	logs  *logs
	specs map[string]process.Spec
}

// StartMember starts a process of the stack.
func (s *realStack) StartMember(ctx context.Context, name string, ifRunning process.IfRunning) (process.Status, error) {
	st, _, err := s.Start(ctx, s.specs[name], ifRunning)
	return st, err
}

// RanUnchanged reports whether st ran the present spec of its process.
func (s *realStack) RanUnchanged(_ context.Context, st process.Status) bool {
	return maps.Equal(s.specs[st.Spec.Name].Env, st.Spec.Env)
}

// newRealStack returns the processes and a Manager with the group "stack" of them. env
// is added to the environment of each process.
func newRealStack(t *testing.T, env map[string]string) (*realStack, *Manager) {
	t.Helper()
	s := &realStack{logs: &logs{names: map[int64]string{}, text: map[string]*bytes.Buffer{}, more: make(chan struct{})}, specs: map[string]process.Spec{}}
	s.Manager = process.NewManager(process.Options{Project: t.TempDir(), Session: uuid.NewString(), Journal: s.logs})
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	db, api := address(proctest.FreePort(t)), address(proctest.FreePort(t))
	for _, name := range []string{"db", "migrate", "api", "web"} {
		spec := process.Spec{Name: name, Command: file, Env: map[string]string{"GROUPS_TEST_PROGRAM": name, "DB": db, "API": api}}
		maps.Copy(spec.Env, env)
		s.specs[name] = spec
	}
	anyPort := 0
	s.setReady("db", &process.Ready{Port: &anyPort})
	s.setReady("api", &process.Ready{HTTP: "http://" + api + "/health"})

	m := New(Options{Processes: s, Journal: &memJournal{}})
	t.Cleanup(func() {
		m.Close()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	g := Group{Name: "stack", Members: []Member{on("web", "api", "migrate exited_ok"), on("api", "db"), on("migrate", "db"), on("db")}}
	if _, _, err := m.Save(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	return s, m
}

// address returns the address of a port on the loopback interface.
func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// setReady gives the process called name a readiness rule.
func (s *realStack) setReady(name string, rule *process.Ready) {
	spec := s.specs[name]
	spec.Ready = rule
	s.specs[name] = spec
}

// checkOrder fails the test unless process a printed the event what after process b
// had printed the event other.
func (s *realStack) checkOrder(t *testing.T, a, what, b, other string) {
	t.Helper()
	first, second := s.logs.printedAt(b, other), s.logs.printedAt(a, what)
	if first.IsZero() || second.Before(first) {
		t.Errorf("got %q of %s at %s, want it after %q of %s at %s", what, a, second.Format(time.StampMicro), other, b, first.Format(time.StampMicro))
	}
}

// TestRealStackStartsAndStopsInOrder checks with real processes that no member begins
// before its dependencies serve, and that none is stopped before its dependents ended.
func TestRealStackStartsAndStopsInOrder(t *testing.T) {
	s, m := newRealStack(t, nil)
	ctx := proctest.Context(t)
	report, err := m.Start(ctx, "stack", s, StartOptions{})
	if err != nil || failed(report) || report.TimedOut {
		t.Fatalf("got %+v, %v, want a start without failure", report, err)
	}
	s.logs.await(ctx, t, "web", "serves")
	s.checkOrder(t, "api", "begins", "db", "serves")
	s.checkOrder(t, "migrate", "begins", "db", "serves")
	s.checkOrder(t, "web", "begins", "api", "serves")
	s.checkOrder(t, "web", "begins", "migrate", "ends")
	if st, err := m.Status(ctx, "stack"); err != nil || st.State != Up {
		t.Errorf("got %+v, %v, want state up", st, err)
	}
	// TestStackComesUpInOrder checks that api and migrate start at the same moment.
	t.Logf("api and migrate began %s apart", s.logs.printedAt("migrate", "begins").Sub(s.logs.printedAt("api", "begins")).Abs())
	if report, err = m.Stop(ctx, "stack", StopOptions{}); err != nil || failed(report) || report.TimedOut {
		t.Fatalf("got %+v, %v, want a stop without failure", report, err)
	}
	s.checkOrder(t, "api", "drains", "web", "ends") // web needs the API until it ends
	s.checkOrder(t, "db", "drains", "api", "ends")
	if st, err := m.Status(ctx, "stack"); err != nil || st.State != Down {
		t.Errorf("got %+v, %v, want state down", st, err)
	}
}

// TestRealStackBlocksOnBrokenAPI checks that the web server is not started if the API
// exits with an error.
func TestRealStackBlocksOnBrokenAPI(t *testing.T) {
	s, m := newRealStack(t, map[string]string{"FAIL": "1"})
	ctx := proctest.Context(t)
	report, err := m.Start(ctx, "stack", s, StartOptions{})
	if err != nil || !failed(report) || report.TimedOut {
		t.Fatalf("got %+v, %v, want a start with a failure", report, err)
	}
	by := outcomesByProcess(report)
	if o := by["api"]; o.Result != HasFailed || !strings.Contains(o.Why, "exit code 3") {
		t.Errorf("api: got %+v, want failed with exit code 3", o)
	}
	if o := by["web"]; !o.Blocked || o.Why != "api is not ready: it ended with exit code 3" || o.Run != 0 {
		t.Errorf("web: got %+v, want blocked by api without a run", o)
	}
	if at := s.logs.printedAt("web", "begins"); !at.IsZero() {
		t.Errorf("got web started at %s, want no start", at)
	}
	if report, err := m.Stop(ctx, "stack", StopOptions{}); err != nil || failed(report) {
		t.Errorf("stopping: got %+v, %v, want no failure", report, err)
	}
}
