package proctab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// TicksPerSecond is the unit of Proc.CPU, which this platform does not fill.
const TicksPerSecond = 100

// szomb is SZOMB of <sys/proc.h>.
const szomb = 5

// BootID returns the id of this boot of the machine, or "".
func BootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(id)
}

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

// Read returns the row of one process, a zombie included. It answers ErrGone
// if there is none with that pid.
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
	sid, _ := unix.Getsid(pid) // XNU asks for no permission; 0 if it just ended
	comm, _, _ := bytes.Cut(k.Proc.P_comm[:], []byte{0})
	start := k.Proc.P_starttime
	return Proc{
		ID:     ID{PID: pid, Start: uint64(start.Sec)*1e6 + uint64(start.Usec)},
		PPID:   int(k.Eproc.Ppid),
		PGID:   int(k.Eproc.Pgid),
		SID:    sid,
		Zombie: k.Proc.P_stat == szomb,
		Comm:   Printable(string(comm)),
	}
}

// environ returns the environment that the process was started with, each entry
// with its NUL, from kern.procargs2: argc, the executable's path, padding, argc
// arguments, then the environment.
func environ(pid int) []byte {
	raw, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(raw) < 4 {
		return nil
	}
	argc := int(binary.NativeEndian.Uint32(raw))
	_, rest, _ := bytes.Cut(raw[4:], []byte{0})
	rest = bytes.TrimLeft(rest, "\x00")
	for range argc {
		_, rest, _ = bytes.Cut(rest, []byte{0})
	}
	return rest
}

// Executable returns the path that the program of the process was started by.
// It is false if the process is another user's or gone.
func Executable(pid int) (string, bool) {
	raw, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(raw) < 4 {
		return "", false
	}
	path, _, _ := bytes.Cut(raw[4:], []byte{0})
	return string(path), true
}

// Killed is false: macOS does not show which signals a process has yet to take.
func Killed(int) bool { return false }

// Signal sends sig to the process that id names. macOS has no handle to a
// process that is not a child: the identity is compared immediately before the
// signal, and a window of microseconds stays. It answers ErrGone if the
// process has ended or the pid is now someone else's.
func Signal(id ID, sig syscall.Signal) error {
	p, err := Read(id.PID)
	if err != nil {
		return err
	}
	if p.ID != id || p.Zombie {
		return ErrGone
	}
	if err := unix.Kill(id.PID, sig); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return ErrGone
		}
		return fmt.Errorf("cannot signal process %s: %w", strconv.Itoa(id.PID), err)
	}
	return nil
}
