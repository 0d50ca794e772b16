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
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
	"pmcp/registry/registrytest"
)

func TestSweepOfEmptyRegistryDoesNothing(t *testing.T) {
	dir := registrytest.NewDir(t)
	if r, err := Sweep(t.Context(), dir, nil); err != nil || len(r.Sessions) != 0 {
		t.Errorf("Sweep = %+v, %v; want no session", r, err)
	}
	if got := registrytest.Files(t, dir); got != nil {
		t.Errorf("Sweep created %v, want nothing", got)
	}
}

func TestSweepStopsWhatDeadServerLeft(t *testing.T) {
	dir := registrytest.NewDir(t)
	s := registrytest.StartServer(t, dir, "marked", "listed", "parent", "ignoring")
	bystander := registrytest.StartServer(t, dir, "marked", "listed")
	innocent := registrytest.StartInnocent(t)
	s.Kill()
	var log bytes.Buffer
	r, err := Sweep(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	s.WantGone()
	if !slices.Equal(r.Sessions, []string{s.ID}) || len(r.Stopped) != 5 || len(r.Remaining) != 0 || r.Busy {
		t.Errorf("Sweep = %+v, want session %s with 5 processes stopped", r, s.ID)
	}
	if e := only(t, dir); e.ID != bystander.ID || e.State != Live || !alive(e.Processes[0]) {
		t.Errorf("left in the registry: %+v", e)
	}
	if !alive(innocent) {
		t.Error("the innocent process is dead, want it alive")
	}
	if got := log.String(); strings.Count(got, "terminated") < 5 || !strings.Contains(got, "killed") || !strings.Contains(got, "removed") {
		t.Errorf("got the log, want each signal and the removal in it:\n%s", got)
	}
}

func TestSweepRemovesStaleAndCorruptButNotForeign(t *testing.T) {
	for _, c := range registrytest.BadFiles() {
		t.Run(c.Name, func(t *testing.T) {
			dir, id := registrytest.NewDir(t), uuid.NewString()
			c.Write(t, dir, id)
			before := registrytest.Files(t, dir)
			r, err := Sweep(t.Context(), dir, nil)
			must(t, err)
			after := registrytest.Files(t, dir)
			if c.State == registrytest.Stale && (len(after) != 0 || !slices.Equal(r.Sessions, []string{id})) {
				t.Errorf("got %+v, left %v; want the session %s removed", r, after, id)
			}
			if c.State == registrytest.Foreign && (!slices.Equal(before, after) || len(r.Sessions) != 0) {
				t.Errorf("%v became %v, %+v; want no change", before, after, r)
			}
		})
	}
}

// TestSweepNeverSignalsByForgedRecord checks that a sweep does not signal an innocent process
// that forged records name; StartInnocent fails the test if the process gets a signal.
func TestSweepNeverSignalsByForgedRecord(t *testing.T) {
	dir := registrytest.NewDir(t)
	innocent := registrytest.StartInnocent(t)
	registrytest.ForgeAll(t, dir, innocent)
	r, err := Sweep(t.Context(), dir, nil)
	must(t, err)
	if len(r.Stopped) != 0 || len(r.Sessions) != 6 || len(registrytest.Files(t, dir)) != 0 {
		t.Errorf("Sweep = %+v, left %v; want 6 sessions removed and nothing stopped", r, registrytest.Files(t, dir))
	}
	wrong := proctab.ID{PID: innocent.PID, Start: innocent.Start + 1}
	list := filepath.Join(filepath.Dir(dir), "list")
	registrytest.Write(t, list, fmt.Sprintf("boot %s\n%v\n", proctab.BootID(), innocent))
	linked := registrytest.Forge(t, dir, proctab.BootID(), wrong)
	must(t, os.Remove(file(dir, linked, ".procs")))
	must(t, os.Symlink(list, file(dir, linked, ".procs")))
	groups := registrytest.Forge(t, dir, proctab.BootID(), wrong)
	registrytest.Write(t, file(dir, groups, ".procs"), fmt.Sprintf("boot %s\n-%v\n0 0\n1 0\n-1 0\n", proctab.BootID(), innocent))
	if r, err = Sweep(t.Context(), dir, nil); err != nil || len(r.Stopped) != 0 {
		t.Errorf("a linked list and negative pids: Sweep = %+v, %v; want nothing stopped", r, err)
	}
	if !alive(innocent) {
		t.Error("the innocent process is dead, want it alive")
	}
}

// TestSweepStopsByTrueRecord is the control of TestSweepNeverSignalsByForgedRecord: it checks
// that the process is stopped if the same record has the right identity.
func TestSweepStopsByTrueRecord(t *testing.T) {
	dir := registrytest.NewDir(t)
	s := registrytest.StartServer(t, registrytest.NewDir(t), "unknown")
	table, err := proctab.All()
	must(t, err)
	victim := proctab.Descendants(table, s.Cmd.Process.Pid)[0].ID
	s.Kill()
	id := registrytest.Forge(t, dir, proctab.BootID(), victim)
	// A live identity would make the record's server a live one.
	registrytest.Write(t, file(dir, id, ".json"), "{}")
	r, err := Sweep(t.Context(), dir, nil)
	must(t, err)
	if len(r.Stopped) != 1 || r.Stopped[0].ID != victim || alive(victim) {
		t.Errorf("Sweep = %+v, want %v stopped", r, victim)
	}
}

// TestSweepSparesTheClientsOfLiveServers checks that a sweep does not close an editor that was
// opened through pmcp: the editor has started a server of its own when the first pmcp is killed
// together with its guardian.
func TestSweepSparesTheClientsOfLiveServers(t *testing.T) {
	dir := registrytest.NewDir(t)
	dead := uuid.NewString()
	t.Setenv(proctab.EnvSession, dead) // the servers of this test inherit it
	marked := registrytest.StartServer(t, dir, "marked")
	registrytest.Write(t, file(dir, dead, ".lock"), "")
	registrytest.Write(t, file(dir, dead, ".procs"), fmt.Sprintf("boot %s\n%v\n", proctab.BootID(), self(t))) // we are the editor
	r, err := Sweep(t.Context(), dir, nil)
	must(t, err)
	if len(r.Stopped) != 0 || len(r.Sessions) != 0 || len(r.Remaining) == 0 || r.Remaining[0].Why == "" {
		t.Errorf("Sweep = %+v, want every process spared, with a reason", r)
	}
	if list, err := List(dir); err != nil || len(list) != 2 {
		t.Errorf("List = %+v, %v", list, err)
	}
	if !Alive(dir, marked.ID) {
		t.Error("the live server was stopped, want it alive")
	}
}

// TestSweepStopsNoStampedClient checks that a sweep does not even pause the client of a live server, the server and
// what that runs, if they carry the stamp of a dead session that has started the client, while it looks for what
// has just appeared.
func TestSweepStopsNoStampedClient(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has stamps")
	}
	dir := registrytest.NewDir(t)
	dead := NewID(dir)
	var live *registrytest.Server
	must(t, proctab.Stamped(proctab.NewStamp(dead, 1), func() error {
		live = registrytest.StartServer(t, dir, "listed")
		return nil
	}))
	client := registrytest.StartStamped(t, dead, false)
	left := registrytest.StartStamped(t, dead, true)
	registrytest.Write(t, file(dir, dead, ".lock"), "")
	registrytest.Write(t, file(dir, dead, ".procs"), fmt.Sprintf("boot %s\n%v\n", proctab.BootID(), self(t))) // we are the client too
	r, err := Sweep(t.Context(), dir, nil)
	must(t, err)
	if len(r.Stopped) != 1 || r.Stopped[0].ID != left || alive(left) {
		t.Errorf("Sweep = %+v, want only %v stopped", r, left)
	}
	spared := []proctab.ID{client}
	for _, e := range mustList(t, dir) {
		if e.ID == live.ID {
			spared = append(append(spared, e.Record.Server.Identity()), e.Processes...)
		}
	}
	if len(spared) < 3 {
		t.Errorf("got the processes %v, want those of the live server too", spared)
	}
	for _, id := range spared {
		if p, err := proctab.Read(id.PID); err != nil || p.ID != id || p.Stopped {
			t.Errorf("got %+v, %v, want %v alive and not stopped", p, err, id)
		}
	}
}

