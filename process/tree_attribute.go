package process

import (
	"maps"
	"strconv"

	"pmcp/process/proctab"
)

// attributeLocked assigns every process of table that descends from a run to that
// run. fresh are the processes that no earlier scan saw.
func (t *tree) attributeLocked(table []proctab.Proc) (found *scan, fresh []proctab.ID) {
	groups := t.liveGroupsLocked(table)
	ours := t.candidatesLocked(table, groups)
	owner := t.ownersLocked(ours, groups)
	found = &scan{members: make(map[int64][]proctab.Proc, len(t.leaders)), newZombies: make(map[int64][]proctab.Proc), zombies: make(map[int64][]proctab.Proc), others: make(map[int64]bool)}
	known := make(map[proctab.ID]int64, len(ours))
	rows := make(map[int64]bool, len(t.leaders)) // runs that have a row in table, zombies included
	unread := make(map[proctab.ID]bool)
	for _, p := range ours {
		run := owner[p.PID]
		rows[run] = true
		if !p.Zombie || t.leaders[p.ID] == nil {
			found.others[run] = true
		}
		_, seen := t.known[p.ID]
		known[p.ID] = run
		if p.Zombie {
			found.zombies[run] = append(found.zombies[run], p)
			if !seen {
				found.newZombies[run] = append(found.newZombies[run], p)
			}
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
		if !seen {
			fresh = append(fresh, p.ID)
		}
	}
	t.known, t.unread = known, unread
	for id, l := range t.leaders {
		if l.reaped && !rows[l.run] {
			delete(t.leaders, id)
		} else if !l.reaped {
			t.known[id] = l.run // the process started while the table was read
		}
	}
	return found, fresh
}

// liveGroupsLocked maps the numbers of process groups and sessions to the runs
// that they certainly belong to. It contains those of a run's leader while no
// other process can have taken the number. The kernel reuses a number neither
// while the leader is unreaped nor while the group or session has a member. Once a
// group or session was empty, its number may belong to a stranger.
func (t *tree) liveGroupsLocked(table []proctab.Proc) map[int]int64 {
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

// ownersLocked applies the rules of tree to the processes in ours, in which
// parents precede their children, and returns the run of each pid.
func (t *tree) ownersLocked(ours []proctab.Proc, groups map[int]int64) map[int]int64 {
	watched := t.watchedLocked()
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
		func(p proctab.Proc) (int64, bool) { run := t.markedRunLocked(p); return run, watched[run] },
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

// watchedLocked returns the runs that may have processes.
func (t *tree) watchedLocked() map[int64]bool {
	watched := maps.Clone(t.starting)
	for _, l := range t.leaders {
		watched[l.run] = true
	}
	return watched
}

// candidatesLocked returns the processes of table that can belong to a run: those
// below this process. Without a subreaper (always on macOS) orphans leave that
// tree, so it adds the processes that are known from an earlier scan, are in a
// group or session of a leader, or carry a mark, and all their descendants.
func (t *tree) candidatesLocked(table []proctab.Proc, groups map[int]int64) []proctab.Proc {
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
		case t.isOrphanLocked(p, groups):
			take(p)
			take(proctab.Descendants(table, p.PID)...)
		default:
			strangers[p.ID] = looked || !t.unread[p.ID]
		}
	}
	t.strangers = strangers
	return below
}

// isOrphanLocked reports whether p, which is not below this process, belongs to a
// run all the same. It reads each environment once, since a running program never
// gains a mark. If an environment was unreadable, as in the middle of an execve,
// the next scan reads it once more.
func (t *tree) isOrphanLocked(p proctab.Proc, groups map[int]int64) bool {
	if _, known := t.known[p.ID]; known || groups[p.PGID] != 0 || groups[p.SID] != 0 {
		return true
	}
	return !t.strangers[p.ID] && t.markedRunLocked(p) != 0
}

// markedRunLocked returns the run id in the stamp or the environment of a process
// that no earlier scan saw, or 0. It does not read a known stray again, because
// its environment does not change, unless the environment was unreadable before: a
// process in the middle of an execve has none.
func (t *tree) markedRunLocked(p proctab.Proc) int64 {
	if _, seen := t.known[p.ID]; seen && !t.unread[p.ID] {
		return 0
	}
	if stamp := proctab.StampOf(p.PID); stamp != 0 {
		for run := range t.watchedLocked() {
			if proctab.NewStamp(t.session, run) == stamp {
				delete(t.unread, p.ID)
				return run
			}
		}
	}
	values, known := proctab.Getenvs(p.PID, proctab.EnvSession, proctab.EnvRun)
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
