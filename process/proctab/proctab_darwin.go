package proctab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// TicksPerSecond is the unit of Proc.CPU, which is always 0 on this platform.
const TicksPerSecond = 100

// States of <sys/proc.h>.
const (
	sstop = 4
	szomb = 5
)

// BootID returns the id of this boot of the machine, or "".
func BootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(id)
}

// OwnTable is true: there are no pid namespaces here.
func OwnTable() bool { return true }

// All returns the whole process table in one system call.
func All() ([]Proc, error) {
	kinfo, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("cannot read the process table: %w", err)
	}
	procs := make([]Proc, 0, len(kinfo))
	for i := range kinfo {
		procs = append(procs, fromKinfo(&kinfo[i]))
	}
	return procs, nil
}

// Read returns the row of one process, which may be a zombie. It returns ErrGone if no
// process has that pid.
func Read(pid int) (Proc, error) {
	kinfo, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		if errors.Is(err, unix.EIO) || errors.Is(err, unix.ESRCH) { // an empty answer
			return Proc{}, ErrGone
		}
		return Proc{}, fmt.Errorf("cannot read process %d: %w", pid, err)
	}
	return fromKinfo(kinfo), nil
}

func fromKinfo(k *unix.KinfoProc) Proc {
	pid := int(k.Proc.P_pid)
	sid, _ := unix.Getsid(pid) // XNU requires no permission; 0 if the process has just ended
	comm, _, _ := bytes.Cut(k.Proc.P_comm[:], []byte{0})
	start := k.Proc.P_starttime
	return Proc{
		ID:      ID{PID: pid, Start: uint64(start.Sec)*1e6 + uint64(start.Usec)},
		PPID:    int(k.Eproc.Ppid),
		PGID:    int(k.Eproc.Pgid),
		SID:     sid,
		Zombie:  k.Proc.P_stat == szomb,
		Stopped: k.Proc.P_stat == sstop,
		Comm:    Printable(string(comm)),
	}
}

// procargs returns how the process was started, from kern.procargs2: the number of
// arguments, the executable's path, and the rest: padding, the arguments, then the
// environment. It reports whether the process could be read: false if the process
// belongs to another user or is gone.
func procargs(pid int) (argc int, path, rest []byte, ok bool) {
	raw, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(raw) < 4 {
		return 0, nil, nil, false
	}
	path, rest, _ = bytes.Cut(raw[4:], []byte{0})
	return int(binary.NativeEndian.Uint32(raw)), path, rest, true
}

// environ returns the environment that the process was started with, each entry
// with its NUL.
func environ(pid int) []byte {
	argc, _, rest, _ := procargs(pid)
	rest = bytes.TrimLeft(rest, "\x00")
	for range argc {
		_, rest, _ = bytes.Cut(rest, []byte{0})
	}
	return rest
}

// Executable returns the path by which the program of the process was started, and
// reports whether the path could be read.
func Executable(pid int) (string, bool) {
	_, path, _, ok := procargs(pid)
	return string(path), ok
}

// StartedAt returns when the process started, to the second.
func (id ID) StartedAt() time.Time { return time.Unix(int64(id.Start/1e6), 0) }

// Since returns when the process started.
func (id ID) Since() time.Time { return time.UnixMicro(int64(id.Start)) }

// Replaced reports whether the program file at path is another one than the process
// runs. It is always false: macOS does not show the running file.
func Replaced(int, string) bool { return false }

// Killed reports whether SIGKILL is pending for the process. It is always false: macOS
// does not show pending signals.
func Killed(int) bool { return false }

// Catches reports whether a process handles sig, rather than to end by it or to ignore it. It is false if that
// cannot be read.
func Catches(pid int, sig syscall.Signal) bool {
	kinfo, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err == nil && kinfo.Proc.P_sigcatch&(1<<(sig-1)) != 0
}

// Signal sends sig to the process that id identifies. macOS has no handle to a process
// that is not a child: Signal compares the identity immediately before it sends the
// signal, which leaves a window of microseconds. It returns ErrGone if the process has
// ended or its pid now belongs to another process.
func Signal(id ID, sig syscall.Signal) error {
	if err := check(id); err != nil {
		return err
	}
	return goneOr(unix.Kill(id.PID, sig))
}

// Stamped calls start and returns its error; macOS has no stamps.
func Stamped(_ Stamp, start func() error) error { return start() }

// StampOf returns 0: macOS has nothing that stays with a process for life.
func StampOf(int) Stamp { return 0 }
