package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain runs the tests or, in a child of a Host, a session.
func TestMain(m *testing.M) {
	hosted, err := Inherit()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if hosted != nil {
		liveAsSession(hosted)
		return
	}
	goleak.VerifyTestMain(m)
}

// liveAsSession is a session that says what it is, and repeats what its client says. Its id
// is its pid. The variable FAIL lets it refuse, and SILENT end.
func liveAsSession(h *Hosted) {
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGTERM)
	if os.Getenv("SILENT") != "" {
		return
	}
	if why := os.Getenv("FAIL"); why != "" {
		_ = h.AnswerCaller(os.Stdout, "", errors.New(why))
		return
	}
	_ = h.AnswerCaller(os.Stdout, fmt.Sprint(os.Getpid()), nil)
	if !h.Keeper {
		dir, _ := os.Getwd()
		fmt.Println(dir, os.Getenv("MARK"), os.Getenv("HOST"), os.Getenv(tokenVariable), os.Getenv(hostedVariable), Umask())
		go func() {
			_, _ = io.Copy(os.Stdout, os.Stdin)
			if os.Getenv("LINGER") == "" {
				ending <- syscall.SIGTERM
				return
			}
			h.Disconnect(os.Stdin)
		}()
	}
	<-ending
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve serves sessions on a socket until the test ends, and returns how to dial it.
func serve(t testing.TB, token string, change func(*Host)) (*Host, Dial) {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // short: the path of a socket has 107 bytes at most
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "sock")
	l, err := net.Listen("unix", path)
	must(t, err)
	h := New(Options{Log: slog.New(slog.DiscardHandler), Token: token})
	if change != nil {
		change(h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { h.Handle(ctx, c.(*net.UnixConn)) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		cancel()
		serving.Wait()
		h.Close()
		if h.Busy() {
			t.Error("got an active host after Close")
		}
	})
	return h, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
}

// hello returns the Hello of a session in dir, with more variables.
func hello(dir string, more ...string) Hello {
	exe, _ := os.Executable()
	return Hello{Protocol: protocol, Program: exe, Dir: dir, Umask: 0o027, Env: append([]string{"PATH=" + os.Getenv("PATH"), "MARK=m"}, more...)}
}

// keep asks for a keeper.
func keep(t *testing.T, dial Dial, h Hello, gone string) (session string, err error) {
	return NewCaller(dial, func() (Hello, error) { return h, nil }).Keeper(t.Context(), gone)
}

// awaitIdle waits until nothing is left of the connections and sessions of h.
func awaitIdle(h *Host) {
	for h.Busy() {
		<-h.Changed()
	}
}

// refusal returns the text of the line with which a connection is refused.
func refusal(t *testing.T, c net.Conn) string {
	t.Helper()
	line, _ := io.ReadAll(c) // a connection that is reset has an answer all the same
	var a answer
	must(t, json.Unmarshal(line, &a))
	return a.Error
}

// TestSessionHasWhatTheHelloSays checks that directory, environment and umask of a session
// are those of the Hello, that it has nothing of the host's, and that its connection is whole.
func TestSessionHasWhatTheHelloSays(t *testing.T) {
	t.Setenv("HOST", "of the host")
	h, dial := serve(t, "a secret that is long", nil)
	dir := t.TempDir()
	c, err := dial(t.Context())
	must(t, err)
	asked := hello(dir, "PMCP_SESSION=outer", tokenVariable+"=leaked")
	asked.Token = "a secret that is long"
	session, rest, err := exchange(t.Context(), c, asked)
	must(t, err)
	if line, _ := rest.ReadString('\n'); session == "" || line != dir+" m    23\n" {
		t.Errorf("got session %q and %q, want directory, mark and umask of the hello", session, line)
	}
	must(t, c.SetDeadline(time.Time{}))
	_, err = c.Write([]byte("one\n"))
	must(t, err)
	if line, _ := rest.ReadString('\n'); line != "one\n" {
		t.Errorf("got %q, want what was sent", line)
	}
	must(t, c.(*net.UnixConn).CloseWrite())
	if more, err := io.ReadAll(rest); len(more) > 0 || err != nil {
		t.Errorf("got %q and %v, want the end", more, err)
	}
	awaitIdle(h)
}

