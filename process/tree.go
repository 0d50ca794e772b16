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

// A Recorder keeps the identity of every process that the server has below
// it, so that a later server can clean up after a crash. Implementations must
// not block for long.
type Recorder interface {
	AddProcess(ids ...proctab.ID) error
}

// tree knows which processes belong to which run.
//
// Only processes below this one count at all (as a child subreaper it keeps
// every descendant, however orphaned). Among those, a process belongs to a
// run, by the first rule that fits:
//
//  1. it is a descendant of the run's leader, its first process;
//  2. it, or an ancestor, was known to belong to the run at an earlier scan;
//  3. it is in the leader's process group or session;
//  4. it was started with the run's mark in its environment.
//
// What fits none (a double fork that cleared its environment, never seen
// before its parent died) is a stray: shown, and killed at the end.
type tree struct {
	self      int
	session   string
	subreaper bool
	spawner   *spawner
	recorder  Recorder
	log       *slog.Logger

	mu sync.Mutex
	// table is proctab.All but in tests; blind says that it failed at the last
	// look.
	table   func() ([]proctab.Proc, error)
	blind   bool
	leaders map[proctab.ID]*leader
	known   map[proctab.ID]int64 // process → run; run 0 is a stray
	// unread are the strays whose environment could not be read yet.
	unread map[proctab.ID]bool
	// strangers are those that the last scan found not to be ours; false if it
	// could not read their environment for the first time. Unused by a subreaper.
	strangers map[proctab.ID]bool

	latest atomic.Pointer[scan] // written under mu
}

// leader is the first process of a run. It is watched until it has been waited
// for and a later scan finds nothing of its run, no zombie either, whose child
// that scan may have missed: only then may the numbers of its group and session
// name something else.
type leader struct {
	run    int64
	reaped bool
}

// scan is one look at the process table.
type scan struct {
	began   time.Time
	members map[int64][]proctab.Proc // by run, without zombies
	strays  []proctab.Proc
}

func newTree(s *spawner, session string, subreaper bool, recorder Recorder, log *slog.Logger) *tree {
	t := &tree{
		self: os.Getpid(), session: session, subreaper: subreaper, spawner: s, recorder: recorder, log: log,
		table:   proctab.All,
		leaders: make(map[proctab.ID]*leader),
		known:   make(map[proctab.ID]int64),
		unread:  make(map[proctab.ID]bool),
	}
	t.latest.Store(&scan{})
	return t
}

// watch makes id the leader of run.
func (t *tree) watch(id proctab.ID, run int64) {
	t.mu.Lock()
	t.leaders[id] = &leader{run: run}
	t.known[id] = run
	t.mu.Unlock()
	t.record([]proctab.ID{id})
}

// reaped says that the leader id has been waited for.
func (t *tree) reaped(id proctab.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.leaders[id]; l != nil {
		l.reaped = true
	}
}

// members returns the living processes of run as they are now.
func (t *tree) members(run int64) []proctab.Proc { return t.look(time.Now()).members[run] }

// lastMembers returns the processes of run as the last scan saw them, at no
// cost: at most about a second old while the Manager samples.
func (t *tree) lastMembers(run int64) []proctab.Proc { return t.latest.Load().members[run] }

// look returns a scan that began at or after since. Callers that wait for one
// another share it: fifty stops at once cost two scans, not fifty. Where the
// process table cannot be read it returns the scan before, however old, and
// forgets nobody: what is not seen may live.
func (t *tree) look(since time.Time) *scan {
	t.mu.Lock()
	if latest := t.latest.Load(); !latest.began.Before(since) {
		t.mu.Unlock()
		return latest
	}
	began := time.Now()
	table, err := t.table()
	if err != nil && !t.blind {
		t.log.Error("cannot see which processes are ours", "error", err)
	}
	if t.blind = err != nil; t.blind {
		latest := t.latest.Load()
		t.mu.Unlock()
		return latest
	}
	if t.subreaper {
		t.spawner.reap(table)
	}
	found, fresh := t.attribute(table)
	found.began = began
	t.latest.Store(found)
	t.mu.Unlock()

	t.record(fresh)
	return found
}

func (t *tree) record(ids []proctab.ID) {
	if len(ids) == 0 || t.recorder == nil {
		return
	}
	if err := t.recorder.AddProcess(ids...); err != nil {
		t.log.Warn("cannot record processes for the clean-up after a crash", "error", err)
	}
}

// everything returns all living processes below this one; if there are none but
// the kernel says that this process has children, one scan may have missed a
// process that had just been forked, so it looks again.
func (t *tree) everything() []proctab.Proc {
	for range 3 {
		now := t.look(time.Now())
		all := slices.Clone(now.strays)
		for _, members := range now.members {
			all = append(all, members...)
		}
		if len(all) > 0 || !t.subreaper || !childrenLeft() {
			return all
		}
	}
	return nil // zombies whose owner is about to wait for them
}

// watching says whether there is any leader to look for, or any stray.
func (t *tree) watching() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.leaders) > 0 || len(t.known) > 0
}

// has says whether id was below this process at the last scan.
func (t *tree) has(id proctab.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.known[id]
	return known
}
