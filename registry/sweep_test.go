package registry

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

func TestSweepOfNothing(t *testing.T) {
	dir := newDir(t)
	if r, err := Sweep(t.Context(), dir, nil); err != nil || len(r.Sessions) != 0 {
		t.Errorf("Sweep = %+v, %v", r, err)
	}
	if got := files(t, dir); got != nil {
		t.Errorf("it made %v", got)
	}
}

func TestSweepStopsWhatADeadServerLeft(t *testing.T) {
	dir := newDir(t)
	s := startServer(t, dir, "marked", "noted", "parent", "ignoring")
	bystander := startServer(t, dir, "marked", "noted")
	innocent := startInnocent(t)
	s.kill()
	var log bytes.Buffer
	r, err := Sweep(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	s.wantGone()
	if !slices.Equal(r.Sessions, []string{s.id}) || len(r.Stopped) != 5 || len(r.Remaining) != 0 || r.Busy {
		t.Errorf("Sweep = %+v", r)
	}
	if e := only(t, dir); e.ID != bystander.id || e.State != Live || !alive(e.Processes[0]) {
		t.Errorf("left in the registry: %+v", e)
	}
	if !alive(innocent) {
		t.Error("the innocent process is dead")
	}
	if got := log.String(); strings.Count(got, "terminated") < 5 || !strings.Contains(got, "killed") || !strings.Contains(got, "removed") {
		t.Errorf("the log is:\n%s", got)
	}
}

func TestSweepRemovesStaleAndCorruptButNotForeign(t *testing.T) {
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			dir, id := newDir(t), uuid.NewString()
			c.write(t, dir, id)
			before := files(t, dir)
			r, err := Sweep(t.Context(), dir, nil)
			must(t, err)
			after := files(t, dir)
			if c.state == Stale && (len(after) != 0 || !slices.Equal(r.Sessions, []string{id})) {
				t.Errorf("left %v, %+v", after, r)
			}
			if c.state == Foreign && (!slices.Equal(before, after) || len(r.Sessions) != 0) {
				t.Errorf("touched: %v became %v, %+v", before, after, r)
			}
		})
	}
}

// forge writes what a dead server could have left, naming the process.
func forge(t *testing.T, dir, boot string, victim proctab.ID) (id string) {
	t.Helper()
	id = uuid.NewString()
	p := fmt.Sprintf(`{"pid":%d,"start":%d}`, victim.PID, victim.Start)
	write(t, file(dir, id, ".lock"), "")
	write(t, file(dir, id, ".json"), fmt.Sprintf(`{"v":1,"id":%q,"boot_id":%q,"server":%s,"guardian":%s}`, id, boot, p, p))
	write(t, file(dir, id, ".procs"), fmt.Sprintf("boot %s\n%v\n", boot, victim))
	return id
}

// forgeries name an innocent process in every way but the right one.
func forgeries(t *testing.T, dir string, innocent proctab.ID) {
	t.Helper()
	wrong := proctab.ID{PID: innocent.PID, Start: innocent.Start + 1}
	forge(t, dir, proctab.BootID(), wrong)
	forge(t, dir, "another boot", innocent)
	forge(t, dir, "another boot", wrong)
	// The right boot in the record and none, or another, before the list.
	id := forge(t, dir, proctab.BootID(), wrong)
	write(t, file(dir, id, ".procs"), fmt.Sprintf("%v\n%v\n", innocent, innocent))
	id = forge(t, dir, proctab.BootID(), wrong)
	write(t, file(dir, id, ".procs"), fmt.Sprintf("boot another\n%v\n", innocent))
	id = forge(t, dir, proctab.BootID(), wrong)
	write(t, file(dir, id, ".procs"), fmt.Sprintf("boot %s\n%d\n%d 0\n%v x\n%v", proctab.BootID(), innocent.PID, innocent.PID, innocent, innocent))
}

// The innocent process fails the test at its end if anything was sent to it.
func TestSweepNeverSignalsByAForgedRecord(t *testing.T) {
	dir := newDir(t)
	innocent := startInnocent(t)
	forgeries(t, dir, innocent)
	r, err := Sweep(t.Context(), dir, nil)
	must(t, err)
	if len(r.Stopped) != 0 || len(r.Sessions) != 6 || len(files(t, dir)) != 0 {
		t.Errorf("Sweep = %+v, left %v", r, files(t, dir))
	}
	if !alive(innocent) {
		t.Error("the innocent process is dead")
	}
}

