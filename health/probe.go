package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"
	"unicode"

	"pmcp/process"
	"pmcp/process/prose"
)

// maxOutput is the number of bytes of a check's output that are kept.
const maxOutput = 4 << 10

// outputSlack is how many bytes more than maxOutput are taken of a command's
// output. The output is cut at its start. The slack keeps that cut out of the last
// maxOutput bytes, so that every secret in them is complete when it is masked.
const outputSlack = 4 << 10

func succeeded(format string, args ...any) Result {
	return Result{OK: true, Message: fmt.Sprintf(format, args...)}
}

// failed returns the result of a failed probe without output.
func failed(format string, args ...any) Result {
	return Result{Message: fmt.Sprintf(format, args...)}
}

// check makes one check of the process of w, once a semaphore admits it.
func (m *Monitor) check(w *watch) Result {
	semaphore := m.connections
	if w.spec.Kind() == "command" {
		semaphore = m.commands
	}
	select {
	case semaphore <- struct{}{}:
		defer func() { <-semaphore }()
	case <-w.ctx.Done():
		return Result{}
	}
	ctx, cancel := context.WithTimeout(w.ctx, w.spec.Timeout)
	defer cancel()
	began := time.Now()
	r := m.probe(ctx, w.name, w.spec)
	r.At, r.Took, r.Run = began, time.Since(began), w.run
	r.Message = prose.Tail(m.o.Mask(sanitize(r.Message), false), maxMessage)
	output := m.o.Mask(sanitize(r.Output), w.spec.Kind() == "http" && len(r.Output) >= maxOutput)
	if len(r.Output) >= maxOutput+outputSlack { // a command's, whose start was cut off
		output = dropPartialLine(output)
	}
	r.Output = prose.Tail(output, maxOutput)
	return r
}

// dropPartialLine returns masked output whose start was cut off, without what may be
// the rest of a secret: its first line, or the first outputSlack bytes of that line.
// To keep only maxOutput bytes is not enough, because a mask may be shorter than the
// secret that it replaces.
func dropPartialLine(text string) string {
	first := text[:min(len(text), outputSlack)]
	if end := strings.IndexByte(first, '\n'); end >= 0 {
		return text[end+1:]
	}
	return strings.ToValidUTF8(text[len(first):], "")
}

// maxMessage is the maximum length of Result.Message; errors may quote what a
// server sent.
const maxMessage = 512

// probe checks the process called name once, bounded by ctx. The result has no times, and
// its texts are neither sanitized nor masked.
func (m *Monitor) probe(ctx context.Context, name string, spec Spec) Result {
	st, err := m.o.Processes.Status(name)
	if err != nil {
		return failed("%s", err)
	}
	switch spec.Kind() {
	case "command":
		return m.probeCommand(ctx, spec, st)
	case "tcp":
		return probeTCP(ctx, spec)
	default:
		return probeHTTP(ctx, spec, st)
	}
}

// probeCommand runs spec.Command in the directory and environment of the process.
func (m *Monitor) probeCommand(ctx context.Context, spec Spec, st process.Status) Result {
	exit, output, err := m.o.Processes.Exec(ctx, process.Spec{
		Name: st.Spec.Name, Command: spec.Command, Args: spec.Args, Dir: st.Spec.Dir, Env: st.Spec.Env,
	}, maxOutput+outputSlack)
	r := Result{OK: err == nil && exit.Clean(), Message: exit.String(), Output: string(output)}
	switch {
	case ctx.Err() != nil:
		r.OK, r.Message = false, fmt.Sprintf("did not end within %s and was killed", spec.Timeout)
	case err != nil:
		r.Message = err.Error()
		r.cannotRun = errors.Is(err, process.ErrNoExecutable) || errors.Is(err, process.ErrNotAllowed)
	}
	return r
}

// probeTCP opens a connection to spec.TCP and closes it.
func probeTCP(ctx context.Context, spec Spec) Result {
	host, port, err := splitAddress(spec.TCP)
	if err != nil {
		return failed("%s", err)
	}
	address := net.JoinHostPort(host, port)
	conn, err := dial(ctx, address)
	if err != nil {
		return failed("%s", connectError(err, spec.Timeout))
	}
	_ = conn.Close()
	return succeeded("%s accepts connections", address)
}

// dial connects to address by TCP. For "localhost" it tries the loopback addresses
// of both families, whatever the resolver returns: a server listens on one of them,
// and runtimes differ in which one.
func dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1} // no connection lives long enough to need it
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "localhost" {
		return d.DialContext(ctx, "tcp", address)
	}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err == nil {
		return conn, nil
	}
	if conn, err6 := d.DialContext(ctx, "tcp", net.JoinHostPort("::1", port)); err6 == nil {
		return conn, nil
	}
	return nil, err
}

// connectError describes why a connection failed, without Go's prefixes.
func connectError(err error, timeout time.Duration) string {
	var timedOut net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timedOut) && timedOut.Timeout() {
		return fmt.Sprintf("no answer within %s", timeout)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Addr != nil {
		return fmt.Sprintf("%s: %s", op.Addr, op.Err)
	}
	return err.Error()
}

// escapeSequence matches terminal escape sequences.
var escapeSequence = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])`)

// sanitize returns untrusted text in a form that is safe to display: valid UTF-8
// without escape sequences, without control characters except newline and TAB, and
// without characters that reorder or hide text.
func sanitize(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = escapeSequence.ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return -1
		}
		return r
	}, text)
}
