// Package proctab reads the machine's process table and signals single processes.
//
// It alone defines the identity of a process: the boot id, the pid and the start
// time. On a busy machine the kernel reuses a pid within minutes, so nothing outside
// this package compares bare pids, except those of its own unreaped children.
//
// The package imports no other package of pmcp; process, process/guard and
// registry share it so that there is exactly one identity check.
package proctab

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// ErrGone is returned when a process no longer exists or its pid now belongs to
// another process.
var ErrGone = errors.New("process is gone")

// An ID identifies one process on this boot of the machine. The zero ID identifies
// none.
type ID struct {
	// PID is the process id.
	PID int
	// Start is when the process started, in a unit of the platform: clock ticks
	// since boot on Linux (field 22 of /proc/PID/stat), microseconds since 1970 on
	// macOS. It is compared for equality, and to see which process is older.
	Start uint64
}

// String returns "pid start", the form in which the registry records an ID.
func (id ID) String() string { return fmt.Sprintf("%d %d", id.PID, id.Start) }

// ParseID returns the ID whose String is s. It rejects any other text, even with a
// valid prefix: two half-written lines could name a third process.
func ParseID(s string) (ID, error) {
	var id ID
	if _, err := fmt.Sscanf(s, "%d %d", &id.PID, &id.Start); err != nil || id.PID <= 0 || id.String() != s {
		return ID{}, fmt.Errorf("cannot parse process identity %q: want \"pid start\"", s)
	}
	return id, nil
}

// namespaceSeparator stands in a BootID before the pid namespace.
const namespaceSeparator = "/"

// Elsewhere reports whether boot, a BootID, is of another pid namespace on this
// boot, so that its pids mean nothing here. hidden reports whether we also cannot
// see the processes of that namespace: only the initial namespace sees all
// processes.
func Elsewhere(boot string) (other, hidden bool) {
	own, space, nested := strings.Cut(BootID(), namespaceSeparator)
	there, others, _ := strings.Cut(boot, namespaceSeparator)
	other = own == there && space != others
	return other, other && nested
}

// A Proc is one row of the process table.
type Proc struct {
	ID
	// PPID, PGID and SID are the ids of the parent, the process group and the
	// session.
	PPID, PGID, SID int
	// Zombie is true for a process that has ended and that its parent has not waited
	// for.
	Zombie bool
	// Stopped is true for a process that a signal (SIGSTOP) has stopped.
	Stopped bool
	// Comm is the kernel's short name of the program, as returned by Printable: at
	// most 15 characters on Linux. For display only.
	Comm string
	// CPU is the processor time used so far, user and system, in ticks of
	// 1/TicksPerSecond second. Zero on macOS.
	CPU uint64
	// Memory is the resident memory in bytes, shared pages included. Zero on macOS.
	Memory uint64
	// Buried grows with each child that has ended and that the process has waited for: it
	// counts their page faults. Zero on macOS.
	Buried uint64
}

// Describe returns the names of at most ten processes for an error: "pid 12 (node),
// pid 13 (sh)".
func Describe(procs []Proc) string {
	var names []string
	for i, p := range procs {
		if i == 10 {
			names = append(names, fmt.Sprintf("and %d more", len(procs)-i))
			break
		}
		names = append(names, fmt.Sprintf("pid %d (%s)", p.PID, p.Comm))
	}
	return strings.Join(names, ", ")
}

// check returns ErrGone unless the process that id identifies is alive.
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

// goneOr returns ErrGone if err is one of the kernel's errors for "no such process", and
// err otherwise.
func goneOr(err error) error {
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENOENT) {
		return ErrGone
	}
	return err
}

// Descendants returns the processes of table below root, parents before children,
// without root itself. It follows parent links only, so it does not find processes
// that were re-parented.
func Descendants(table []Proc, root int) []Proc {
	children := make(map[int][]int, len(table))
	for i, p := range table {
		children[p.PPID] = append(children[p.PPID], i)
	}
	var found []Proc
	seen := map[int]bool{root: true}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, i := range children[queue[0]] {
			if p := table[i]; !seen[p.PID] {
				seen[p.PID] = true
				found = append(found, p)
				queue = append(queue, p.PID)
			}
		}
	}
	return found
}

// RetryEINTR calls call again while a signal interrupts it, and returns its last results.
func RetryEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}
