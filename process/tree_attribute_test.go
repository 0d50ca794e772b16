package process

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/process/proctab"
)

// TestAttributeAssignsProcessesToRuns checks that a tree without a subreaper assigns the processes
// of made-up process tables to their runs, and no unrelated process to a run. The pids are far
// beyond any real one.
func TestAttributeAssignsProcessesToRuns(t *testing.T) {
	const base, run = 900_000_000, 7
	row := func(pid, start, parent, group, session int) proctab.Proc {
		if parent >= 1000 {
			parent += base
		}
		return proctab.Proc{ID: proctab.ID{PID: base + pid, Start: uint64(start)}, PPID: parent, PGID: base + group, SID: base + session}
	}
	self := os.Getpid()
	tr := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
	leader := proctab.ID{PID: base + 1000, Start: 1}
	tr.addLeader(leader, run)

	for _, c := range []struct {
		name  string
		table []proctab.Proc
		reap  bool // whether the leader is reaped afterwards
		want  []int
	}{
		{"tree", []proctab.Proc{
			row(1000, 1, self, 1000, 500),
			row(1001, 2, 1000, 1000, 500),  // in the leader's group
			row(1002, 3, 1000, 1002, 1002), // in a session of its own
			row(1003, 4, self, 1003, 500),  // a process of another run, or of none
			row(1004, 5, 1, 1004, 1004),    // not a descendant of the test
		}, true, []int{1000, 1001, 1002}},
		{"leader gone, group still in use", []proctab.Proc{
			row(1001, 2, 1, 1000, 500),
			row(1002, 3, 1, 1002, 1002),
			row(1005, 6, 1, 1000, 500),  // orphan in the leader's group, never seen below the leader
			row(1006, 7, 1002, 1006, 1), // child of an orphan
		}, false, []int{1001, 1002, 1005, 1006}},
		{"group empty", []proctab.Proc{
			row(1002, 3, 1, 1002, 1002),
		}, false, []int{1002}},
		{"group number belongs to a stranger", []proctab.Proc{
			row(1002, 3, 1, 1002, 1002),
			row(1000, 90, 1, 1000, 1000),
			row(1007, 91, 1000, 1000, 1000),
		}, false, []int{1002}},
		{"member's pid belongs to a stranger", []proctab.Proc{
			row(1002, 92, 1, 1002, 1002),
		}, false, nil},
		{"nothing is watched any more", []proctab.Proc{
			row(1002, 3, 1, 1002, 1002),
		}, false, nil},
	} {
		tr.mu.Lock()
		found, _ := tr.attributeLocked(c.table)
		tr.mu.Unlock()
		var got []int
		for _, p := range found.members[run] {
			got = append(got, p.PID-base)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: members %v, want %v", c.name, got, c.want)
		}
		if c.reap {
			tr.markReaped(leader)
		}
	}
}

