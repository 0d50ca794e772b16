package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/proctab"
)

// The limits of a sweep.
const (
	sweepGrace  = time.Second           // the time between SIGTERM and SIGKILL
	sweepPoll   = 20 * time.Millisecond // the pause between two passes
	emptyPasses = 2                     // so many passes in a row must find nothing: during an execve a process shows no mark
	morePasses  = 10                    // further passes for a process that forks and exits all the time, and so escapes most passes
)

// sweepLimit is the longest sweep, if the context allows more.
var sweepLimit = proctab.Limit(10 * time.Second)

// A SweepResult is what a sweep did.
type SweepResult struct {
	// Sessions are the dead sessions that are cleaned up: their processes are gone
	// and their records removed.
	Sessions []string
	// Stopped are the processes that were stopped.
	Stopped []Leftover
	// Remaining are the processes that had to be spared or could not be stopped in
	// time, each with the reason. Their records stay.
	Remaining []Leftover
	// Dying is true if a session may be about to die: its lock is held, but its
	// server or its guardian is dead or was killed, or it has no record yet. A
	// killed process holds its lock while it waits for a processor or a disk, which
	// takes seconds on a busy machine. A later sweep finds the session dead.
	Dying bool
	// Busy is true if another sweep ran until the context ended, so that this one
	// did nothing.
	Busy bool
	// Unfinished is true if time ran out while processes still appeared: something may
	// be left that was not seen. The records of dead sessions stay, for another sweep.
	Unfinished bool
}

// UnfinishedProblem is why an unfinished sweep keeps the records of dead sessions.
const UnfinishedProblem = "time ran out while processes still appeared: something may be left, which another clean-up looks for"

// Sweep stops what servers left that died together with their guardians, and removes their
// records. Each process gets SIGTERM and a second later SIGKILL, after its identity is
// proven (see finder). Live servers, what they started and the clients that they serve are
// never touched. Sweep returns when it has finished or ctx ends, after 10 s at most. Only
// one sweep runs at a time.
//
// Each action is logged, unless log is nil. The error joins what went wrong with single
// sessions; the result is valid even then.
func Sweep(ctx context.Context, dir string, log *slog.Logger) (SweepResult, error) {
	return doSweep(ctx, dir, false, log)
}

// SweepStrays is Sweep, and stops strays too; see Strays.
func SweepStrays(ctx context.Context, dir string, log *slog.Logger) (SweepResult, error) {
	return doSweep(ctx, dir, true, log)
}

func doSweep(ctx context.Context, dir string, strays bool, log *slog.Logger) (SweepResult, error) {
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
	list, err := ListSettled(ctx, dir, log)
	if err != nil {
		return SweepResult{}, err
	}
	if err := removeDeadDaemons(dir); err != nil {
		log.Warn("cannot remove the lock of a dead daemon", "error", err)
	}
	for _, e := range list {
		if e.Problem != "" {
			log.Warn("something is wrong in the registry", "state", e.State, "path", e.Path, "problem", e.Problem)
		}
	}
	s := sweep{
		result: SweepResult{Dying: slices.ContainsFunc(list, isDying)},
		dir:    dir,
		finder: newFinder(list),
		log:    log,
		sent:   map[proctab.ID]sentSignal{},
	}
	if strays {
		s.finder.strays = dir
	}
	if len(s.finder.dead) == 0 && !strays {
		return s.result, nil
	}
	if err := s.stop(ctx); err != nil {
		return s.result, err // what is left is unknown: the records stay
	}
	return s.result, s.removeRecords()
}

// sweepPauses are the pauses between the sweeps of SweepDying: half a minute in all.
var sweepPauses = []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}

