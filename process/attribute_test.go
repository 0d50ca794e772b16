package process

import (
	"bufio"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctab"
)

// TestAttribution feeds process tables to a tree without a subreaper, which
// must not take a stranger's process for a run's: pids far beyond any real one.
func TestAttribution(t *testing.T) {
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
	tr.watch(leader, run)

	for _, c := range []struct {
		name  string
		table []proctab.Proc
		reap  bool // the leader, afterwards
		want  []int
	}{
		{"tree", []proctab.Proc{
			row(1000, 1, self, 1000, 500),
			row(1001, 2, 1000, 1000, 500),  // same group
			row(1002, 3, 1000, 1002, 1002), // own session
			row(1003, 4, self, 1003, 500),  // another run's, or none's
			row(1004, 5, 1, 1004, 1004),    // not below us
		}, true, []int{1000, 1001, 1002}},
		{"leader gone, group still in use", []proctab.Proc{
			row(1001, 2, 1, 1000, 500),
			row(1002, 3, 1, 1002, 1002),
			row(1005, 6, 1, 1000, 500),  // orphan in the group, never seen below
			row(1006, 7, 1002, 1006, 1), // child of an orphan
		}, false, []int{1001, 1002, 1005, 1006}},
		{"group empty", []proctab.Proc{
			row(1002, 3, 1, 1002, 1002),
		}, false, []int{1002}},
		{"number of the group is a stranger's", []proctab.Proc{
			row(1002, 3, 1, 1002, 1002),
			row(1000, 90, 1, 1000, 1000),
			row(1007, 91, 1000, 1000, 1000),
		}, false, []int{1002}},
		{"pid of a member is a stranger's", []proctab.Proc{
			row(1002, 92, 1, 1002, 1002),
		}, false, nil},
		{"nothing is watched any more", []proctab.Proc{
			row(1002, 3, 1, 1002, 1002),
		}, false, nil},
	} {
		tr.mu.Lock()
		found, _ := tr.attribute(c.table)
		tr.mu.Unlock()
		var got []int
		for _, p := range found.members[run] {
			got = append(got, p.PID-base)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if c.reap {
			tr.reaped(leader)
		}
	}
}

// TestOrphanBetweenTwoPrograms: who has no environment when it is seen first, in
// the middle of an execve, is looked at again.
func TestOrphanBetweenTwoPrograms(t *testing.T) {
	const run = 7
	tr := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
	tr.watch(proctab.ID{PID: 900_000_000, Start: 1}, run)
	cmd := exec.Command("/bin/sh", "-c", `read -r line; echo "$line"; read -r line; echo "$line"; exec /usr/bin/env `+EnvSession+`=session `+EnvRun+`=7 /bin/cat`)
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
		found, _ := tr.attribute([]proctab.Proc{p})
		return len(found.members[run])
	}
	ask("without\n")
	if n := members(); n != 0 {
		t.Errorf("%d members before it has an environment", n)
	}
	ask("go\n")
	ask("up\n") // this is answered by the next program
	if n := members(); n != 1 {
		t.Errorf("%d members when it has the mark", n)
	}
}

// TestAZombieHidesAChild: a scan may find a survivor's zombie and miss the child
// that it had started a moment before. The next one knows whose that is.
func TestAZombieHidesAChild(t *testing.T) {
	const base, run = 900_000_000, 7
	tr := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
	leader := proctab.ID{PID: base, Start: 1}
	tr.watch(leader, run)
	cmd := exec.Command("cat")
	cmd.Env = []string{EnvSession + "=session", EnvRun + "=7"}
	ask := startAsked(t, cmd)
	if line := ask("up\n"); line != "up\n" { // executed: it has its environment
		t.Fatalf("%q", line)
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
		want  int // members
	}{
		{[]proctab.Proc{first, survivor}, 1},
		{[]proctab.Proc{orphan}, 1},
		{[]proctab.Proc{zombie}, 0},
		{[]proctab.Proc{child}, 1},
		{nil, 0},
	} {
		tr.mu.Lock()
		found, _ := tr.attribute(c.table)
		watched := len(tr.leaders)
		tr.mu.Unlock()
		tr.reaped(leader)
		if got := found.members[run]; len(got) != c.want || len(found.strays) > 0 {
			t.Errorf("table %d: members %v, strays %v; want %d members", i, got, found.strays, c.want)
		}
		if end := c.table == nil; end != (watched == 0) {
			t.Errorf("table %d: %d runs are watched", i, watched)
		}
	}
}