// TestAttributeRereadsOrphanDuringExec checks that an orphan that has no environment at the first
// scan, because it is in the middle of an execve, is read again.
func TestAttributeRereadsOrphanDuringExec(t *testing.T) {
	const run = 7
	tr := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
	tr.addLeader(proctab.ID{PID: 900_000_000, Start: 1}, run)
	cmd := exec.Command("/bin/sh", "-c", `read -r line; echo "$line"; read -r line; echo "$line"; exec /usr/bin/env `+proctab.EnvSession+`=session `+proctab.EnvRun+`=7 /bin/cat`)
	cmd.Env = []string{}
	ask := startAsked(t, cmd)
	members := func() int {
		p, err := proctab.Read(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		p.PPID, p.PGID, p.SID = 1, p.PID, p.PID
		tr.mu.Lock()
		defer tr.mu.Unlock()
		found, _ := tr.attributeLocked([]proctab.Proc{p})
		return len(found.members[run])
	}
	ask("without\n")
	if n := members(); n != 0 {
		t.Errorf("%d members before it has an environment, want 0", n)
	}
	ask("go\n")
	ask("up\n") // answered by the next program
	if n := members(); n != 1 {
		t.Errorf("%d members once it has the mark, want 1", n)
	}
}

// TestAttributeFindsOrphanOfRunBeingStarted checks that an orphan belongs to its run although a scan
// saw it before the leader was added, as one does on a busy machine.
func TestAttributeFindsOrphanOfRunBeingStarted(t *testing.T) {
	const run = 7
	tr := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
	tr.expect(8)
	tr.cancelExpected(8)
	tr.expect(run)
	cmd := exec.Command("cat")
	cmd.Env = []string{proctab.EnvSession + "=session", proctab.EnvRun + "=7"}
	if line := startAsked(t, cmd)("up\n"); line != "up\n" { // cat is running, so cat has its environment
		t.Fatalf("read %q, want up", line)
	}
	p, err := proctab.Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p.PPID, p.PGID, p.SID = 1, p.PID, p.PID
	for _, when := range []string{"before", "after"} {
		tr.mu.Lock()
		found, _ := tr.attributeLocked([]proctab.Proc{p})
		tr.mu.Unlock()
		if len(found.members[run]) != 1 || len(found.strays) > 0 {
			t.Errorf("%s the leader: got %v and the strays %v, want a member of run 7", when, found.members, found.strays)
		}
		tr.addLeader(proctab.ID{PID: 900_000_000, Start: 1}, run)
	}
	if len(tr.starting) > 0 {
		t.Errorf("got %v being started, want none", tr.starting)
	}
}

// TestAttributeFindsChildOfNewZombie checks that the next scan assigns a child to its run if an
// earlier scan found only the zombie of the child's parent and missed the child.
func TestAttributeFindsChildOfNewZombie(t *testing.T) {
	const base, run = 900_000_000, 7
	tr := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
	leader := proctab.ID{PID: base, Start: 1}
	tr.addLeader(leader, run)
	cmd := exec.Command("cat")
	cmd.Env = []string{proctab.EnvSession + "=session", proctab.EnvRun + "=7"}
	ask := startAsked(t, cmd)
	if line := ask("up\n"); line != "up\n" { // cat is running, so cat has its environment
		t.Fatalf("read %q, want up", line)
	}
	child, err := proctab.Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	child.PPID, child.PGID, child.SID = 1, base, base
	survivor := proctab.Proc{ID: proctab.ID{PID: base + 1, Start: 2}, PPID: base, PGID: base, SID: base}
	first := proctab.Proc{ID: leader, PPID: os.Getpid(), PGID: base, SID: base, Zombie: true}
	orphan := survivor
	orphan.PPID = 1
	zombie := orphan
	zombie.Zombie = true
	for i, c := range []struct {
		table []proctab.Proc
		want  int // number of members
	}{
		{[]proctab.Proc{first, survivor}, 1},
		{[]proctab.Proc{orphan}, 1},
		{[]proctab.Proc{zombie}, 0},
		{[]proctab.Proc{child}, 1},
		{nil, 0},
	} {
		tr.mu.Lock()
		found, _ := tr.attributeLocked(c.table)
		watched := len(tr.leaders)
		tr.mu.Unlock()
		tr.markReaped(leader)
		if got := found.members[run]; len(got) != c.want || len(found.strays) > 0 {
			t.Errorf("table %d: members %v, strays %v; want %d members", i, got, found.strays, c.want)
		}
		if end := c.table == nil; end != (watched == 0) {
			t.Errorf("table %d: %d leaders, want none only at the end", i, watched)
		}
	}
}

// TestScanProvesEndOfRun checks that a scan proves the end of a run only if it began after the end
// of the first process and shows no other row of the run.
func TestScanProvesEndOfRun(t *testing.T) {
	const base, run = 900_000_000, 7
	row := func(pid int, zombie bool) proctab.Proc {
		return proctab.Proc{ID: proctab.ID{PID: base + pid, Start: 1}, PPID: os.Getpid(), PGID: base, SID: base, Zombie: zombie}
	}
	for name, c := range map[string]struct {
		table []proctab.Proc
		err   error
		alone bool // there is no subreaper
		late  bool // the first process ends after the scan
		want  bool
	}{
		"nothing":             {want: true},
		"first zombie":        {table: []proctab.Proc{row(0, true)}, want: true},
		"first not ended":     {table: []proctab.Proc{row(0, false)}},
		"other zombie":        {table: []proctab.Proc{row(0, true), row(1, true)}},
		"other":               {table: []proctab.Proc{row(1, false)}},
		"earlier scan":        {late: true},
		"without a subreaper": {alone: true},
		"failed scan":         {err: syscall.EMFILE},
	} {
		tr := newTree(&spawner{}, "session", !c.alone, nil, slog.New(slog.DiscardHandler))
		tr.addLeader(proctab.ID{PID: base, Start: 1}, run)
		tr.table = func() ([]proctab.Proc, error) { return c.table, c.err }
		endedAt := time.Now()
		tr.scanSince(endedAt)
		tr.scanSince(time.Now()) // a zombie that an earlier scan saw counts too
		if c.late {
			endedAt = time.Now()
		}
		if got := tr.isGone(run, endedAt); got != c.want {
			t.Errorf("%s: isGone = %v, want %v", name, got, c.want)
		}
	}
}

// TestFailedScanKeepsMembers checks that the members of a run stay known when a scan cannot read
// the process table.
func TestFailedScanKeepsMembers(t *testing.T) {
	const base, run = 900_000_000, 7
	tr := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
	leader := proctab.ID{PID: base, Start: 1}
	tr.addLeader(leader, run)
	survivor := proctab.Proc{ID: proctab.ID{PID: base + 1, Start: 2}, PPID: base, PGID: base, SID: base}
	first := proctab.Proc{ID: leader, PPID: os.Getpid(), PGID: base, SID: base, Zombie: true}
	orphan := survivor
	orphan.PPID = 1
	members := func() []proctab.Proc { return tr.members(run) }
	for i, c := range []struct {
		table []proctab.Proc
		err   error
		want  int // number of members
	}{
		{[]proctab.Proc{first, survivor}, nil, 1},
		{nil, syscall.EMFILE, 1},
		{[]proctab.Proc{orphan}, nil, 1},
		{nil, syscall.ENFILE, 1},
		{nil, nil, 0},
	} {
		tr.table = func() ([]proctab.Proc, error) { return c.table, c.err }
		if got := members(); len(got) != c.want {
			t.Errorf("table %d: members %v, want %d", i, got, c.want)
		}
		tr.markReaped(leader)
		if left := killAll(members, 0); len(left) != c.want {
			t.Errorf("table %d: survivors of killAll %v, want %d", i, left, c.want)
		}
		if end := c.want == 0; end == tr.needsScans() {
			t.Errorf("table %d: needsScans = %v, want %v", i, end, !end)
		}
	}
}

// TestStopNamesRunThatOnlyLeavesZombies checks that killAll reports a run of which each scan sees
// only a new zombie, because its processes fork and exit all the time. A zombie that an earlier
// scan saw does not count.
func TestStopNamesRunThatOnlyLeavesZombies(t *testing.T) {
	const base, run = 900_000_000, 7
	tr := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
	tr.addLeader(proctab.ID{PID: base, Start: 1}, run)
	zombie := proctab.Proc{ID: proctab.ID{PID: base + 1, Start: 2}, PPID: os.Getpid(), PGID: base, SID: base, Zombie: true, Comm: "brief"}
	tr.table = func() ([]proctab.Proc, error) {
		zombie.PID++
		return []proctab.Proc{zombie}, nil
	}
	members := func() []proctab.Proc { return tr.members(run) }
	if left := killAll(members, 0); len(left) != 1 || left[0].Comm != "brief" {
		t.Errorf("survivors %v, want the last zombie", left)
	}
	tr.table = func() ([]proctab.Proc, error) { return []proctab.Proc{zombie}, nil }
	if left := killAll(members, 0); len(left) != 0 {
		t.Errorf("survivors %v of a run with an old zombie, want none", left)
	}
}

// TestKillAllListsAgainAfterTimeout checks that killAll does not report a process as a survivor
// only because one listing of processes took longer than the timeout.
func TestKillAllListsAgainAfterTimeout(t *testing.T) {
	calls := 0
	left := killAll(func() []proctab.Proc {
		if calls++; calls > 1 {
			return nil
		}
		return []proctab.Proc{{ID: proctab.ID{PID: 900_000_000, Start: 1}}}
	}, 0)
	if len(left) > 0 {
		t.Errorf("survivors %v, want none", left)
	}
}

// TestRecheckTrustsOnlyWhatCannotHaveChanged checks that recheck does without a scan only if no
// process can have been added and none has ended since a recent one.
func TestRecheckTrustsOnlyWhatCannotHaveChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self, err := proctab.Read(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		const run = 7
		gone := self
		gone.Start++
		tr := newTree(&spawner{}, "session", true, nil, slog.New(slog.DiscardHandler))
		for what, c := range map[string]struct {
			newest int
			last   scan
			want   bool
		}{
			"nothing happened":         {5, scan{newest: 5, members: map[int64][]proctab.Proc{run: {self}}}, true},
			"a process was created":    {6, scan{newest: 5, members: map[int64][]proctab.Proc{run: {self}}}, false},
			"it is not known":          {0, scan{members: map[int64][]proctab.Proc{run: {self}}}, false},
			"a member has ended":       {5, scan{newest: 5, members: map[int64][]proctab.Proc{run: {self, gone}}}, false},
			"a stray may find its run": {5, scan{newest: 5, members: map[int64][]proctab.Proc{run: {self}}, strays: []proctab.Proc{self}}, false},
		} {
			tr.newest = func() int { return c.newest }
			c.last.began = time.Now()
			tr.latest.Store(&c.last)
			if living, ok := tr.recheck(run); ok != c.want || ok && (len(living) != 1 || living[0].PID != self.PID) {
				t.Errorf("%s: got %v, %v; want %v", what, living, ok, c.want)
			}
			time.Sleep(time.Second)
			if living, ok := tr.recheck(run); ok {
				t.Errorf("%s, a second later: got %v, want a scan", what, living)
			}
		}
	})
}

