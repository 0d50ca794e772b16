package proctab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// TicksPerSecond is the unit of Proc.CPU. USER_HZ has been 100 on every
// architecture that Go supports; the kernel reports it to no one but libc.
const TicksPerSecond = 100

// BootID returns the id of this boot of the machine, or "" if the kernel does
// not tell (then identity rests on pid and start alone).
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// All returns the whole process table in one pass over /proc, 3.5 µs a
// process. Processes that end during the pass are left out. It fails if a row
// cannot be read for want of descriptors or memory: that process may live.
func All() ([]Proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot read the process table: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot read the process table: %w", err)
	}
	procs := make([]Proc, 0, len(names))
	buf := make([]byte, 1024)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, err := readStat(pid, buf)
		switch {
		case err == nil:
			procs = append(procs, p)
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
			return nil, fmt.Errorf("cannot read the whole process table: %w", err)
		}
	}
	return procs, nil
}

// Read returns the row of one process, a zombie included. It answers ErrGone
// if there is none with that pid.
func Read(pid int) (Proc, error) { return readStat(pid, make([]byte, 1024)) }

// readStat reads and parses /proc/PID/stat; buf is scratch. Plain system calls
// instead of os.ReadFile: no poller registration, a third of the cost.
func readStat(pid int, buf []byte) (Proc, error) {
	fd, err := retryEINTR(func() (int, error) {
		return unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return Proc{}, goneOr(err)
	}
	n, err := retryEINTR(func() (int, error) { return unix.Read(fd, buf) })
	_ = unix.Close(fd)
	if err != nil {
		return Proc{}, goneOr(err)
	}
	return parseStat(pid, buf[:n])
}

// parseStat reads the fields of proc_pid_stat(5) that pmcp needs. The name in
// parentheses may itself hold spaces and parentheses, so fields are counted
// from the last one.
func parseStat(pid int, stat []byte) (Proc, error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Proc{}, fmt.Errorf("cannot parse /proc/%d/stat", pid)
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 20 { // field 3 (state) .. field 22 (starttime)
		return Proc{}, fmt.Errorf("cannot parse /proc/%d/stat: %d fields", pid, len(fields))
	}
	number := func(field int) uint64 { // numbered as in the manual page, from 1
		v, _ := strconv.ParseUint(string(fields[field-3]), 10, 64)
		return v
	}
	// Z is the state of the first thread. With others still running it is no
	// zombie: it holds ports and files, and can be killed.
	ended := fields[0][0] == 'Z' || fields[0][0] == 'X'
	threads := number(20)
	return Proc{
		ID:     ID{PID: pid, Start: number(22)},
		PPID:   int(number(4)),
		PGID:   int(number(5)),
		SID:    int(number(6)),
		Zombie: ended && threads <= 1,
		Comm:   Printable(string(stat[open+1 : end])),
		CPU:    number(14) + number(15),
	}, nil
}

// environ returns the environment that the process was started with, each entry
// with its NUL; nothing while it is between two programs (execve).
func environ(pid int) []byte {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	return env
}

// Executable returns the path of the program that the process runs, with
// " (deleted)" behind it if the file was replaced since. It is false if the
// process is another user's or gone.
func Executable(pid int) (string, bool) {
	path, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return path, err == nil
}

// Killed says whether SIGKILL was sent to a process that has not yet got round to
// dying. False if that cannot be read.
func Killed(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && killPending(status)
}

// killPending looks for SIGKILL among the pending signals of the thread and of
// the process.
func killPending(status []byte) bool {
	for line := range strings.Lines(string(status)) {
		name, set, _ := strings.Cut(line, ":")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		if pending, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64); err == nil && pending&(1<<(unix.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}

// Signal sends sig to the process that id names and to no other: the handle
// (pidfd) is opened first, the start time compared then, the signal sent
// through the handle. It answers ErrGone if the process has ended (a zombie
// counts as ended) or the pid is now someone else's, and EPERM unwrapped from
// the kernel.
func Signal(id ID, sig syscall.Signal) error {
	fd, err := retryEINTR(func() (int, error) { return unix.PidfdOpen(id.PID, 0) })
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.3: a window of microseconds stays
		if err := check(id); err != nil {
			return err
		}
		return goneOr(unix.Kill(id.PID, sig))
	}
	if err != nil {
		return goneOr(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := check(id); err != nil {
		return err
	}
	return goneOr(unix.PidfdSendSignal(fd, sig, nil, 0))
}

// check answers ErrGone unless the process that id names is alive.
func check(id ID) error {
	p, err := Read(id.PID)
	if err != nil {
		return err
	}
	if p.ID != id || p.Zombie {
		return ErrGone
	}
	return nil
}

// goneOr turns the kernel's ways of saying "no such process" into ErrGone.
func goneOr(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return ErrGone
	}
	return err
}

func retryEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
