package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confinedProgram executes a program with a seccomp filter that makes one system call fail
// in the program and its descendants: waitid, pidfd_open, or the prctl that makes a process
// a subreaper.
func confinedProgram(arguments []string) int {
	number, option := uint32(unix.SYS_WAITID), uint32(0)
	switch arguments[0] {
	case "subreaper":
		number, option = unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER
	case "pidfd":
		number = unix.SYS_PIDFD_OPEN
	}
	errno := map[string]syscall.Errno{"EPERM": unix.EPERM, "ENOSYS": unix.ENOSYS}[arguments[1]]
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		ifEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret     = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // the system call's number
		{Code: ifEqual, K: number, Jf: 3},
		{Code: load, K: 16}, // the system call's first argument, on little-endian machines
		{Code: ifEqual, K: option, Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
	}
	if option == 0 { // refuse the system call whatever its arguments
		filter[3].Jf = 0
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fail(err)
	}
	_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if e != 0 {
		return fail(e)
	}
	return fail(unix.Exec(arguments[2], arguments[2:], os.Environ())) // exec keeps the filter of this thread
}

// TestSessionWorksWithoutSomeSystemCalls checks that pmcp starts and stops processes where
// a sandbox refuses a system call that pmcp uses.
func TestSessionWorksWithoutSomeSystemCalls(t *testing.T) {
	t.Parallel()
	binary(t)
	for _, refused := range []string{"waitid EPERM", "waitid ENOSYS", "subreaper EPERM"} {
		t.Run(refused, func(t *testing.T) {
			t.Parallel()
			call, errno, _ := strings.Cut(refused, " ")
			w := newWorld(t)
			s := w.launch(t, self(t), program("confined", call, errno, build.path)...)
			s.initialize(t)
			if r := s.tool(t, "start_process", args{"name": "short", "command": "sh", "args": []string{"-c", "exit 3"}, "wait": "exit"}); !strings.Contains(r.Text, "exit code 3") {
				t.Errorf("got %s, want exit code 3", r.Text)
			}
			// The process long starts a daemon with a session of its own, which is
			// orphaned at once.
			start := args{"name": "long", "command": "sh", "args": []string{"-c", "(setsid sleep 300 &); exec sleep 300"}}
			s.must(t, "start_process", start)
			s.must(t, "stop_process", args{"process": "long", "timeout_ms": 500})
			for _, p := range w.processes(t) {
				if strings.HasPrefix(p.command, "sleep") {
					t.Errorf("got %v left by stop_process, want it stopped", p)
				}
			}
			start["name"] = "again"
			s.must(t, "start_process", start)
			s.closeInput(t)
			if code := s.exit(t); code != 0 {
				t.Errorf("got exit code %d, want 0", code)
			}
			if log := s.stderr.String(); (call == "subreaper") != strings.Contains(log, "found by their marks instead") {
				t.Errorf("got the log\n%s\nwant a warning about marks: %t", log, call == "subreaper")
			}
		})
	}
}

// TestGuardWorksWithoutSomeSystemCalls checks that a guarded command and all that it has started ends
// with the client, and with a wrapper, where the kernel has no handles of processes or no subreapers.
func TestGuardWorksWithoutSomeSystemCalls(t *testing.T) {
	t.Parallel()
	binary(t)
	for _, refused := range []string{"pidfd ENOSYS", "subreaper EPERM"} {
		call, errno, _ := strings.Cut(refused, " ")
		for _, fault := range guardFaults() {
			if fault.client == "" {
				continue
			}
			t.Run(refused+"/"+fault.name, func(t *testing.T) {
				t.Parallel()
				a := newArena(t)
				argv := append([]string{"/bin/sh", "-c", fault.client, "client", self(t)}, program("confined", call, errno)...)
				v, err := a.launchVictimOf(argv, "guard", "--", "sh", filepath.Join(a.home, "tree"), "daemon", a.report)
				check(t, err)
				if !poll(answersWithin, func() bool { return len(a.reported()) == 2 }) {
					t.Fatalf("got processes %v, want a tree of 2", a.reported())
				}
				check(t, fault.strike(v))
				a.awaitEmpty(t)
				check(t, v.close())
			})
		}
	}
}
