package guard

import (
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
// returns the session id. ok is false if the guardian has ended without a session, for which the
// caller is to end, too.
func Await(guardian, channel int) (id string, ok bool) {
	defer func() { _ = unix.Close(channel) }()
	text, control := make([]byte, 256), make([]byte, 256)
	var n, controls int
	_, err := proctab.RetryEINTR(func() (_ int, err error) {
		n, controls, _, _, err = unix.Recvmsg(channel, text, control, 0)
		return n, err
	})
	if err != nil {
		return "", false
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	if err != nil || len(messages) != 1 {
		return "", false
	}
	passed, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(passed) != 3 {
		return "", false
	}
	inherited = inheritance{lifeline: passed[0], lock: passed[1], ask: passed[2], daemon: -1, guardian: guardian}
	return string(text[:n]), true
}

// begin makes the process that waits in Await the server of a session. fds are its descriptors.
func (f Fork) begin(id string, fds ...int) error {
	defer func() { _ = unix.Close(f.Channel) }()
	if err := unix.Sendmsg(f.Channel, []byte(id), unix.UnixRights(fds...), nil, 0); err != nil {
		return fmt.Errorf("cannot pass on descriptors: %w", err)
	}
	return nil
}