// TestLingeringSessionEndsItsConnection checks that a session that continues without its client
// ends the connection, and is ended by Close.
func TestLingeringSessionEndsItsConnection(t *testing.T) {
	_, dial := serve(t, "", nil)
	c, err := dial(t.Context())
	must(t, err)
	_, rest, err := exchange(t.Context(), c, hello("/", "LINGER=1"))
	must(t, err)
	must(t, c.(*net.UnixConn).CloseWrite())
	_, err = io.ReadAll(rest)
	must(t, err)
	must(t, c.Close())
}

// TestKeepersAreShared checks that callers with the same Hello get one keeper, that others get
// another, and that one that is gone is replaced.
func TestKeepersAreShared(t *testing.T) {
	h, dial := serve(t, "", nil)
	ask := func(h Hello, gone string) string {
		id, err := keep(t, dial, h, gone)
		must(t, err)
		return id
	}
	var ids [20]string
	var asking sync.WaitGroup
	for i := range ids {
		asking.Go(func() { ids[i] = ask(hello("/"), "") })
	}
	asking.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Fatalf("got keepers %q, want one", ids)
		}
	}
	if other := ask(hello("/", "MORE=1"), ""); other == ids[0] {
		t.Error("got the same keeper for another environment")
	}
	second := ask(hello("/"), ids[0])
	if second == ids[0] || ask(hello("/"), ids[0]) != second {
		t.Error("got the keeper that is gone, or a third one")
	}
	var refused Refusal
	if _, err := keep(t, dial, hello("/", "FAIL=not today"), ""); !errors.As(err, &refused) || !strings.Contains(err.Error(), "not today") {
		t.Errorf("got %v, want the session's reason", err)
	}
	if _, err := keep(t, dial, hello("/", "SILENT=1"), ""); err == nil || !strings.Contains(err.Error(), "did not begin") {
		t.Errorf("got %v, want that it did not begin", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.keepers) != 2 {
		t.Errorf("got %d keepers, want 2", len(h.keepers))
	}
}

// TestHelloIsChecked checks that a connection without a valid Hello gets one line and no
// session.
func TestHelloIsChecked(t *testing.T) {
	h, dial := serve(t, "a secret that is long", nil)
	with := func(change func(*Hello)) string {
		a := hello("/")
		a.Token = "a secret that is long"
		change(&a)
		line, err := json.Marshal(a)
		must(t, err)
		return string(line) + "\n"
	}
	for line, want := range map[string]string{
		"GET / HTTP/1.1\r\n":                    "invalid hello",
		"\n":                                    "invalid hello",
		"{}\n":                                  "PM_DAEMON_TOKEN is missing or not",
		with(func(a *Hello) { a.Protocol = 2 }): "another version",
		with(func(a *Hello) { a.Token = "" }):   "PM_DAEMON_TOKEN is missing or not",
		with(func(a *Hello) { a.Token = "a secret that is lonG" }):               "PM_DAEMON_TOKEN is missing or not",
		with(func(a *Hello) { a.Dir = "relative" }):                              "not an absolute path",
		with(func(a *Hello) { a.Dir = "/nonexistent" }):                          "/nonexistent",
		with(func(a *Hello) { a.Limits = "0 7:1:2\x00" }):                        "limits",
		with(func(a *Hello) { a.Umask = 0o1000 }):                                "umask",
		with(func(*Hello) {}) + `{"jsonrpc":"2.0"}`:                              "more than a line",
		with(func(a *Hello) { a.Env = []string{strings.Repeat("x", maxHello)} }): "longer than",
	} {
		c, err := dial(t.Context())
		must(t, err)
		_, _ = c.Write([]byte(line)) // what is too long is refused before its end
		if got := refusal(t, c); !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%.80q: got %q, want %q", line, got, want)
		}
		must(t, c.Close())
	}
	awaitIdle(h)
}

