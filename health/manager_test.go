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

// runNumbers is a process.Journal that only numbers runs.
type runNumbers struct {
	mu   sync.Mutex
	runs int
}

func (c *runNumbers) NewRun(string, string) (int64, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	return int64(c.runs), c.runs, nil
}
func (c *runNumbers) Capture(int64, uint8, time.Time, []byte) {}
func (c *runNumbers) StopBegan(int64)                         {}
func (c *runNumbers) RunEnded(int64, int, string) bool        { return false }
func (c *runNumbers) EndCapture(int64)                        {}
func (c *runNumbers) Failing(int64) (bool, int64)             { return false, 0 }

// newManager returns a real process manager and a Monitor that follows it.
func newManager(t *testing.T) (*process.Manager, *Monitor) {
	t.Helper()
	p := process.NewManager(process.Options{Project: t.TempDir(), Session: uuid.NewString(), Journal: &runNumbers{}})
	m := NewMonitor(Options{Processes: p, Changes: p.Watch()})
	t.Cleanup(func() {
		m.Close()
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p, m
}

// selfSpec returns a Spec that runs one of the programs of TestMain.
func selfSpec(t *testing.T, name, program string, args ...string) process.Spec {
	t.Helper()
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return process.Spec{Name: name, Command: file, Args: args, Env: map[string]string{"HEALTH_TEST_PROGRAM": program}}
}

// TestUnhealthyProcessIsRestartedUntilPolicyGivesUp checks that a real process that is
// never healthy is ended once per run and restarted with the delays of the restart
// policy, until the policy gives up.
func TestUnhealthyProcessIsRestartedUntilPolicyGivesUp(t *testing.T) {
	p, m := newManager(t)
	port := strconv.Itoa(proctest.FreePort(t))
	set(t, m, "sick", Spec{HTTP: "http://localhost:" + port + "/", Interval: 100 * time.Millisecond, StartPeriod: -1, Retries: 2, OnUnhealthy: ActRestart})
	feed, health := p.Watch(), m.Watch()
	spec := selfSpec(t, "sick", "sick", port)
	spec.MaxRestarts = 2
	if _, _, err := p.Start(t.Context(), spec, process.KeepRunning); err != nil {
		t.Fatal(err)
	}
	ctx := proctest.Context(t)
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
		t.Fatalf("got %d runs, %d pauses, want 3 and 2", len(ends), len(pauses))
	}
	for i, st := range ends {
		if st.Exit == nil || st.Exit.By != process.ByHealth {
			t.Errorf("run %d: got exit %+v, want one by health", i+1, st.Exit)
		}
	}
	if pauses[0] < 400*time.Millisecond || pauses[1] < 800*time.Millisecond {
		t.Errorf("got pauses %v, want about 500ms and 1s", pauses)
	}
	if reason := ends[2].Reason; !strings.Contains(reason, "gave up") {
		t.Errorf("got reason %q, want gave up", reason)
	}
	var states []string
	for len(states) < 9 {
		change, err := health.Next(ctx)
		if err != nil {
			t.Fatalf("got %v after states %v, want 9 states", err, states)
		}
		states = append(states, change.To.String())
	}
	if got, want := strings.Join(states, " "), strings.TrimSpace(strings.Repeat("starting unhealthy unknown ", 3)); got != want {
		t.Errorf("got states %s, want %s", got, want)
	}
}

// TestManagerRunsCheckCommands checks that a real process manager runs the command of a
// check in the directory and environment of the process, and that no process of the
// command is left, however the command ends.
func TestManagerRunsCheckCommands(t *testing.T) {
	p, m := newManager(t)
	ctx := t.Context()
	for name, test := range map[string]struct {
		program string
		args    []string
		ok      bool
		message string
	}{
		"well":  {"exit", []string{"well"}, true, "exit code 0"},
		"ill":   {"exit", []string{"ill"}, false, "exit code 3"},
		"flood": {"flood", nil, true, "exit code 0"},
		"hang":  {"forkhang", nil, false, `did not end within \S+ and was killed`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := selfSpec(t, name, test.program, test.args...)
			check := Spec{Command: spec.Command, Args: spec.Args, Timeout: time.Minute, Interval: time.Hour}
			spec.Command, spec.Args = "sleep", []string{"1000"} // its environment selects the check's program
			if _, _, err := p.Start(ctx, spec, process.KeepRunning); err != nil {
				t.Fatal(err)
			}
			var r *Result
			for _, timeout := range growingTimeouts {
				if name == "hang" {
					check.Timeout = timeout
				}
				set(t, m, name, check)
				st, err := checkOnceWatched(ctx, m, name)
				if err != nil {
					t.Fatal(err)
				}
				if r = st.Last(); name != "hang" || r.Output != "" { // on a busy machine the child may come late
					break
				}
			}
			checkResult(t, *r, test.ok, "^"+test.message+"$", ``)
			var child int
			if n, _ := fmt.Sscanf(r.Output, "child %d", &child); n == 1 && !awaitGone(child) {
				t.Errorf("got child %d of the command alive, want it gone", child)
			}
			if (name == "hang") != (child != 0) {
				t.Errorf("got output %q, want a child only of the command that hangs", r.Output)
			}
			if tree, err := p.Tree(name); err != nil || len(tree) != 1 {
				t.Errorf("got tree %+v, %v after the check, want the process alone", tree, err)
			}
		})
	}
}

// checkOnceWatched waits until a run of name is watched, and then checks name.
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
