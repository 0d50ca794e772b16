package process

import (
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pmcp/process/proctab"
)

// A Recorder stores the identity of every process below the server, so that a
// later server can clean up after a crash. AddProcess must not block for long.
type Recorder interface {
	AddProcess(ids ...proctab.ID) error
}

// tree maps processes to runs.
//
// Only processes below this one count (a child subreaper keeps all its
// descendants, orphans included). Such a process belongs to a run by the first
// rule that fits:
//
//  1. it is a descendant of the run's leader, its first process;
//  2. an earlier scan found that it or an ancestor belongs to the run;
//  3. it is in the leader's process group or session;
//  4. it carries the run's stamp, which on Linux lasts for its life, or was started
//     with the run's mark in its environment.
//
// A process that fits no rule is a stray: it is shown, and killed at the end of
// the session. Without stamps, a process becomes a stray if it was forked twice,
// cleared its environment, and was not seen by a scan before its parent died.
type tree struct {
	self      int
	session   string
	subreaper bool
	spawner   *spawner
	recorder  Recorder
	log       *slog.Logger

	mu sync.Mutex // guards the fields below, except leaderAdded and latest
	// scanner is nil without a subreaper.
	scanner *proctab.Scanner
	// table is scanner.Scan or proctab.All; tests replace it. readFailed reports
	// that its last call failed.
	table      func() ([]proctab.Proc, error)
	readFailed bool
	newest     func() int // proctab.Newest; tests replace it
	// starting are the runs whose leader is not added yet: what that leader has forked
	// may be an orphan already.
	starting map[int64]bool
	leaders  map[proctab.ID]*leader
	known    map[proctab.ID]int64 // process → run, zombies included; run 0 means a stray
	// unread are the strays whose environment has not been readable yet.
	unread map[proctab.ID]bool
	// strangers are the processes that the last scan found not to be ours. The
	// value is false if the scan's first attempt to read the environment of the
	// process failed. A subreaper does not use strangers.
	strangers map[proctab.ID]bool

	leaderAt time.Time // when the last leader was added

	// leaderAdded has one slot; addLeader puts a token into it.
	leaderAdded chan struct{}

	latest atomic.Pointer[scan] // written with mu held
}

// leader is the first process of a run. The tree keeps a leader until it is reaped
// and a later scan finds no process of its run, not even a zombie, which may have a
// child that this scan missed. Only then may the numbers of the leader's group and
// session belong to another process.
type leader struct {
	run    int64
	reaped bool
}

// scan is the result of one read of the process table.
type scan struct {
	began   time.Time
	newest  int                      // proctab.Newest before the table was read
	members map[int64][]proctab.Proc // by run, without zombies
	strays  []proctab.Proc
	// newZombies are, by run, the zombies that no earlier scan saw: such a zombie
	// may have forked a process that was not in the table yet.
	newZombies map[int64][]proctab.Proc
	zombies    map[int64][]proctab.Proc // by run, those and the others
	// others are the runs of which the table has a row, even of a zombie, beside that
	// of a first process that has ended.
	others map[int64]bool
}

func (s *scan) mayRemain(run int64) bool { return len(s.members[run])+len(s.newZombies[run]) > 0 }

func newTree(s *spawner, session string, subreaper bool, recorder Recorder, log *slog.Logger) *tree {
	t := &tree{
		self: os.Getpid(), session: session, subreaper: subreaper, spawner: s, recorder: recorder, log: log,
		table:       proctab.All,
		newest:      proctab.Newest,
		starting:    make(map[int64]bool),
		leaders:     make(map[proctab.ID]*leader),
		known:       make(map[proctab.ID]int64),
		unread:      make(map[proctab.ID]bool),
		leaderAdded: make(chan struct{}, 1),
	}
	if subreaper {
		t.scanner = proctab.NewScanner(t.self)
		t.table = t.scanner.Scan
	}
	t.latest.Store(&scan{})
	return t
}

// expect announces that run is about to be spawned. Either addLeader or cancelExpected follows.
func (t *tree) expect(run int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starting[run] = true
}

// cancelExpected undoes expect for a run that could not be spawned.
func (t *tree) cancelExpected(run int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.starting, run)
}

// addLeader makes id the leader of run.
func (t *tree) addLeader(id proctab.ID, run int64) {
	t.mu.Lock()
	delete(t.starting, run)
	t.leaders[id] = &leader{run: run}
	t.known[id] = run
	t.leaderAt = time.Now()
	t.mu.Unlock()
	select {
	case t.leaderAdded <- struct{}{}:
	default:
	}
	t.record([]proctab.ID{id})
}

func (t *tree) markReaped(id proctab.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.leaders[id]; l != nil {
		l.reaped = true
	}
}

// members returns the living processes of run. A process that forks and exits
// all the time may be missing from one scan, but leaves a new zombie; then members
// scans again. If maxScans scans in a row find nothing but a new zombie, members
// returns that zombie, because run has not ended.
func (t *tree) members(run int64) []proctab.Proc { return t.membersSince(run, time.Now()) }