// The control: the same record with the right identity is believed, so the test
// above is not blind.
func TestSweepStopsByATrueRecord(t *testing.T) {
	dir := newDir(t)
	s := startServer(t, newDir(t), "unknown")
	table, err := proctab.All()
	must(t, err)
	victim := proctab.Descendants(table, s.cmd.Process.Pid)[0].ID
	s.kill()
	id := forge(t, dir, proctab.BootID(), victim)
	// A live identity would make the record's server a live one.
	write(t, file(dir, id, ".json"), "{}")
	r, err := Sweep(t.Context(), dir, nil)
	must(t, err)
	if len(r.Stopped) != 1 || r.Stopped[0].ID != victim || alive(victim) {
		t.Errorf("Sweep = %+v", r)
	}
}

// An editor that was opened through pmcp starts a server of its own; then the
// first pmcp is killed with its guardian. Nothing may close the editor.
func TestSweepSparesTheClientsOfLiveServers(t *testing.T) {
	dir := newDir(t)
	dead := uuid.NewString()
	t.Setenv(sessionEnv, dead) // the servers of this test inherit it
	marked := startServer(t, dir, "marked")
	write(t, file(dir, dead, ".lock"), "")
	write(t, file(dir, dead, ".procs"), fmt.Sprintf("boot %s\n%v\n", proctab.BootID(), self(t))) // we are the editor
	r, err := Sweep(t.Context(), dir, nil)
	must(t, err)
	if len(r.Stopped) != 0 || len(r.Sessions) != 0 || len(r.Remaining) == 0 || r.Remaining[0].Why == "" {
		t.Errorf("Sweep = %+v", r)
	}
	if list, err := List(dir); err != nil || len(list) != 2 {
		t.Errorf("List = %+v, %v", list, err)
	}
	if !Alive(dir, marked.id) {
		t.Error("the live server was stopped")
	}
}

