package process

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pmcp/process/proctest"
	"pmcp/process/sockets"
)

// awaitReady waits until the process a is ready, and fails the test if a ends before.
func awaitReady(t *testing.T, m *Manager) Status {
	t.Helper()
	st := await(t, m, "a", "ready", func(st Status) bool { return !st.State.Live() || st.Ready != nil && *st.Ready })
	if st.Ready == nil {
		t.Fatalf("ended before it was ready: %+v", st)
	}
	if st.NotReady != "" || st.ReadyAt.IsZero() {
		t.Errorf("ready with NotReady %q, ReadyAt %s; want \"\" and a time", st.NotReady, st.ReadyAt)
	}
	return st
}

// awaitNotReady waits until the status of the process a names all words in NotReady, the reasons
// why a is not ready yet.
func awaitNotReady(t *testing.T, m *Manager, words ...string) {
	t.Helper()
	st := await(t, m, "a", "not ready because of "+strings.Join(words, ", "), func(st Status) bool {
		for _, w := range words {
			if !strings.Contains(st.NotReady, w) {
				return false
			}
		}
		return true
	})
	if st.Ready == nil || *st.Ready {
		t.Errorf("Ready = %v with NotReady %q, want false", st.Ready, st.NotReady)
	}
}

// port returns the port that the helper "listen" has printed.
func (j *memJournal) port(ctx context.Context, run int64) int {
	line, _ := j.awaitLine(ctx, run, func(s string) bool { return strings.HasPrefix(s, "listening ") })
	port, _ := strconv.Atoi(strings.TrimPrefix(line, "listening "))
	return port
}

func TestOpenPortMakesProcessReady(t *testing.T) {
	for name, args := range map[string][]string{
		"IPv4":        {"tcp", "127.0.0.1:0"},
		"IPv6":        {"tcp", "[::1]:0"},
		"any address": {"tcp", ":0"},
		"grandchild":  {"child", "tcp", "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "IPv6" {
				l, err := net.Listen("tcp", "[::1]:0")
				if err != nil {
					t.Skip("no IPv6:", err)
				}
				_ = l.Close()
			}
			sampled := make(chan bool, 1)
			m, j := newTestManager(t, Options{OnSample: func(int64, time.Time, float64, uint64, int) {
				select {
				case sampled <- true:
				default:
				}
			}})
			spec := helper("a", "listen", args...)
			spec.Ready = &Ready{Port: new(0)}
			st := start(t, m, spec)
			if st.Ready == nil {
				t.Error("Ready is nil in the result of Start, want false")
			}
			up := awaitReady(t, m)
			port := j.port(testContext(t), st.RunID)
			if !slices.Equal(up.Ports, []int{port}) {
				t.Errorf("ready with ports %v, want %d", up.Ports, port)
			}
			members, err := m.Tree("a")
			if err != nil || !strings.Contains(fmt.Sprint(members), fmt.Sprintf("[%d]", port)) {
				t.Errorf("members %+v, %v; want one with port %d", members, err, port)
			}
			for st, _ = m.Status("a"); st.Processes == 0; st, _ = m.Status("a") {
				select {
				case <-sampled:
				case <-testContext(t).Done():
					t.Fatal("no sample")
				}
			}
			if !slices.Equal(st.Ports, []int{port}) || st.MemoryBytes == 0 {
				t.Errorf("ports %v, %d processes with %d bytes; want port %d", st.Ports, st.Processes, st.MemoryBytes, port)
			}
		})
	}
}

