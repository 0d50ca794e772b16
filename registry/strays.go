package registry

import (
	"fmt"
	"os"
	"syscall"

	"pmcp/process/proctab"
)

// StraySession stands for the sessions of which only stamped processes are left, and no record.
const StraySession = "unknown"

// Strays returns the processes in table that carry the stamp of a session of the registry dir that is not among its
// entries, list, and that no living process has started: init or a live server has adopted them.
func Strays(dir string, list []Entry, table []proctab.Proc) (strays []Leftover) {
	f := newFinder(list)
	f.strays = dir
	v := newView(table)
	for _, p := range table {
		if !p.Zombie && f.isStray(v, p) {
			strays = append(strays, Leftover{Session: StraySession, ID: p.ID, Name: p.Comm, row: p})
		}
	}
	return strays
}

// FindStrays returns the strays of now. Errors are those of List, and that the process table cannot be read.
func FindStrays(dir string) ([]Leftover, error) {
	list, err := List(dir)
	if err != nil {
		return nil, err
	}
	table, err := proctab.All()
	return Strays(dir, list, table), err
}

// isStray reports whether a process that carries no stamp or mark of a session in the registry is a stray.
func (f *finder) isStray(v *view, p proctab.Proc) bool {
	stamp := proctab.StampOf(p.PID).Session()
	if stamp == 0 || stamp.Registry() != tag(f.strays) || f.stamps[stamp] != "" || !isOwn(p.PID) {
		return false
	}
	for pid := p.PPID; pid > 1; { // else init has adopted it
		parent, found := v.row[pid]
		switch {
		case f.isAnchor(parent.ID) && pid != os.Getpid(): // a server has adopted it
			return true
		case !found || proctab.StampOf(pid).Session() != stamp:
			return false
		}
		pid = parent.PPID
	}
	return true
}

// isOwn reports whether a process is of this user.
func isOwn(pid int) bool {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
