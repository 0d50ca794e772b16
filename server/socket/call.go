package socket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/registry"
)

var (
	// ErrUnavailable is wrapped when the other server cannot be asked: it has no socket,
	// does not listen, or the socket cannot be trusted. Nothing was done.
	ErrUnavailable = errors.New("the server cannot be reached through its socket")
	// ErrUnknownOutcome is wrapped when the other server did not answer a call that it may
	// have performed.
	ErrUnknownOutcome = errors.New("the outcome is unknown")
)

// Call asks the server with that session in the registry directory dir to perform a call
// and decodes its result into result. Errors wrap ErrUnavailable, ErrUnknownOutcome or
// ctx's error, or are a Refusal, if the call was not performed; any other error is that of
// the handler. If ctx ends, the other server cancels the call.
func Call(ctx context.Context, dir, id, method string, params, result any) error {
	return CallLive(ctx, dir, id, method, params, result, silentTime)
}

// CallLive is Call, except that it gives up on a server that gives no sign of life within
// that time: one that lives gives it at once.
func CallLive(ctx context.Context, dir, id, method string, params, result any, within time.Duration) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("cannot encode a call: %w", err)
	}
	r := request{Protocol: protocol, Method: method, Params: raw}
	if deadline, ok := ctx.Deadline(); ok {
		r.Millis = max(1, time.Until(deadline).Milliseconds())
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cannot encode a call: %w", err)
	}
	if len(line) > maxRequest {
		return Refusal(fmt.Sprintf("the call has %d bytes, at most %d can be sent to another server", len(line), maxRequest))
	}
	c, err := Dial(ctx, dir, id)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	return exchange(ctx, c, line, result, within)
}

// exchange sends the request and reads the response. The server must give a sign of life
// within silent, and then at least every silentTime.
func exchange(ctx context.Context, c net.Conn, line []byte, result any, silent time.Duration) error {
	// A listener that refuses the connection may close it before it has read the request:
	// its response then says why the write failed.
	_ = c.SetWriteDeadline(time.Now().Add(silent))
	_, writeErr := c.Write(append(line, '\n'))
	answer, err := readAnswer(ctx, c, silent)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w: it did not answer (%w)", ErrUnknownOutcome, errors.Join(writeErr, err))
	}
	var r response
	if err := json.Unmarshal(answer, &r); err != nil {
		return fmt.Errorf("%w: invalid answer: %w", ErrUnknownOutcome, err)
	}
	switch {
	case r.Refused:
		return Refusal(r.Error)
	case r.Error != "":
		return errors.New(r.Error)
	}
	if err := json.Unmarshal(r.Result, result); err != nil {
		return fmt.Errorf("%w: invalid answer: %w", ErrUnknownOutcome, err)
	}
	return nil
}

// readAnswer reads the response and skips the signs of life before it, the empty lines.
func readAnswer(ctx context.Context, c net.Conn, silent time.Duration) (line []byte, err error) {
	in := bufio.NewReaderSize(c, 32<<10)
	for {
		_ = c.SetReadDeadline(time.Now().Add(silent))
		if ctx.Err() != nil { // it may have ended before the deadline was set
			return nil, ctx.Err()
		}
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxAnswer:
			return nil, fmt.Errorf("%w: more than %d bytes", errTooLong, maxAnswer)
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		case len(line) > 1:
			return line, nil
		default:
			line, silent = line[:0], max(silent, silentTime)
		}
	}
}

// Dial connects to the socket of the session in the registry directory dir, and checks the
// socket and the process that listens on it. What is said on the connection is the caller's
// affair.
func Dial(ctx context.Context, dir, id string) (net.Conn, error) {
	path, _, err := registry.SocketPaths(dir, id)
	if err != nil {
		return nil, err
	}
	return DialPath(ctx, path)
}

// DialPath is Dial for the path of a socket.
func DialPath(ctx context.Context, path string) (net.Conn, error) {
	if err := checkFile(path); err != nil {
		return nil, err
	}
	c, err := connect(ctx, path)
	if err != nil {
		return nil, err
	}
	if _, err := checkPeer(c.(*net.UnixConn)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// connect connects to the socket at path, which may be longer than the address of a socket.
func connect(ctx context.Context, path string) (net.Conn, error) {
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", short)
}

// checkFile returns an error unless path is a socket of this user.
func checkFile(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	switch {
	case uint32(st.Mode)&unix.S_IFMT != unix.S_IFSOCK:
		return fmt.Errorf("%s is not a socket", path)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, not to %d", path, st.Uid, os.Geteuid())
	}
	return nil
}