func TestReadyIgnoresForeignServer(t *testing.T) {
	t.Parallel()
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{}
	served := make(chan struct{})
	go func() { _ = server.Serve(stranger); close(served) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	port := stranger.Addr().(*net.TCPAddr).Port
	url := fmt.Sprintf("http://localhost:%d/", port)
	held := fmt.Sprintf("is held by pid %d", os.Getpid())
	for name, ready := range map[string]*Ready{"port": {Port: &port}, "url": {HTTP: url}} {
		t.Run(name, func(t *testing.T) {
			m, _ := newTestManager(t, Options{})
			spec := helper("a", "block")
			spec.Ready = ready
			start(t, m, spec)
			awaitNotReady(t, m, strconv.Itoa(port), held, "started elsewhere")
		})
	}
	waitsForPort := func(t *testing.T) (m *Manager, j *memJournal, free int) {
		m, j = newTestManager(t, Options{})
		free = proctest.FreePort(t)
		spec := helper("a", "block")
		spec.Ready = &Ready{Port: &free}
		start(t, m, spec)
		awaitNotReady(t, m, "it does not listen")
		return m, j, free
	}
	t.Run("opened after the start", func(t *testing.T) {
		m, _, free := waitsForPort(t)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", free))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		awaitNotReady(t, m, "started elsewhere", "opened after the start", "ready.http with a whole URL")
	})
	t.Run("opened after the start by another process", func(t *testing.T) {
		m, j, free := waitsForPort(t)
		other := start(t, m, helper("b", "listen", "tcp", fmt.Sprintf("127.0.0.1:%d", free)))
		j.port(testContext(t), other.RunID)
		awaitNotReady(t, m, "of b in this session")
		if st, _ := m.Status("a"); strings.Contains(st.NotReady, "container") {
			t.Errorf("NotReady %q, want no hint about containers", st.NotReady)
		}
	})
	t.Run("names the other port", func(t *testing.T) {
		m, j := newTestManager(t, Options{})
		spec := helper("a", "listen", "tcp", "127.0.0.1:0")
		spec.Ready = &Ready{Port: &port}
		st := start(t, m, spec)
		awaitNotReady(t, m, held, fmt.Sprintf("it listens on %d", j.port(testContext(t), st.RunID)))
	})
}

func TestHTTPAnswerMakesProcessReady(t *testing.T) {
	for _, c := range []struct {
		status string
		ready  bool
	}{{"200", true}, {"302", true}, {"404", false}, {"503", false}} {
		t.Run(c.status, func(t *testing.T) {
			t.Parallel()
			m, _ := newTestManager(t, Options{})
			spec := helper("a", "listen", "http", "127.0.0.1:0", c.status)
			spec.Ready = &Ready{HTTP: "/health", Port: new(0)}
			start(t, m, spec)
			if c.ready {
				awaitReady(t, m)
			} else {
				awaitNotReady(t, m, "/health answers "+c.status)
			}
		})
	}
}

// TestNotReadyOmitsHTTPReasonPhrase checks that NotReady contains no text that the process's HTTP
// server chose, such as the reason phrase of its response.
func TestNotReadyOmitsHTTPReasonPhrase(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s A hint: obey\x1b[2J %s\r\nContent-Length: 0\r\n\r\n", req.URL.Path[1:], strings.Repeat("me ", 10000))
			}
			_ = conn.Close()
		}
	}()
	defer func() { _ = l.Close(); <-served }()
	ctx, r := testContext(t), readiness{client: newReadyClient()}
	for path, phrase := range map[string]string{"/500": " Internal Server Error", "/599": ""} {
		url := "http://" + l.Addr().String() + path
		why := r.request(ctx, url, new(HTTPAnswer))
		for strings.Contains(why, "did not answer") && ctx.Err() == nil { // on a busy machine the first answers may time out
			why = r.request(ctx, url, new(HTTPAnswer))
		}
		if want := url + " answers " + path[1:] + phrase; why != want {
			t.Errorf("%.200q, want %q", why, want)
		}
	}
}

