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
)

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
		if left := files(t, dir); len(left) > 0 {
			t.Errorf("left in the registry: %v", left)
		}
	})
	return reg, id
}

func TestDescribe(t *testing.T) {
	me := self(t)
	alone, guarded := Describe(0), Describe(os.Getppid())
	if alone.Server.Identity() != me || guarded.Server.Identity() != me {
		t.Errorf("server %v and %v, want %v", alone.Server, guarded.Server, me)
	}
	if alone.Guardian.PID != 0 || alone.Parent.PID != os.Getppid() || guarded.Guardian.PID != os.Getppid() {
		t.Errorf("alone %+v, guarded %+v", alone, guarded)
	}
	// A guardian that has died: the parent, be it who took over, is another.
	if orphan := Describe(1 << 30); orphan.Server.Identity() != me || orphan.Guardian.PID != 0 || orphan.Parent.PID != 0 {
		t.Errorf("orphan %+v", orphan)
	}
	if orphan := Describe(os.Getpid()); orphan.Guardian.PID != 0 || orphan.Parent.PID != 0 { // its pid is another's
		t.Errorf("orphan %+v", orphan)
	}
	if alone.Boot != proctab.BootID() || alone.StartedAt.IsZero() || alone.Executable == "" || alone.Cwd == "" {
		t.Errorf("incomplete: %+v", alone)
	}
}

func TestRegisterAndUpdate(t *testing.T) {
	dir := newDir(t)
	reg, id := register(t, dir, Describe(0))
	must(t, reg.Update(func(r *Record) { r.ClientName, r.ID, r.Format = "Claude", "forged", 99 }))
	got, err := readRecord(dir, id)
	must(t, err)
	if got.ClientName != "Claude" || got.Server.Identity() != self(t) || got.Format != Format || got.ID != id {
		t.Errorf("the record is %+v", got)
	}
	if got := reg.Path(); got != file(dir, id, ".json") {
		t.Errorf("Path = %s", got)
	}
}

// A reader sees one record or the other, never none and never half of one.
func TestUpdateIsAtomic(t *testing.T) {
	dir := newDir(t)
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
					t.Errorf("read %d bytes of cwd, %v", len(r.Cwd), err)
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

func TestAddProcess(t *testing.T) {
	dir := newDir(t)
	reg, id := register(t, dir, Describe(0))
	me := self(t)
	must(t, reg.AddProcess(proctab.ID{PID: 7, Start: 9}, me))
	must(t, reg.AddProcess(me, me))
	must(t, reg.AddProcess())
	want := fmt.Sprintf("boot %s\n7 9\n%v\n", proctab.BootID(), me)
	content, err := os.ReadFile(file(dir, id, ".procs"))
	must(t, err)
	if string(content) != want {
		t.Errorf("the list is %q, want %q", content, want)
	}
	ids, err := readProcs(dir, id, proctab.BootID())
	if err != nil || len(ids) != 2 {
		t.Errorf("readProcs = %v, %v", ids, err)
	}
	if ids, _ := readProcs(dir, id, "another boot"); ids != nil {
		t.Errorf("on another boot: %v", ids)
	}
}

// The list stays short however many processes come and go, and never loses one
// that lives.
func TestProcessListIsBounded(t *testing.T) {
	dir := newDir(t)
	reg, id := register(t, dir, Describe(0))
	me := self(t)
	must(t, reg.AddProcess(me))
	for i := range 5 * compactAt {
		must(t, reg.AddProcess(proctab.ID{PID: 1<<30 + i, Start: uint64(i)}))
	}
	ids, err := readProcs(dir, id, proctab.BootID())
	must(t, err)
	if len(ids) > compactAt+1 {
		t.Errorf("%d processes in the list", len(ids))
	}
	if e := only(t, dir); len(e.Processes) == 0 || !slices.Contains(e.Processes, me) {
		t.Errorf("the living process is not in the list of %d", len(e.Processes))
	}
}

// After a write that failed, perhaps half way, the list is written anew.
func TestProcessListRecovers(t *testing.T) {
	dir := newDir(t)
	reg, id := register(t, dir, Describe(0))
	must(t, reg.procs.file.Close())
	if err := reg.AddProcess(self(t)); err == nil {
		t.Error("AddProcess to a closed file succeeded")
	}
	must(t, reg.AddProcess(proctab.ID{PID: os.Getppid(), Start: 1}, self(t)))
	if ids, err := readProcs(dir, id, proctab.BootID()); err != nil || !slices.Contains(ids, self(t)) {
		t.Errorf("the list is %v, %v", ids, err)
	}
}

// It is so, too, after several that failed, and once the list could not be
// written anew.
func TestProcessListRecoversFromSeveralFailures(t *testing.T) {
	dir := newDir(t)
	reg, id := register(t, dir, Describe(0))
	full, err := os.Open(reg.procs.path) // for reading only
	must(t, err)
	defer full.Close()
	temp, good := reg.procs.temp, reg.procs.file
	must(t, os.Mkdir(temp, 0o700))
	reg.procs.file = full
	want := []proctab.ID{startInnocent(t), startInnocent(t), startInnocent(t)}
	for i, what := range []string{"append", "write anew"} {
		if err := reg.AddProcess(want[i]); err == nil {
			t.Errorf("it could not %s, and succeeded", what)
		}
	}
	must(t, os.Remove(temp))
	reg.procs.file = good
	must(t, reg.AddProcess(want[2]))
	ids, err := readProcs(dir, id, proctab.BootID())
	must(t, err)
	for _, process := range want {
		if !slices.Contains(ids, process) {
			t.Errorf("the list is %v, without %v", ids, process)
		}
	}
}

// only is the one entry of a registry.
func only(t *testing.T, dir string) Entry {
	t.Helper()
	list, err := List(dir)
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("%d entries: %+v", len(list), list)
	}
	return list[0]
}

func TestListReadsOnlyWholeLines(t *testing.T) {
	dir, id := newDir(t), uuid.NewString()
	write(t, file(dir, id, ".procs"), "boot "+proctab.BootID()+"\n1 2\nrubbish\n3 4 5\n\n6 7\n89 1")
	ids, err := readProcs(dir, id, proctab.BootID())
	if want := []proctab.ID{{PID: 1, Start: 2}, {PID: 6, Start: 7}}; err != nil || fmt.Sprint(ids) != fmt.Sprint(want) {
		t.Errorf("readProcs = %v, %v; want %v", ids, err, want)
	}
}

func TestClosedRegistration(t *testing.T) {
	dir := newDir(t)
	reg, _ := register(t, dir, Describe(0))
	must(t, reg.Close())
	must(t, reg.Close())
	if err := reg.Update(func(*Record) {}); !errors.Is(err, errClosed) {
		t.Errorf("Update after Close: %v", err)
	}
	if err := reg.AddProcess(self(t)); !errors.Is(err, errClosed) {
		t.Errorf("AddProcess after Close: %v", err)
	}
}
