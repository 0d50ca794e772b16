package process

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctab"
)

// freePort returns a TCP port on which nothing listened a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// startWatcher starts the helper "watcher" with a server as its child and returns once it is ready.
func startWatcher(t *testing.T, o Options, ready Ready, args ...string) (*Manager, *memJournal, Status) {
	t.Helper()
	return startSupervisor(t, o, ready, append([]string{"--watch"}, args...)...)
}

// startSupervisor is startWatcher for a program that need not watch files.
func startSupervisor(t *testing.T, o Options, ready Ready, args ...string) (*Manager, *memJournal, Status) {
	t.Helper()
	m, j := newTestManager(t, o)
	spec := helper("a", "watcher", args...)
	spec.Stdin, spec.Ready = true, &ready
	start(t, m, spec)
	return m, j, awaitReady(t, m)
}

// order gives an order to the helper "watcher".
func order(t *testing.T, m *Manager, text string) {
	t.Helper()
	if _, err := m.Input(testContext(t), "a", []byte(text+"\n"), false); err != nil {
		t.Fatal(err)
	}
}

// awaitLost waits until the process a is not ready any more, as Status says it without a sample.
func awaitLost(t *testing.T, m *Manager, j *memJournal, run int64) Status {
	t.Helper()
	if _, err := j.awaitLine(testContext(t), run, func(s string) bool { return s == "killed" }); err != nil {
		t.Fatal(err)
	}
	st, err := m.Status("a")
	if err != nil || st.Ready == nil || *st.Ready {
		t.Fatalf("the status right after the end of the server: ready %v, %v; want false", st.Ready, err)
	}
	return st
}

func TestReadinessEndsWithItsSocket(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ready  Ready
		listen string
	}{
		"port":     {Ready{Port: new(1)}, "tcp"}, // 1 stands for the port of the server
		"any port": {Ready{Port: new(0)}, "tcp"},
		"path":     {Ready{HTTP: "/"}, "http"},
		"URL":      {Ready{HTTP: "http://127.0.0.1:1/"}, "http"},
		"line too": {Ready{Log: "^listening", Port: new(0)}, "tcp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := freePort(t)
			if test.ready.Port != nil && *test.ready.Port == 1 {
				test.ready.Port = &port
			}
			test.ready.HTTP = strings.Replace(test.ready.HTTP, ":1/", ":"+strconv.Itoa(port)+"/", 1)
			m, j, up := startWatcher(t, Options{}, test.ready, test.listen, fmt.Sprintf("127.0.0.1:%d", port), "200")
			if got := up.Condition(); got != "ready" {
				t.Errorf("condition %q, want ready", got)
			}
			changes := m.Watch()
			order(t, m, "kill")
			st := awaitLost(t, m, j, up.RunID)
			if want := fmt.Sprintf("port %d closed", port); st.Lost != want || !strings.HasPrefix(st.Condition(), "not ready: "+want+" ") || len(st.HTTP) > 0 {
				t.Errorf("lost %q, condition %q, HTTP %+v; want %q and no answer", st.Lost, st.Condition(), st.HTTP, want)
			}
			c, err := changes.Next(testContext(t))
			if err != nil || c.Status.Lost != st.Lost {
				t.Errorf("change %+v, %v; want one with the loss", c.Status, err)
			}
			order(t, m, "start")
			if again := awaitReady(t, m); again.Lost != "" || !again.LostAt.IsZero() || again.RunID != up.RunID {
				t.Errorf("ready again with lost %q at %s in run %d; want neither, in run %d", again.Lost, again.LostAt, again.RunID, up.RunID)
			}
		})
	}
}

func TestReadinessFollowsAnotherPort(t *testing.T) {
	t.Parallel()
	m, j, up := startWatcher(t, Options{}, Ready{Port: new(0)}, "tcp", "127.0.0.1:0")
	order(t, m, "kill")
	order(t, m, "start")
	err := j.await(testContext(t), func() bool { return strings.Count(j.output[up.RunID][Stdout].String(), "listening ") == 2 })
	if err != nil {
		t.Fatal(err)
	}
	again := awaitReady(t, m)
	if again.RunID != up.RunID {
		t.Errorf("ready in run %d, want %d", again.RunID, up.RunID)
	}
	order(t, m, "kill")
	await(t, m, "a", "not ready", func(st Status) bool { return !*st.Ready })
}

