package process

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// TestWatchStartEndsWithTheFirstNews checks what ends the watch of a start. A limit that must not
// end it is longer than the test.
func TestWatchStartEndsWithTheFirstNews(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		spec   Spec
		limits watchLimits
		state  State
		check  func(*testing.T, Status, *memJournal)
	}{
		"exit": {shell("a", "echo no >&2; exit 3"), watchLimits{whole: never, quiet: never}, Crashed, func(t *testing.T, st Status, _ *memJournal) {
			if st.Exit == nil || st.Exit.Code != 3 {
				t.Errorf("exit %v, want code 3", st.Exit)
			}
		}},
		"port": {helper("a", "listen", "child", "tcp", "127.0.0.1:0"), watchLimits{whole: never, quiet: never}, Running, func(t *testing.T, st Status, j *memJournal) {
			if port := j.port(testContext(t), st.RunID); !slices.Equal(st.Ports, []int{port}) {
				t.Errorf("ports %v, want %d", st.Ports, port)
			}
		}},
		"output": {shell("a", "echo up; exec sleep 100"), watchLimits{whole: never, quiet: time.Millisecond}, Running, func(t *testing.T, st Status, j *memJournal) {
			if _, err := j.awaitLine(testContext(t), st.RunID, func(line string) bool { return line == "up" }); err != nil {
				t.Errorf("got %v, want the line up", err)
			}
		}},
		"silence": {shell("a", "exec sleep 100"), watchLimits{whole: time.Second, quiet: never}, Running, func(t *testing.T, st Status, _ *memJournal) {
			if lived := time.Since(st.StartedAt); lived < time.Second {
				t.Errorf("watched a silent run for %s, want at least 1 s", lived)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, j := newTestManager(t, Options{})
			m.watch = c.limits
			st := start(t, m, c.spec)
			got, err := m.WatchStart(testContext(t), "a", st.RunID)
			if err != nil || got.State != c.state {
				t.Fatalf("WatchStart = %s, %v; want %s", got.State, err, c.state)
			}
			c.check(t, got, j)
			if now, err := m.Status("a"); err != nil || !slices.Equal(now.Ports, got.Ports) {
				t.Errorf("Status has ports %v, %v, want those of the watch: %v", now.Ports, err, got.Ports)
			}
		})
	}
}

// TestWatchStartAwaitsTheEndAfterTheOutput checks that a run that has closed its output does not
// count as silent, since it is about to end.
func TestWatchStartAwaitsTheEndAfterTheOutput(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	m.watch = watchLimits{whole: time.Hour}
	spec := shell("a", "echo no >&2; exec >&- 2>&-; read x; exit 3")
	spec.Stdin = true
	st := start(t, m, spec)
	m.mu.Lock()
	run := m.entries["a"].run.(*Run)
	m.mu.Unlock()
	<-run.streamsEnded
	watched := make(chan Status, 1)
	go func() {
		st, _ := m.WatchStart(testContext(t), "a", st.RunID)
		watched <- st
	}()
	if _, err := m.Input(testContext(t), "a", []byte("\n"), false); err != nil {
		t.Fatal(err)
	}
	if st := <-watched; st.State != Crashed {
		t.Errorf("got %s, want crashed", st.State)
	}
}

// TestAnnouncementIsNoOutput checks that what npm prints before it starts a script does not begin the
// silence that ends the watch of a start: the script may be about to fail.
func TestAnnouncementIsNoOutput(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := shell("a", `printf '\n> web@1.0.0 dev\n> vite\n\n'; read x; echo "> up"; exec sleep 100`)
	spec.Stdin = true
	st := start(t, m, spec)
	printed := func(line string) {
		t.Helper()
		if _, err := j.awaitLine(testContext(t), st.RunID, func(l string) bool { return l == line }); err != nil {
			t.Fatalf("got %v, want the line %q", err, line)
		}
	}
	printed("> vite")
	if at := m.silentSince("a", st.RunID); !at.IsZero() {
		t.Errorf("silent since %s after an announcement, want zero", at)
	}
	if _, err := m.Input(testContext(t), "a", []byte("\n"), false); err != nil {
		t.Fatal(err)
	}
	printed("> up")
	if at := m.silentSince("a", st.RunID); !at.IsZero() {
		t.Errorf("silent since %s after a second announcement, want zero", at)
	}
	for text, want := range map[string]bool{
		"\n> web@1.0.0 dev\n> vite\n\n": true, "\r\n> web@1.0.0 dev\r\n> vite\r\n": true, "yarn run v1.22.22\n$ vite\n": true,
		"> ": false, "> web@1.0.0 dev\n> vite\n\nup\n": false, "up\n": false, "$": false,
	} {
		if isAnnouncement([]byte(text)) != want {
			t.Errorf("isAnnouncement(%q) = %v, want %v", text, !want, want)
		}
	}
}

func TestWatchStartEndsWithItsContext(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	m.watch = watchLimits{whole: time.Hour, quiet: time.Hour}
	st := start(t, m, helper("a", "block"))
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := m.WatchStart(ctx, "a", st.RunID); !errors.Is(err, context.Canceled) {
		t.Errorf("WatchStart of a cancelled call = %v, want context.Canceled", err)
	}
	if _, err := m.WatchStart(testContext(t), "a", 12345); !errors.Is(err, ErrUnknown) {
		t.Errorf("WatchStart of an unknown run = %v, want ErrUnknown", err)
	}
}