// TestHostilePeersLeaveNothing checks that peers that come and go, are half open or flood
// are refused, and leave no goroutine (TestMain), descriptor or session.
func TestHostilePeersLeaveNothing(t *testing.T) {
	h, dial := serve(t, "", nil)
	hasty, dialHasty := serve(t, "", func(h *Host) { h.hello = 20 * time.Millisecond })
	before := descriptors(t)
	for range 200 {
		c, err := dial(t.Context())
		must(t, err)
		must(t, c.Close())
	}
	for range 20 { // half open
		c, err := dial(t.Context())
		must(t, err)
		must(t, c.(*net.UnixConn).CloseWrite())
		if got := refusal(t, c); !strings.Contains(got, "invalid hello") {
			t.Errorf("half open: got %q, want a refusal", got)
		}
		must(t, c.Close())
	}
	for range 5 { // silent
		c, err := dialHasty(t.Context())
		must(t, err)
		_, _ = c.Write([]byte(`{"pmcp":1,`)) // it may come too late
		if got := refusal(t, c); !strings.Contains(got, "no hello came within 20ms") {
			t.Errorf("silent: got %q, want a refusal", got)
		}
		must(t, c.Close())
	}
	awaitIdle(h)
	awaitIdle(hasty)
	if after := descriptors(t); after > before {
		t.Errorf("got %d descriptors, had %d", after, before)
	}
}

// TestFloodIsRefused checks that no more is read of a Hello than is allowed.
func TestFloodIsRefused(t *testing.T) {
	_, dial := serve(t, "", func(h *Host) { h.hello = time.Minute })
	c, err := dial(t.Context())
	must(t, err)
	defer func() { _ = c.Close() }()
	part, sent := make([]byte, 1<<20), 0
	for sent < 1<<30 {
		n, err := c.Write(part)
		if sent += n; err != nil {
			break
		}
	}
	if most := maxHello + 4<<20; sent > most { // buffers of the kernel included
		t.Errorf("it took %d bytes, want at most %d", sent, most)
	}
	if got := refusal(t, c); !strings.Contains(got, "longer than") {
		t.Errorf("got %q, want the reason", got)
	}
}

// descriptors returns how many this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(open)
}

// TestSessionsAreBounded checks that a session too many is refused, and that one that has
// ended makes room.
func TestSessionsAreBounded(t *testing.T) {
	h, dial := serve(t, "", func(h *Host) { h.sessions = 1 })
	c, err := dial(t.Context())
	must(t, err)
	_, _, err = exchange(t.Context(), c, hello("/"))
	must(t, err)
	second, err := dial(t.Context())
	must(t, err)
	var refused Refusal
	if _, _, err := exchange(t.Context(), second, hello("/")); !errors.As(err, &refused) || !strings.Contains(err.Error(), "it runs 1 sessions, which is its limit: end one") {
		t.Errorf("got %v, want a refusal that names the limit", err)
	}
	must(t, errors.Join(second.Close(), c.Close()))
	awaitIdle(h)
	if _, err := keep(t, dial, hello("/"), ""); err != nil {
		t.Errorf("got %v, want room", err)
	}
}

// TestProgramThatIsGoneIsReplaced checks that the host's own program serves a caller whose
// program does not exist any more.
func TestProgramThatIsGoneIsReplaced(t *testing.T) {
	_, dial := serve(t, "", nil)
	asked := hello("/")
	asked.Program = "/nonexistent/pmcp"
	if _, err := keep(t, dial, asked, ""); err != nil {
		t.Errorf("got %v, want a session", err)
	}
}

// TestKeeperTriesAgain checks that a daemon that ends before it answers is dialled again.
func TestKeeperTriesAgain(t *testing.T) {
	_, dial := serve(t, "", nil)
	dials := 0
	id, err := keep(t, func(ctx context.Context) (net.Conn, error) {
		if dials++; dials < tries {
			ours, theirs := net.Pipe()
			go func() { // ends with the pipe
				_, _ = bufio.NewReader(theirs).ReadString('\n')
				_ = theirs.Close()
			}()
			return ours, nil
		}
		return dial(ctx)
	}, hello("/"), "")
	if err != nil || id == "" || dials != tries {
		t.Errorf("got %q and %v after %d dials, want a session", id, err, dials)
	}
}

func TestNewHelloDescribesThisProcess(t *testing.T) {
	t.Setenv("PM_PROJECT_DIR", "relative")
	old := unix.Umask(0o037)
	defer unix.Umask(old)
	h, err := NewHello("1", "secret", Umask(), "0 7:1:2", map[string]string{"PM_PROJECT_DIR": "/p"})
	must(t, err)
	if at, _ := os.Getwd(); h.Dir != at || h.Umask != 0o037 || h.Token != "secret" || h.Protocol != protocol {
		t.Errorf("got %+v, want this process", h)
	}
	if env := strings.Join(h.Env, "\n"); !strings.Contains(env, "PM_PROJECT_DIR=/p") || strings.Contains(env, "relative") {
		t.Error("got an environment without the settings")
	}
}

