package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"pmcp/process"
)

// maxOutput is how much text of a check is kept, in bytes.
const maxOutput = 4 << 10

// slack is how much more is taken of a command's output, whose beginning is cut, so that no secret
// is cut before it is masked.
const slack = 4 << 10

// outcome is what a probe saw.
type outcome struct {
	ok      bool
	message string
	output  string // as it came
	cut     bool   // output went on before its beginning
	// cannotRun says that there was no check, for its command cannot be run.
	cannotRun bool
}

func succeeded(format string, args ...any) outcome {
	return outcome{ok: true, message: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) outcome {
	return outcome{message: fmt.Sprintf(format, args...)}
}

// check makes one check of w, once there is room for it.
func (m *Monitor) check(w *watch) Result {
	room := m.connections
	if w.spec.Kind() == "command" {
		room = m.commands
	}
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
	case <-w.ctx.Done():
		return Result{}
	}
	ctx, cancel := context.WithTimeout(w.ctx, w.spec.Timeout)
	defer cancel()
	began := time.Now()
	seen := m.prober.probe(ctx, w.name, w.spec)
	output := m.o.Mask(clean(seen.output), w.spec.Kind() == "http" && len(seen.output) >= maxOutput)
	if seen.cut {
		output = afterCut(output)
	}
	return Result{
		At: began, Took: time.Since(began), Run: w.run, OK: seen.ok,
		Message: tailOf(m.o.Mask(clean(seen.message), false), maxMessage),
		Output:  tailOf(output, maxOutput), cannotRun: seen.cannotRun,
	}
}

// afterCut is the masked text of an output whose beginning is cut, without what may be the end of a
// secret that the cut went through: its first line, or as much of it as such an end can have. To
// keep only maxOutput is not enough, since masks may be shorter than what they stand for.
func afterCut(text string) string {
	first := text[:min(len(text), slack)]
	if end := strings.IndexByte(first, '\n'); end >= 0 {
		return text[end+1:]
	}
	return strings.ToValidUTF8(text[len(first):], "")
}

// maxMessage bounds Result.Message; errors may quote what a server sent.
const maxMessage = 512

// prober makes single checks.
type prober struct{ processes Processes }

// probe makes one check, which ctx bounds.
func (p prober) probe(ctx context.Context, name string, spec Spec) outcome {
	st, err := p.processes.Status(name)
	if err != nil {
		return failed("%s", err)
	}
	switch spec.Kind() {
	case "command":
		return p.command(ctx, spec, st)
	case "tcp":
		return p.tcp(ctx, spec)
	default:
		return p.get(ctx, spec, st)
	}
}

// command runs spec.Command where the process runs, with what it has in its
// environment.
func (p prober) command(ctx context.Context, spec Spec, st process.Status) outcome {
	exit, output, err := p.processes.Exec(ctx, process.Spec{
		Name: st.Spec.Name, Command: spec.Command, Args: spec.Args, Dir: st.Spec.Dir, Env: st.Spec.Env,
	}, maxOutput+slack)
	seen := outcome{ok: err == nil && exit.Clean(), message: exit.String(), output: string(output), cut: len(output) >= maxOutput+slack}
	switch {
	case ctx.Err() != nil:
		seen.ok, seen.message = false, fmt.Sprintf("did not end within %s and was killed", spec.Timeout)
	case err != nil:
		seen.message = err.Error()
		seen.cannotRun = errors.Is(err, process.ErrNoExecutable) || errors.Is(err, process.ErrNotAllowed)
	}
	return seen
}

// tcp makes a connection and closes it.
func (p prober) tcp(ctx context.Context, spec Spec) outcome {
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
	return succeeded("%s takes connections", address)
}

// dial connects to address by TCP. "localhost" is the loopback interface in either
// family, whatever the resolver makes of it: servers listen on one of them, and
// which one differs between runtimes.
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

// connectError says why there was no connection, without Go's prefixes.
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
