package health

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process"
	"pmcp/process/feed"
)

func TestValidateNamesWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		spec Spec
		want string // part of the error; "" for none
	}{
		{Spec{}, "exactly one"},
		{Spec{TCP: "1", HTTP: "/"}, "given: http, tcp"},
		{Spec{Command: "true"}, ""},
		{Spec{TCP: "80", Args: []string{"a"}}, "args"},
		{Spec{TCP: "80"}, ""},
		{Spec{TCP: ":80"}, ""},
		{Spec{TCP: "db:80"}, ""},
		{Spec{TCP: "[::1]:80"}, ""},
		{Spec{TCP: "::1"}, "tcp"},
		{Spec{TCP: "db"}, "tcp"},
		{Spec{TCP: "0"}, "tcp"},
		{Spec{TCP: "70000"}, "tcp"},
		{Spec{HTTP: "/health"}, ""},
		{Spec{HTTP: "http://localhost:1/health"}, ""},
		{Spec{HTTP: "localhost:1/health"}, "want a URL"},
		{Spec{HTTP: "ftp://localhost/health"}, "want a URL"},
		{Spec{HTTP: "http://:80/"}, "want a URL"},
		{Spec{HTTP: "/", StatusMin: 204}, ""},
		{Spec{HTTP: "/", StatusMin: 404, StatusMax: 404}, ""},
		{Spec{HTTP: "/", StatusMin: 500, StatusMax: 400}, "status 500-400"},
		{Spec{HTTP: "/", StatusMax: 600}, "status"},
		{Spec{TCP: "80", StatusMin: 200}, "only with health.http"},
		{Spec{TCP: "80", Body: "x"}, "only with health.http"},
		{Spec{HTTP: "/", Body: "("}, "body"},
		{Spec{HTTP: "/", Body: strings.Repeat("x", maxPattern+1)}, "bytes"},
		{Spec{HTTP: "/", Interval: time.Millisecond}, "interval_ms"},
		{Spec{HTTP: "/", Interval: 25 * time.Hour}, "interval_ms"},
		{Spec{HTTP: "/", Timeout: -1}, "timeout_ms"},
		{Spec{HTTP: "/", Timeout: 2 * time.Minute}, "timeout_ms"},
		{Spec{HTTP: "/", Retries: -1}, "retries"},
		{Spec{HTTP: "/", Retries: 101}, "retries"},
		{Spec{HTTP: "/", StartPeriod: 2 * time.Hour}, "start_period_ms"},
		{Spec{HTTP: "/", OnUnhealthy: "reboot"}, "on_unhealthy"},
		{Spec{HTTP: "/", OnUnhealthy: ActRestart}, ""},
	} {
		err := test.spec.Validate()
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%+v: got %v, want nil", test.spec, err)
		case test.want != "" && (!errors.Is(err, process.ErrInvalid) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%+v: got %v, want %q", test.spec, err, test.want)
		}
	}
}

// TestZeroFieldsOfSpecGetDefaults checks the defaults of a Spec: the range of statuses
// that a given minimum implies, and the times and counts.
func TestZeroFieldsOfSpecGetDefaults(t *testing.T) {
	got := Spec{HTTP: "/", StatusMin: 404}.withDefaults(7 * time.Second)
	if got.StatusMin != 404 || got.StatusMax != 404 || got.Interval != 7*time.Second || got.Timeout != 5*time.Second || got.Retries != 3 || got.StartPeriod != 30*time.Second {
		t.Errorf("got %+v, want status 404 to 404, interval 7s, timeout 5s, 3 retries, start period 30s", got)
	}
}

// TestChangedCheckAppliesToRunningProcess checks that Set applies to a process that is
// already running. If only limits differ, the process keeps its state. Another check
// begins in state Starting, and no check is made after the removal.
func TestChangedCheckAppliesToRunningProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		m := newMonitor(t, f, Options{Interval: time.Minute})
		f.setState("web", process.Running)
		synctest.Wait()
		set(t, m, "web", Spec{Command: "c"})
		if s := stateOf(t, m, "web"); s != Starting {
			t.Errorf("right after Set: got %s, want %s", s, Starting)
		}
		advance(t, time.Second)
		feed := m.Watch()
		set(t, m, "web", Spec{Command: "c", Interval: time.Minute}) // the same, with its default spelled out
		set(t, m, "web", Spec{Command: "c", Interval: 2 * time.Second})
		if s := stateOf(t, m, "web"); s != Healthy {
			t.Errorf("with another interval: got %s, want %s", s, Healthy)
		}
		advance(t, 10*time.Second)
		if n := len(f.checkTimes("web")); n != 6 {
			t.Errorf("got %d checks, want 6", n)
		}
		set(t, m, "web", Spec{Command: "another"})
		if st, _ := m.Status("web"); st.State != Starting || len(st.Results) != 6 {
			t.Errorf("with another check: got %+v, want %s with 6 results", st, Starting)
		}
		if err := m.Set("web", nil); err != nil {
			t.Error(err)
		}
		if _, ok := m.Status("web"); ok || len(m.List()) != 0 {
			t.Errorf("got known %v, list %v after the removal, want neither", ok, m.List())
		}
		advance(t, 10*time.Second)
		if n := len(f.checkTimes("web")); n != 6 {
			t.Errorf("got %d checks after the removal, want 6", n)
		}
		var got []string
		for range 3 {
			change, err := feed.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(change.From, " ", change.To))
		}
		if want := []string{"healthy healthy", "healthy starting", "starting unknown"}; !slices.Equal(got, want) {
			t.Errorf("got changes %v, want %v", got, want)
		}
		m.Close()
		if _, err := feed.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("after the last change: got %v, want EOF", err)
		}
		if err := m.Set("web", &Spec{Command: "c"}); !errors.Is(err, ErrClosed) {
			t.Errorf("Set after Close: got %v, want %v", err, ErrClosed)
		}
	})
}

