//go:build linux && cgo

package guardian

/*
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static struct rlimit files; // the limit of open files with which this process began: Go raises it

// take_limits takes over the limits of the caller of the daemon: see Limits. What the kernel
// refuses, a hard limit or a priority above that of the daemon, stays.
static void take_limits(void) {
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

// How many threads a server needs beside the one with which it begins, until a process has been started.
// Guardians and commands such as pmcp ps need fewer.
enum { needs = 22 };

// require_room ends the process with a sentence if the user may not have the processes and threads that
// pmcp needs: Go's runtime, which begins later, can then only abort, with the stacks of all goroutines. The limit
// is far away, and nothing is created, if all tasks of the machine do not reach it.
static void require_room(void) {
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

__attribute__((constructor)) static void before_go(void) {
	take_limits();
	require_room();
}
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