// TestEndingHostIsTriedAgain checks that a caller that meets a host which is being closed dials
// again, and is not refused.
func TestEndingHostIsTriedAgain(t *testing.T) {
	closed, dialClosed := serve(t, "", nil)
	closed.Close()
	_, dial := serve(t, "", nil)
	dials := 0
	id, err := keep(t, func(ctx context.Context) (net.Conn, error) {
		if dials++; dials == 1 {
			return dialClosed(ctx)
		}
		return dial(ctx)
	}, hello("/"), "")
	if err != nil || id == "" || dials != 2 {
		t.Errorf("got %q and %v after %d dials, want a session of the second host", id, err, dials)
	}
	c, err := dialClosed(t.Context())
	must(t, err)
	defer func() { _ = c.Close() }()
	if _, _, err := exchange(t.Context(), c, hello("/")); !errors.Is(err, errNoAnswer) {
		t.Errorf("got %v, want no answer", err)
	}
}

// TestCallersOfFullDaemonWait checks that a caller for which there is no room tries again, and
// that the calls of a Caller share one hello.
func TestCallersOfFullDaemonWait(t *testing.T) {
	_, dial := serve(t, "", nil)
	var dials atomic.Int32
	c := NewCaller(func(ctx context.Context) (net.Conn, error) {
		if dials.Add(1) <= 3 {
			ours, theirs := net.Pipe()
			go func() { // ends with the pipe
				_, _ = bufio.NewReader(theirs).ReadString('\n')
				_, _ = theirs.Write([]byte(`{"refused":true,"busy":true,"error":"too many connections; try again"}` + "\n"))
				_ = theirs.Close()
			}()
			return ours, nil
		}
		return dial(ctx)
	}, func() (Hello, error) { return hello("/"), nil })
	var ids [50]string
	var calls sync.WaitGroup
	for i := range ids {
		calls.Go(func() {
			id, err := c.Keeper(t.Context(), "")
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}
	calls.Wait()
	if n := dials.Load(); n != 4 || ids[0] == "" || ids[0] != ids[49] {
		t.Errorf("got %d dials and keepers %q, want 4 and one keeper", n, ids)
	}
}

// TestOutdatedHostSendsCallersAway checks that a Host without a session has a caller of another version
// dial another daemon, and that one with a session serves it, or refuses one that it does not understand.
func TestOutdatedHostSendsCallersAway(t *testing.T) {
	for name, change := range map[string]func(*Hello){
		"version":  func(h *Hello) { h.Version = "2" },
		"protocol": func(h *Hello) { h.Protocol++ },
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			must(t, err)
			host := New(Options{Log: slog.New(slog.DiscardHandler), Version: "1"})
			t.Cleanup(host.Close)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			say := func(change func(*Hello)) net.Conn {
				t.Helper()
				ours, err := net.Dial("unix", l.Addr().String())
				must(t, err)
				t.Cleanup(func() { _ = ours.Close() })
				theirs, err := l.Accept()
				must(t, err)
				h := hello(t.TempDir())
				h.Version = "1"
				change(&h)
				line, err := json.Marshal(h)
				must(t, err)
				_, err = ours.Write(append(line, '\n'))
				must(t, err)
				go host.Handle(ctx, theirs.(*net.UnixConn))
				return ours
			}
			first := say(func(*Hello) {})
			_, err = bufio.NewReader(first).ReadString('\n') // there is a session
			must(t, err)
			other := say(change)
			line, _ := bufio.NewReader(other).ReadString('\n')
			if refused := strings.Contains(line, "another version"); refused != (name == "protocol") {
				t.Errorf("got %q while there is a session", line)
			}
			must(t, errors.Join(first.Close(), other.Close()))
			awaitIdle(host)

			unnamed := say(func(h *Hello) { h.Version = "" }) // a program of one's own
			_, err = bufio.NewReader(unnamed).ReadString('\n')
			must(t, errors.Join(err, unnamed.Close()))
			awaitIdle(host)

			away := say(change)
			<-host.Outdated()
			end()
			if answer, err := io.ReadAll(away); err != nil || len(answer) > 0 {
				t.Errorf("got %q and %v, want the end of the connection", answer, err)
			}
		})
	}
}