// TestRecentMembersHaveWhatWasJustForked checks that a stop uses an earlier scan only if no process
// can have been added since.
func TestRecentMembersHaveWhatWasJustForked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const base, run = 900_000_000, 7
		leader := proctab.Proc{ID: proctab.ID{PID: base, Start: 1}, PPID: os.Getpid(), PGID: base, SID: base}
		late := proctab.Proc{ID: proctab.ID{PID: base + 1, Start: 2}, PPID: base, PGID: base + 1, SID: base + 1}
		tr := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
		tr.addLeader(leader.ID, run)
		scans, table, newest := 0, []proctab.Proc{leader}, 5
		tr.table = func() ([]proctab.Proc, error) { scans++; return table, nil }
		tr.newest = func() int { return newest }
		check := func(when string, wantScans, want int) {
			t.Helper()
			if got := tr.recentMembers(run, time.Millisecond); len(got) != want || scans != wantScans {
				t.Errorf("%s: got %v after %d scans, want %d processes after %d", when, got, scans, want, wantScans)
			}
		}
		time.Sleep(time.Second)
		check("no scan before", 1, 1)
		check("nothing happened", 1, 1)
		time.Sleep(time.Microsecond)
		table, newest = append(table, late), 6
		check("a member was forked", 2, 2)
		check("nothing happened since", 2, 2)
		time.Sleep(2 * time.Millisecond)
		check("the scan is old", 3, 2)
	})
}

