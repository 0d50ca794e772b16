//go:build linux && cgo

package guardian

/*
#define _GNU_SOURCE
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t first;      // the process that forked; 0 if none has
static pid_t second;     // the process that the fork made; 0 in that process
static int channel = -1; // this process's end of a socket pair between the two

#ifdef __GLIBC__ // others do not pass the arguments
// is_guardian reports whether the arguments are those of a guardian that a client launches. Only main
// imports this package, but the binary of its test is no guardian.
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
	// Without a stdin, stdout or stderr, an end has its number, which Go gives to /dev/null.
	int taken = ends[0] < 3 || ends[1] < 3;
	prctl(PR_SET_CHILD_SUBREAPER, 1); // before Linux 4.11 it holds only for children that are forked later
	pid_t self = getpid(), child = taken ? -1 : fork();
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

// early returns the pids of the process that forked and of the process that the fork made, as that
// process sees itself: 0. channel is a socket between the two. All but channel are 0 if none has forked.
func early() (first, second, channel int) {
	return int(C.first_pid()), int(C.second_pid()), int(C.channel_fd())
}