// SweepDying calls Sweep, and again while another server may be dying or the sweep is unfinished. When
// pausing ends, it does not pause any more, and returns after a last sweep. It logs errors.
func SweepDying(ctx, pausing context.Context, dir string, log *slog.Logger) {
	for round := 0; ; round++ {
		last := round == len(sweepPauses) || pausing.Err() != nil
		found, err := Sweep(ctx, dir, log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			log.Warn("cannot clean up after dead servers", "error", err)
		}
		if !found.Dying && !found.Unfinished || last {
			return
		}
		log.Debug("a server may be dying, or the clean-up is unfinished; checking again", "after", sweepPauses[round])
		select {
		case <-pausing.Done():
		case <-time.After(sweepPauses[round]):
		}
	}
}

// isDying reports whether the session of an entry may be about to die.
func isDying(e Entry) bool {
	if e.State != Live {
		return false
	}
	guardian := e.Record.Guardian
	return e.Record.Format == 0 || e.Record.Boot == proctab.BootID() && (isEnding(e.Record.Server) || guardian.PID > 0 && isEnding(guardian))
}

// isEnding reports whether a process is dead or was killed. The checks have this order
// because a process that is gone at the first is not alive at the second.
func isEnding(p Process) bool { return proctab.Killed(p.PID) || !alive(p.Identity()) }

// lockDir takes the lock that lets only one sweep run at a time, and reports whether it got
// it before ctx ended. The lock is on the directory itself: it needs no file that could be
// left behind, and the sessions' own locks stay valid during a sweep.
func lockDir(ctx context.Context, d *os.File) bool {
	for flock(d, unix.LOCK_EX|unix.LOCK_NB) != nil {
		if ctx.Err() != nil {
			return false
		}
		pause(ctx)
	}
	return true
}

type sweep struct {
	dir    string
	finder *finder
	log    *slog.Logger
	sent   map[proctab.ID]sentSignal // by process
	spared []Leftover
	result SweepResult
}

// A sentSignal is the last signal to a process, and the error of sending it.
type sentSignal struct {
	to  Leftover
	sig syscall.Signal
	err error
}

// stop stops the processes of all dead sessions, together.
func (s *sweep) stop(ctx context.Context) error {
	left, err := s.scan()
	if err != nil {
		return err
	}
	for _, l := range left {
		_ = s.signal(l, syscall.SIGTERM)
		_ = proctab.Signal(l.ID, syscall.SIGCONT) // a stopped process does not see SIGTERM
	}
	s.await(ctx, left)
	left, err = s.kill(ctx)
	s.account(left)
	return err
}

// kill kills what is left and returns the processes that it could not kill in time.
func (s *sweep) kill(ctx context.Context) (left []Leftover, err error) {
	found := map[proctab.ID]Leftover{}
	killer := proctab.Killer{Signal: func(p proctab.Proc, sig syscall.Signal) error { return s.signal(found[p.ID], sig) }}
	for empty, vanished := 0, 0; empty < emptyPasses; {
		if left, err = s.scan(); err != nil {
			return left, err
		}
		rows := make([]proctab.Proc, 0, len(left))
		for _, l := range left {
			found[l.ID] = l
			rows = append(rows, l.row)
		}
		if ctx.Err() != nil {
			killer.Kill(rows) // so that none stays behind stopped
			s.result.Unfinished = true
			return left, nil
		}
		again := killer.Pass(rows)
		if empty++; s.finder.vanished && vanished < morePasses {
			vanished++
			empty = 0
		}
		if (s.finder.vanished || empty == emptyPasses) && s.chase(ctx) {
			empty = 0
		}
		if len(left) > 0 {
			empty, vanished = 0, 0
			if !slices.ContainsFunc(left, s.reached) {
				return left, nil // no further pass: none of them can be killed
			}
		}
		if !again { // no pause for processes that multiply
			pause(ctx)
		}
	}
	return left, nil
}

// The limits of a chase: how long it takes at most, and how long it waits for the next process.
const (
	chaseTime  = 500 * time.Millisecond
	chaseQuiet = 50 * time.Millisecond
)

