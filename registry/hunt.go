package registry

import (
	"os"

	"pmcp/process/proctab"
)

// sessionEnv marks every process of a session with the session's id.
const sessionEnv = "PMCP_SESSION"

// Leftover is a process of a dead session.
type Leftover struct {
	// Session is the session that started it.
	Session string
	// ID is its identity, Name the kernel's short name of its program.
	ID   proctab.ID
	Name string
	// Why says why it was left alone, in a few words; empty for one that was
	// stopped or is only listed.
	Why string
}

// hunt finds the processes of dead sessions. A process is a dead session's if
// its identity was noted in the session's list, if it carries the session's
// mark, or if it descends from such a process. Nothing else counts: no name, no
// bare pid, no group and no session id.
type hunt struct {
	dead  map[string]bool
	live  map[string]bool
	noted map[proctab.ID]string // in the lists of dead sessions: whose
	// anchors are the live servers, their guardians and this process.
	anchors []proctab.ID
	// known are the processes found so far. It keeps those of a session whose
	// proof went with their parent.
	known map[proctab.ID]string
}

func newHunt(list []Entry) *hunt {
	h := &hunt{
		dead:  map[string]bool{},
		live:  map[string]bool{},
		noted: map[proctab.ID]string{},
		known: map[proctab.ID]string{},
	}
	if self, err := proctab.Read(os.Getpid()); err == nil {
		h.anchors = append(h.anchors, self.ID)
	}
	boot := proctab.BootID()
	for _, e := range list {
		switch e.State {
		case Stale:
			h.dead[e.ID] = true
			for _, id := range e.Processes {
				h.noted[id] = e.ID
			}
		case Live:
			h.live[e.ID] = true
			if e.Record.Boot == boot {
				h.anchors = append(h.anchors, e.Record.Server.Identity(), e.Record.Guardian.Identity())
			}
		}
	}
	return h
}

// find returns what is left of the dead sessions according to table: what may
// be stopped, and what must be spared, with the reason.
func (h *hunt) find(table []proctab.Proc) (left, spared []Leftover) {
	view := h.look(table)
	for _, p := range table {
		if session := view.owner[p.ID]; session != "" {
			h.know(view, p, session)
		}
	}
	for _, p := range table {
		session, found := h.known[p.ID]
		if !found || p.Zombie {
			continue
		}
		l := Leftover{Session: session, ID: p.ID, Name: p.Comm}
		if why := view.spared[p.PID]; why != "" {
			l.Why = why
			spared = append(spared, l)
		} else {
			left = append(left, l)
		}
	}
	return left, spared
}

// know notes a process of a session and all below it.
func (h *hunt) know(view *view, p proctab.Proc, session string) {
	h.known[p.ID] = session
	for _, below := range view.below(p.PID) {
		if _, found := h.known[below.ID]; !found {
			h.known[below.ID] = session
		}
	}
}

// view is what one pass over the process table shows.
type view struct {
	table  []proctab.Proc
	row    map[int]proctab.Proc
	owner  map[proctab.ID]string // the dead session that a process proves to be of
	spared map[int]string        // why a process must not be signalled
}

func (v *view) below(pid int) []proctab.Proc { return proctab.Descendants(v.table, pid) }

func (h *hunt) look(table []proctab.Proc) *view {
	v := &view{
		table:  table,
		row:    make(map[int]proctab.Proc, len(table)),
		owner:  map[proctab.ID]string{},
		spared: map[int]string{},
	}
	for _, p := range table {
		v.row[p.PID] = p
		if session := h.noted[p.ID]; session != "" {
			v.owner[p.ID] = session
		}
		mark, _ := proctab.Getenv(p.PID, sessionEnv)
		switch {
		case h.dead[mark]:
			v.owner[p.ID] = mark
		case h.live[mark]:
			v.spared[p.PID] = "of a live server"
		}
	}
	for _, anchor := range h.anchors {
		h.spareTree(v, anchor)
	}
	return v
}

// spareTree spares a live server, or ourselves, with what it started, and the
// client that it serves if that client was itself started by a dead session: an
// editor that was opened through pmcp must not be closed by a server that it
// has just started.
func (h *hunt) spareTree(v *view, anchor proctab.ID) {
	p, found := v.row[anchor.PID]
	if !found || p.ID != anchor {
		return
	}
	top := p.PID
	for up, seen := p, map[int]bool{}; !seen[up.PID]; {
		seen[up.PID] = true
		if v.owner[up.ID] != "" || h.known[up.ID] != "" {
			top = up.PID
		}
		parent, found := v.row[up.PPID]
		if !found {
			break
		}
		up = parent
	}
	const why = "a live server depends on it"
	v.spared[top] = why
	for _, below := range v.below(top) {
		v.spared[below.PID] = why
	}
}
