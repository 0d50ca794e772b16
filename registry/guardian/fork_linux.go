//go:build linux && cgo

package guardian

/*
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t first;      // the process that forked; 0 if none has
static pid_t second;     // the process that the fork made; 0 in that process
static int channel = -1; // this process's end of a socket pair between the two

static struct rlimit files; // the limit of open files with which this process began: Go raises it

// take_limits takes over the limits of the caller of the daemon: see Limits. What the kernel
// refuses, a hard limit or a priority above that of the daemon, stays.
__attribute__((constructor(101))) static void take_limits(void) {
	const char *text = getenv("PMCP_HOSTED"); // of package server/host
	int nice, n;
	unsigned resource;
	unsigned long long soft, hard;
	if (text && sscanf(text, "%*s %*o %d%n", &nice, &n) == 1) {
		setpriority(PRIO_PROCESS, 0, nice);
		for (text += n; sscanf(text, " %u:%llu:%llu%n", &resource, &soft, &hard, &n) == 3; text += n) {
			struct rlimit l = {soft, hard}, own;
			if (setrlimit(resource, &l) && !getrlimit(resource, &own)) {
				own.rlim_cur = soft < own.rlim_max ? soft : own.rlim_max;
				setrlimit(resource, &own);
			}
		}
	}
	getrlimit(RLIMIT_NOFILE, &files);
}

static unsigned long long soft_files(void) { return files.rlim_cur; }

#ifdef __GLIBC__ // others do not pass the arguments
// is_guardian reports whether the arguments are those of a guardian that a client launches. Only main
// imports this package, but the binary of its test is no guardian.
static int is_guardian(int argc, char **argv) {
	size_t n = argc > 0 ? strlen(argv[0]) : 0;
	return n > 0 && (n < 5 || strcmp(argv[0] + n - 5, ".test")) && (argc == 1 || !strcmp(argv[1], "guard"));
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *await_gate(void *unused) {
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return unused;
}

// room returns how many more threads there may be, at most most: it creates them.
static int room(int most) {
	pthread_t threads[most];
	pthread_attr_t small;
	int n = 0, failed = 0;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 4 * PTHREAD_STACK_MIN);
	pthread_mutex_lock(&gate);
	while (n < most && !(failed = pthread_create(&threads[n], &small, await_gate, 0)))
		n++;
	pthread_mutex_unlock(&gate);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], 0);
	pthread_attr_destroy(&small);
	return failed && failed != EAGAIN ? most : n; // what else may fail is not the limit
}

// How many processes and threads pmcp needs beside the one with which it begins. Measured with 1 to 16
// cores: guardian and server need 21 to 30 until a process has been started, a command such as pmcp ps 8 to 11.
enum { session_needs = 31, command_needs = 12 };

// require_room ends the process with a sentence if the user may not have the processes and threads that
// pmcp needs: Go's runtime, which begins later, can then only abort, with the stacks of all goroutines. The limit
// is far away, and nothing is created, if all tasks of the machine do not reach it.
static void require_room(int needs) {
	struct rlimit limit;
	struct sysinfo machine;
	if (getrlimit(RLIMIT_NPROC, &limit) || limit.rlim_cur == RLIM_INFINITY || sysinfo(&machine) ||
		machine.procs + needs < limit.rlim_cur)
		return;
	int left = room(needs);
	if (left == needs)
		return;
	dprintf(2, "pmcp: this user may have only %d more processes and threads, and pmcp needs %d: raise the limit (ulimit -u), which is %llu, or end other programs\n",
		left, needs, (unsigned long long)limit.rlim_cur);
	_exit(1);
}

__attribute__((constructor)) static void fork_early(int argc, char **argv) {
	siginfo_t info;
	require_room(is_guardian(argc, argv) ? session_needs : command_needs);
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

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits returns the niceness and the resource limits with which this process began, for a session of
// the daemon that is to have the same: "0 7:1024:4096", niceness and resource:soft:hard for each, by the
// kernel's numbers. The limit of file locks, which is a mark, is left out. Limits returns "" where this is
// not known: without cgo, and on macOS.
func Limits() string {
	// The kernel's answer is positive: 40 for the niceness -20, 1 for 19.
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return ""
	}
	var t strings.Builder
	fmt.Fprint(&t, 20-nice)
	for resource := range unix.RLIMIT_RTTIME + 1 {
		var l unix.Rlimit
		if resource == unix.RLIMIT_LOCKS || unix.Getrlimit(resource, &l) != nil {
			continue
		}
		if resource == unix.RLIMIT_NOFILE {
			l.Cur = uint64(C.soft_files())
		}
		fmt.Fprintf(&t, " %d:%d:%d", resource, l.Cur, l.Max)
	}
	return t.String()
}

// early returns the pids of the process that forked and of the process that the fork made, as that
// process sees itself: 0. channel is a socket between the two. All but channel are 0 if none has forked.
func early() (first, second, channel int) {
	return int(C.first_pid()), int(C.second_pid()), int(C.channel_fd())
}
