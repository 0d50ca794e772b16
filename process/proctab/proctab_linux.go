package proctab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// TicksPerSecond is the unit of Proc.CPU. USER_HZ is 100 on every architecture that Go
// supports; the kernel reports it only to libc.
const TicksPerSecond = 100

// BootID returns the scope of identities: the id of this boot of the machine,
// followed by the pid namespace unless that is the initial one. It is "" if it
// cannot be read. Then only pid and start identify a process.
func BootID() string { return bootID() }

// bootID reads the files once: a process never changes its boot or pid namespace.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	// /proc/self is right even where the rest of /proc is that of another namespace.
	if space, err := os.Readlink("/proc/self/ns/pid"); err == nil && space != initialNamespace {
		return strings.TrimSpace(string(b)) + namespaceSeparator + space
	}
	return strings.TrimSpace(string(b))
})

// initialNamespace is the pid namespace that all others are below.
const initialNamespace = "pid:[4026531836]"

// errForeign is returned where /proc was mounted for another pid namespace, as below unshare -p
// without --mount-proc: its pids are those of other processes.
var errForeign = errors.New("cannot read the process table: /proc is that of another pid namespace")

// checkTable returns errForeign if /proc has other pids than this process does.
var checkTable = sync.OnceValue(func() error {
	if self, err := os.Readlink("/proc/self"); err == nil && self != strconv.Itoa(os.Getpid()) {
		return errForeign
	}
	return nil
})

// OwnTable reports whether /proc is not that of another pid namespace.
func OwnTable() bool { return checkTable() == nil }

