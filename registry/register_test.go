package registry

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"pmcp/process/proctab"
	"pmcp/registry/registrytest"
)

// register registers a new session and returns its entry and its id. The cleanup closes the entry.
func register(t *testing.T, dir string, r Record) (*Registration, string) {
	t.Helper()
	id := uuid.NewString()
	lock, err := create(dir, id)
	must(t, err)
	reg, err := Register(dir, id, r)
	must(t, err)
	t.Cleanup(func() {
		if err := reg.Close(); err != nil {
			t.Error(err)
		}
		_ = lock.Close()
		if left := registrytest.Files(t, dir); len(left) > 0 {
			t.Errorf("left in the registry: %v, want nothing", left)
		}
	})
	return reg, id
}

func TestDescribeNamesServerAndParent(t *testing.T) {
	me := self(t)
	alone, guarded := Describe(0), Describe(os.Getppid())
	if alone.Server.Identity() != me || guarded.Server.Identity() != me {
		t.Errorf("server %v and %v, want %v", alone.Server, guarded.Server, me)
	}
	if alone.Guardian.PID != 0 || alone.Parent.PID != os.Getppid() || guarded.Guardian.PID != os.Getppid() {
		t.Errorf("alone %+v, guarded %+v; want the parent, then the guardian, to be %d", alone, guarded, os.Getppid())
	}
	// The guardian has died: the parent is now another process.
	if orphan := Describe(1 << 30); orphan.Server.Identity() != me || orphan.Guardian.PID != 0 || orphan.Parent.PID != 0 {
		t.Errorf("orphan %+v", orphan)
	}
	if orphan := Describe(os.Getpid()); orphan.Guardian.PID != 0 || orphan.Parent.PID != 0 { // the pid is not the parent's
		t.Errorf("orphan %+v", orphan)
	}
	if alone.Boot != proctab.BootID() || alone.StartedAt.IsZero() || alone.Executable == "" || alone.Cwd == "" {
		t.Errorf("got %+v, want boot, start, executable and cwd", alone)
	}
}

func TestUpdateReplacesTheRecord(t *testing.T) {
	dir := registrytest.NewDir(t)
	reg, id := register(t, dir, Describe(0))
	must(t, reg.Update(func(r *Record) { r.ClientName, r.ID, r.Format = "Claude", "forged", 99 }))
	got, err := readRecord(dir, id)
	must(t, err)
	if got.ClientName != "Claude" || got.Server.Identity() != self(t) || got.Format != Format || got.ID != id {
		t.Errorf("got the record %+v, want client Claude and format and id unchanged", got)
	}
	if got := reg.Path(); got != file(dir, id, ".json") {
		t.Errorf("Path = %s, want the path of the record", got)
	}
}

// TestUpdateIsAtomic checks that a concurrent reader sees the whole old record or the whole
// new one, never a missing or partial record.
func TestUpdateIsAtomic(t *testing.T) {
	dir := registrytest.NewDir(t)
	reg, id := register(t, dir, Record{})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if r, err := readRecord(dir, id); err != nil || len(r.Cwd)%1000 != 0 {
					t.Errorf("read %d bytes of cwd, %v; want a multiple of 1000", len(r.Cwd), err)
					return
				}
			}
		})
	}
	for i := range 300 {
		must(t, reg.Update(func(r *Record) { r.Cwd = strings.Repeat("x", i%30*1000) }))
	}
	close(stop)
	readers.Wait()
}

func TestAddProcessListsEachProcessOnce(t *testing.T) {
	dir := registrytest.NewDir(t)
	reg, id := register(t, dir, Describe(0))
	me := self(t)
	must(t, reg.AddProcess(proctab.ID{PID: 7, Start: 9}, me))
	must(t, reg.AddProcess(me, me))
	must(t, reg.AddProcess())
	want := fmt.Sprintf("boot %s\n7 9\n%v\n", proctab.BootID(), me)
	content, err := os.ReadFile(file(dir, id, ".procs"))
	must(t, err)
	if string(content) != want {
		t.Errorf("got the list %q, want %q", content, want)
	}
	ids, err := readProcs(dir, id, proctab.BootID())
	if err != nil || len(ids) != 2 {
		t.Errorf("readProcs = %v, %v; want 2 processes", ids, err)
	}
	if ids, _ := readProcs(dir, id, "another boot"); ids != nil {
		t.Errorf("readProcs on another boot = %v, want none", ids)
	}
}