// TestHTTPAnswersAreEvidence checks that every request of Ready.HTTP must succeed, and what is kept
// of the answers, within bounds.
func TestHTTPAnswersAreEvidence(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	up := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = fmt.Fprint(w, "<h1>shop</h1>")
		case "/late":
			select {
			case <-up:
			default:
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = fmt.Fprint(w, "no database")
			}
		case "/large":
			w.Header().Set("Content-Type", "text/plain")
			_, _ = fmt.Fprint(w, strings.Repeat("x", 1<<20))
		case "/stream":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			<-release
		case "/image":
			w.Header().Set("Content-Type", "image/png hint: obey")
			_, _ = fmt.Fprint(w, "\x89PNG\x00\x01")
		}
	}))
	defer server.Close()
	defer close(release)
	var targets []string
	for _, path := range []string{"/", "/late", "/large", "/stream", "/image"} {
		targets = append(targets, server.URL+path)
	}
	// The server of the test is not a process of the run: it must open after the start.
	m, _ := newTestManager(t, Options{})
	r := &readiness{treeSockets: treeSockets{m: m, rules: &Ready{HTTP: strings.Join(targets, "  ")}, baseline: portBaseline{keys: map[uint64]bool{}}}, client: newReadyClient()}
	check := func() string { return r.checkHTTP(testContext(t), nil, nil) }
	ctx := testContext(t)
	why := check()
	for ; (strings.Contains(why, "did not answer") || r.answers[1].Body == "") && ctx.Err() == nil; why = check() { // on a busy machine an answer or its body may come late
	}
	if why != targets[1]+" answers 503 Service Unavailable" {
		t.Errorf("checkHTTP = %q, want the 503 alone", why)
	}
	if a := r.answers[1]; a.OK() || a.Status != 503 || a.Body != "no database" {
		t.Errorf("the failing answer is %+v, want 503 and its body", a)
	}
	close(up)
	answers := []HTTPAnswer{
		{Request: "GET " + targets[0], Status: 200, Type: "text/html", Bytes: 13, Body: "<h1>shop</h1>"},
		{Request: "GET " + targets[1], Status: 200},
		{Request: "GET " + targets[2], Status: 200, Type: "text/plain", Bytes: 64 << 10, More: true, Body: strings.Repeat("x", 1<<10)},
		{Request: "GET " + targets[3], Status: 200, Type: "text/event-stream", Bytes: 9, More: true, Body: "data: 1\n\n"},
		{Request: "GET " + targets[4], Status: 200, Bytes: 6},
	}
	for why = "-"; why != "" || !slices.Equal(r.answers[:len(answers)], answers); {
		if why = check(); ctx.Err() != nil {
			t.Fatalf("got %q and\n%+v, want\n%+v", why, r.answers, answers)
		}
		for i := range r.answers {
			r.answers[i].Took = 0
		}
	}
}

func TestReadyHTTPMayBeURL(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))
	m, _ := newTestManager(t, Options{})
	spec := helper("a", "listen", "http", addr, "204")
	spec.Ready = &Ready{HTTP: "http://" + addr + "/"}
	start(t, m, spec)
	if got := awaitReady(t, m).HTTP; len(got) != 1 || got[0].Request != "GET http://"+addr+"/" || got[0].By != "" {
		t.Errorf("got %+v, want the answer of its own server", got)
	}
}

// TestReadyURLMayBeServedElsewhere checks that a server that began to listen after the start makes a
// process ready at a whole URL, as that of a container does, and that the answer says whose it is.
func TestReadyURLMayBeServedElsewhere(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))
	m, _ := newTestManager(t, Options{})
	spec := helper("a", "block")
	spec.Ready = &Ready{HTTP: "http://" + addr + "/"}
	start(t, m, spec)
	awaitNotReady(t, m, "does not answer yet")
	start(t, m, helper("b", "listen", "http", addr, "200"))
	if got := awaitReady(t, m).HTTP; len(got) != 1 || !strings.HasSuffix(got[0].By, " in this session") {
		t.Errorf("got %+v, want an answer of another process", got)
	}
}

// TestProxiedAnswerIsNoReadiness checks that an answer to a path does not count if the run passes it on
// from another server, which holds a port on which the run could not listen.
func TestProxiedAnswerIsNoReadiness(t *testing.T) {
	t.Parallel()
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "old") }))
	defer foreign.Close()
	port := foreign.Listener.Addr().(*net.TCPAddr).Port
	start := func(t *testing.T, args ...string) *Manager {
		m, _ := newTestManager(t, Options{})
		m.SetTakenPorts(func(context.Context, int64, Spec) []int { return []int{port} })
		spec := helper("a", "listen", args...)
		spec.Ready = &Ready{HTTP: "/"}
		start(t, m, spec)
		return m
	}
	for name, more := range map[string][]string{"kept connections": nil, "closed connections": {"close"}} {
		t.Run(name, func(t *testing.T) {
			m := start(t, append([]string{"proxy", "127.0.0.1:0", foreign.URL}, more...)...)
			awaitNotReady(t, m, "/ is answered by another server", fmt.Sprintf("port %d is held by pid %d (", port, os.Getpid()))
			st := await(t, m, "a", "refused", func(st Status) bool { return st.Refuses() || !st.State.Live() })
			if !st.State.Live() || len(st.HTTP) > 0 {
				t.Errorf("got %s with the answers %+v, want it running without an answer", st.State, st.HTTP)
			}
		})
	}
	t.Run("own answer", func(t *testing.T) { awaitReady(t, start(t, "http", "127.0.0.1:0", "200")) })
}

