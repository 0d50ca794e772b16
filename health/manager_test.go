package health

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"pmcp/process"
	"pmcp/process/proctest"
)

// runCounter is a process.Journal that only numbers runs.
type runCounter struct {
	mu   sync.Mutex
	runs int
}

func (c *runCounter) NewRun(string, string) (int64, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	return int64(c.runs), c.runs
}
func (c *runCounter) Capture(int64, uint8, time.Time, []byte) {}
func (c *runCounter) RunEnded(int64, int, string)             {}
func (c *runCounter) EndCapture(int64)                        {}

// newManager returns a real process manager and a Monitor that follows it.
func newManager(t *testing.T) (*process.Manager, *Monitor) {
	t.Helper()
	p := process.NewManager(process.Options{Project: t.TempDir(), Session: uuid.NewString(), Journal: &runCounter{}})
	m := NewMonitor(Options{Processes: p, Changes: p.Watch()})
	t.Cleanup(func() {
		m.Close()
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p, m
}

// self is a Spec that runs one of the programs of TestMain.
func self(t *testing.T, name, program string, args ...string) process.Spec {
	t.Helper()
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return process.Spec{Name: name, Command: file, Args: args, Env: map[string]string{"HEALTH_TEST_PROGRAM": program}}
}

// A process that is never healthy is restarted once per run, with the delays of
// the restart policy, until that gives up.
func TestUnhealthyProcessIsRestartedUntilThePolicyGivesUp(t *testing.T) {
	p, m := newManager(t)
	port := strconv.Itoa(proctest.FreePort(t))
	set(t, m, "sick", Spec{HTTP: "http://localhost:" + port + "/", Interval: 100 * time.Millisecond, StartPeriod: -1, Retries: 2, OnUnhealthy: ActRestart})
	feed, health := p.Watch(), m.Watch()
	spec := self(t, "sick", "sick", port)
	spec.MaxRestarts = 2
	if _, _, err := p.Start(t.Context(), spec, process.KeepRunning); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var ends []process.Status
	var pauses []time.Duration
	for {
		change, err := feed.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		st := change.Status
		if change.From != process.Running && st.State == process.Running && len(ends) > 0 {
			pauses = append(pauses, st.StartedAt.Sub(ends[len(ends)-1].EndedAt))
		}
		if change.From == process.Running && st.State != process.Running {
			ends = append(ends, st)
		}
		if st.State == process.Failed {
			break
		}
	}
	if len(ends) != 3 || len(pauses) != 2 {
		t.Fatalf("%d runs, %d pauses", len(ends), len(pauses))
	}
	for i, st := range ends {
		if st.Exit == nil || st.Exit.By != process.ByHealth {
			t.Errorf("run %d ended by %+v", i+1, st.Exit)
		}
	}
	if pauses[0] < 400*time.Millisecond || pauses[1] < 800*time.Millisecond {
		t.Errorf("pauses %v, want about 500ms and 1s", pauses)
	}
	if reason := ends[2].Reason; !strings.Contains(reason, "gave up") {
		t.Errorf("reason %q", reason)
	}
	var states []string
	for len(states) < 9 {
		change, err := health.Next(ctx)
		if err != nil {
			t.Fatal(err, states)
		}
		states = append(states, change.To.String())
	}
	if got := strings.Join(states, " "); got != strings.TrimSpace(strings.Repeat("starting unhealthy unknown ", 3)) {
		t.Errorf("health was %s", got)
	}
}

// Commands run by the manager's rules: in the directory and environment of the
// process, and with their whole tree gone afterwards.
func TestCommandsOfAManager(t *testing.T) {
	p, m := newManager(t)
	ctx := t.Context()
	for name, test := range map[string]struct {
		program string
		args    []string
		timeout time.Duration
		ok      bool
		message string
	}{
		"well":  {"exit", []string{"well"}, time.Minute, true, "exit code 0"},
		"ill":   {"exit", []string{"ill"}, time.Minute, false, "exit code 3"},
		"flood": {"flood", nil, time.Minute, true, "exit code 0"},
		"hang":  {"forkhang", nil, 10 * time.Second, false, "did not end within 10s and was killed"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := self(t, name, test.program, test.args...)
			set(t, m, name, Spec{Command: spec.Command, Args: spec.Args, Timeout: test.timeout, Interval: time.Hour})
			spec.Command, spec.Args = "sleep", []string{"1000"} // its environment says what the check does
			if _, _, err := p.Start(ctx, spec, process.KeepRunning); err != nil {
				t.Fatal(err)
			}
			st, err := checkOnceWatched(ctx, m, name)
			if err != nil {
				t.Fatal(err)
			}
			r := st.Last()
			want(t, *r, test.ok, "^"+test.message+"$", ``)
			var child int
			if n, _ := fmt.Sscanf(r.Output, "child %d", &child); n == 1 && !awaitGone(child) {
				t.Errorf("the child %d of the command is alive", child)
			}
			if (name == "hang") != (child != 0) {
				t.Errorf("output %q", r.Output)
			}
			if tree, err := p.Tree(name); err != nil || len(tree) != 1 {
				t.Errorf("the tree of the process after its check: %+v, %v", tree, err)
			}
		})
	}
}

// checkOnceWatched checks name when its run has been seen.
func checkOnceWatched(ctx context.Context, m *Monitor, name string) (Status, error) {
	feed := m.Watch()
	for {
		if st, ok := m.Status(name); ok && st.State != Unknown {
			return m.Check(ctx, name)
		}
		if _, err := feed.Next(ctx); err != nil {
			return Status{}, err
		}
	}
}
