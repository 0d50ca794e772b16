package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"pmcp/process/proctest"
)

const id = "0b5c9d0e-4f2e-4b0e-9d62-0f8f2f1f7a11"

// TestMain runs the tests or, in a child of a test, a call from there.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "call" {
		var answer string
		err := Call(context.Background(), os.Args[2], id, "echo", "hi", &answer)
		fmt.Println(answer, err)
		return
	}
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// echo is a Handler that returns the parameters of echo.
func echo(_ context.Context, method string, params json.RawMessage) (any, error) {
	if method != "echo" {
		return nil, Refusal("there is no " + method)
	}
	return params, nil
}

// listen serves a socket in dir until the test ends. Nil limits are the defaults.
func listen(t testing.TB, dir string, handle Handler, change func(*Listener)) *Listener {
	t.Helper()
	l, err := Listen(dir, id, slog.New(slog.DiscardHandler))
	must(t, err)
	if change != nil {
		change(l)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { l.Serve(ctx, handle) })
	t.Cleanup(func() { cancel(); serving.Wait() })
	return l
}

// connectTo connects to a listener without a request.
func connectTo(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	c, err := Dial(t.Context(), filepath.Dir(l.Path()), id) // whatever the length of the path
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// refusal returns the text of the refusal that a connection gets.
func refusal(t *testing.T, c io.Reader) string {
	t.Helper()
	line, _ := io.ReadAll(c) // a connection that is reset has an answer all the same
	var r response
	must(t, json.Unmarshal(line, &r))
	if !r.Refused {
		t.Errorf("got %s, want a refusal", line)
	}
	return r.Error
}

// checkServes checks that the listener performs a call.
func checkServes(t *testing.T, dir string) {
	t.Helper()
	var answer string
	if err := Call(t.Context(), dir, id, "echo", "hi", &answer); err != nil || answer != "hi" {
		t.Errorf("got %q and %v, want the answer", answer, err)
	}
}

func TestCallReturnsResultErrorOrRefusal(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir, func(_ context.Context, method string, params json.RawMessage) (any, error) {
		switch method {
		case "fail":
			return nil, errors.New("it failed")
		case "refuse":
			return nil, fmt.Errorf("web: %w", Refusal("not now"))
		case "panic":
			panic("a bug")
		}
		return params, nil
	}, nil)
	var r Refusal
	if err := Call(t.Context(), dir, id, "fail", nil, nil); err == nil || err.Error() != "it failed" || errors.As(err, &r) {
		t.Errorf("fail: got %v, want the error of the handler", err)
	}
	if err := Call(t.Context(), dir, id, "refuse", nil, nil); !errors.As(err, &r) || r.Error() != "web: not now" {
		t.Errorf("refuse: got %v, want a refusal", err)
	}
	if err := Call(t.Context(), dir, id, "panic", nil, nil); err == nil || !strings.Contains(err.Error(), "failed unexpectedly") {
		t.Errorf("panic: got %v, want an error", err)
	}
	if err := Call(t.Context(), dir, id, "large", strings.Repeat("x", maxRequest), nil); !errors.As(err, &r) {
		t.Errorf("large: got %v, want a refusal", err)
	}
	checkServes(t, dir)
}

func TestSocketIsClosedToOthers(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, echo, nil)
	info, err := os.Lstat(l.Path())
	must(t, err)
	if got, want := info.Mode(), os.ModeSocket|0o600; got != want {
		t.Errorf("got mode %v, want %v", got, want)
	}
}

func TestListenReplacesADeadSocket(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		l, err := Listen(dir, id, slog.New(slog.DiscardHandler))
		must(t, err)
		must(t, l.Close())
		if err := Call(t.Context(), dir, id, "echo", "hi", nil); !errors.Is(err, ErrUnavailable) {
			t.Errorf("a dead socket: got %v, want ErrUnavailable", err)
		}
	}
	listen(t, dir, echo, nil)
	checkServes(t, dir)
}

func TestLongPathIsServed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the path of a socket is bounded here")
	}
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	must(t, os.Mkdir(dir, 0o700))
	listen(t, dir, echo, nil)
	checkServes(t, dir)
}