// TestSamplerSleepsWithoutNeed checks that the sampler does not tick without a process, and ticks
// slowly once no process has been started for a while and none is near a limit.
func TestSamplerSleepsWithoutNeed(t *testing.T) {
	bubble(t, Options{Subreaper: true, MaxMemoryMB: 100}, func(t *testing.T, m *Manager, _ *fakeSpawner) {
		const base, run = 900_000_000, 7
		leader := proctab.Proc{ID: proctab.ID{PID: base, Start: 1}, PPID: os.Getpid(), PGID: base, SID: base, Memory: 1 << 20}
		tr := m.deps.tree
		var scans atomic.Int64
		set := func(table ...proctab.Proc) {
			tr.mu.Lock()
			defer tr.mu.Unlock()
			tr.table = func() ([]proctab.Proc, error) { scans.Add(1); return table, nil }
		}
		check := func(when string, span time.Duration, want int64) {
			t.Helper()
			time.Sleep(span)
			synctest.Wait()
			if got := scans.Swap(0); got != want {
				t.Errorf("%s: got %d scans in %v, want %d", when, got, span, want)
			}
		}
		set()
		check("without a process", time.Hour, 0)
		m.mu.Lock()
		m.addEntryLocked("a").status = Status{RunID: run, State: Running}
		m.mu.Unlock()
		set(leader)
		tr.addLeader(leader.ID, run)
		check("after a start", calmAfter, int64(calmAfter/samplePeriod))
		check("calm", time.Hour, int64(time.Hour/calmPeriod))
		tr.addLeader(leader.ID, run)
		check("after another start", 3*samplePeriod, 3)
		check("calm again", time.Hour, int64((time.Hour-calmAfter+3*samplePeriod)/calmPeriod)+int64(calmAfter/samplePeriod)-3)
		leader.Memory = 60 << 20
		set(leader)
		check("near a limit", time.Minute, 58) // the first one 3 s from now: it shows the memory
		tr.markReaped(leader.ID)
		set()
		check("after the end", time.Hour, 1)
		m.mu.Lock()
		delete(m.entries, "a")
		m.mu.Unlock()
	})
}

