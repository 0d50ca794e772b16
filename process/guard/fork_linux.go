//go:build linux && cgo

package guard

/*
#define _GNU_SOURCE
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t first;      // the process that forked; 0 if none has
static pid_t second;     // the process that the fork made; 0 in that process
static int channel = -1; // this process's end of a socket pair between the two

#ifdef __GLIBC__ // others do not pass the arguments
// is_guardian reports whether the arguments are those of a guardian that a client launches, and the
// program is not the binary of a Go test.
static int is_guardian(int argc, char **argv) {
	size_t n = argc > 0 ? strlen(argv[0]) : 0;
	return n > 0 && (n < 5 || strcmp(argv[0] + n - 5, ".test")) && (argc == 1 || !strcmp(argv[1], "guard"));
}

__attribute__((constructor)) static void fork_early(int argc, char **argv) {
	siginfo_t info;
	if (!is_guardian(argc, argv) || !waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT))
		return; // or there are children: see inheritedChildren
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return;
	pid_t self = getpid(), child = fork();
	if (child < 0) {
		close(ends[0]);
		close(ends[1]);
		return;
	}
	first = self;
	second = child;
	channel = ends[!child];
	close(ends[!!child]);
	if (!child) {
		setsid();
#ifdef SYS_close_range // what the client has leaked; see Seal for older systems
		if (channel > 3)
			syscall(SYS_close_range, 3, channel - 1, 0);
		syscall(SYS_close_range, channel + 1, ~0U, 0);
#endif
	}
}
#endif

static int first_pid(void) { return first; }
static int second_pid(void) { return second; }
static int channel_fd(void) { return channel; }
*/
import "C"

import (
	"fmt"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// Forked reports whether this process is to become the server, or the second guardian of a command,
// and was forked by the launched process. That does so before Go's runtime begins, if it can: then
// the server starts while the guardian does, and the program is loaded once, which takes 3 ms and
// 3 ms of processor time less. See Await.
func Forked() bool { return C.first_pid() != 0 && C.second_pid() == 0 }

// forkedPID returns the pid of the process for which Forked is true, in the process that forked it;
// 0 if there is none.
func forkedPID() int { return int(C.second_pid()) }

// Await waits until the guardian has prepared the session, takes over the descriptors for Inherit,
// and returns the session id. ok is false if the guardian has ended without a session, for which
// this process is to end, too. It must be called once, and only if Forked is true.
func Await() (id string, ok bool) {
	channel := int(C.channel_fd())
	defer func() { _ = unix.Close(channel) }()
	text, control := make([]byte, 256), make([]byte, 256)
	var n, controls int
	_, err := proctab.RetryEINTR(func() (_ int, err error) {
		n, controls, _, _, err = unix.Recvmsg(channel, text, control, unix.MSG_CMSG_CLOEXEC)
		return n, err
	})
	messages, _ := unix.ParseSocketControlMessage(control[:max(controls, 0)])
	if err != nil || len(messages) != 1 {
		return "", false
	}
	passed, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(passed) != 3 {
		return "", false
	}
	inherited = inheritance{lifeline: passed[0], lock: passed[1], ask: passed[2], daemon: -1, guardian: int(C.first_pid())}
	return string(text[:n]), true
}

// begin makes the process that Await lets go the session's server. fds are the descriptors for it.
func begin(id string, fds ...int) error {
	channel := int(C.channel_fd())
	defer func() { _ = unix.Close(channel) }()
	if err := unix.Sendmsg(channel, []byte(id), unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("cannot pass on descriptors: %w", err)
	}
	return nil
}