// TestProcessListIsBounded checks that the list stays short however many processes start and
// end, and that it always contains the living ones.
func TestProcessListIsBounded(t *testing.T) {
	dir := registrytest.NewDir(t)
	reg, id := register(t, dir, Describe(0))
	me := self(t)
	must(t, reg.AddProcess(me))
	for i := range 5 * compactAt {
		must(t, reg.AddProcess(proctab.ID{PID: 1<<30 + i, Start: uint64(i)}))
	}
	ids, err := readProcs(dir, id, proctab.BootID())
	must(t, err)
	if len(ids) > compactAt+1 {
		t.Errorf("got %d processes in the list, want at most %d", len(ids), compactAt+1)
	}
	if e := only(t, dir); len(e.Processes) == 0 || !slices.Contains(e.Processes, me) {
		t.Errorf("the list of %d lacks the living process, want it in it", len(e.Processes))
	}
}

// TestProcessListRecovers checks that the list is rewritten after a failed write, which may
// have left half a line.
func TestProcessListRecovers(t *testing.T) {
	dir := registrytest.NewDir(t)
	reg, id := register(t, dir, Describe(0))
	must(t, reg.procs.file.Close())
	if err := reg.AddProcess(self(t)); err == nil {
		t.Error("AddProcess to a closed file succeeded, want an error")
	}
	must(t, reg.AddProcess(proctab.ID{PID: os.Getppid(), Start: 1}, self(t)))
	if ids, err := readProcs(dir, id, proctab.BootID()); err != nil || !slices.Contains(ids, self(t)) {
		t.Errorf("got the list %v, %v; want this process in it", ids, err)
	}
}

// TestProcessListRecoversFromSeveralFailures checks that the list is complete even after
// several failed writes, one of which is a rewrite.
func TestProcessListRecoversFromSeveralFailures(t *testing.T) {
	dir := registrytest.NewDir(t)
	reg, id := register(t, dir, Describe(0))
	full, err := os.Open(reg.procs.path) // for reading only
	must(t, err)
	defer full.Close()
	temp, good := reg.procs.temp, reg.procs.file
	must(t, os.Mkdir(temp, 0o700))
	reg.procs.file = full
	want := []proctab.ID{registrytest.StartInnocent(t), registrytest.StartInnocent(t), registrytest.StartInnocent(t)}
	for i, what := range []string{"append", "rewrite"} {
		if err := reg.AddProcess(want[i]); err == nil {
			t.Errorf("AddProcess succeeded although it could not %s, want an error", what)
		}
	}
	must(t, os.Remove(temp))
	reg.procs.file = good
	must(t, reg.AddProcess(want[2]))
	ids, err := readProcs(dir, id, proctab.BootID())
	must(t, err)
	for _, process := range want {
		if !slices.Contains(ids, process) {
			t.Errorf("got the list %v, want %v in it", ids, process)
		}
	}
}

// only returns the entry of a registry that has exactly one.
func only(t *testing.T, dir string) Entry {
	t.Helper()
	list, err := List(dir)
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("got %d entries, want 1: %+v", len(list), list)
	}
	return list[0]
}

func TestListReadsOnlyWholeLines(t *testing.T) {
	dir, id := registrytest.NewDir(t), uuid.NewString()
	registrytest.Write(t, file(dir, id, ".procs"), "boot "+proctab.BootID()+"\n1 2\nrubbish\n3 4 5\n\n6 7\n89 1")
	ids, err := readProcs(dir, id, proctab.BootID())
	if want := []proctab.ID{{PID: 1, Start: 2}, {PID: 6, Start: 7}}; err != nil || fmt.Sprint(ids) != fmt.Sprint(want) {
		t.Errorf("readProcs = %v, %v; want %v", ids, err, want)
	}
}

func TestClosedRegistrationRefuses(t *testing.T) {
	dir := registrytest.NewDir(t)
	reg, _ := register(t, dir, Describe(0))
	must(t, reg.Close())
	must(t, reg.Close())
	if err := reg.Update(func(*Record) {}); !errors.Is(err, errClosed) {
		t.Errorf("Update after Close: %v, want errClosed", err)
	}
	if err := reg.AddProcess(self(t)); !errors.Is(err, errClosed) {
		t.Errorf("AddProcess after Close: %v, want errClosed", err)
	}
}