// TestFailedScanIsNotSampled checks that the sampler does not repeat earlier measurements when a
// scan of processes fails.
func TestFailedScanIsNotSampled(t *testing.T) {
	t.Parallel()
	samples := make(chan bool, 1000)
	m, _ := newTestManager(t, Options{OnSample: func(int64, time.Time, float64, uint64, int) { samples <- true }})
	start(t, m, helper("a", "block"))
	ctx := testContext(t)
	wait := func(c chan bool) {
		t.Helper()
		select {
		case <-c:
		case <-ctx.Done():
			t.Fatal("the sampler does not scan")
		}
	}
	wait(samples)
	tr := m.deps.tree
	set := func(table func() ([]proctab.Proc, error)) {
		tr.mu.Lock()
		tr.table = table
		tr.mu.Unlock()
	}
	scans := make(chan bool, 1000)
	set(func() ([]proctab.Proc, error) {
		scans <- true
		return nil, syscall.EMFILE
	})
	defer set(proctab.All)
	wait(scans)
	for len(samples) > 0 {
		<-samples
	}
	wait(scans) // the first scan was processed
	if len(samples) > 0 {
		t.Errorf("%d samples of a failed scan, want none", len(samples))
	}
}

// TestScanRereadsStrayDuringExec checks that a process that had no environment because it was in
// the middle of an execve is read again and assigned to its run. In the test, a process starts
// without an environment and executes a program with one when the test wants.
func TestScanRereadsStrayDuringExec(t *testing.T) {
	session := fmt.Sprint("scanned by ", os.Getpid()) // the scan sees the whole machine, other tests too
	tr := newTree(&spawner{}, session, false, nil, slog.New(slog.DiscardHandler))
	tr.addLeader(proctab.ID{PID: 900_000_000, Start: 1}, 7)
	cmd := exec.Command("/bin/sh", "-c", `read line; exec /usr/bin/env PMCP_SESSION="$0" PMCP_RUN=7 /bin/sh -c 'echo marked; read line'`, session)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ask := startAsked(t, cmd)
	is := func(p proctab.Proc) bool { return p.PID == cmd.Process.Pid }
	if found := tr.scanSince(time.Now()); !slices.ContainsFunc(found.strays, is) || len(found.members[7]) > 0 {
		t.Errorf("without an environment: strays %v, members %v; want a stray", found.strays, found.members[7])
	}
	if line := ask("go\n"); line != "marked\n" {
		t.Fatalf("read %q, want marked", line)
	}
	if found := tr.scanSince(time.Now()); !slices.ContainsFunc(found.members[7], is) {
		t.Errorf("with the mark: strays %v, members %v; want a member", found.strays, found.members[7])
	}
}

// startAsked starts a program and returns a function that writes the program a line and reads its
// answer. The end of the test closes the program's input, which ends the program.
func startAsked(t *testing.T, cmd *exec.Cmd) (ask func(line string) (answer string)) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	return func(line string) string {
		t.Helper()
		if _, err := io.WriteString(in, line); err != nil {
			t.Fatal(err)
		}
		answer, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("read %q, %v; want a line", answer, err)
		}
		return answer
	}
}
