package proctab

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// scanned reports whether pid is in the next scan.
func scanned(t *testing.T, s *Scanner, pid int) bool {
	t.Helper()
	procs, err := s.Scan()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(procs, func(p Proc) bool { return p.PID == pid })
}

// TestScannerOmitsOutsiders checks that a Scanner returns children of its root, also those that
// start after a scan, and no process outside the tree.
func TestScannerOmitsOutsiders(t *testing.T) {
	s := NewScanner(os.Getpid())
	s.trust = time.Hour
	for range 2 {
		child := startCat(t).Process.Pid
		if !scanned(t, s, child) {
			t.Errorf("child %d of the root is not in a scan, want it there", child)
		}
		if scanned(t, s, os.Getppid()) {
			t.Error("the parent of the root is in a scan, want it left out")
		}
	}
}

// TestScannerForgets checks when a Scanner reads the row of a process again that it believes to be
// outside: when another process has got its pid, when its knowledge is old, and after Forget.
func TestScannerForgets(t *testing.T) {
	child := startCat(t).Process.Pid
	var inode uint64
	list, err := entries()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.pid == child {
			inode = e.inode
		}
	}
	if inode == 0 {
		t.Fatal("the child has no entry in /proc, want one")
	}
	believing := func(inode uint64, began time.Time) *Scanner {
		s := NewScanner(os.Getpid())
		s.trust = time.Hour
		s.outside, s.began = map[int]uint64{child: inode}, began
		return s
	}
	if scanned(t, believing(inode, time.Now()), child) {
		t.Error("a known process was read again, want it left out")
	}
	if !scanned(t, believing(inode+1, time.Now()), child) {
		t.Error("another process with the pid of a known one is not in the scan, want it there")
	}
	if !scanned(t, believing(inode, time.Now().Add(-2*time.Hour)), child) {
		t.Error("old knowledge was used, want all rows read")
	}
	s := believing(inode, time.Now())
	s.Forget()
	if !scanned(t, s, child) {
		t.Error("Forget left knowledge, want all rows read")
	}
}

// TestReusedPidHasAnotherInode checks what a Scanner rests on, with a pid that the kernel assigns
// twice.
func TestReusedPidHasAnotherInode(t *testing.T) {
	inodeOf := func(pid int) uint64 {
		list, err := entries()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list, func(e entry) bool { return e.pid == pid })
		if i < 0 {
			t.Fatalf("process %d is not in /proc, want it there", pid)
		}
		return list[i].inode
	}
	for range 100 { // another process may take the pid
		first := startCat(t)
		pid := first.Process.Pid
		before := inodeOf(pid)
		if again := inodeOf(pid); again != before {
			t.Errorf("a process got inode %d after %d, want the same", again, before)
		}
		_ = first.Process.Kill()
		_ = first.Wait()
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Skipf("cannot choose the next pid: %v", err)
		}
		if startCat(t).Process.Pid == pid {
			if after := inodeOf(pid); after == before {
				t.Errorf("two processes with one pid both have inode %d, want two", after)
			}
			return
		}
	}
	t.Skip("another process always took the pid")
}

// TestOutsiders checks which processes a Scanner takes for outsiders.
func TestOutsiders(t *testing.T) {
	const root, known = 100, 50
	row := func(pid, parent int) Proc { return Proc{ID: ID{PID: pid, Start: 1}, PPID: parent} }
	reaped := row(7, 0)
	reaped.Zombie = true
	procs := []Proc{
		row(1, 0), row(20, 1), row(21, 20), // outside
		row(30, known),                              // a child of one that was known
		row(root, 1), row(101, root), row(102, 101), // below
		row(103, 999), row(104, 103), // the parent has no row
		reaped, row(105, 7),
		row(106, 107), row(107, 106), // of different moments
	}
	for range 2 {
		got := slices.Sorted(maps.Keys(outsiders(procs, root, map[int]uint64{known: 5})))
		if want := []int{1, 20, 21, 30}; !slices.Equal(got, want) {
			t.Errorf("outsiders = %v, want %v", got, want)
		}
		slices.Reverse(procs)
	}
}

func BenchmarkScanner(b *testing.B) {
	s := NewScanner(os.Getpid())
	for b.Loop() {
		if _, err := s.Scan(); err != nil {
			b.Fatal(err)
		}
	}
}