func mustList(t *testing.T, dir string) []Entry {
	t.Helper()
	list, err := List(dir)
	must(t, err)
	return list
}

// TestSweepWaitsForDyingServers checks that a sweep waits for a server that is being killed and
// has lost its lock, but is still in the process table.
func TestSweepWaitsForDyingServers(t *testing.T) {
	defer func(before time.Duration) { dyingLimit = before }(dyingLimit)
	dyingLimit = time.Minute
	dir, id := registrytest.NewDir(t), uuid.NewString()
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
		t.Errorf("got %+v, want a live entry without a lock", e)
	}
	told, log := io.Pipe()
	var follower sync.WaitGroup
	follower.Go(func() {
		for lines := bufio.NewScanner(told); lines.Scan(); {
			if strings.Contains(lines.Text(), "waiting for a server without its lock to die") {
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
		t.Errorf("got %+v, want session %s removed and nothing stopped", swept, id)
	}
}

// TestSweepReportsDyingSessions checks that a sweep reports a lock that is held although its
// server is dead, because a later sweep will find what the server left.
func TestSweepReportsDyingSessions(t *testing.T) {
	dir, id, well := registrytest.NewDir(t), uuid.NewString(), uuid.NewString()
	lock, err := create(dir, id)
	must(t, err)
	own, err := create(dir, well)
	must(t, err)
	defer own.Close()
	plantServer(t, dir, well, self(t), "")
	plantServer(t, dir, id, self(t), "")
	if swept, err := Sweep(t.Context(), dir, nil); err != nil || swept.Dying {
		t.Errorf("with two live servers: %+v, %v; want none dying", swept, err)
	}
	plantServer(t, dir, id, proctab.ID{PID: os.Getpid(), Start: 1}, "") // the pid belongs to another process now
	if swept, err := Sweep(t.Context(), dir, nil); err != nil || !swept.Dying || len(swept.Sessions) > 0 {
		t.Errorf("while the lock is held: %+v, %v; want it dying", swept, err)
	}
	must(t, lock.Close())
	if swept, err := Sweep(t.Context(), dir, nil); err != nil || swept.Dying || !slices.Equal(swept.Sessions, []string{id}) {
		t.Errorf("with a free lock: %+v, %v; want session %s swept", swept, err, id)
	}
}

// TestEndOfPauseSweepsOnceMore ends the pause between two sweeps when the server that was dying is dead.
func TestEndOfPauseSweepsOnceMore(t *testing.T) {
	dir, id := registrytest.NewDir(t), uuid.NewString()
	lock, err := create(dir, id)
	must(t, err)
	plantServer(t, dir, id, proctab.ID{PID: os.Getpid(), Start: 1}, "")
	pausing, end := context.WithCancel(t.Context())
	defer end()
	pauses := writerFunc(func(line []byte) (int, error) {
		if bytes.Contains(line, []byte("checking again")) {
			must(t, lock.Close())
			end()
		}
		return len(line), nil
	})
	SweepDying(t.Context(), pausing, dir, slog.New(slog.NewTextHandler(pauses, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if left := mustList(t, dir); pausing.Err() == nil || len(left) > 0 {
		t.Errorf("got %+v left after a pause that ended: %v; want nothing", left, pausing.Err())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// plantServer writes a record that names a process as its server.
func plantServer(t *testing.T, dir, id string, server proctab.ID, executable string) {
	t.Helper()
	registrytest.Write(t, file(dir, id, recordSuffix), fmt.Sprintf(`{"v":1,"id":%q,"boot_id":%q,"server":{"pid":%d,"start":%d},"executable":%q}`,
		id, proctab.BootID(), server.PID, server.Start, executable))
}

// TestRecordOfAnotherProgramIsStale plants two records with a free lock that name this process.
// The record with this process's program is live, as if its lock file had been deleted; the
// record with another program is stale and is swept without a signal.
func TestRecordOfAnotherProgramIsStale(t *testing.T) {
	dir, ours, others := registrytest.NewDir(t), uuid.NewString(), uuid.NewString()
	own, known := proctab.Executable(os.Getpid())
	if _, err := os.Stat("/proc/self/cmdline"); err != nil || !known {
		t.Skip("the program of this process cannot be read")
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
		t.Errorf("states %v, want %s live and %s stale", states, ours, others)
	}
	swept, err := Sweep(t.Context(), dir, nil)
	must(t, err)
	if !slices.Equal(swept.Sessions, []string{others}) || len(swept.Stopped)+len(swept.Remaining) > 0 {
		t.Errorf("got %+v, want session %s removed and nothing stopped", swept, others)
	}
}

func TestOnlyOneSweepRunsAtATime(t *testing.T) {
	dir := registrytest.NewDir(t)
	registrytest.Forge(t, dir, "another boot", self(t))
	d, err := openDir(dir)
	must(t, err)
	must(t, flock(d, unix.LOCK_EX))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if r, err := Sweep(ctx, dir, nil); err != nil || !r.Busy || len(r.Sessions) != 0 {
		t.Errorf("beside another sweep: %+v, %v; want it busy", r, err)
	}
	must(t, d.Close())
	if r, err := Sweep(t.Context(), dir, nil); err != nil || r.Busy || len(r.Sessions) != 1 {
		t.Errorf("alone: %+v, %v; want one session swept", r, err)
	}
}

// TestSweepWithoutTimeKeepsRecord checks that a sweep whose context has ended says so and keeps the record, even if
// all processes that it has seen are gone: one may have left another.
func TestSweepWithoutTimeKeepsRecord(t *testing.T) {
	dir := registrytest.NewDir(t)
	s := registrytest.StartServer(t, dir, "ignoring")
	s.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := Sweep(ctx, dir, nil)
	must(t, err)
	if len(r.Sessions) != 0 || !r.Unfinished || len(registrytest.Files(t, dir)) == 0 {
		t.Errorf("Sweep = %+v, want it unfinished, and the record", r)
	}
	if again, err := Sweep(t.Context(), dir, nil); err != nil || again.Unfinished || len(again.Remaining) != 0 || len(registrytest.Files(t, dir)) != 0 {
		t.Errorf("second Sweep = %+v, %v", again, err)
	}
	s.WantGone()
}

// TestSweepWakesStoppedProcesses checks that a sweep continues stopped processes, which do not
// see SIGTERM before that.
func TestSweepWakesStoppedProcesses(t *testing.T) {
	dir := registrytest.NewDir(t)
	s := registrytest.StartServer(t, dir, "listed")
	e := only(t, dir)
	must(t, proctab.Signal(e.Processes[0], syscall.SIGSTOP))
	s.Kill()
	r, err := Sweep(t.Context(), dir, nil)
	if err != nil || len(r.Stopped) != 1 {
		t.Errorf("Sweep = %+v, %v; want one process stopped", r, err)
	}
	s.WantGone()
}

// TestManyKilledServersLeaveNothing checks that nothing is left of servers that are started and killed in turn,
// or of many at once.
func TestManyKilledServersLeaveNothing(t *testing.T) {
	dir := registrytest.NewDir(t)
	const inTurn, atOnce = 20, 10
	for i := range inTurn {
		s := registrytest.StartServer(t, dir, "marked")
		if i%2 == 0 {
			s.Kill()
			continue
		}
		must(t, s.Stdin.Close())
		_ = s.Cmd.Wait()
	}
	var servers []*registrytest.Server
	for range atOnce {
		servers = append(servers, registrytest.StartServer(t, dir, "listed"))
	}
	for _, s := range servers {
		must(t, s.Cmd.Process.Signal(os.Kill))
	}
	for _, s := range servers {
		_ = s.Cmd.Wait()
	}
	r, err := Sweep(t.Context(), dir, nil)
	if err != nil || len(r.Sessions) != inTurn/2+atOnce {
		t.Errorf("Sweep = %+v, %v; want %d sessions", r, err, inTurn/2+atOnce)
	}
	if left := registrytest.Files(t, dir); len(left) != 0 {
		t.Errorf("left %v, want nothing", left)
	}
}

// TestSweepSignalsNothingInAnotherPIDNamespace checks that the pids of a record from another pid namespace
// get no signal, and that the record is removed if that namespace is visible from here, but
// kept if it is hidden.
func TestSweepSignalsNothingInAnotherPIDNamespace(t *testing.T) {
	dir := registrytest.NewDir(t)
	innocent := registrytest.StartInnocent(t)
	boot := proctab.BootID() + "/pid:[1]"
	other, hidden := proctab.Elsewhere(boot)
	if !other {
		t.Fatalf("%q is not elsewhere", boot)
	}
	id := registrytest.Forge(t, dir, boot, innocent)
	if e := only(t, dir); e.State != Stale || len(e.Processes) > 0 {
		t.Errorf("got %+v, want a stale entry without processes", e)
	}
	r, err := Sweep(t.Context(), dir, nil)
	must(t, err)
	if len(r.Stopped) != 0 || slices.Contains(r.Sessions, id) == hidden {
		t.Errorf("Sweep = %+v, hidden %v; want the session removed unless hidden", r, hidden)
	}
	if !alive(innocent) {
		t.Error("the innocent process is dead, want it alive")
	}
}

// TestAdoptedProcessIsStopped checks that what a live server, such as a daemon, has only adopted from a dead session
// is stopped, with its descendants, and that the client which the dead session has started is spared, with all that
// it runs.
func TestAdoptedProcessIsStopped(t *testing.T) {
	pid := func(n int) proctab.ID { return proctab.ID{PID: 1<<22 + n, Start: uint64(n)} } // above every real pid
	row := func(n, parent int) proctab.Proc { return proctab.Proc{ID: pid(n), PPID: 1<<22 + parent} }
	server := func(id string, guardian, server int) Entry {
		return Entry{ID: id, State: Live, Record: Record{Boot: proctab.BootID(), Guardian: Process{PID: pid(guardian).PID, Start: uint64(guardian)}, Server: Process{PID: pid(server).PID, Start: uint64(server)}}}
	}
	const dead = "00000000-0000-4000-8000-00000000000d"
	list := []Entry{
		server("00000000-0000-4000-8000-00000000000a", 1, 2), server("00000000-0000-4000-8000-00000000000b", 11, 12),
		{ID: dead, State: Stale, Processes: []proctab.ID{pid(3), pid(10), pid(14)}},
	}
	table := []proctab.Proc{
		row(1, 0), row(2, 1), // the daemon
		row(3, 2), row(4, 3), // adopted
		row(5, 2),                                         // its own
		row(10, 0), row(11, 10), row(12, 11), row(13, 12), // a client, the server that it has launched, and what that runs
		row(14, 10), // also of the client
	}
	pids := func(of []Leftover) (all []int) {
		for _, l := range of {
			all = append(all, l.ID.PID-1<<22)
		}
		return all
	}
	left, spared := newFinder(list).find(table)
	if got, want := pids(left), []int{3, 4}; !slices.Equal(got, want) {
		t.Errorf("got %v to be stopped, want %v", got, want)
	}
	if got, want := pids(spared), []int{10, 11, 12, 13, 14}; !slices.Equal(got, want) {
		t.Errorf("got %v spared, want %v", got, want)
	}
}

// TestStraysAreFoundAndStopped checks that a process with the stamp of a session without any record is found, and
// stopped by SweepStrays alone, and that one with a living parent or of another registry is not.
func TestStraysAreFoundAndStopped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has stamps")
	}
	dir := registrytest.NewDir(t)
	stray, other, child := registrytest.StartStamped(t, NewID(dir), true), registrytest.StartStamped(t, NewID(dir+"-other"), true), registrytest.StartStamped(t, NewID(dir), false)
	found := func() (found map[proctab.ID]bool) {
		table, err := proctab.All()
		must(t, err)
		found = map[proctab.ID]bool{}
		for _, l := range Strays(dir, nil, table) {
			found[l.ID] = true
		}
		return found
	}
	if got := found(); !got[stray] || got[other] || got[child] {
		t.Errorf("got the strays %v, want %v, neither %v nor %v", got, stray, other, child)
	}
	must(t, os.MkdirAll(dir, 0o700))
	if r, err := Sweep(t.Context(), dir, nil); err != nil || len(r.Stopped) != 0 || !alive(stray) {
		t.Errorf("Sweep = %+v, %v, want nothing stopped", r, err)
	}
	r, err := SweepStrays(t.Context(), dir, nil)
	if err != nil || alive(stray) || !alive(other) || !alive(child) {
		t.Errorf("SweepStrays = %+v, %v, want only %v stopped", r, err, stray)
	}
	if got := found(); got[stray] {
		t.Errorf("got %v among the strays after they were stopped", stray)
	}
}
