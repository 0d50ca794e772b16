package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// The limits of a sweep.
const (
	sweepGrace = time.Second           // from SIGTERM to SIGKILL
	sweepLimit = 10 * time.Second      // in all, if the context allows more
	sweepPoll  = 20 * time.Millisecond // between two looks at what is left
	emptyLooks = 2                     // in a row; in the middle of an execve a process shows no mark
)

// SweepResult is what a sweep did.
type SweepResult struct {
	// Sessions are the dead sessions of which nothing is left: their
	// processes are gone and their records removed.
	Sessions []string
	// Stopped are the processes that were stopped.
	Stopped []Leftover
	// Remaining are processes that could not be stopped, not in time, or had
	// to be spared; each says why. Their records stay.
	Remaining []Leftover
	// Dying is true if a session may be about to die: its lock is held, but its
	// server or its guardian is dead or was killed, or it has no record yet. A
	// killed process that waits for a processor or a disk holds its lock for as
	// long, seconds on a busy machine: a sweep after that finds the session dead.
	Dying bool
	// Busy is true if another sweep was at work all the time that the context
	// gave, and this one did nothing.
	Busy bool
}

// Sweep stops what servers left that died together with their guardians, and
// removes their records. Each process gets SIGTERM and a second later SIGKILL,
// after its identity is proven (see hunt). Live servers, what they started and
// the clients that they serve are never touched. It returns when that is done
// or ctx is, and after 10 s at most. One sweep works at a time.
//
// Each action is logged; a nil log drops that. The error joins what went wrong
// with single sessions; the result is valid beside it.
func Sweep(ctx context.Context, dir string, log *slog.Logger) (SweepResult, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	d, err := openDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return SweepResult{}, nil
	}
	if err != nil {
		return SweepResult{}, fmt.Errorf("cannot sweep the registry: %w", err)
	}
	defer func() { _ = d.Close() }() // frees the lock
	if !lockDir(ctx, d) {
		return SweepResult{Busy: true}, nil
	}
	list, err := listSettled(ctx, dir, log)
	if err != nil {
		return SweepResult{}, err
	}
	for _, e := range list {
		if e.Problem != "" {
			log.Warn("something is wrong in the registry", "state", e.State, "path", e.Path, "problem", e.Problem)
		}
	}
	s := sweep{
		result: SweepResult{Dying: slices.ContainsFunc(list, isDying)},
		dir:    dir,
		hunt:   newHunt(list),
		log:    log,
		found:  map[proctab.ID]Leftover{},
		sent:   map[proctab.ID]syscall.Signal{},
		failed: map[proctab.ID]error{},
	}
	if len(s.hunt.dead) == 0 {
		return s.result, nil
	}
	if err := s.stop(ctx); err != nil {
		return s.result, err // nothing is known of what is left: the records stay
	}
	return s.result, s.removeRecords()
}

// isDying says whether an entry is of a session that may be about to die. One in
// another pid namespace looks like that for as long as it lives.
func isDying(e Entry) bool {
	if e.State != Live {
		return false
	}
	guardian := e.Record.Guardian
	return e.Record.Format == 0 || ends(e.Record.Server) || guardian.PID > 0 && ends(guardian)
}

// ends says whether a process is dead or was killed. In this order: one that is
// gone by the first look is not alive in the second.
func ends(p Process) bool { return proctab.Killed(p.PID) || !alive(p.Identity()) }

// lockDir takes the lock that makes one sweep work at a time. It is on the
// directory itself: no file to leave behind, and the sessions' own locks go on
// telling the truth meanwhile.
func lockDir(ctx context.Context, d *os.File) bool {
	for flock(d, unix.LOCK_EX|unix.LOCK_NB) != nil {
		if ctx.Err() != nil {
			return false
		}
		tick(ctx)
	}
	return true
}

// sweep is one sweep at work.
type sweep struct {
	dir    string
	hunt   *hunt
	log    *slog.Logger
	found  map[proctab.ID]Leftover // what was signalled
	sent   map[proctab.ID]syscall.Signal
	failed map[proctab.ID]error // what the last signal met
	spared []Leftover
	result SweepResult
}

