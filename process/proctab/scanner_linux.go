package proctab

import (
	"maps"
	"slices"
	"time"
)

// scannerTrust is how long a Scanner relies on what it has learned. It bounds what a
// /proc of an unknown kind could hide, in which inode numbers outlive processes.
const scannerTrust = 10 * time.Second

// A Scanner returns the processes that may be below one process, its root, and reads few
// rows of others. A process that was once outside the tree of a child subreaper never
// enters it, because the kernel re-parents a process to its ancestors only. So a Scanner
// reads the row of such a process once in 10 s. It recognises a process by the inode of
// its directory in /proc: a later process with the same pid has another one.
//
// A Scanner is for one goroutine at a time.
type Scanner struct {
	root    int
	trust   time.Duration
	outside map[int]uint64 // processes that are not below root: pid → inode
	began   time.Time      // when outside was empty
}

// NewScanner returns a Scanner for the processes below root, a child subreaper.
func NewScanner(root int) *Scanner { return &Scanner{root: root, trust: scannerTrust} }

// Forget makes the next Scan read every row, as All does. A caller that has to prove that
// no process is left calls it before each Scan.
func (s *Scanner) Forget() { s.outside = nil }

// Scan returns the rows of all processes except the root and those that are certainly not
// below it. Otherwise it is like All.
func (s *Scanner) Scan() ([]Proc, error) {
	list, err := entries()
	if err != nil {
		return nil, err
	}
	if s.outside == nil || time.Since(s.began) >= s.trust {
		s.outside, s.began = make(map[int]uint64), time.Now()
	}
	inodes := make(map[int]uint64, len(list)) // of the processes whose row is read
	outside := make(map[int]uint64, len(list))
	list = slices.DeleteFunc(list, func(e entry) bool {
		if e.pid == s.root {
			return true
		}
		inode, known := s.outside[e.pid]
		if known = known && inode == e.inode; known {
			outside[e.pid] = inode
		} else {
			inodes[e.pid] = e.inode
		}
		return known
	})
	procs, err := rows(list)
	if err != nil {
		return nil, err
	}
	for pid := range outsiders(procs, s.root, outside) {
		outside[pid] = inodes[pid]
	}
	s.outside = outside
	return slices.DeleteFunc(procs, func(p Proc) bool { _, is := outside[p.PID]; return is }), nil
}

// outsiders returns those of procs whose line of parents leads past root: to a process
// that is known to be outside, or to the first process. It leaves out a process whose
// line is broken: if a parent has ended while the rows were read, the process may be a
// child of root by now.
func outsiders(procs []Proc, root int, known map[int]uint64) map[int]bool {
	row := make(map[int]*Proc, len(procs))
	for i := range procs {
		row[procs[i].PID] = &procs[i]
	}
	found := make(map[int]bool, len(procs)) // false if root or a break in the line comes first
	for i := range procs {
		outside := false
		var line []int
		for pid := procs[i].PID; len(line) <= len(procs); { // the rows are not of one moment: they may form a circle
			p := row[pid]
			if p == nil || pid == root {
				_, outside = known[pid]
				break
			}
			if verdict, done := found[pid]; done {
				outside = verdict
				break
			}
			line = append(line, pid)
			if p.PPID == 0 {
				outside = !p.Zombie // a process that is being reaped has no parent either
				break
			}
			pid = p.PPID
		}
		for _, pid := range line {
			found[pid] = outside
		}
	}
	maps.DeleteFunc(found, func(_ int, outside bool) bool { return !outside })
	return found
}
