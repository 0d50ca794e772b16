package health

import (
	"encoding/json"
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

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		spec Spec
		want string // in the error; "" for none
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
			t.Errorf("%+v: %v", test.spec, err)
		case test.want != "" && (!errors.Is(err, process.ErrInvalid) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%+v: %v, want %q", test.spec, err, test.want)
		}
	}
}

func TestDefaults(t *testing.T) {
	got := Spec{HTTP: "/", StatusMin: 404}.resolved(7 * time.Second)
	if got.StatusMin != 404 || got.StatusMax != 404 || got.Interval != 7*time.Second || got.Timeout != 5*time.Second || got.Retries != 3 || got.StartPeriod != 30*time.Second {
		t.Errorf("%+v", got)
	}
}

// Set applies to a process that runs already; other figures of the same check
// keep its state, another check does not.
func TestSetWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		m := newMonitor(t, f, Options{Interval: time.Minute})
		f.enter("web", process.Running)
		synctest.Wait()
		set(t, m, "web", Spec{Command: "c"})
		if s := stateOf(t, m, "web"); s != Starting {
			t.Errorf("right after Set: %s", s)
		}
		advance(t, time.Second)
		feed := m.Watch()
		set(t, m, "web", Spec{Command: "c", Interval: time.Minute}) // the same, spelled out
		set(t, m, "web", Spec{Command: "c", Interval: 2 * time.Second})
		if s := stateOf(t, m, "web"); s != Healthy {
			t.Errorf("with another interval: %s", s)
		}
		advance(t, 10*time.Second)
		if n := len(f.times("web")); n != 6 {
			t.Errorf("%d checks", n)
		}
		set(t, m, "web", Spec{Command: "another"})
		if st, _ := m.Status("web"); st.State != Starting || len(st.Results) != 6 {
			t.Errorf("with another check: %+v", st)
		}
		if err := m.Set("web", nil); err != nil {
			t.Error(err)
		}
		if _, ok := m.Status("web"); ok || len(m.List()) != 0 {
			t.Error("still there after it was removed")
		}
		advance(t, 10*time.Second)
		if n := len(f.times("web")); n != 6 {
			t.Errorf("%d checks after it was removed", n)
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
			t.Errorf("changes %v", got)
		}
		m.Close()
		if _, err := feed.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("after the last: %v", err)
		}
		if err := m.Set("web", &Spec{Command: "c"}); !errors.Is(err, ErrClosed) {
			t.Errorf("Set after Close: %v", err)
		}
	})
}

// What the manager's feed had to leave out is read from its table.
func TestMissedChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeProcesses()
		m := newMonitor(t, f, Options{})
		for _, name := range []string{"a", "b"} {
			set(t, m, name, Spec{Command: "c"})
			f.enter(name, process.Running)
		}
		synctest.Wait()
		f.mu.Lock()
		f.table["b"] = process.Status{Spec: process.Spec{Name: "b"}, State: process.Crashed, RunID: 2}
		a := f.table["a"]
		f.mu.Unlock()
		f.changes <- process.Change{Status: a, Missed: 1}
		synctest.Wait()
		if a, b := stateOf(t, m, "a"), stateOf(t, m, "b"); a != Starting || b != Unknown {
			t.Errorf("a is %s, b is %s", a, b)
		}
		// News of a run before the one that is watched changes nothing.
		f.enter("b", process.Running)
		synctest.Wait()
		f.changes <- process.Change{Status: process.Status{Spec: process.Spec{Name: "b"}, State: process.Crashed, RunID: 2}}
		synctest.Wait()
		if b := stateOf(t, m, "b"); b != Starting {
			t.Errorf("b is %s", b)
		}
	})
}

func TestFeedOverrun(t *testing.T) {
	changes := feed.New[Change](feedSize)
	slow := &Feed{changes.Reader()}
	for i := range feedSize + 10 {
		changes.Publish(Change{Status: Status{Run: i}})
	}
	change, err := slow.Next(t.Context())
	if err != nil || change.Missed != 10 || change.Status.Run != 10 {
		t.Errorf("missed %d, run %d, %v", change.Missed, change.Status.Run, err)
	}
}

func TestResultsAreBoundedAndStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, j := newFakeProcesses(), &memJournal{}
		f.exec = results(true)
		m := newMonitor(t, f, Options{Journal: j, Project: "/p"})
		set(t, m, "web", Spec{Command: "c", Interval: time.Second})
		f.enter("web", process.Running)
		advance(t, 100*time.Second)
		st, _ := m.Status("web")
		if len(st.Results) != maxResults || !st.Results[0].At.Before(st.Results[9].At) {
			t.Errorf("%d results", len(st.Results))
		}
		if j.saves > 2 {
			t.Errorf("stored %d times while nothing changed", j.saves)
		}
		m.Close()
		stored, err := m.Stored(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := stored["web"]
		if got.State != Healthy || got.Run != 1 || len(got.Results) != storedResults || !got.Last().At.Equal(st.Last().At) || got.Last().Output != "output" {
			t.Errorf("stored %+v", got)
		}
		j.SaveHealth("/p", "broken", []byte("{"))
		if stored, err = m.Stored(t.Context()); err != nil || len(stored) != 1 {
			t.Errorf("with an unreadable row: %v, %v", stored, err)
		}
	})
}

func TestStateText(t *testing.T) {
	for _, s := range []State{Unknown, Starting, Healthy, Unhealthy} {
		raw, err := json.Marshal(s)
		var back State
		if err != nil || json.Unmarshal(raw, &back) != nil || back != s {
			t.Errorf("%s became %s", s, back)
		}
	}
	var s State
	if json.Unmarshal([]byte(`"well"`), &s) == nil {
		t.Error("any word is a state")
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\r\nmore":                     "plain\ttext\nmore",
		"\x1b[31mred\x1b[0m \x1b]0;title\x07done": "red done",
		"a\x00b\x07c\xff":                         "abc\uFFFD",
		"left\u202eright\u200b":                   "leftright",
		"\x1b]52;c;c2VjcmV0":                      "",
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := tailOf("aé", 1); got != "" {
		t.Errorf("half a character: %q", got)
	}
}