func TestReadinessOutlivesSocketsOfOthers(t *testing.T) {
	t.Parallel()
	m, _, up := startWatcher(t, Options{}, Ready{Port: new(0)}, "tcp", "127.0.0.1:0")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if st, err := m.Status("a"); err != nil || !*st.Ready || !st.ReadyAt.Equal(up.ReadyAt) {
		t.Errorf("ready %v since %s, %v; want ready since %s", *st.Ready, st.ReadyAt, err, up.ReadyAt)
	}
}

func TestSuspendedProcessIsNotReady(t *testing.T) {
	t.Parallel()
	m, _, up := startWatcher(t, Options{}, Ready{Log: "^listening"}, "tcp", "127.0.0.1:0")
	signal := func(sig syscall.Signal) {
		if err := syscall.Kill(up.PID, sig); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	st := await(t, m, "a", "suspended", func(st Status) bool { return st.Suspended != "" })
	if want := fmt.Sprintf("not ready: pid %d (", up.PID); st.Ready == nil || *st.Ready || !strings.HasPrefix(st.Condition(), want) {
		t.Errorf("suspended with ready %v, condition %q; want false and %q", st.Ready, st.Condition(), want)
	}
	signal(syscall.SIGCONT)
	if again := await(t, m, "a", "ready", func(st Status) bool { return *st.Ready }); again.Suspended != "" || again.Condition() != "ready" {
		t.Errorf("continued: condition %q, want ready", again.Condition())
	}
}

func TestCrashBehindWatcherEndsReadiness(t *testing.T) {
	t.Parallel()
	m, _, up := startWatcher(t, Options{}, Ready{Log: "^listening"}, "tcp", "127.0.0.1:0")
	order(t, m, "crash")
	st := await(t, m, "a", "stalled", func(st Status) bool { return st.Stalled() })
	if !st.Refuses() || st.NotReady != stalledText || st.Condition() != "not ready: "+stalledText {
		t.Errorf("stalled with refuses %v, not ready %q, condition %q", st.Refuses(), st.NotReady, st.Condition())
	}
	order(t, m, "start")
	if again := awaitReady(t, m); again.Stalled() || again.Refuses() || again.RunID != up.RunID {
		t.Errorf("ready again: stalled %v, refuses %v, run %d", again.Stalled(), again.Refuses(), again.RunID)
	}
}

// newSamples returns options with which the times of samples are received from samples.
func newSamples() (o Options, samples chan time.Time) {
	samples = make(chan time.Time, 100)
	return Options{OnSample: func(_ int64, at time.Time, _ float64, _ uint64, _ int) {
		select {
		case samples <- at:
		default:
		}
	}}, samples
}

// awaitOutput waits until the output of run ends with end, and for the samples by which that would count as a failure
// that a watcher has left behind.
func awaitOutput(t *testing.T, j *memJournal, samples chan time.Time, run int64, end string) {
	t.Helper()
	err := j.await(testContext(t), func() bool { return strings.HasSuffix(j.output[run][Stdout].String(), end) })
	if err != nil {
		t.Fatal(err)
	}
	for silent := time.Now().Add(2 * stallSilence); (<-samples).Before(silent); {
	}
}

func TestOthersAreNotTakenForWatchers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ kind, order string }{
		"a supervisor that starts its program again later": {"--supervise", "crash"},
		"a server whose tool has failed":                   {"--watch", "tool"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, samples := newSamples()
			m, j, up := startSupervisor(t, o, Ready{Log: "^listening"}, test.kind, "tcp", "127.0.0.1:0")
			order(t, m, test.order)
			awaitOutput(t, j, samples, up.RunID, "boom\n")
			if st, err := m.Status("a"); err != nil || st.Condition() != "ready" {
				t.Errorf("condition %q, %v; want ready", st.Condition(), err)
			}
		})
	}
}

