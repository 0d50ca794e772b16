package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

func TestListOfNothing(t *testing.T) {
	list, err := List(newDir(t))
	if err != nil || len(list) != 0 {
		t.Errorf("List = %v, %v", list, err)
	}
}

func TestListLiveAndStale(t *testing.T) {
	dir := newDir(t)
	s := startServer(t, dir, "noted")
	e := only(t, dir)
	if e.ID != s.id || e.State != Live || e.Problem != "" || e.Record.Server.PID != s.cmd.Process.Pid || len(e.Processes) != 1 {
		t.Errorf("alive: %+v", e)
	}
	s.kill()
	if e := only(t, dir); e.ID != s.id || e.State != Stale || e.Problem != "" || len(e.Processes) != 1 {
		t.Errorf("dead: %+v", e)
	}
}

func TestListIsOrderedByPid(t *testing.T) {
	dir := newDir(t)
	for _, pid := range []int{30, 4, 1000} {
		id := uuid.NewString()
		write(t, file(dir, id, ".json"), fmt.Sprintf(`{"v":1,"id":%q,"server":{"pid":%d,"start":1}}`, id, pid))
	}
	write(t, filepath.Join(dir, "a"), "")
	write(t, file(dir, uuid.NewString(), ".json"), "")
	list, err := List(dir)
	must(t, err)
	var pids []int
	for _, e := range list {
		pids = append(pids, e.Record.Server.PID)
	}
	if want := []int{4, 30, 1000, 0, 0}; !slices.Equal(pids, want) || list[4].State != Foreign {
		t.Errorf("pids %v, want %v; last %+v", pids, want, list[4])
	}
}

// badFiles are the ways in which one session's record can be bad, each written
// to an otherwise empty registry.
var badFiles = []struct {
	name    string
	state   State
	problem string
	write   func(t *testing.T, dir, id string)
}{
	{"empty", Stale, "corrupt", func(t *testing.T, dir, id string) { write(t, file(dir, id, ".json"), "") }},
	{"half written", Stale, "corrupt", func(t *testing.T, dir, id string) { write(t, file(dir, id, ".json"), `{"v":1,"id":"`) }},
	{"not JSON", Stale, "corrupt", func(t *testing.T, dir, id string) { write(t, file(dir, id, ".json"), "hello") }},
	{"JSON of another kind", Stale, "corrupt", func(t *testing.T, dir, id string) { write(t, file(dir, id, ".json"), `[1]`) }},
	{"wrong types", Stale, "corrupt", func(t *testing.T, dir, id string) {
		write(t, file(dir, id, ".json"), fmt.Sprintf(`{"v":1,"id":%q,"server":7}`, id))
	}},
	{"no version", Stale, "corrupt", func(t *testing.T, dir, id string) { write(t, file(dir, id, ".json"), `{}`) }},
	{"another's id", Stale, "corrupt", func(t *testing.T, dir, id string) {
		write(t, file(dir, id, ".json"), fmt.Sprintf(`{"v":1,"id":%q}`, uuid.NewString()))
	}},
	{"huge", Stale, "larger", func(t *testing.T, dir, id string) {
		write(t, file(dir, id, ".json"), strings.Repeat(" ", maxRecord+1))
	}},
	{"newer version", Foreign, "newer", func(t *testing.T, dir, id string) { write(t, file(dir, id, ".json"), `{"v":2}`) }},
	{"symbolic link", Foreign, "symbolic link", func(t *testing.T, dir, id string) {
		target := filepath.Join(filepath.Dir(dir), "target")
		write(t, target, fmt.Sprintf(`{"v":1,"id":%q}`, id))
		must(t, os.MkdirAll(dir, 0o700))
		must(t, os.Symlink(target, file(dir, id, ".json")))
	}},
	{"directory", Foreign, "not a plain file", func(t *testing.T, dir, id string) {
		must(t, os.MkdirAll(file(dir, id, ".json"), 0o700))
	}},
	{"named pipe", Foreign, "not a plain file", func(t *testing.T, dir, id string) {
		must(t, os.MkdirAll(dir, 0o700))
		mkfifo(t, file(dir, id, ".json"))
	}},
	{"another user's", Foreign, "belongs to user 12345", func(t *testing.T, dir, id string) {
		write(t, file(dir, id, ".json"), fmt.Sprintf(`{"v":1,"id":%q}`, id))
		if err := os.Chown(file(dir, id, ".json"), 12345, -1); err != nil {
			t.Skip("giving a file away takes root")
		}
	}},
	{"lock without record", Stale, "no record", func(t *testing.T, dir, id string) { write(t, file(dir, id, ".lock"), "") }},
	{"list without record", Stale, "no record", func(t *testing.T, dir, id string) { write(t, file(dir, id, ".procs"), "boot") }},
	{"old unfinished lock", Stale, "no record", func(t *testing.T, dir, id string) {
		path := unfinished(dir, id, ".lock")
		write(t, path, "")
		must(t, os.Chtimes(path, time.Time{}, time.Now().Add(-2*startup)))
	}},
	{"a project's files", Foreign, "not a file of pmcp", func(t *testing.T, dir, _ string) {
		write(t, filepath.Join(dir, "package.json"), "{}")
	}},
}