// TestMatchBeforeDeathIsNotReady checks that a run that prints what Ready.Log asks for and then ends
// does not become ready.
func TestMatchBeforeDeathIsNotReady(t *testing.T) {
	f := &fakeSpawner{}
	m := NewManager(Options{Journal: newMemJournal(), AwaitLine: func(context.Context, int64, int64, func(uint8, string) bool) (string, error) {
		run := f.last()
		run.onSettle = func() { run.finish(Exit{Code: 1, By: BySelf}) }
		return "up", nil
	}})
	defer func() { _ = m.Close(testContext(t)) }()
	m.spawn = f.spawn
	feed := m.Watch()
	spec := shell("a", "")
	spec.Ready = &Ready{Log: "up"}
	start(t, m, spec)
	for {
		c, err := feed.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if st := c.Status; st.Ready != nil && *st.Ready {
			t.Fatal("got ready, want never ready")
		}
		if !c.To.Live() {
			break
		}
	}
}

func TestStackFilterFindsQuotedSource(t *testing.T) {
	type line struct {
		stream uint8
		text   string
		quoted bool
	}
	for name, lines := range map[string][]line{
		"python": {
			{Stderr, "Traceback (most recent call last):", true},
			{Stderr, `  File "/shop/app.py", line 9, in <module>`, true},
			{Stdout, "app on 8000", false}, // the other stream
			{Stderr, `    print("app on", serve())`, true},
			{Stderr, "                    ~~~~~^^", true},
			{Stderr, "OSError: [Errno 98] Address already in use: app on", true},
			{Stderr, "app on", false},
		},
		"chained": {
			{Stderr, "Traceback (most recent call last):", true},
			{Stderr, `  File "a.py", line 1, in <module>`, true},
			{Stderr, "KeyError: 'app'", true},
			{Stderr, "", false},
			{Stderr, "During handling of the above exception, another exception occurred:", false},
			{Stderr, "", false},
			{Stderr, "Traceback (most recent call last):", true},
			{Stderr, `    print("app on")`, true},
		},
		"syntax error": {
			{Stderr, `  File "app.py", line 3`, true},
			{Stderr, `    print("app on"`, true},
			{Stderr, "         ^", true},
			{Stderr, "SyntaxError: '(' was never closed", false},
			{Stderr, "    app on", false},
		},
		"node": {
			{Stderr, "/shop/server.js:3", true},
			{Stderr, `console.log("app on", x)`, true},
			{Stderr, "                     ^", true},
			{Stderr, "", true},
			{Stderr, "ReferenceError: x is not defined", false},
			{Stderr, "    at Object.<anonymous> (/shop/server.js:3:23)", true},
			{Stderr, "    at node:internal/main/run_main_module:28:49", true},
			{Stderr, "app on", false},
		},
		"code frame": {
			{Stdout, "  2 | const port = 0", true},
			{Stdout, `> 3 | console.log("app on")`, true},
		},
		"ready lines": {
			{Stdout, "http://127.0.0.1:8000", false},
			{Stdout, "localhost:3000", false},
			{Stdout, "  Local:   http://localhost:5173/", false},
			{Stdout, "  at http://localhost:3000", false},
			{Stdout, "12:01:02 app on", false},
			{Stdout, "1700000000 | app on", false},
			{Stdout, `{"error": "Traceback (most recent call last):\n  File x"}`, false},
			{Stdout, "app on", false},
			{Stdout, "", false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var f stackFilter
			for _, l := range lines {
				if got := f.quoted(l.stream, l.text); got != l.quoted {
					t.Errorf("quoted(%d, %q) = %v, want %v", l.stream, l.text, got, l.quoted)
				}
			}
		})
	}
}

// TestTracebackDoesNotMakeReady checks that the source that a traceback quotes is not a match of
// Ready.Log, although the process lives on, as one that reloads does.
func TestTracebackDoesNotMakeReady(t *testing.T) {
	t.Parallel()
	m, _ := newTestManager(t, Options{})
	spec := shell("a", `printf 'Traceback (most recent call last):\n  File "app.py", line 9, in <module>\n    print("app on")\nOSError: no\n' >&2; read x; echo app on; read x`)
	spec.Stdin, spec.Ready = true, &Ready{Log: "app on"}
	st := start(t, m, spec)
	if st, err := m.WatchStart(testContext(t), "a", st.RunID); err != nil || st.Ready == nil || *st.Ready {
		t.Fatalf("after a traceback: ready %v, %v; want false", st.Ready, err)
	}
	if _, err := m.Input(testContext(t), "a", []byte("\n"), false); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, m)
}

// TestAwaitExitEndsWhenProgramServes checks that a wait for an end is over once the program listens and is silent,
// and not before, whether it only listens or only is silent.
func TestAwaitExitEndsWhenProgramServes(t *testing.T) {
	t.Parallel()
	m, j := newTestManager(t, Options{})
	m.watch = watchLimits{serve: 2 * time.Second}
	serves := start(t, m, helper("serves", "listen", "tcp", "127.0.0.1:0"))
	st, silent, err := m.AwaitExit(testContext(t), "serves", serves.RunID)
	if port := j.port(testContext(t), serves.RunID); err != nil || !slices.Equal(st.Ports, []int{port}) || time.Since(silent) < 2*time.Second {
		t.Errorf("got ports %v, silent since %s, %v; want port %d and two seconds of silence", st.Ports, silent, err, port)
	}
	for name, spec := range map[string]Spec{
		"silent": shell("silent", "sleep 4"),
		"chatty": shell("chatty", "i=0; while [ $i -lt 4 ]; do echo $i; sleep 1; i=$((i+1)); done"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := start(t, m, spec)
			st, silent, err := m.AwaitExit(testContext(t), name, run.RunID)
			if err != nil || !silent.IsZero() || st.State != Exited {
				t.Errorf("got %s, silent since %s, %v; want its end", st.State, silent, err)
			}
		})
	}
}