func TestFailureBehindWatcherEndsWaitForReadiness(t *testing.T) {
	t.Parallel()
	o, samples := newSamples()
	m, j, up := startWatcher(t, o, Ready{Log: "^listening"}, "tcp", "127.0.0.1:0")
	order(t, m, "crash")
	await(t, m, "a", "stalled", func(st Status) bool { return st.Stalled() })
	order(t, m, "print news")
	await(t, m, "a", "not stalled", func(st Status) bool { return !st.Stalled() && !st.Refuses() })
	order(t, m, "print boom") // nothing has ended since: the program has caught its error
	awaitOutput(t, j, samples, up.RunID, "news\nboom\n")
	if st, err := m.Status("a"); err != nil || st.Stalled() {
		t.Errorf("stalled %v, %v; want false", st.Stalled(), err)
	}
}

// TestFlappingPortIsNotReady checks that a run whose port has closed again and again is ready only once it has stayed
// open.
func TestFlappingPortIsNotReady(t *testing.T) {
	t.Parallel()
	m, _, _ := startWatcher(t, Options{}, Ready{Port: new(0)}, "tcp", "127.0.0.1:0")
	ctx := testContext(t)
	for range flapLosses {
		awaitReady(t, m)
		order(t, m, "kill")
		for lost := false; !lost; {
			st, err := m.Status("a") // which looks at the socket
			if lost = err == nil && !*st.Ready; ctx.Err() != nil {
				t.Fatalf("ready without its port: %+v, %v", st, err)
			}
		}
		order(t, m, "start")
	}
	await(t, m, "a", "called flapping", func(st Status) bool { return strings.Contains(st.NotReady, "again and again") })
	awaitReady(t, m)
}

// TestOrderWithinOneSample checks what counts as started since an exit if one sample finds both.
func TestOrderWithinOneSample(t *testing.T) {
	proc := func(pid, parent int, buried uint64) proctab.Proc {
		return proctab.Proc{ID: proctab.ID{PID: pid, Start: 1}, PPID: parent, Buried: buried}
	}
	for name, c := range map[string]struct {
		before, after []proctab.Proc
		stands        bool
		zombies       []proctab.Proc // after
	}{
		"a watcher that was started and has lost its program":  {[]proctab.Proc{proc(1, 0, 0)}, []proctab.Proc{proc(1, 0, 0), proc(2, 1, 0), proc(3, 2, 7)}, true, nil},
		"a program that was replaced":                          {[]proctab.Proc{proc(1, 0, 0), proc(2, 1, 0)}, []proctab.Proc{proc(1, 0, 7), proc(3, 1, 0)}, false, nil},
		"a program that was started again by a new supervisor": {[]proctab.Proc{proc(1, 0, 0)}, []proctab.Proc{proc(1, 0, 0), proc(2, 1, 7), proc(3, 2, 0)}, false, nil},
		"an orphan in place of a tree":                         {[]proctab.Proc{proc(1, 0, 0), proc(2, 1, 0)}, []proctab.Proc{proc(1, 0, 0), proc(3, 0, 0)}, false, nil},
		"an exit alone":                                        {[]proctab.Proc{proc(1, 0, 0), proc(2, 1, 0)}, []proctab.Proc{proc(1, 0, 7)}, true, nil},
		"a program that no sample saw alive":                   {[]proctab.Proc{proc(1, 0, 0)}, []proctab.Proc{proc(1, 0, 0)}, true, []proctab.Proc{proc(2, 1, 0)}},
		"a helper that is older than the program":              {[]proctab.Proc{proc(1, 0, 0)}, []proctab.Proc{proc(1, 0, 0), proc(2, 1, 0)}, true, []proctab.Proc{proc(3, 1, 0)}},
		"a program that is younger than the one that ended":    {[]proctab.Proc{proc(1, 0, 0)}, []proctab.Proc{proc(1, 0, 0), proc(3, 1, 0)}, false, []proctab.Proc{proc(2, 1, 0)}},
		"no exit": {[]proctab.Proc{proc(1, 0, 0)}, []proctab.Proc{proc(1, 0, 0)}, false, nil},
	} {
		var a activity
		now := time.Now()
		a.add(c.before, nil, now.Add(-samplePeriod))
		a.add(c.after, c.zombies, now)
		if got := a.idleSinceExit(now); got != c.stands {
			t.Errorf("%s: idle since the exit: %v, want %v", name, got, c.stands)
		}
	}
}