// stop stops the processes of all dead sessions, together.
func (s *sweep) stop(ctx context.Context) error {
	left, err := s.look()
	if err != nil {
		return err
	}
	s.signal(left, syscall.SIGTERM)
	for _, l := range left { // a stopped process does not see SIGTERM
		_ = proctab.Signal(l.ID, syscall.SIGCONT)
	}
	s.await(ctx, left)
	for empty := 0; empty < emptyLooks; {
		if left, err = s.look(); err != nil {
			break
		}
		empty++
		if len(left) > 0 {
			empty = 0
			s.signal(left, syscall.SIGKILL)
		}
		if ctx.Err() != nil || len(left) > 0 && !slices.ContainsFunc(left, s.reached) {
			break // what was killed is looked for once more, what cannot be is not
		}
		tick(ctx)
	}
	s.account(left)
	return err
}

// look finds what is left to be stopped.
func (s *sweep) look() ([]Leftover, error) {
	table, err := proctab.All()
	if err != nil {
		return nil, fmt.Errorf("cannot look for what dead servers left: %w", err)
	}
	var left []Leftover
	left, s.spared = s.hunt.find(table)
	return left, nil
}

// signal sends sig once to each process, whose identity is compared once more.
func (s *sweep) signal(procs []Leftover, sig syscall.Signal) {
	for _, l := range procs {
		if s.sent[l.ID] == sig {
			continue
		}
		err := proctab.Signal(l.ID, sig)
		if errors.Is(err, proctab.ErrGone) {
			continue
		}
		s.found[l.ID], s.sent[l.ID], s.failed[l.ID] = l, sig, err
		log := s.log.With("signal", sig.String(), "pid", l.ID.PID, "name", l.Name, "session", l.Session)
		if err != nil {
			log.Warn("cannot signal a process that a dead server left", "error", err)
			continue
		}
		log.Info("signalled a process that a dead server left")
	}
}

// await waits until the processes have ended, but no longer than the grace.
func (s *sweep) await(ctx context.Context, procs []Leftover) {
	ctx, cancel := context.WithTimeout(ctx, sweepGrace)
	defer cancel()
	for ctx.Err() == nil && slices.ContainsFunc(procs, s.mayEnd) {
		tick(ctx)
	}
}

// mayEnd says whether waiting for a process makes sense.
func (s *sweep) mayEnd(l Leftover) bool { return s.reached(l) && alive(l.ID) }

// reached says whether the last signal to a process was not refused.
func (s *sweep) reached(l Leftover) bool { return s.failed[l.ID] == nil }

// tick waits for sweepPoll, or until ctx is done.
func tick(ctx context.Context) {
	t := time.NewTimer(sweepPoll)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// account fills the result with what was stopped and what was not.
func (s *sweep) account(left []Leftover) {
	remains := map[proctab.ID]bool{}
	for _, l := range left {
		if !alive(l.ID) {
			continue
		}
		remains[l.ID] = true
		l.Why = "it did not end in time"
		if err := s.failed[l.ID]; err != nil {
			l.Why = err.Error()
		}
		s.result.Remaining = append(s.result.Remaining, l)
	}
	s.result.Remaining = append(s.result.Remaining, s.spared...)
	for id, l := range s.found {
		if !remains[id] {
			s.result.Stopped = append(s.result.Stopped, l)
		}
	}
	slices.SortFunc(s.result.Stopped, func(a, b Leftover) int { return byStart(a.ID, b.ID) })
}

// removeRecords removes the records of the sessions of which nothing is left.
func (s *sweep) removeRecords() error {
	kept := map[string]bool{}
	for _, l := range s.result.Remaining {
		kept[l.Session] = true
		s.log.Warn("left a process of a dead server", "pid", l.ID.PID, "name", l.Name, "session", l.Session, "why", l.Why)
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(s.hunt.dead)) {
		if kept[id] {
			continue
		}
		if err := Remove(s.dir, id); err != nil {
			errs = append(errs, err)
			continue
		}
		s.log.Info("removed the record of a dead server", "session", id)
		s.result.Sessions = append(s.result.Sessions, id)
	}
	return errors.Join(errs...)
}
