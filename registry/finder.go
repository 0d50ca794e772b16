package registry

import (
	"cmp"
	"maps"
	"os"
	"slices"

	"pmcp/process/proctab"
)

// A Leftover is a process of a dead session.
type Leftover struct {
	// Session is the session that started it.
	Session string
	// ID is its identity, Name the kernel's short name of its program.
	ID   proctab.ID
	Name string
	// Why is the reason, in a few words, why the sweep left it alone; empty for a
	// process that was stopped or is only listed.
	Why string

	row proctab.Proc // as last seen
}

// Proc returns the process as it was last seen.
func (l Leftover) Proc() proctab.Proc { return l.row }

// IsOf reports whether the process carries the stamp of a run of its session.
func (l Leftover) IsOf(run int64) bool {
	return proctab.StampOf(l.ID.PID) == proctab.NewStamp(l.Session, run)
}

// LeftBy returns the processes that those dead sessions have left, and that the next sweep stops. If none of the
// sessions has a file in the registry dir any more, there are none, and LeftBy is fast.
func LeftBy(dir string, sessions []string) ([]Leftover, error) {
	if !slices.ContainsFunc(sessions, func(id string) bool { return checkID(id) == nil && lingers(dir, id) }) {
		return nil, nil
	}
	list, err := List(dir)
	if err != nil {
		return nil, err
	}
	table, err := proctab.All()
	if err != nil {
		return nil, err
	}
	left, _ := newFinder(list).find(table)
	return slices.DeleteFunc(left, func(l Leftover) bool { return !slices.Contains(sessions, l.Session) }), nil
}

// HiddenProblem is the reason why the record of a dead session is kept although no
// process of the session can be seen.
const HiddenProblem = "its pids are of another pid namespace, whose processes cannot be seen from here: what it left cannot be checked or stopped"

// Leftovers returns the processes in table that the dead sessions in list left
// behind. Those that a sweep would spare come last and have a Why.
func Leftovers(list []Entry, table []proctab.Proc) []Leftover {
	left, spared := newFinder(list).find(table)
	return append(left, spared...)
}

// A finder finds the processes of dead sessions. A process belongs to a dead session
// if its identity is in the session's list, if it carries the session's stamp or
// mark, or if it descends from such a process. Nothing else counts: no name, no bare
// pid, no process group and no session id of the kernel.
type finder struct {
	dead map[string]bool
	live map[string]bool
	// unseen are the dead sessions that may have left processes in a pid namespace
	// that this process cannot see.
	unseen map[string]bool
	// listed are the processes in the lists of dead sessions, with their sessions.
	listed map[proctab.ID]string
	// stamps are the stamps of all sessions.
	stamps map[proctab.Stamp]string
	// unmarked counts the passes in which a process had no mark. After the second pass
	// the process counts as unmarked: in the middle of an execve it shows no mark.
	unmarked map[proctab.ID]int
	// vanished is true if a process ended during the last pass before its mark
	// could be read. It may have left a child.
	vanished bool
	// anchors are the live servers, their guardians and this process.
	anchors []proctab.ID
	// known are the processes found so far, with their sessions. It also keeps
	// processes whose only proof was a parent that has ended.
	known map[proctab.ID]string
	// strays is the registry whose strays count as left by StraySession; "" for none.
	strays string
	// last is the view of the last pass.
	last *view
}

func newFinder(list []Entry) *finder {
	f := &finder{
		dead:     map[string]bool{},
		live:     map[string]bool{},
		listed:   map[proctab.ID]string{},
		stamps:   map[proctab.Stamp]string{},
		unseen:   map[string]bool{},
		unmarked: map[proctab.ID]int{},
		known:    map[proctab.ID]string{},
	}
	if self, err := proctab.Read(os.Getpid()); err == nil {
		f.anchors = append(f.anchors, self.ID)
	}
	boot := proctab.BootID()
	for _, e := range list {
		f.stamps[proctab.SessionStamp(e.ID)] = e.ID
		switch e.State {
		case Stale:
			f.dead[e.ID] = true
			_, f.unseen[e.ID] = proctab.Elsewhere(e.Record.Boot)
			for _, id := range e.Processes {
				f.listed[id] = e.ID
			}
		case Live:
			f.live[e.ID] = true
			if e.Record.Boot == boot {
				f.anchors = append(f.anchors, e.Record.Server.Identity(), e.Record.Guardian.Identity())
			}
		}
	}
	return f
}

// find returns the processes in table that dead sessions left: those that may be
// stopped, and those that must be spared, with the reason.
func (f *finder) find(table []proctab.Proc) (left, spared []Leftover) {
	view := f.scan(table)
	f.addKnown(view)
	for _, p := range table {
		session, found := f.known[p.ID]
		if !found || p.Zombie {
			continue
		}
		l := Leftover{Session: session, ID: p.ID, Name: p.Comm, row: p}
		if why := view.spared[p.PID]; why != "" {
			l.Why = why
			spared = append(spared, l)
		} else {
			left = append(left, l)
		}
	}
	return left, spared
}

