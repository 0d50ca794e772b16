package project

import (
	"context"
	"strings"
	"testing"
	"time"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/stdio/stdiotest"
)

// TestStopHintNamesNewRun checks that the hint of a stop names a process that has
// already started again when the stop returns.
func TestStopHintNamesNewRun(t *testing.T) {
	before := Run{Status: process.Status{Spec: process.Spec{Name: "web"}, State: process.Running, Run: 1}}
	after := before.Status
	after.Run = 2
	if got := stopHint(&before, &after); !strings.Contains(got, "started again by another call") {
		t.Errorf("got hint %q, want the new start", got)
	}
	after = before.Status
	after.State = process.Stopped
	if got := stopHint(&before, &after); got != "" {
		t.Errorf("plain stop: got hint %q, want none", got)
	}
}

// TestOnlyEndedRunIsIdle checks that Run.Idle is true for ended processes only, not for one that
// is starting, stopping or waiting for a restart.
func TestOnlyEndedRunIsIdle(t *testing.T) {
	at := time.Unix(9, 0)
	for _, c := range []struct {
		state process.State
		ended time.Time
		want  bool
	}{
		{process.Running, time.Time{}, false}, {process.Starting, at, false}, {process.Stopping, at, false}, {process.Backoff, at, false},
		{process.Exited, at, true}, {process.Crashed, at, true}, {process.Lost, time.Time{}, true},
	} {
		r := Run{Status: process.Status{State: c.state, EndedAt: c.ended}}
		if r.Idle() != c.want {
			t.Errorf("%s, ended %s: got %v, want %v", c.state, c.ended, !c.want, c.want)
		}
	}
}

// TestHistoryShowsLiveStateOfCurrentRun checks that a process's history shows the current run
// with its live state, since its row is written a moment later. A process that is
// being spawned still has the number of the run before.
func TestHistoryShowsLiveStateOfCurrentRun(t *testing.T) {
	rows := []logstore.Run{{ID: 8, Number: 2, Live: true, Own: true}, {ID: 7, Number: 1, Ended: time.Unix(9, 0), Info: []byte(`{"state":"crashed"}`)}}
	for state, want := range map[process.State]string{process.Running: "running", process.Starting: "starting"} {
		got := history(rows, Run{Status: process.Status{State: state, RunID: 8, Run: 2}})
		if len(got) != 2 || got[0].Run != 2 || got[0].State.String() != want || got[1].State != process.Crashed {
			t.Errorf("%v: got %+v, want %s and crashed", state, got, want)
		}
	}
	ended := process.Status{State: process.Backoff, RunID: 8, Run: 2, Exit: &process.Exit{Code: 3, By: process.BySelf}, StartedAt: time.Unix(10, 0), EndedAt: time.Unix(12, 0)}
	if got := history(rows, Run{Status: ended})[0]; got.State != process.Crashed || got.Exit.Code != 3 || got.Duration() != 2*time.Second {
		t.Errorf("in backoff: got %+v, want the crash after 2 s", got)
	}
	ended.State = process.Starting                                                                     // the next run is being started
	if got := history(rows, Run{Status: ended})[0]; got.State != process.Starting || got.Exit != nil { // the stored row, without an exit
		t.Errorf("spawning: got %+v, want starting without an exit code", got)
	}
}

// newProject returns the own project of a session whose store is in memory, with a manager that has
// the given options.
func newProject(t *testing.T, o process.Options) *Project {
	t.Helper()
	store, err := logstore.Open(t.Context(), logstore.Options{Session: "own"})
	stdiotest.NoErr(t, err)
	t.Cleanup(func() { stdiotest.NoErr(t, store.Close()) })
	o.Project, o.Session, o.Journal = t.TempDir(), "own", store
	m := process.NewManager(o)
	t.Cleanup(func() { stdiotest.NoErr(t, m.Close(context.Background())) })
	return New(Options{Manager: m, Store: NewStore(store, m.Project())})
}

// TestMCPServerInheritsNoReadinessRule checks that a start without a readiness rule
// keeps the rule of the definition, except for an MCP server, which has none.
func TestMCPServerInheritsNoReadinessRule(t *testing.T) {
	p := newProject(t, process.Options{})
	_, _, err := p.o.Manager.Start(t.Context(), process.Spec{Name: "web", Command: "sleep", Args: []string{"100"}}, process.KeepRunning)
	stdiotest.NoErr(t, err)
	p.saveDefinition("web", Definition{Command: "sleep 100", Ready: &readyArgs{Log: "^up$"}})
	for stdio, want := range map[string]bool{"": true, process.StdioMCP: false} {
		if def := p.inheritUnset(t.Context(), &process.Spec{Name: "web"}, Definition{Streams: Streams{Stdio: stdio}}, nil); (def.Ready != nil) != want {
			t.Errorf("stdio %q: got rule %+v, want one: %v", stdio, def.Ready, want)
		}
	}
}