// TestFalseSocketIsRefused checks that a call goes only to a socket of this user that
// listens in a safe directory.
func TestFalseSocketIsRefused(t *testing.T) {
	real := t.TempDir()
	l := listen(t, real, echo, nil)
	for name, c := range map[string]struct {
		create func(path string) error
		want   string
	}{
		"nothing":     {func(string) error { return nil }, "no such file"},
		"a link":      {func(path string) error { return os.Symlink(l.Path(), path) }, "is not a socket"},
		"a directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "is not a socket"},
		"a file":      {func(path string) error { return os.WriteFile(path, nil, 0o600) }, "is not a socket"},
		"another user's": {func(path string) error {
			if os.Getuid() != 0 {
				return unix.Symlink("not root", path)
			}
			_ = os.Link(l.Path(), path)
			return os.Chown(path, 65534, 65534)
		}, map[bool]string{true: "belongs to user 65534", false: "is not a socket"}[os.Getuid() == 0]},
		"an unsafe directory": {func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) }, "others may write"},
	} {
		dir := t.TempDir()
		must(t, c.create(filepath.Join(dir, id+".sock")))
		if err := Call(t.Context(), dir, id, "echo", "hi", nil); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want ErrUnavailable with %q", name, err, c.want)
		}
	}
	if err := Call(t.Context(), real, "../"+id, "echo", "hi", nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("an invalid session: got %v, want ErrUnavailable", err)
	}
}

func TestManyConnectionsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, echo, nil)
	for range 200 {
		c, err := Dial(t.Context(), filepath.Dir(l.Path()), id)
		must(t, err)
		must(t, c.Close())
	}
	proctest.Await(t, "a free connection", func() bool { // the last ends may not have been noticed yet
		err := Call(t.Context(), dir, id, "echo", "hi", new(string))
		if r := Refusal(""); errors.As(err, &r) {
			return false
		}
		must(t, err)
		return true
	})
}

func TestConnectionWithoutRequestIsClosed(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, echo, func(l *Listener) { l.hello, l.conns = 20*time.Millisecond, 1 })
	c := connectTo(t, l)
	_, _ = c.Write([]byte(`{"pmcp":1,`)) // it may come too late
	if got := refusal(t, c); !strings.Contains(got, "no request came within 20ms") {
		t.Errorf("got %q, want the reason", got)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	dir := t.TempDir()
	begun, end := make(chan struct{}), make(chan struct{})
	l := listen(t, dir, func(context.Context, string, json.RawMessage) (any, error) {
		begun <- struct{}{}
		<-end
		return "", nil
	}, func(l *Listener) { l.conns = 2 })
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			if err := Call(context.Background(), dir, id, "x", nil, new(string)); err != nil {
				t.Error(err)
			}
		})
		<-begun
	}
	if got := refusal(t, connectTo(t, l)); !strings.Contains(got, "too many connections") {
		t.Errorf("got %q, want a refusal", got)
	}
	close(end)
	calls.Wait()
}

func TestBadRequestIsRefused(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, echo, nil)
	for line, want := range map[string]string{
		"GET / HTTP/1.1\n":                    "invalid request",
		"\n":                                  "invalid request",
		`{"pmcp":2,"method":"echo"}` + "\n":   "different versions",
		`{"pmcp":1,"method":"delete"}` + "\n": "there is no delete",
	} {
		c := connectTo(t, l)
		_, err := c.Write([]byte(line))
		must(t, err)
		if got := refusal(t, c); !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
	checkServes(t, dir)
}

// TestFloodWithoutNewlineIsRefused checks that no more is read of a request than is allowed.
func TestFloodWithoutNewlineIsRefused(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, echo, nil)
	c := connectTo(t, l)
	part, sent := make([]byte, 1<<20), 0
	for sent < 1<<30 {
		n, err := c.Write(part)
		if sent += n; err != nil {
			break
		}
	}
	if most := maxRequest + 4<<20; sent > most { // buffers of the kernel included
		t.Errorf("it took %d bytes, want at most %d", sent, most)
	}
	if got := refusal(t, c); !strings.Contains(got, "too long") {
		t.Errorf("got %q, want the reason", got)
	}
	checkServes(t, dir)
}

// TestPeerThatDoesNotReadIsDropped checks that Serve ends although a peer does not read.
func TestPeerThatDoesNotReadIsDropped(t *testing.T) {
	dir := t.TempDir()
	handled := make(chan struct{}, 1)
	l := listen(t, dir, func(context.Context, string, json.RawMessage) (any, error) {
		handled <- struct{}{}
		return strings.Repeat("x", 8<<20), nil
	}, func(l *Listener) { l.write, l.conns = 20*time.Millisecond, 1 })
	c := connectTo(t, l)
	_, err := c.Write([]byte(`{"pmcp":1,"method":"x"}` + "\n"))
	must(t, err)
	<-handled
	proctest.Await(t, "the connection to be free again", func() bool {
		err := Call(t.Context(), dir, id, "x", nil, new(string))
		if r := Refusal(""); errors.As(err, &r) {
			return false
		}
		if err != nil && !errors.Is(err, ErrUnknownOutcome) {
			t.Fatal(err)
		}
		return true
	})
}

