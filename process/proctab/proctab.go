// Package proctab reads the machine's process table and signals single
// processes of it.
//
// It is the one place that knows what makes two processes the same: the boot
// id, the pid and the start time. A pid alone is reused by the kernel within
// minutes on a busy machine, so nothing outside this package compares bare
// pids of processes that are not its own unreaped children.
//
// The package imports no other package of pmcp; process, process/guard and
// registry share it so that there is exactly one identity check.
package proctab

import (
	"errors"
	"fmt"
)

// ErrGone says that the process asked for does not exist any more, or that its
// pid now belongs to another process.
var ErrGone = errors.New("process is gone")

// ID names one process on this boot of the machine. The zero ID names none.
type ID struct {
	// PID is the process id.
	PID int
	// Start is when the process began, in a unit of the platform: clock ticks
	// since boot on Linux (field 22 of /proc/PID/stat), microseconds since
	// 1970 on macOS. It is compared for equality, and to see who is older.
	Start uint64
}

// String gives "pid start", the form in which the registry records an ID.
func (id ID) String() string { return fmt.Sprintf("%d %d", id.PID, id.Start) }

// ParseID reads what ID.String wrote, and nothing that merely begins like it:
// two halves of lines would make a third process.
func ParseID(s string) (ID, error) {
	var id ID
	if _, err := fmt.Sscanf(s, "%d %d", &id.PID, &id.Start); err != nil || id.PID <= 0 || id.String() != s {
		return ID{}, fmt.Errorf("cannot parse process identity %q: want \"pid start\"", s)
	}
	return id, nil
}

// Proc is one row of the process table.
type Proc struct {
	ID
	// PPID, PGID and SID are the ids of the parent, the process group and the
	// session.
	PPID, PGID, SID int
	// Zombie is true for a process that has ended and was not waited for.
	Zombie bool
	// Comm is the kernel's short name of the program, as Printable gives it: 15
	// characters at most on Linux. For display only.
	Comm string
	// CPU is the processor time used so far, user and system, in ticks of
	// 1/TicksPerSecond second. Zero on macOS.
	CPU uint64
}

// Descendants returns every process of table below root, children before
// their own children, without root itself. It follows parent links only: what
// was re-parented away is not found.
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
