package process

import (
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"pmcp/process/proctab"
)

// A firstSignal is the first signal of a stop on its way to the processes of a tree.
//
// A process that catches the signal is left to pass it on to what it has started, as npm, nodemon and
// uvicorn do: many programs drop the work of their shutdown at a second signal. What is left
// once such a process has ended gets the signal then, as most programs that catch it pass nothing on;
// after half of the grace all get it. A terminal sends SIGINT and SIGQUIT to a whole group, and programs
// expect that.
//
// The end of the first process takes its terminal along, which sends SIGHUP to the others. So with a
// terminal the first process is suspended until the others have ended, and gets the signal then. A shell
// would run its next command otherwise, and npm would end with the shell that it has started.
type firstSignal struct {
	run      *Run
	signal   syscall.Signal
	tree     map[int]proctab.Proc // when the stop began, by pid
	living   []proctab.Proc       // those of tree that have not ended
	sent     map[proctab.ID]bool  // those that have got it
	forwards map[proctab.ID]bool  // whether a process passes the signal on, as far as known
	late     *time.Timer          // fires after half of the grace
	all      bool                 // the next send leaves nothing to others
}

// newFirstSignal returns the first signal of a stop on its way to members.
func (r *Run) newFirstSignal(q stopRequest, members []proctab.Proc) *firstSignal {
	return &firstSignal{
		run: r, signal: q.signal, tree: byPID(members), living: slices.Clone(members),
		sent: make(map[proctab.ID]bool), forwards: make(map[proctab.ID]bool), late: time.NewTimer(q.grace / 2),
		all: q.signal == syscall.SIGINT || q.signal == syscall.SIGQUIT,
	}
}

func byPID(procs []proctab.Proc) map[int]proctab.Proc {
	m := make(map[int]proctab.Proc, len(procs))
	for _, p := range procs {
		m[p.PID] = p
	}
	return m
}

// leaderWaits reports whether the first process gets the signal once the others have ended.
func (s *firstSignal) leaderWaits() bool {
	return s.run.spec.PTY && !s.all && len(s.living) > 1
}

// send sends the signal to the processes that have not got it and that no process will pass it on to. members is
// the tree as it is now.
func (s *firstSignal) send(members []proctab.Proc) {
	now := byPID(members)
	s.living = slices.DeleteFunc(s.living, func(p proctab.Proc) bool { return now[p.PID].ID != p.ID })
	var due, covered []proctab.Proc
	for _, p := range s.living {
		switch {
		case s.sent[p.ID]:
		case p.ID == s.run.child.id && s.leaderWaits():
			_ = proctab.Signal(p.ID, syscall.SIGSTOP)
		case s.all, !s.isCovered(p, now):
			due = append(due, p)
			s.sent[p.ID] = true
		default:
			covered = append(covered, p)
		}
	}
	if len(due) > 0 && len(due) == len(s.living) && s.run.signalGroup(s.signal) { // also reaches what was forked since
		s.run.signalGroup(syscall.SIGCONT)
		due = slices.DeleteFunc(due, func(p proctab.Proc) bool { return p.PGID == s.run.child.id.PID })
	}
	signalEach(due, s.signal)
	signalEach(slices.Concat(due, covered), syscall.SIGCONT) // a suspended process notices no signal, whoever sends it
}

// isCovered reports whether a process above p in the tree passes the signal on and has not ended.
func (s *firstSignal) isCovered(p proctab.Proc, now map[int]proctab.Proc) bool {
	for range s.tree { // the table is not read at one instant, so that parents may form a loop
		parent, ok := s.tree[p.PPID]
		if !ok {
			break
		}
		if p = parent; now[p.PID].ID == p.ID && !(s.run.spec.PTY && p.ID == s.run.child.id) && s.passesOn(p) {
			return true
		}
	}
	return false
}

// passesOn reports whether a process may pass the signal on to those that it has started: it catches it, and is no
// shell. A shell runs its trap only after the program that it waits for has ended.
func (s *firstSignal) passesOn(p proctab.Proc) bool {
	is, known := s.forwards[p.ID]
	if !known {
		is = proctab.Catches(p.PID, s.signal)
		if path, ok := proctab.Executable(p.PID); is && ok {
			is = !slices.Contains([]string{"sh", "dash", "bash", "zsh", "ksh", "ash", "busybox", "fish"}, filepath.Base(path))
		}
		s.forwards[p.ID] = is
	}
	return is
}