// recentMembers is members, except that the first scan may be up to age old if no process
// of the machine has been created since.
func (t *tree) recentMembers(run int64, age time.Duration) []proctab.Proc {
	since := time.Now()
	if t.isComplete(t.latest.Load()) {
		since = since.Add(-age)
	}
	return t.membersSince(run, since)
}

// isComplete reports whether no process of the machine has been created since s began.
func (t *tree) isComplete(s *scan) bool { return s.newest != 0 && t.newest() == s.newest }

// membersSince is members, except that the first scan may have begun at since.
func (t *tree) membersSince(run int64, since time.Time) []proctab.Proc {
	const maxScans = 200 // each scan takes a millisecond or two
	for i := 1; ; i++ {
		now := t.scanSince(since)
		if living := now.members[run]; len(living) > 0 {
			return living
		}
		if zombies := now.newZombies[run]; i == maxScans || len(zombies) == 0 {
			return zombies
		}
		since = time.Now()
	}
}

// isGone reports whether the last scan proves that no process of run is left. The first
// process of run ended at endedAt. The proof is that the scan began after that and shows
// no other process of run, not even a zombie: if any was left when the scan began, one of
// them was our child, and a child of ours has a row until we reap it, which we do after a
// scan.
func (t *tree) isGone(run int64, endedAt time.Time) bool {
	latest := t.latest.Load()
	return t.subreaper && !latest.began.Before(endedAt) && !latest.others[run]
}

// lastMembers returns the processes of run as of the last scan, and does not scan.
// While the Manager samples, the last scan is at most as old as its period, about.
func (t *tree) lastMembers(run int64) []proctab.Proc { return t.latest.Load().members[run] }

// scanSince returns a scan that began at or after since. Concurrent callers share a
// scan: fifty stops at once cost two scans, not fifty. If the process table cannot
// be read, scanSince returns the previous scan, however old: a process that is not
// seen may be alive.
func (t *tree) scanSince(since time.Time) *scan {
	t.mu.Lock()
	if latest := t.latest.Load(); !latest.began.Before(since) {
		t.mu.Unlock()
		return latest
	}
	began, newest := time.Now(), t.newest()
	table, err := t.table()
	if err != nil && !t.readFailed {
		t.log.Error("cannot see which processes are ours", "error", err)
	}
	if t.readFailed = err != nil; t.readFailed {
		latest := t.latest.Load()
		t.mu.Unlock()
		return latest
	}
	found, fresh := t.attributeLocked(table)
	if t.subreaper {
		t.spawner.reap(table) // a zombie shows its stamp until it is reaped
	}
	found.began, found.newest = began, newest
	t.latest.Store(found)
	t.mu.Unlock()

	t.record(fresh)
	return found
}

// recheck returns the living processes of run for display, without a scan: it reads again only those
// that the last scan found. ok is false, and the caller must scan, if that scan is a second old or saw
// strays, or if any process of the machine has been created or any of run has ended since.
func (t *tree) recheck(run int64) (living []proctab.Proc, ok bool) {
	const maxAge = time.Second
	latest := t.latest.Load()
	if len(latest.strays) > 0 || time.Since(latest.began) >= maxAge || !t.isComplete(latest) {
		return nil, false
	}
	for _, p := range latest.members[run] {
		now, err := proctab.Read(p.PID)
		if err != nil || now.ID != p.ID || now.Zombie {
			return nil, false
		}
		living = append(living, now)
	}
	return living, true
}

// shown is members for display; see recheck.
func (t *tree) shown(run int64) []proctab.Proc {
	if living, ok := t.recheck(run); ok {
		return living
	}
	return t.members(run)
}

func (t *tree) record(ids []proctab.ID) {
	if len(ids) == 0 || t.recorder == nil {
		return
	}
	if err := t.recorder.AddProcess(ids...); err != nil {
		t.log.Warn("cannot record processes for the clean-up after a crash", "error", err)
	}
}

// descendants returns all living processes below this one. It reads the whole
// process table, because the session ends with its result. If there are none
// but the kernel reports children, a scan may have missed a process that had
// just been forked, so it scans again.
func (t *tree) descendants() []proctab.Proc {
	for range 3 {
		t.resetScanner()
		now := t.scanSince(time.Now())
		all := slices.Clone(now.strays)
		for _, members := range now.members {
			all = append(all, members...)
		}
		if len(all) > 0 || !t.subreaper || !hasChildren() {
			return all
		}
	}
	return nil // the children are zombies that their owner is about to reap
}

// resetScanner makes the next scan read the whole process table.
func (t *tree) resetScanner() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.scanner != nil {
		t.scanner.Forget()
	}
}

func (t *tree) needsScans() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.leaders) > 0 || len(t.known) > 0
}

// isSettled reports whether no leader has been added for d. Without a subreaper a tree never is:
// whatever is forked twice between two scans is lost.
func (t *tree) isSettled(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.subreaper && time.Since(t.leaderAt) >= d
}

// contains reports whether id was below this process at the last scan.
func (t *tree) contains(id proctab.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.known[id]
	return known
}