// chase stops (SIGSTOP) processes of dead sessions that fork and exit within milliseconds, and so live too short for a
// pass, in which one may be neither in the table nor seen to vanish. It looks only at pids that have appeared since the
// last pass, as often as it can, and finds them by their stamps. It reports whether there was one.
func (s *sweep) chase(ctx context.Context) (any bool) {
	began := time.Now()
	for found := began; time.Since(began) < chaseTime && time.Since(found) < chaseQuiet && ctx.Err() == nil; {
		entries, err := os.Open("/proc")
		if err != nil {
			return any
		}
		names, _ := entries.Readdirnames(-1)
		_ = entries.Close()
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil || s.finder.last.has(pid) {
				continue
			}
			if p, err := proctab.Read(pid); err == nil && s.finder.isFresh(p) {
				_ = proctab.Signal(p.ID, syscall.SIGSTOP) // it may have ended
				any, found = true, time.Now()
			}
		}
	}
	return any
}

// scan returns the processes that are left to be stopped.
func (s *sweep) scan() ([]Leftover, error) {
	table, err := proctab.All()
	if err != nil {
		return nil, fmt.Errorf("cannot find what dead servers left: %w", err)
	}
	var left []Leftover
	left, s.spared = s.finder.find(table)
	return left, nil
}

// signal sends sig once to a process, after checking its identity again.
func (s *sweep) signal(l Leftover, sig syscall.Signal) error {
	if last := s.sent[l.ID]; last.sig == sig {
		return last.err
	}
	err := proctab.Signal(l.ID, sig)
	if errors.Is(err, proctab.ErrGone) {
		return err
	}
	s.sent[l.ID] = sentSignal{l, sig, err}
	log := s.log.With("signal", sig.String(), "pid", l.ID.PID, "name", l.Name, "session", l.Session)
	switch {
	case err != nil:
		log.Warn("cannot signal a process that a dead server left", "error", err)
	case sig == syscall.SIGSTOP: // it will be killed
		log.Debug("stopped a process that a dead server left")
	default:
		log.Info("signalled a process that a dead server left")
	}
	return err
}

// await waits until the processes have ended, at most sweepGrace.
func (s *sweep) await(ctx context.Context, procs []Leftover) {
	ctx, cancel := context.WithTimeout(ctx, sweepGrace)
	defer cancel()
	mayEnd := func(l Leftover) bool { return s.reached(l) && alive(l.ID) }
	for ctx.Err() == nil && slices.ContainsFunc(procs, mayEnd) {
		pause(ctx)
	}
}

// reached reports whether the last signal to a process was sent.
func (s *sweep) reached(l Leftover) bool { return s.sent[l.ID].err == nil }

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(sweepPoll):
	}
}

// account adds the processes that were stopped, and the remaining ones, to the result.
func (s *sweep) account(left []Leftover) {
	remains := map[proctab.ID]bool{}
	for _, l := range left {
		if !alive(l.ID) {
			continue
		}
		remains[l.ID] = true
		l.Why = "it did not end in time"
		if err := s.sent[l.ID].err; err != nil {
			l.Why = err.Error()
		}
		s.result.Remaining = append(s.result.Remaining, l)
	}
	s.result.Remaining = append(s.result.Remaining, s.spared...)
	for id, last := range s.sent {
		if !remains[id] {
			s.result.Stopped = append(s.result.Stopped, last.to)
		}
	}
	slices.SortFunc(s.result.Stopped, func(a, b Leftover) int { return byStart(a.ID, b.ID) })
}

func (s *sweep) removeRecords() error {
	kept := map[string]bool{}
	for _, l := range s.result.Remaining {
		kept[l.Session] = true
		s.log.Warn("left a process of a dead server", "pid", l.ID.PID, "name", l.Name, "session", l.Session, "why", l.Why)
	}
	var errs []error
	if s.result.Unfinished {
		s.log.Warn("left the records of dead servers", "why", UnfinishedProblem)
	}
	for _, id := range slices.Sorted(maps.Keys(s.finder.dead)) {
		if kept[id] || s.result.Unfinished {
			continue
		}
		if s.finder.unseen[id] {
			s.log.Warn("left the record of a dead server", "session", id, "why", HiddenProblem)
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