// TestMissedChangesAreReadFromManager checks that the Monitor reads the status of every
// process from the manager when the manager's feed has dropped changes, and ignores
// changes of earlier runs than those.
func TestMissedChangesAreReadFromManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		m := newMonitor(t, f, Options{})
		for _, name := range []string{"a", "b"} {
			set(t, m, name, Spec{Command: "c"})
			f.setState(name, process.Running)
		}
		synctest.Wait()
		f.mu.Lock()
		f.table["b"] = process.Status{Spec: process.Spec{Name: "b"}, State: process.Crashed, RunID: 2}
		a := f.table["a"]
		f.mu.Unlock()
		f.changes <- process.Change{Status: a, Missed: 1}
		synctest.Wait()
		if a, b := stateOf(t, m, "a"), stateOf(t, m, "b"); a != Starting || b != Unknown {
			t.Errorf("got a %s, b %s, want %s and %s", a, b, Starting, Unknown)
		}
		// A change of an earlier run than the watched one has no effect.
		f.setState("b", process.Running)
		synctest.Wait()
		f.changes <- process.Change{Status: process.Status{Spec: process.Spec{Name: "b"}, State: process.Crashed, RunID: 2}}
		synctest.Wait()
		if b := stateOf(t, m, "b"); b != Starting {
			t.Errorf("got b %s, want %s", b, Starting)
		}
	})
}

// TestSlowFeedCountsMissedChanges checks that a Feed that falls behind drops the oldest
// changes and counts them.
func TestSlowFeedCountsMissedChanges(t *testing.T) {
	changes := feed.New[Change](feedSize)
	slow := &Feed{changes.Reader()}
	for i := range feedSize + 10 {
		changes.Publish(Change{Status: Status{Run: i}})
	}
	change, err := slow.Next(t.Context())
	if err != nil || change.Missed != 10 || change.Status.Run != 10 {
		t.Errorf("got missed %d, run %d, %v, want 10 and 10", change.Missed, change.Status.Run, err)
	}
}

// TestResultsAreBounded checks that the last maxResults results of a process are kept,
// oldest first.
func TestResultsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		f.exec = resultSequence(true)
		m := newMonitor(t, f, Options{})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second})
		f.setState("web", process.Running)
		advance(t, 100*time.Second)
		st, _ := m.Status("web")
		if len(st.Results) != maxResults || !st.Results[0].At.Before(st.Results[9].At) {
			t.Errorf("got results %v, want %d, oldest first", st.Results, maxResults)
		}
	})
}

// TestProcessKnowsItsTrouble checks what a Monitor tells the process manager of a run: that it is unhealthy, that it flaps,
// and that nothing is wrong.
func TestProcessKnowsItsTrouble(t *testing.T) {
	for name, test := range map[string]struct {
		verdicts []bool
		want     string
	}{
		"healthy":   {[]bool{true}, ""},
		"recovered": {[]bool{false, false, true}, ""},
		"unhealthy": {[]bool{true, false}, "unhealthy: exit code 1"},
		"flapping":  {[]bool{true, false, true, false, true, false, true}, "flapping: 3 of the last 6 checks failed: exit code 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeProcesses()
				f.exec = resultSequence(test.verdicts...)
				m := newMonitor(t, f, Options{})
				set(t, m, "web", Spec{Command: "c", Interval: time.Second, Retries: 2})
				f.setState("web", process.Running)
				advance(t, 6*time.Second)
				f.mu.Lock()
				defer f.mu.Unlock()
				if got, known := f.trouble["web"]; !known || got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
			})
		})
	}
}

// TestStatesHaveNames checks the names of the states in the tools.
func TestStatesHaveNames(t *testing.T) {
	for state, want := range map[State]string{Unknown: "unknown", Starting: "starting", Healthy: "healthy", Unhealthy: "unhealthy", 9: "State(9)"} {
		if got := state.String(); got != want {
			t.Errorf("got %q as the name of state %d, want %q", got, uint8(state), want)
		}
	}
}

// TestSanitizeRemovesControlSequences checks that text loses escape sequences, control
// characters and invisible characters.
func TestSanitizeRemovesControlSequences(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\r\nmore":                     "plain\ttext\nmore",
		"\x1b[31mred\x1b[0m \x1b]0;title\x07done": "red done",
		"a\x00b\x07c\xff":                         "abc\uFFFD",
		"left\u202eright\u200b":                   "leftright",
		"\x1b]52;c;c2VjcmV0":                      "",
	} {
		if got := sanitize(in); got != want {
			t.Errorf("sanitize(%q): got %q, want %q", in, got, want)
		}
	}
}
