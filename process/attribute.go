package process

import (
	"strconv"

	"pmcp/process/proctab"
)

// attribute gives every process of table that is ours to its run. fresh are
// those that no earlier scan saw. Called with t.mu held.
func (t *tree) attribute(table []proctab.Proc) (found *scan, fresh []proctab.ID) {
	groups := t.groups(table)
	ours := t.ours(table, groups)
	owner := t.owners(ours, groups)
	found = &scan{members: make(map[int64][]proctab.Proc, len(t.leaders))}
	known := make(map[proctab.ID]int64, len(ours))
	rows := make(map[int64]bool, len(t.leaders)) // runs of which there is a row, be it a zombie's
	unread := make(map[proctab.ID]bool)
	for _, p := range ours {
		run := owner[p.PID]
		rows[run] = true
		if p.Zombie {
			continue
		}
		if run != 0 {
			found.members[run] = append(found.members[run], p)
		} else {
			found.strays = append(found.strays, p)
			if t.unread[p.ID] {
				unread[p.ID] = true
			}
		}
		known[p.ID] = run
		if _, seen := t.known[p.ID]; !seen {
			fresh = append(fresh, p.ID)
		}
	}
	t.known, t.unread = known, unread
	for id, l := range t.leaders {
		if l.reaped && !rows[l.run] {
			delete(t.leaders, id)
		} else if !l.reaped {
			t.known[id] = l.run // started while the table was being read
		}
	}
	return found, fresh
}

// groups returns the numbers of process groups and sessions that are a run's:
// those of its leader, as long as nobody else can have them. The kernel gives a
// number to no one while the leader is not waited for, nor while the group or
// session has a member; once it had none, it may be a stranger's.
func (t *tree) groups(table []proctab.Proc) map[int]int64 {
	inUse := make(map[[2]int64]bool) // run, number
	for _, p := range table {
		if run := t.known[p.ID]; run != 0 {
			inUse[[2]int64{run, int64(p.PGID)}] = true
			inUse[[2]int64{run, int64(p.SID)}] = true
		}
	}
	groups := make(map[int]int64, len(t.leaders))
	for id, l := range t.leaders {
		if !l.reaped || inUse[[2]int64{l.run, int64(id.PID)}] {
			groups[id.PID] = l.run
		}
	}
	return groups
}

// owners applies the rules to ours, in which parents stand before their
// children, and returns pid → run.
func (t *tree) owners(ours []proctab.Proc, groups map[int]int64) map[int]int64 {
	watched := make(map[int64]bool, len(t.leaders))
	for _, l := range t.leaders {
		watched[l.run] = true
	}
	rules := []func(proctab.Proc) (int64, bool){
		func(p proctab.Proc) (int64, bool) {
			if l := t.leaders[p.ID]; l != nil {
				return l.run, true
			}
			return 0, false
		},
		func(p proctab.Proc) (int64, bool) { run := t.known[p.ID]; return run, watched[run] },
		func(p proctab.Proc) (int64, bool) { run, ok := groups[p.PGID]; return run, ok },
		func(p proctab.Proc) (int64, bool) { run, ok := groups[p.SID]; return run, ok },
		func(p proctab.Proc) (int64, bool) { run := t.mark(p); return run, watched[run] },
	}
	owner := make(map[int]int64, len(ours))
	for _, rule := range rules {
		for _, p := range ours {
			if _, taken := owner[p.PID]; taken {
				continue
			}
			if run, ok := owner[p.PPID]; ok {
				owner[p.PID] = run
			} else if run, ok := rule(p); ok {
				owner[p.PID] = run
			}
		}
	}
	return owner
}

// ours returns the processes of table that can belong to a run: those below
// this process and, where orphans are not given to us (macOS, or no
// subreaper), those known from before, in a group or session of a leader, or
// with a mark, and all below these.
func (t *tree) ours(table []proctab.Proc, groups map[int]int64) []proctab.Proc {
	below := proctab.Descendants(table, t.self)
	if t.subreaper {
		return below
	}
	have := make(map[int]bool, len(below))
	take := func(procs ...proctab.Proc) {
		for _, p := range procs {
			if !have[p.PID] && p.PID != t.self {
				have[p.PID] = true
				below = append(below, p)
			}
		}
	}
	for _, p := range below {
		have[p.PID] = true
	}
	strangers := make(map[proctab.ID]bool, len(table))
	for _, p := range table {
		_, looked := t.strangers[p.ID]
		switch {
		case have[p.PID] || p.PID == t.self:
		case t.isOrphan(p, groups):
			take(p)
			take(proctab.Descendants(table, p.PID)...)
		default:
			strangers[p.ID] = looked || !t.unread[p.ID]
		}
	}
	t.strangers = strangers
	return below
}

// isOrphan says whether p, which is not below us, is of a run all the same. Each
// environment is read once, since nobody's mark comes later; one that was not
// there, as in the middle of an execve, is read by one more scan.
func (t *tree) isOrphan(p proctab.Proc, groups map[int]int64) bool {
	if _, known := t.known[p.ID]; known || groups[p.PGID] != 0 || groups[p.SID] != 0 {
		return true
	}
	return !t.strangers[p.ID] && t.mark(p) != 0
}

// mark reads the run id from the environment of a process that no earlier scan
// saw; 0 if there is none. A stray stays one: its environment does not change,
// but it may have been between two programs, without one, when it was looked at.
func (t *tree) mark(p proctab.Proc) int64 {
	if _, seen := t.known[p.ID]; seen && !t.unread[p.ID] {
		return 0
	}
	values, known := proctab.Getenvs(p.PID, EnvSession, EnvRun)
	if !known {
		t.unread[p.ID] = true
		return 0
	}
	delete(t.unread, p.ID)
	// A pmcp that one of our processes runs marks its own children.
	if values[0] != t.session {
		return 0
	}
	run, _ := strconv.ParseInt(values[1], 10, 64)
	return run
}