func TestBadFilesAreRows(t *testing.T) {
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			dir := newDir(t)
			c.write(t, dir, uuid.NewString())
			good := startServer(t, dir) // never ends the listing
			list, err := List(dir)
			must(t, err)
			if len(list) != 2 || list[0].ID != good.id || list[0].State != Live {
				t.Fatalf("List = %+v", list)
			}
			if e := list[1]; e.State != c.state || !strings.Contains(e.Problem, c.problem) {
				t.Errorf("entry %+v, want state %s, problem %q", e, c.state, c.problem)
			}
		})
	}
}

func TestSessionThatBeginsIsNoEntry(t *testing.T) {
	dir := newDir(t)
	write(t, unfinished(dir, uuid.NewString(), ".lock"), "")
	if list, err := List(dir); err != nil || len(list) != 0 {
		t.Errorf("List = %+v, %v", list, err)
	}
}

// While the lock is held a record may be missing or bad: the server lives.
func TestLiveWithoutRecord(t *testing.T) {
	dir, id := newDir(t), uuid.NewString()
	lock, err := create(dir, id)
	must(t, err)
	defer func() { _ = lock.Close() }()
	if e := only(t, dir); e.State != Live || e.Problem == "" {
		t.Errorf("%+v", e)
	}
	write(t, file(dir, id, ".json"), "rubbish")
	if e := only(t, dir); e.State != Live || !strings.Contains(e.Problem, "corrupt") {
		t.Errorf("%+v", e)
	}
}

// A lock file that was deleted by hand does not make a running server dead, but
// a record that names a reused pid is dead.
func TestWithoutLockTheIdentityDecides(t *testing.T) {
	me := self(t)
	for _, c := range []struct {
		name  string
		boot  string
		start uint64
		want  State
	}{
		{"same process", proctab.BootID(), me.Start, Live},
		{"reused pid", proctab.BootID(), me.Start + 1, Stale},
		{"another boot", "another", me.Start, Stale},
	} {
		dir, id := newDir(t), uuid.NewString()
		lock, err := create(dir, id)
		must(t, err)
		_, err = Register(dir, id, Record{Boot: c.boot, Server: Process{PID: me.PID, Start: c.start}})
		must(t, err)
		must(t, lock.Close())
		must(t, os.Remove(file(dir, id, ".lock")))
		if e := only(t, dir); e.State != c.want || (c.want == Live) != (e.Problem != "") {
			t.Errorf("%s: %+v", c.name, e)
		}
	}
}

func TestForeignFilesAreBounded(t *testing.T) {
	dir := newDir(t)
	for i := range maxForeign + 7 {
		write(t, filepath.Join(dir, fmt.Sprint("f", i)), "")
	}
	list, err := List(dir)
	must(t, err)
	if len(list) != maxForeign+1 || !strings.HasPrefix(list[maxForeign].Problem, "7 more") {
		t.Errorf("%d entries, the last %+v", len(list), list[len(list)-1])
	}
}

// A held lock on the directory, which a sweep takes, is no reason to wait.
func TestListDuringASweep(t *testing.T) {
	dir := newDir(t)
	must(t, makeDir(dir))
	d, err := openDir(dir)
	must(t, err)
	defer func() { _ = d.Close() }()
	must(t, flock(d, unix.LOCK_EX))
	if _, err := List(dir); err != nil {
		t.Error(err)
	}
}
