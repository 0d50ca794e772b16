package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
	"pmcp/registry/registrytest"
)

func TestListOfEmptyRegistryIsEmpty(t *testing.T) {
	list, err := List(registrytest.NewDir(t))
	if err != nil || len(list) != 0 {
		t.Errorf("List = %v, %v; want none", list, err)
	}
}

func TestListReturnsLiveAndStaleServers(t *testing.T) {
	dir := registrytest.NewDir(t)
	s := registrytest.StartServer(t, dir, "listed")
	e := only(t, dir)
	if e.ID != s.ID || e.State != Live || e.Problem != "" || e.Record.Server.PID != s.Cmd.Process.Pid || len(e.Processes) != 1 {
		t.Errorf("alive: %+v, want a live entry with one process", e)
	}
	s.Kill()
	if e := only(t, dir); e.ID != s.ID || e.State != Stale || e.Problem != "" || len(e.Processes) != 1 {
		t.Errorf("dead: %+v, want a stale entry with one process", e)
	}
}

func TestListIsOrderedByPid(t *testing.T) {
	dir := registrytest.NewDir(t)
	for _, pid := range []int{30, 4, 1000} {
		id := uuid.NewString()
		registrytest.Write(t, file(dir, id, ".json"), fmt.Sprintf(`{"v":1,"id":%q,"server":{"pid":%d,"start":1}}`, id, pid))
	}
	registrytest.Write(t, filepath.Join(dir, "a"), "")
	registrytest.Write(t, file(dir, uuid.NewString(), ".json"), "")
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

func TestBadFilesAreEntries(t *testing.T) {
	for _, c := range registrytest.BadFiles() {
		t.Run(c.Name, func(t *testing.T) {
			dir := registrytest.NewDir(t)
			c.Write(t, dir, uuid.NewString())
			good := registrytest.StartServer(t, dir) // a bad file must not hide this live server
			list, err := List(dir)
			must(t, err)
			if len(list) != 2 || list[0].ID != good.ID || list[0].State != Live {
				t.Fatalf("List = %+v, want the live server and one more", list)
			}
			if e := list[1]; string(e.State) != c.State || !strings.Contains(e.Problem, c.Problem) {
				t.Errorf("entry %+v, want state %s, problem %q", e, c.State, c.Problem)
			}
		})
	}
}

func TestStartingSessionIsNoEntry(t *testing.T) {
	dir := registrytest.NewDir(t)
	registrytest.Write(t, unfinished(dir, uuid.NewString(), ".lock"), "")
	if list, err := List(dir); err != nil || len(list) != 0 {
		t.Errorf("List = %+v, %v; want none", list, err)
	}
}

// TestServerWithoutRecordIsLive checks that a server is live while its lock is held, even if its
// record is missing or bad.
func TestServerWithoutRecordIsLive(t *testing.T) {
	dir, id := registrytest.NewDir(t), uuid.NewString()
	lock, err := create(dir, id)
	must(t, err)
	defer func() { _ = lock.Close() }()
	if e := only(t, dir); e.State != Live || e.Problem == "" {
		t.Errorf("got %+v, want a live entry with a problem", e)
	}
	registrytest.Write(t, file(dir, id, ".json"), "rubbish")
	if e := only(t, dir); e.State != Live || !strings.Contains(e.Problem, "corrupt") {
		t.Errorf("got %+v, want a live entry with a corrupt record", e)
	}
}

// TestIdentityDecidesWithoutLock checks that a running server whose lock file was deleted
// is live, and that a record with a reused pid is stale.
func TestIdentityDecidesWithoutLock(t *testing.T) {
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
		dir, id := registrytest.NewDir(t), uuid.NewString()
		lock, err := create(dir, id)
		must(t, err)
		_, err = Register(dir, id, Record{Boot: c.boot, Server: Process{PID: me.PID, Start: c.start}})
		must(t, err)
		must(t, lock.Close())
		must(t, os.Remove(file(dir, id, ".lock")))
		if e := only(t, dir); e.State != c.want || (c.want == Live) != (e.Problem != "") {
			t.Errorf("%s: %+v, want state %s", c.name, e, c.want)
		}
	}
}

func TestForeignFilesAreBounded(t *testing.T) {
	dir := registrytest.NewDir(t)
	for i := range maxForeign + 7 {
		registrytest.Write(t, filepath.Join(dir, fmt.Sprint("f", i)), "")
	}
	list, err := List(dir)
	must(t, err)
	if len(list) != maxForeign+1 || !strings.HasPrefix(list[maxForeign].Problem, "7 more") {
		t.Errorf("got %d entries, the last %+v; want %d", len(list), list[len(list)-1], maxForeign+1)
	}
}

// TestListDoesNotWaitForSweep checks that List does not wait for the lock on the directory while
// a sweep holds that lock.
func TestListDoesNotWaitForSweep(t *testing.T) {
	dir := registrytest.NewDir(t)
	must(t, makeDir(dir))
	d, err := openDir(dir)
	must(t, err)
	defer func() { _ = d.Close() }()
	must(t, flock(d, unix.LOCK_EX))
	if _, err := List(dir); err != nil {
		t.Error(err)
	}
}