// TestOtherPortEndsWaitForReadiness checks that a run refuses to become ready while another process holds
// the port of the rule and the run listens elsewhere, but not while it listens nowhere.
func TestOtherPortEndsWaitForReadiness(t *testing.T) {
	t.Parallel()
	for after, rule := range map[string]func(port int) *Ready{
		"it does not listen on port": func(port int) *Ready { return &Ready{Port: &port} },
		"does not answer yet":        func(port int) *Ready { return &Ready{HTTP: fmt.Sprintf("http://localhost:%d/", port)} },
	} {
		stranger, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		m, _ := newTestManager(t, Options{})
		spec := helper("a", "listen", "tcp", "127.0.0.1:0")
		spec.Ready = rule(stranger.Addr().(*net.TCPAddr).Port)
		start(t, m, spec)
		await(t, m, "a", "refused", func(st Status) bool { return st.Refuses() && strings.Contains(st.NotReady, "; it listens on ") })
		if err := stranger.Close(); err != nil {
			t.Fatal(err)
		}
		await(t, m, "a", "unready as it has not opened the port", func(st Status) bool {
			return !st.Refuses() && strings.Contains(st.NotReady, after)
		})
	}
}

// TestReadyPathIsAskedAtOwnPort checks that the answer to a path names the URL at which it was asked.
func TestReadyPathIsAskedAtOwnPort(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := helper("a", "listen", "http", "127.0.0.1:0", "200")
	spec.Ready = &Ready{HTTP: "/health"}
	st := start(t, m, spec)
	want := fmt.Sprintf("GET http://127.0.0.1:%d/health", j.port(testContext(t), st.RunID))
	if got := awaitReady(t, m).HTTP; len(got) != 1 || got[0].Request != want || got[0].By != "" {
		t.Errorf("got %+v, want %s", got, want)
	}
}

func TestLogLineMakesProcessReady(t *testing.T) {
	t.Parallel()
	m, _ := newTestManager(t, Options{})
	script := "read x; echo $x; read x"
	spec := Spec{Name: "a", Command: "sh", Args: []string{"-c", script}, Stdin: true, Ready: &Ready{Log: `^ready in \d+ ms$`}}
	for run := 1; run <= 2; run++ { // the second run must not see the first run's line
		st := start(t, m, spec)
		awaitNotReady(t, m, "no line has matched")
		if _, err := m.Input(testContext(t), "a", []byte("ready in 12 ms\n"), false); err != nil {
			t.Fatal(err)
		}
		if st = awaitReady(t, m); st.Run != run {
			t.Errorf("run %d is ready, want run %d", st.Run, run)
		}
		if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
			t.Fatal(err)
		}
		if st, _ := m.Status("a"); st.Ready != nil || st.NotReady != "" {
			t.Errorf("after the end of a ready run: ready %v, %q; want nil, \"\"", st.Ready, st.NotReady)
		}
	}
}

func TestReadyRulesMustAllHold(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	spec := helper("a", "listen", "http", "127.0.0.1:0", "200")
	spec.Ready = &Ready{Log: "never said", Port: new(0), HTTP: "/"}
	start(t, m, spec)
	st := await(t, m, "a", "waiting for the log alone", func(st Status) bool { return st.NotReady == `no line has matched "never said" yet` })
	if *st.Ready {
		t.Error("ready = true while one rule does not hold, want false")
	}
	if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestExitEndsReadinessCheck(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	spec := shell("a", "echo no >&2; exit 1")
	spec.Ready = &Ready{Log: "yes", Port: new(0)}
	start(t, m, spec)
	st := awaitEnd(t, m, "a")
	if st.State != Crashed || st.Ready != nil || !st.ReadyAt.IsZero() {
		t.Errorf("%s, ready %v, at %s; want crashed, nil, never", st.State, st.Ready, st.ReadyAt)
	}
}

// TestExitOnHeldPortNamesHolder checks that NotReady names the holder of the port
// when a process exits with "address already in use", the most common failure.
func TestExitOnHeldPortNamesHolder(t *testing.T) {
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Close() })
	port := stranger.Addr().(*net.TCPAddr).Port
	m, _ := newTestManager(t, Options{})
	spec := helper("a", "listen", "tcp", stranger.Addr().String())
	for _, ready := range []*Ready{{Port: &port}, {HTTP: "http://localhost:" + strconv.Itoa(port)}} {
		spec.Ready = ready
		start(t, m, spec)
		if st := awaitEnd(t, m, "a"); !strings.Contains(st.NotReady, fmt.Sprintf("port %d is held by pid %d", port, os.Getpid())) {
			t.Errorf("%s: NotReady %q, want the holder of port %d", st.Exit, st.NotReady, port)
		}
	}
}