// A server that is being killed has lost its lock but is still in the process
// table when the next one starts.
func TestSweepWaitsForDyingServers(t *testing.T) {
	defer func(before time.Duration) { dying = before }(dying)
	dying = time.Minute
	dir, id := newDir(t), uuid.NewString()
	server := exec.Command("cat")
	end, err := server.StdinPipe()
	must(t, err)
	must(t, server.Start())
	row, err := proctab.Read(server.Process.Pid)
	must(t, err)
	lock, err := create(dir, id)
	must(t, err)
	plantServer(t, dir, id, row.ID, "")
	must(t, lock.Close())
	if e := only(t, dir); e.State != Live || !e.unlocked {
		t.Errorf("%+v", e)
	}
	told, log := io.Pipe()
	var follower sync.WaitGroup
	follower.Go(func() {
		for lines := bufio.NewScanner(told); lines.Scan(); {
			if strings.Contains(lines.Text(), "given time to die") {
				_ = end.Close() // it dies now
			}
		}
	})
	swept, err := Sweep(t.Context(), dir, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	_ = log.Close()
	follower.Wait()
	_ = end.Close()
	must(t, server.Wait())
	must(t, err)
	if !slices.Equal(swept.Sessions, []string{id}) || len(swept.Stopped)+len(swept.Remaining) > 0 {
		t.Errorf("%+v", swept)
	}
}

// TestSweepTellsOfTheDying: a lock that is held for a dead server may be freed
// any moment, and the next sweep finds what it left.
func TestSweepTellsOfTheDying(t *testing.T) {
	dir, id, well := newDir(t), uuid.NewString(), uuid.NewString()
	lock, err := create(dir, id)
	must(t, err)
	own, err := create(dir, well)
	must(t, err)
	defer own.Close()
	plantServer(t, dir, well, self(t), "")
	plantServer(t, dir, id, self(t), "")
	if swept, err := Sweep(t.Context(), dir, nil); err != nil || swept.Dying {
		t.Errorf("with two servers that are well: %+v, %v", swept, err)
	}
	plantServer(t, dir, id, proctab.ID{PID: os.Getpid(), Start: 1}, "") // the number is another's now
	if swept, err := Sweep(t.Context(), dir, nil); err != nil || !swept.Dying || len(swept.Sessions) > 0 {
		t.Errorf("while the lock is held: %+v, %v", swept, err)
	}
	must(t, lock.Close())
	if swept, err := Sweep(t.Context(), dir, nil); err != nil || swept.Dying || !slices.Equal(swept.Sessions, []string{id}) {
		t.Errorf("after that: %+v, %v", swept, err)
	}
}

// plantServer writes a record that names a process as its server.
func plantServer(t *testing.T, dir, id string, server proctab.ID, executable string) {
	t.Helper()
	write(t, file(dir, id, recordSuffix), fmt.Sprintf(`{"v":1,"id":%q,"boot_id":%q,"server":{"pid":%d,"start":%d},"executable":%q}`,
		id, proctab.BootID(), server.PID, server.Start, executable))
}

// TestRecordThatNamesAnother has records with a free lock name this very
// process: one with its program is taken for a server whose lock was deleted,
// one with another is what somebody left, and is swept without a signal.
func TestRecordThatNamesAnother(t *testing.T) {
	dir, ours, others := newDir(t), uuid.NewString(), uuid.NewString()
	own, known := proctab.Executable(os.Getpid())
	if _, err := os.Stat("/proc/self/cmdline"); err != nil || !known {
		t.Skip("cannot tell what this process runs")
	}
	me := self(t)
	plantServer(t, dir, ours, me, own)
	plantServer(t, dir, others, me, "/usr/bin/pmcp")
	list, err := List(dir)
	must(t, err)
	states := map[string]State{}
	for _, e := range list {
		states[e.ID] = e.State
	}
	if states[ours] != Live || states[others] != Stale {
		t.Errorf("states %v, ours %s", states, ours)
	}
	swept, err := Sweep(t.Context(), dir, nil)
	must(t, err)
	if !slices.Equal(swept.Sessions, []string{others}) || len(swept.Stopped)+len(swept.Remaining) > 0 {
		t.Errorf("%+v", swept)
	}
}

func TestOneSweepAtATime(t *testing.T) {
	dir := newDir(t)
	forge(t, dir, "another boot", self(t))
	d, err := openDir(dir)
	must(t, err)
	must(t, flock(d, unix.LOCK_EX))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if r, err := Sweep(ctx, dir, nil); err != nil || !r.Busy || len(r.Sessions) != 0 {
		t.Errorf("beside another: %+v, %v", r, err)
	}
	must(t, d.Close())
	if r, err := Sweep(t.Context(), dir, nil); err != nil || r.Busy || len(r.Sessions) != 1 {
		t.Errorf("alone: %+v, %v", r, err)
	}
}

// A sweep that is given no time for SIGTERM to act still ends, and what it could
// not stop keeps its record.
func TestSweepWithoutTime(t *testing.T) {
	dir := newDir(t)
	s := startServer(t, dir, "ignoring")
	s.kill()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := Sweep(ctx, dir, nil)
	must(t, err)
	if len(r.Sessions)+len(r.Remaining) != 1 {
		t.Errorf("Sweep = %+v", r)
	}
	if again, err := Sweep(t.Context(), dir, nil); err != nil || len(again.Remaining) != 0 || len(files(t, dir)) != 0 {
		t.Errorf("second Sweep = %+v, %v", again, err)
	}
	s.wantGone()
}

// A stopped process does not see SIGTERM until it is continued.
func TestSweepWakesStoppedProcesses(t *testing.T) {
	dir := newDir(t)
	s := startServer(t, dir, "noted")
	e := only(t, dir)
	must(t, proctab.Signal(e.Processes[0], syscall.SIGSTOP))
	s.kill()
	r, err := Sweep(t.Context(), dir, nil)
	if err != nil || len(r.Stopped) != 1 {
		t.Errorf("Sweep = %+v, %v", r, err)
	}
	s.wantGone()
}

// Servers started and killed in turn, and many at once, leave nothing.
func TestManyServers(t *testing.T) {
	dir := newDir(t)
	const inTurn, atOnce = 20, 10
	for i := range inTurn {
		s := startServer(t, dir, "marked")
		if i%2 == 0 {
			s.kill()
			continue
		}
		must(t, s.stdin.Close())
		_ = s.cmd.Wait()
	}
	var servers []*server
	for range atOnce {
		servers = append(servers, startServer(t, dir, "noted"))
	}
	for _, s := range servers {
		must(t, s.cmd.Process.Signal(os.Kill))
	}
	for _, s := range servers {
		_ = s.cmd.Wait()
	}
	r, err := Sweep(t.Context(), dir, nil)
	if err != nil || len(r.Sessions) != inTurn/2+atOnce {
		t.Errorf("Sweep = %+v, %v", r, err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
