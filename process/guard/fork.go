package guard

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// A Fork is a process that the guardian has forked to become the server, and that waits in Await.
type Fork struct {
	PID     int // 0: there is none
	Channel int // a socket between the two that keeps the bounds of messages
}

// Await is for a process that the process guardian has forked to become the server. It waits until
// the guardian has prepared the session, takes over the descriptors for Inherit, closes channel and
// returns the session id. The id is "" if the guardian has ended without a session, for which the
// caller is to end, too. The error says what of the session has not arrived.
func Await(guardian, channel int) (id string, err error) {
	defer func() { _ = unix.Close(channel) }()
	text, control := make([]byte, 256), make([]byte, 256)
	var n, controls, flags int
	_, err = proctab.RetryEINTR(func() (_ int, err error) {
		n, controls, flags, _, err = unix.Recvmsg(channel, text, control, 0)
		return n, err
	})
	switch {
	case errors.Is(err, unix.ECONNRESET), err == nil && n == 0:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cannot take over the session: %w", err)
	}
	var passed []int
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	if err == nil && len(messages) == 1 {
		passed, err = unix.ParseUnixRights(&messages[0])
	}
	if err != nil || len(passed) != 3 || flags&unix.MSG_CTRUNC != 0 {
		return "", errors.Join(fmt.Errorf("cannot take over the session: got %d of 3 descriptors; the limit of open files may be too low (ulimit -n)", len(passed)), err)
	}
	inherited = inheritance{lifeline: passed[0], lock: passed[1], ask: passed[2], daemon: -1, guardian: guardian}
	return string(text[:n]), nil
}

// begin makes the process that waits in Await the server of a session. fds are its descriptors.
func (f Fork) begin(id string, fds ...int) error {
	defer func() { _ = unix.Close(f.Channel) }()
	if err := unix.Sendmsg(f.Channel, []byte(id), unix.UnixRights(fds...), nil, 0); err != nil {
		return fmt.Errorf("cannot pass on descriptors: %w", err)
	}
	return nil
}