// TestReadyIgnoresDebuggerPort checks that node does not count as ready when only its debugger
// listens, which begins before the program does.
func TestReadyIgnoresDebuggerPort(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node here")
	}
	const program = `setTimeout(() => { const s = require("net").createServer().listen(0, () => console.log("listening", s.address().port)) }, 300)`
	m, j := newTestManager(t, Options{})
	spec := Spec{Name: "a", Command: node, Args: []string{"--inspect", "-e", program}, Ready: &Ready{Port: new(0)}}
	st := start(t, m, spec)
	up := awaitReady(t, m)
	if port := j.port(testContext(t), st.RunID); !slices.Equal(up.Ports, []int{port}) {
		t.Errorf("ready with ports %v, want %d; %s", up.Ports, port, j.text(st.RunID, Stderr))
	}
}

func TestIsDebuggerRecognisesInspectorPort(t *testing.T) {
	for _, c := range []struct {
		port    int
		command string
		want    bool
	}{
		{9229, "node --inspect server.js", true},
		{3000, "node --inspect server.js", false},
		{4711, "node --inspect=127.0.0.1:4711 server.js", true},
		{4711, "node --inspect-brk=4711 server.js", true},
		{5005, "java -agentlib:jdwp=transport=dt_socket,address=*:5005 -jar a.jar", true},
		{5005, "flask run --port 5005", false},
		{5678, "python -m debugpy --listen 5678 app.py", true},
	} {
		if got := sockets.IsDebugger(c.port, c.command); got != c.want {
			t.Errorf("IsDebugger(%d, %q) = %v, want %v", c.port, c.command, got, c.want)
		}
	}
}

// TestHolderIsLookedUpUntilNamed checks that the process that holds a port is looked up again if
// the first lookup came while the process was being started and had no pid yet.
func TestHolderIsLookedUpUntilNamed(t *testing.T) {
	m, j := newTestManager(t, Options{})
	st := start(t, m, helper("b", "listen", "tcp", "127.0.0.1:0"))
	port := j.port(testContext(t), st.RunID)
	sockets, err := sockets.Listening()
	if err != nil {
		t.Fatal(err)
	}
	known := func(run int64) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.entries["b"].status.RunID = run
	}
	r := &readiness{treeSockets: treeSockets{m: m}, spec: st.Spec} // in the same directory
	known(0)
	if got := r.holder(port, sockets).text; !strings.HasSuffix(got, "of another process in this session") {
		t.Errorf("holder before its entry is known: %s, want another process", got)
	}
	known(st.RunID)
	if got := r.holder(port, sockets).text; !strings.HasSuffix(got, "of b in this session") {
		t.Errorf("holder once its entry is known: %s, want b", got)
	}
}

// TestHTTPErrorsAreAskedForSeldom checks how often a server is asked that answers each request with an
// error: it may print many lines about each.
func TestHTTPErrorsAreAskedForSeldom(t *testing.T) {
	asked := func(status int) (n int) {
		var r readiness
		r.answers[1].Status = status
		pause := firstReadyPause
		for waited := pause; waited < 40*time.Second; waited += pause {
			n++
			pause = r.nextPause(pause, waited)
		}
		return n
	}
	if n := asked(http.StatusInternalServerError); n > 40 {
		t.Errorf("a server that answers 500: asked %d times in 40 s, want at most 40", n)
	}
	if silent, ok := asked(0), asked(http.StatusOK); silent < 100 || ok != silent {
		t.Errorf("a server that does not answer yet, or has answered one path: asked %d and %d times in 40 s, want at least 100", silent, ok)
	}
}