// TestCancelledCallIsCancelledThere checks that the end of the caller's context, and its
// deadline, reach the handler.
func TestCancelledCallIsCancelledThere(t *testing.T) {
	dir := t.TempDir()
	begun, ended := make(chan bool), make(chan error)
	listen(t, dir, func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
		_, bounded := ctx.Deadline()
		begun <- bounded
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- Call(ctx, dir, id, "x", nil, nil) }()
	if <-begun {
		t.Error("got a deadline, want none")
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("there: got %v, want it cancelled", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
	go func() { failed <- Call(ctx, dir, id, "x", nil, nil) }()
	if !<-begun {
		t.Error("got no deadline, want that of the caller")
	}
	cancel()
	if there, here := <-ended, <-failed; !errors.Is(there, context.Canceled) || !errors.Is(here, context.Canceled) {
		t.Errorf("got %v there and %v here, want both cancelled", there, here)
	}
}

// TestServeEndsCalls checks that the end of Serve cancels the calls and answers them.
func TestServeEndsCalls(t *testing.T) {
	dir := t.TempDir()
	l, err := Listen(dir, id, slog.New(slog.DiscardHandler))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	begun := make(chan struct{})
	serving.Go(func() {
		l.Serve(ctx, func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
			close(begun)
			<-ctx.Done()
			return nil, errors.New("the server ends")
		})
	})
	idle := connectTo(t, l) // sends nothing
	failed := make(chan error)
	go func() { failed <- Call(t.Context(), dir, id, "x", nil, nil) }()
	<-begun
	cancel()
	if err := <-failed; err == nil || err.Error() != "the server ends" {
		t.Errorf("got %v, want the answer", err)
	}
	serving.Wait()
	if _, err := io.ReadAll(idle); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want the connection closed", err)
	}
}

// TestLostServerMeansUnknownOutcome checks that a caller that gets no answer learns that
// the call may have been performed.
func TestLostServerMeansUnknownOutcome(t *testing.T) {
	dir := t.TempDir()
	l, err := Listen(dir, id, slog.New(slog.DiscardHandler))
	must(t, err)
	defer func() { _ = l.Close() }()
	for _, answer := range []string{"", `{"result":`, "nonsense\n"} {
		failed := make(chan error)
		go func() { failed <- Call(t.Context(), dir, id, "x", nil, new(string)) }()
		c, err := l.net.AcceptUnix()
		must(t, err)
		_, err = readLine(c, maxRequest)
		must(t, err)
		_, err = c.Write([]byte(answer))
		must(t, err)
		must(t, c.Close())
		if err := <-failed; !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("%q: got %v, want ErrUnknownOutcome", answer, err)
		}
	}
}

// TestSilentServerMeansUnknownOutcome checks that a call does not wait for a server that is
// frozen, whether that has read the request or not.
func TestSilentServerMeansUnknownOutcome(t *testing.T) {
	dir := t.TempDir()
	l, err := Listen(dir, id, slog.New(slog.DiscardHandler)) // nobody accepts
	must(t, err)
	defer func() { _ = l.Close() }()
	for range 2 {
		c, err := Dial(t.Context(), dir, id)
		must(t, err)
		if err := exchange(t.Context(), c, []byte("{}"), new(string), 10*time.Millisecond); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("got %v, want ErrUnknownOutcome", err)
		}
		must(t, c.Close())
	}
}

// TestServerGivesSignsOfLife checks that a listener sends empty lines while it performs a
// call, and that the caller skips them.
func TestServerGivesSignsOfLife(t *testing.T) {
	dir := t.TempDir()
	end := make(chan struct{})
	l := listen(t, dir, func(context.Context, string, json.RawMessage) (any, error) {
		<-end
		return "done", nil
	}, func(l *Listener) { l.pulse = time.Millisecond })
	c := connectTo(t, l)
	_, err := c.Write([]byte(`{"pmcp":1,"method":"x"}` + "\n"))
	must(t, err)
	signs := make([]byte, 5)
	_, err = io.ReadFull(c, signs)
	must(t, err)
	if string(signs) != "\n\n\n\n\n" {
		t.Errorf("got %q, want signs of life", signs)
	}
	close(end)
	var answer string
	if err := Call(t.Context(), dir, id, "x", nil, &answer); err != nil || answer != "done" {
		t.Errorf("got %q and %v, want the answer", answer, err)
	}
}

func BenchmarkCall(b *testing.B) {
	dir := b.TempDir()
	listen(b, dir, echo, nil)
	var answer string
	for b.Loop() {
		must(b, Call(b.Context(), dir, id, "echo", "hi", &answer))
	}
}