// addKnown adds to known the processes that are proven to belong to a dead session,
// and all descendants of known processes. Parents usually come before their children in a
// table, so that one pass finds a whole tree.
func (f *finder) addKnown(view *view) {
	maps.Copy(f.known, view.owner)
	for added := true; added; {
		added = false
		for _, p := range view.table {
			if session := f.known[view.row[p.PPID].ID]; session != "" && f.known[p.ID] == "" {
				f.known[p.ID] = session
				added = true
			}
		}
	}
}

// A view is the result of one pass over the process table.
type view struct {
	table  []proctab.Proc
	row    map[int]proctab.Proc
	owner  map[proctab.ID]string // the dead session that the process proves to be of
	spared map[int]string        // why the process must not be signalled

	children map[int][]proctab.ID
}

func newView(table []proctab.Proc) *view {
	v := &view{
		table:  table,
		row:    make(map[int]proctab.Proc, len(table)),
		owner:  map[proctab.ID]string{},
		spared: map[int]string{},

		children: make(map[int][]proctab.ID),
	}
	for _, p := range table {
		v.row[p.PID] = p
		v.children[p.PPID] = append(v.children[p.PPID], p.ID)
	}
	return v
}

func (f *finder) scan(table []proctab.Proc) *view {
	v := newView(table)
	f.vanished = false
	for _, p := range slices.Backward(table) { // the youngest first: they may be short-lived
		if session := f.listed[p.ID]; session != "" {
			v.owner[p.ID] = session
		}
		mark := f.mark(p.ID)
		switch {
		case f.dead[mark]:
			v.owner[p.ID] = mark
		case f.live[mark]:
			v.spared[p.PID] = "of a live server"
		case mark == "" && f.strays != "" && v.owner[p.ID] == "" && f.isStray(v, p):
			v.owner[p.ID] = StraySession
		}
	}
	for _, anchor := range f.anchors {
		f.spareTree(v, anchor)
	}
	f.last = v
	return v
}

func (v *view) has(pid int) bool {
	_, found := v.row[pid]
	return found
}

// isFresh examines a process that has appeared since the last pass, and reports whether its stamp proves that it is
// of a dead session. What a spared process has started is spared.
func (f *finder) isFresh(p proctab.Proc) bool {
	v := f.last
	v.row[p.PID] = p
	stamp, parent := proctab.StampOf(p.PID).Session(), v.row[p.PPID].ID
	session, known := f.stamps[stamp]
	adopted := f.isAnchor(parent) && f.proof(v, parent) != session
	if why := v.spared[p.PPID]; why != "" && !adopted {
		v.spared[p.PID] = why
		return false
	}
	if !known {
		return f.strays != "" && f.isStray(v, p)
	}
	return f.dead[session]
}

// proof returns the dead session that a process proves to be of, or is known to be of; "" for none.
func (f *finder) proof(v *view, id proctab.ID) string { return cmp.Or(v.owner[id], f.known[id]) }

// mark returns the session that the process's stamp or the mark in its environment
// names, or "" if it has neither.
func (f *finder) mark(id proctab.ID) (session string) {
	if f.unmarked[id] >= emptyPasses {
		return ""
	}
	if session = f.stamps[proctab.StampOf(id.PID).Session()]; session != "" {
		return session
	}
	values, known := proctab.Getenvs(id.PID, proctab.EnvSession)
	if mark := values[0]; f.dead[mark] || f.live[mark] {
		return mark
	}
	if _, err := proctab.Read(id.PID); !known && err != nil {
		f.vanished = true
	}
	f.unmarked[id]++
	return ""
}

// spareTree spares an anchor (a live server or this process) and everything that it
// started. If a dead session started the client that it serves, the client is spared
// too: an editor that was opened through pmcp must not be closed by a server that
// the editor has just started. It does not spare what an anchor has only adopted: below
// it, what proves to be of a dead session.
func (f *finder) spareTree(v *view, anchor proctab.ID) {
	p, found := v.row[anchor.PID]
	if !found || p.ID != anchor {
		return
	}
	top := p.PID
	for up, seen := p, map[int]bool{}; !seen[up.PID]; {
		seen[up.PID] = true
		if v.owner[up.ID] != "" || f.known[up.ID] != "" {
			top = up.PID
		}
		parent, found := v.row[up.PPID]
		if !found {
			break
		}
		up = parent
	}
	f.spareBelow(v, top)
}

func (f *finder) isAnchor(id proctab.ID) bool { return slices.Contains(f.anchors, id) }

// spareBelow spares the process top and what is below it, except what an anchor there has adopted: that has a proof
// of its own, while the anchor has none of that session.
func (f *finder) spareBelow(v *view, top int) {
	type step struct {
		pid    int
		anchor proctab.ID // the nearest at or above pid; zero for none
	}
	seen := map[int]bool{top: true}
	for queue := []step{{pid: top}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if id := v.row[at.pid].ID; f.isAnchor(id) {
			at.anchor = id
		}
		v.spared[at.pid] = "a live server depends on it"
		for _, below := range v.children[at.pid] {
			adopted := at.anchor != (proctab.ID{}) && f.proof(v, below) != "" && f.proof(v, below) != f.proof(v, at.anchor) && !f.isAnchor(below)
			if !adopted && !seen[below.PID] {
				seen[below.PID] = true
				queue = append(queue, step{below.PID, at.anchor})
			}
		}
	}
}