// TestABlindLookForgetsNobody: a process table that cannot be read says nothing
// of who lives.
func TestABlindLookForgetsNobody(t *testing.T) {
	const base, run = 900_000_000, 7
	tr := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
	leader := proctab.ID{PID: base, Start: 1}
	tr.watch(leader, run)
	survivor := proctab.Proc{ID: proctab.ID{PID: base + 1, Start: 2}, PPID: base, PGID: base, SID: base}
	first := proctab.Proc{ID: leader, PPID: os.Getpid(), PGID: base, SID: base, Zombie: true}
	orphan := survivor
	orphan.PPID = 1
	members := func() []proctab.Proc { return tr.members(run) }
	for i, c := range []struct {
		table []proctab.Proc
		err   error
		want  int // members
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
		tr.reaped(leader)
		if left := killAll(members, 0); len(left) != c.want {
			t.Errorf("table %d: left of a kill: %v, want %d", i, left, c.want)
		}
		if end := c.want == 0; end == tr.watching() {
			t.Errorf("table %d: watching %v", i, !end)
		}
	}
}

// TestALateLookNamesNobodyDead: who was alive at a look that took longer than the
// patience is not named before another look.
func TestALateLookNamesNobodyDead(t *testing.T) {
	looks := 0
	left := killAll(func() []proctab.Proc {
		if looks++; looks > 1 {
			return nil
		}
		return []proctab.Proc{{ID: proctab.ID{PID: 900_000_000, Start: 1}}}
	}, 0)
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestABlindLookIsNoSample: what was measured before is not measured again.
func TestABlindLookIsNoSample(t *testing.T) {
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
			t.Fatal("the sampler does not look")
		}
	}
	wait(samples)
	tr := m.deps.tree
	set := func(table func() ([]proctab.Proc, error)) {
		tr.mu.Lock()
		tr.table = table
		tr.mu.Unlock()
	}
	looks := make(chan bool, 1000)
	set(func() ([]proctab.Proc, error) {
		looks <- true
		return nil, syscall.EMFILE
	})
	defer set(proctab.All)
	wait(looks)
	for len(samples) > 0 {
		<-samples
	}
	wait(looks) // the first was dealt with
	if len(samples) > 0 {
		t.Error("a look that failed was sampled")
	}
}

// TestMarkComesLate: a process that is looked at between two programs has no
// environment, and is no stray for that. One that was started without any and
// then executes with the mark is the same to who looks, and waits for the test.
func TestMarkComesLate(t *testing.T) {
	tr := newTree(&spawner{}, "session", false, nil, slog.New(slog.DiscardHandler))
	tr.watch(proctab.ID{PID: 900_000_000, Start: 1}, 7)
	cmd := exec.Command("/bin/sh", "-c", `read line; exec /usr/bin/env PMCP_SESSION=session PMCP_RUN=7 /bin/sh -c 'echo marked; read line'`)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ask := startAsked(t, cmd)
	is := func(p proctab.Proc) bool { return p.PID == cmd.Process.Pid }
	if found := tr.look(time.Now()); !slices.ContainsFunc(found.strays, is) || len(found.members[7]) > 0 {
		t.Errorf("without an environment: strays %v, members %v", found.strays, found.members[7])
	}
	if line := ask("go\n"); line != "marked\n" {
		t.Fatalf("%q", line)
	}
	if found := tr.look(time.Now()); !slices.ContainsFunc(found.members[7], is) {
		t.Errorf("with the mark: strays %v, members %v", found.strays, found.members[7])
	}
}

// startAsked starts a program, to be ended by the end of its input with the test,
// and returns what writes it a line and reads its answer.
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
			t.Fatalf("%q, %v", answer, err)
		}
		return answer
	}
}