// File returns the content of a file of a process in /proc. Plain system calls cost a
// third of os.ReadFile, which registers the file with the poller.
func File(pid int, name string) ([]byte, error) {
	if err := checkTable(); err != nil {
		return nil, err
	}
	fd, err := RetryEINTR(func() (int, error) {
		return unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	content := make([]byte, 0, 1024)
	for {
		n, err := RetryEINTR(func() (int, error) { return unix.Read(fd, content[len(content):cap(content)]) })
		if err != nil || n == 0 {
			return content, err
		}
		content = slices.Grow(content[:len(content)+n], 512)
	}
}

// Newest returns the pid of the process or thread that was created last, of all in our pid
// namespace, or 0 if it is not known. It is one that was allocated: the process may not be in the
// table yet.
func Newest() int {
	fd, err := RetryEINTR(func() (int, error) { return unix.Open("/proc/loadavg", unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [128]byte
	n, _ := RetryEINTR(func() (int, error) { return unix.Read(fd, buf[:]) })
	text := bytes.TrimSpace(buf[:max(0, n)]) // three averages, running/all, newest
	pid, _ := strconv.Atoi(string(text[bytes.LastIndexByte(text, ' ')+1:]))
	return pid
}

// All returns the whole process table in one pass over /proc, in 10 µs per process.
// Processes that end during the pass are left out. All fails if it lacks descriptors or
// memory to read a row, because that process may be alive.
func All() ([]Proc, error) {
	list, err := entries()
	if err != nil {
		return nil, err
	}
	return rows(list)
}

// entry is a process's directory in /proc.
type entry struct {
	pid   int
	inode uint64 // of the directory; a later process with this pid has another one
}

// entries returns the directories of all processes.
func entries() ([]entry, error) {
	if err := checkTable(); err != nil {
		return nil, err
	}
	fd, err := RetryEINTR(func() (int, error) {
		return unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the process table: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var list []entry
	buf := make([]byte, 16<<10)
	for {
		n, err := RetryEINTR(func() (int, error) { return unix.Getdents(fd, buf) })
		if err != nil {
			return nil, fmt.Errorf("cannot read the process table: %w", err)
		}
		if n == 0 {
			return list, nil
		}
		list = appendEntries(list, buf[:n])
	}
}

// appendEntries appends the directories of processes among the linux_dirent64 records in
// buf to list: inode, offset, length of the record, type, name.
func appendEntries(list []entry, buf []byte) []entry {
	const lengthAt, nameAt = 16, 19
	for len(buf) > nameAt {
		size := int(binary.NativeEndian.Uint16(buf[lengthAt:]))
		if size <= nameAt || size > len(buf) {
			break
		}
		name, _, _ := bytes.Cut(buf[nameAt:size], []byte{0})
		if pid, err := strconv.Atoi(string(name)); err == nil {
			list = append(list, entry{pid, binary.NativeEndian.Uint64(buf)})
		}
		buf = buf[size:]
	}
	return list
}

// rows returns the rows of the processes in list that have not ended.
func rows(list []entry) ([]Proc, error) {
	procs := make([]Proc, 0, len(list))
	buf := make([]byte, 1024)
	// Read the youngest processes first: some live for a millisecond only.
	for _, e := range slices.Backward(list) {
		p, err := readStat(e.pid, buf)
		switch {
		case err == nil:
			procs = append(procs, p)
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
			return nil, fmt.Errorf("cannot read the whole process table: %w", err)
		}
	}
	slices.Reverse(procs)
	return procs, nil
}

// Read returns the row of one process, which may be a zombie. It returns ErrGone if no
// process has that pid.
func Read(pid int) (Proc, error) { return readStat(pid, make([]byte, 1024)) }

// readStat returns the row in /proc/PID/stat; buf is scratch space.
func readStat(pid int, buf []byte) (Proc, error) {
	if err := checkTable(); err != nil {
		return Proc{}, err
	}
	fd, err := RetryEINTR(func() (int, error) {
		return unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return Proc{}, goneOr(err)
	}
	n, err := RetryEINTR(func() (int, error) { return unix.Read(fd, buf) })
	_ = unix.Close(fd)
	if err != nil {
		return Proc{}, goneOr(err)
	}
	return parseStat(pid, buf[:n])
}

// parseStat returns the fields of proc_pid_stat(5) that pmcp needs. The name in
// parentheses may itself contain spaces and parentheses, so the fields are counted from
// the last closing one.
func parseStat(pid int, stat []byte) (Proc, error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Proc{}, fmt.Errorf("cannot parse /proc/%d/stat", pid)
	}
	var fields [22][]byte // field 3 (state) .. field 24 (rss); bytes.Fields would allocate more than everything else here
	n := 0
	for field := range bytes.FieldsSeq(stat[end+1:]) {
		fields[n] = field
		if n++; n == len(fields) {
			break
		}
	}
	if n < len(fields) {
		return Proc{}, fmt.Errorf("cannot parse /proc/%d/stat: %d fields", pid, n)
	}
	number := func(field int) uint64 { // numbered as in the manual page, from 1
		v, _ := strconv.ParseUint(string(fields[field-3]), 10, 64)
		return v
	}
	// Z is the state of the first thread. While other threads run, the process is not a
	// zombie: it holds ports and files, and can be killed.
	ended := fields[0][0] == 'Z' || fields[0][0] == 'X'
	threads := number(20)
	return Proc{
		ID:      ID{PID: pid, Start: number(22)},
		PPID:    int(number(4)),
		PGID:    int(number(5)),
		SID:     int(number(6)),
		Zombie:  ended && threads <= 1,
		Stopped: fields[0][0] == 'T',
		Comm:    Printable(string(stat[open+1 : end])),
		CPU:     number(14) + number(15),
		Memory:  number(24) * uint64(os.Getpagesize()),
		Buried:  number(11),
	}, nil
}

// environ returns the environment that the process was started with, each entry with
// its NUL. It returns nothing in the middle of an execve.
func environ(pid int) []byte {
	env, err := File(pid, "environ")
	if err != nil {
		return nil
	}
	return env
}

// Executable returns the path of the program that the process runs, followed by " (deleted)" if
// the file was replaced since. It reports whether the path could be read: false if the process
// belongs to another user or is gone.
func Executable(pid int) (string, bool) {
	if !OwnTable() {
		return "", false
	}
	path, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return path, err == nil
}

// StartedAt returns when the process started, to the second, or the zero time if that is not
// known. It returns the same time at each call, unless the clock of the machine was set.
func (id ID) StartedAt() time.Time {
	stat, _ := os.ReadFile("/proc/stat")
	_, after, _ := bytes.Cut(stat, []byte("\nbtime "))
	line, _, _ := bytes.Cut(after, []byte("\n"))
	boot, err := strconv.ParseInt(string(line), 10, 64)
	if err != nil || checkTable() != nil {
		return time.Time{}
	}
	return time.Unix(boot+int64(id.Start/TicksPerSecond), 0)
}

// Since returns when the process started, to a hundredth of a second, or the zero time if that is not known.
func (id ID) Since() time.Time {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil || checkTable() != nil {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(id.Start)*time.Second/TicksPerSecond - time.Duration(now.Nano()))
}

// Replaced reports whether the program file at path is another one than the process
// runs: a newer build, or none at all. It is false if that cannot be found out.
func Replaced(pid int, path string) bool {
	if !OwnTable() || path == "" {
		return false
	}
	runs, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/exe") // opens the running file itself, even if it has no name any more
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	return !os.SameFile(runs, now)
}

// Killed reports whether SIGKILL is pending for a process, which will then end soon. It is
// false if the pending signals cannot be read.
func Killed(pid int) bool {
	status, err := File(pid, "status")
	return err == nil && (inSet(status, "SigPnd", unix.SIGKILL) || inSet(status, "ShdPnd", unix.SIGKILL))
}

// Catches reports whether a process handles sig, rather than to end by it or to ignore it. It is false if that
// cannot be read.
func Catches(pid int, sig syscall.Signal) bool {
	status, err := File(pid, "status")
	return err == nil && inSet(status, "SigCgt", sig)
}

// inSet reports whether sig is in the set of signals called name in /proc/PID/status.
func inSet(status []byte, name string, sig syscall.Signal) bool {
	for line := range strings.Lines(string(status)) {
		if key, value, _ := strings.Cut(line, ":"); key == name {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err == nil && set&(1<<(sig-1)) != 0
		}
	}
	return false
}

// Signal sends sig to the process that id identifies and to no other: it opens a handle
// (pidfd), then compares the start time, then sends the signal through the handle. It
// returns ErrGone if the process has ended (a zombie counts as ended) or its pid now
// belongs to another process, and the kernel's EPERM unwrapped.
func Signal(id ID, sig syscall.Signal) error {
	fd, err := RetryEINTR(func() (int, error) { return unix.PidfdOpen(id.PID, 0) })
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.3; leaves a window of microseconds
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
