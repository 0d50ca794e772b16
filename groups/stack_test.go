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

// logs is a process.Journal that keeps what runs print.
type logs struct {
	mu    sync.Mutex
	runs  int64
	names map[int64]string
	text  map[string]*bytes.Buffer
	more  chan struct{} // closed when text grows
}

func (l *logs) NewRun(_, name string) (int64, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs++
	l.names[l.runs] = name
	if l.text[name] == nil {
		l.text[name] = &bytes.Buffer{}
	}
	return l.runs, int(l.runs)
}

func (l *logs) Capture(run int64, _ uint8, _ time.Time, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text[l.names[run]].Write(p)
	close(l.more)
	l.more = make(chan struct{})
}

func (l *logs) RunEnded(int64, int, string) {}

func (l *logs) EndCapture(int64) {}

// at is when name printed what; zero if it did not.
func (l *logs) at(name, what string) time.Time {
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

// await waits until name has printed what.
func (l *logs) await(ctx context.Context, t *testing.T, name, what string) {
	t.Helper()
	for {
		l.mu.Lock()
		more := l.more
		l.mu.Unlock()
		if !l.at(name, what).IsZero() {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("%s did not print %q", name, what)
		}
	}
}

// realStack is a stack of real processes.
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

func newStack(t *testing.T, env map[string]string) (*realStack, *Manager) {
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
	s.ready("db", &process.Ready{Port: &anyPort})
	s.ready("api", &process.Ready{HTTP: "http://" + api + "/health"})

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

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func (s *realStack) ready(name string, rule *process.Ready) {
	spec := s.specs[name]
	spec.Ready = rule
	s.specs[name] = spec
}

// after fails the test unless a printed one thing after b had printed another.
func (s *realStack) after(t *testing.T, a, what, b, other string) {
	t.Helper()
	first, second := s.logs.at(b, other), s.logs.at(a, what)
	if first.IsZero() || second.Before(first) {
		t.Errorf("%s %s at %s, but %s %s at %s", a, what, second.Format(time.StampMicro), b, other, first.Format(time.StampMicro))
	}
}

func TestRealStack(t *testing.T) {
	s, m := newStack(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	report, err := m.Start(ctx, "stack", s, StartOptions{})
	if err != nil || report.Failed() || report.TimedOut {
		t.Fatalf("%+v, %v", report, err)
	}
	s.logs.await(ctx, t, "web", "serves")
	s.after(t, "api", "begins", "db", "serves")
	s.after(t, "migrate", "begins", "db", "serves")
	s.after(t, "web", "begins", "api", "serves")
	s.after(t, "web", "begins", "migrate", "ends")
	if st, err := m.Status(ctx, "stack"); err != nil || st.State != Up {
		t.Errorf("%+v, %v", st, err)
	}
	// That both begin as soon as the database serves, TestStackComesUpInOrder shows.
	t.Logf("api and migrate began %s apart", s.logs.at("migrate", "begins").Sub(s.logs.at("api", "begins")).Abs())
	if report, err = m.Stop(ctx, "stack", StopOptions{}); err != nil || report.Failed() || report.TimedOut {
		t.Fatalf("%+v, %v", report, err)
	}
	s.after(t, "api", "drains", "web", "ends") // web needs the API until its end
	s.after(t, "db", "drains", "api", "ends")
	if st, err := m.Status(ctx, "stack"); err != nil || st.State != Down {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestRealStackWithABrokenAPI(t *testing.T) {
	s, m := newStack(t, map[string]string{"FAIL": "1"})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	report, err := m.Start(ctx, "stack", s, StartOptions{})
	if err != nil || !report.Failed() || report.TimedOut {
		t.Fatalf("%+v, %v", report, err)
	}
	by := outcomes(report)
	if o := by["api"]; o.Result != HasFailed || !strings.Contains(o.Why, "exit code 3") {
		t.Errorf("api: %+v", o)
	}
	if o := by["web"]; !o.Blocked || o.Why != "api is not ready: it ended with exit code 3" || o.Run != 0 {
		t.Errorf("web: %+v", o)
	}
	if at := s.logs.at("web", "begins"); !at.IsZero() {
		t.Errorf("web was started at %s", at)
	}
	if report, err := m.Stop(ctx, "stack", StopOptions{}); err != nil || report.Failed() {
		t.Errorf("%+v, %v", report, err)
	}
}
