package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pmcp/process"
	"pmcp/process/prose"
)

// start is the work of one operation that starts a group. Its fields belong to
// the goroutine of run; tasks run concurrently and report back through events.
type start struct {
	m       *Manager
	op      *operation
	starter Starter

	members map[string]*memberStart
	events  chan func()
	tasks   int            // the number of tasks that have not sent their event
	wg      sync.WaitGroup // tasks
	next    time.Time      // when the next member may start
	paused  bool           // a task is waiting for next
}

// memberStart is the progress of one member in a start.
type memberStart struct {
	Member
	unmet   []Dependency    // the dependencies whose conditions do not hold yet
	ctx     context.Context // ends when the member is blocked
	cancel  context.CancelFunc
	begun   bool  // the start of the member has begun or proved unnecessary
	run     int64 // the id of the run that was started, or 0
	blocked bool  // the member will not start
}

// run starts every member that can be started, and returns when no task is
// left.
func (s *start) run(ctx context.Context) {
	for _, name := range s.op.order {
		member, _ := s.op.group.member(name)
		waiting := &memberStart{Member: member, unmet: slices.Clone(member.DependsOn)}
		waiting.ctx, waiting.cancel = context.WithCancel(ctx)
		defer waiting.cancel()
		s.members[name] = waiting
		s.setWaitReason(waiting)
	}
	s.skipRunning(ctx)
	for s.startNext(ctx); s.tasks > 0; s.startNext(ctx) {
		event := <-s.events
		s.tasks--
		event()
	}
	s.wg.Wait()
	s.blockPending(ctx)
	s.watchStarted(ctx)
	s.reviewAll()
}

// skipRunning skips the members that are already running, whatever the state of
// their dependencies.
func (s *start) skipRunning(ctx context.Context) {
	var elsewhere map[string]ForeignRun
	if !s.op.restart { // a restart fails for a member of another server
		elsewhere = s.m.runningElsewhere(ctx, s.op.order...)
	}
	running := make(map[*memberStart]ForeignRun)
	for name, member := range s.members {
		run, ok := s.runningHere(name)
		if there, found := elsewhere[name]; !ok && found && there.State == process.Running {
			run, ok = there, true
		}
		if ok {
			running[member] = run
			member.begun = true
		}
	}
	for member, run := range running {
		s.markSkipped(member, run)
	}
}

// runningHere returns the run of a member in this server, and reports whether the
// run is live and is to be kept.
func (s *start) runningHere(name string) (ForeignRun, bool) {
	st, err := s.m.o.Processes.Status(name)
	return ForeignRun{Status: st}, err == nil && !s.op.restart && (st.State == process.Starting || st.State == process.Running)
}

// markSkipped records that member is already running, as run.
func (s *start) markSkipped(member *memberStart, run ForeignRun) {
	why := "already " + run.State.String()
	if run.Owner != "" {
		why += " " + inOtherServer(run.Owner)
	}
	s.op.update(member.Process, func(o *Outcome) { o.Result, o.Why, o.Run, o.Owner = Skipped, why, run.Run, run.Owner })
	s.awaitConditions(member, run)
	if s.op.group.awaitsExit(member.Process) {
		s.awaitOutcome(member, ExitedOK, IsDone, run)
	}
}

// lastDone returns the latest run of a member that need not run again: the run has
// exited with code 0, as another member requires, of the present definition, and no
// process that the member depends on has a newer run.
func (s *start) lastDone(member *memberStart) (st process.Status, ok bool) {
	st, err := s.m.o.Processes.Status(member.Process)
	if err != nil || s.op.rerun || st.State != process.Exited || !ExitedOK.holdsFor(st) || !s.op.group.awaitsExit(member.Process) {
		return st, false
	}
	needs := make([]string, len(member.DependsOn))
	for i, d := range member.DependsOn {
		needs[i] = d.Process
		if needed, err := s.m.o.Processes.Status(d.Process); err == nil && needed.RunID > st.RunID {
			return st, false
		}
	}
	for _, needed := range s.m.runningElsewhere(member.ctx, needs...) {
		if needed.RunID > st.RunID {
			return st, false
		}
	}
	return st, s.starter.RanUnchanged(member.ctx, st)
}

// markDone records that member need not run again after its run st.
func (s *start) markDone(member *memberStart, st process.Status) {
	why := fmt.Sprintf("exited 0 %s ago; rerun: true runs it", age(time.Since(st.EndedAt)))
	s.op.update(member.Process, func(o *Outcome) { o.Result, o.Why, o.Run = Skipped, why, st.Run })
	s.awaitConditions(member, ForeignRun{Status: st})
}

// age returns d in its largest unit, such as "3m".
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	default:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
}

// task runs work in a goroutine; the loop of run handles the event that work
// returns. work must return soon after its context ends.
func (s *start) task(work func() (event func())) {
	s.tasks++
	s.wg.Go(func() { s.events <- work() })
}

// startNext begins the start of each member whose conditions hold, in order and
// separated by the delay of the group.
func (s *start) startNext(ctx context.Context) {
	for _, name := range s.op.order {
		member := s.members[name]
		if member.begun || member.blocked || len(member.unmet) > 0 || s.paused || ctx.Err() != nil {
			continue
		}
		if pause := time.Until(s.next); pause > 0 {
			s.pause(ctx, pause)
			return
		}
		s.begin(member)
	}
}

// pause keeps members from starting for d.
func (s *start) pause(ctx context.Context, d time.Duration) {
	s.paused = true
	s.task(func() func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return func() { s.paused = false }
	})
}

// begin starts one member, unless another caller has started the process already.
func (s *start) begin(member *memberStart) {
	member.begun = true
	name := member.Process
	if run, ok := s.runningHere(name); ok {
		s.markSkipped(member, run)
		return
	}
	s.op.update(name, func(o *Outcome) { o.Result, o.Why = InProgress, "" })
	s.next = time.Now().Add(s.op.group.StartDelay)
	s.task(func() func() {
		if !s.isStillMember(member) {
			return func() { s.block(member, "removed from the group before its turn came") }
		}
		if st, ok := s.lastDone(member); ok {
			return func() { s.markDone(member, st) }
		}
		before, _ := s.m.o.Processes.Status(name)
		st, err := s.startMember(member)
		return func() { s.begun(member, before.RunID, st, err) }
	})
}

// begun handles the end of a member's start, which has returned st and err. before
// is the id of the member's previous run.
func (s *start) begun(member *memberStart, before int64, st process.Status, err error) {
	var away *ElsewhereError
	if errors.As(err, &away) {
		switch {
		case away.Kept:
			s.markStartedElsewhere(member, away.ForeignRun, "by the daemon, which keeps it")
		case away.Restarted:
			s.markStartedElsewhere(member, away.ForeignRun, "restarted by its pmcp server ("+away.Owner+")")
		default:
			s.markSkipped(member, away.ForeignRun)
		}
		return
	}
	if err == nil || st.RunID != before { // a failed attempt may have created a run
		s.op.update(member.Process, func(o *Outcome) { o.Run = st.Run })
	}
	switch {
	case err == nil:
		member.run = st.RunID
		s.awaitConditions(member, ForeignRun{Status: st})
		s.awaitStarted(member, ForeignRun{Status: st})
	case member.ctx.Err() != nil:
		s.markFailed(member, context.Cause(member.ctx).Error())
	default:
		s.markFailed(member, fmt.Sprintf("cannot start: %s", err))
	}
}

// markStartedElsewhere records that another server has started member, as run. why says
// which server.
func (s *start) markStartedElsewhere(member *memberStart, run ForeignRun, why string) {
	s.op.update(member.Process, func(o *Outcome) { o.Why, o.Run, o.Owner = why, run.Run, run.Owner })
	s.awaitConditions(member, run)
	s.awaitStarted(member, run)
}

// isStillMember reports whether member still belongs to the group; the member may
// have been removed since the start began. If the definition cannot be read,
// isStillMember assumes that nothing changed.
func (s *start) isStillMember(member *memberStart) bool {
	current, err := s.m.find(member.ctx, s.op.group.Name, false)
	if err != nil || current.err != nil {
		return !errors.Is(err, ErrUnknown)
	}
	_, ok := current.member(member.Process)
	return ok
}

// startMember starts the process of member, after waiting for a stop of the
// process that is in progress.
func (s *start) startMember(member *memberStart) (process.Status, error) {
	_, err := s.m.o.Processes.Await(member.ctx, member.Process, func(st process.Status) bool { return st.State != process.Stopping })
	if err != nil && !errors.Is(err, process.ErrUnknown) { // unknown: the process never ran in this session
		return process.Status{}, err
	}
	ifRunning := process.KeepRunning
	if s.op.restart {
		ifRunning = process.RestartRunning
	}
	return s.starter.StartMember(member.ctx, member.Process, ifRunning)
}

// awaitConditions starts to wait for the conditions that the dependents of member
// set on run, the member's run.
func (s *start) awaitConditions(member *memberStart, run ForeignRun) {
	for _, name := range s.op.group.dependents(member.Process) {
		dependent := s.members[name]
		if dependent.blocked || dependent.begun {
			continue
		}
		i := slices.IndexFunc(dependent.DependsOn, func(d Dependency) bool { return d.Process == member.Process })
		d := dependent.DependsOn[i]
		s.task(func() func() {
			err := s.m.awaitCondition(dependent.ctx, d, run)
			return func() { s.conditionDecided(dependent, d, err) }
		})
	}
}

// conditionDecided handles the end of the wait for the condition of d, with the
// error of that wait.
func (s *start) conditionDecided(dependent *memberStart, d Dependency, err error) {
	switch {
	case dependent.blocked, dependent.begun:
	case err != nil:
		s.block(dependent, err.Error())
	default:
		dependent.unmet = slices.DeleteFunc(dependent.unmet, func(other Dependency) bool { return other == d })
		s.setWaitReason(dependent)
	}
}

// awaitStarted waits for the readiness of a member that was started as run, if the
// process has rules for readiness, or for the exit that others wait for.
func (s *start) awaitStarted(member *memberStart, run ForeignRun) {
	switch {
	case run.Spec.ChecksReady():
		s.awaitOutcome(member, Ready, BecameReady, run)
	case s.op.group.awaitsExit(member.Process):
		s.awaitOutcome(member, ExitedOK, IsDone, run)
	default:
		s.op.update(member.Process, func(o *Outcome) { o.Result = WasStarted })
	}
}

// awaitOutcome waits until condition, Ready or ExitedOK, holds for run, a run of
// member. The result of the member is then holds.
func (s *start) awaitOutcome(member *memberStart, condition Condition, holds Result, run ForeignRun) {
	before := ""
	s.op.update(member.Process, func(o *Outcome) { before, o.Result = o.Why, InProgress })
	s.task(func() func() {
		result, why := holds, before
		if err := s.m.awaitState(member.ctx, member.Process, condition, run); err != nil {
			result, why = HasFailed, ownReason(err)
		}
		return func() { s.op.update(member.Process, func(o *Outcome) { o.Result, o.Why = result, why }) }
	})
}

func (s *start) markFailed(member *memberStart, why string) {
	s.op.update(member.Process, func(o *Outcome) { o.Result, o.Why = HasFailed, why })
	s.blockDependents(member, fmt.Sprintf("%s failed: %s", member.Process, why))
}

// block records that member will not start, and blocks its dependents.
func (s *start) block(member *memberStart, why string) {
	member.blocked = true
	member.cancel() // end the waits for the member's conditions
	s.op.update(member.Process, func(o *Outcome) { o.Result, o.Why, o.Blocked = Skipped, why, true })
	s.blockDependents(member, member.Process+" was not started")
}

func (s *start) blockDependents(member *memberStart, why string) {
	for _, name := range s.op.group.dependents(member.Process) {
		if dependent := s.members[name]; !dependent.blocked && !dependent.begun {
			s.block(dependent, why)
		}
	}
}

func (s *start) setWaitReason(member *memberStart) {
	why := ""
	if len(member.unmet) > 0 {
		why = "waits for " + listed(member.unmet)
	}
	s.op.update(member.Process, func(o *Outcome) { o.Why = why })
}

// blockPending blocks the pending members if the operation was cancelled or
// timed out.
func (s *start) blockPending(ctx context.Context) {
	if ctx.Err() == nil {
		return
	}
	for _, name := range s.op.order {
		s.op.update(name, func(o *Outcome) {
			if o.Result == Pending {
				o.Result, o.Why, o.Blocked = Skipped, prose.Join("; ", context.Cause(ctx).Error(), o.Why), true
			}
		})
	}
}

// watchStarted watches the members that were started and have no readiness rule: what
// cannot work ends soon. Dependents did not wait for that.
func (s *start) watchStarted(ctx context.Context) {
	outcomes, _ := s.op.snapshot()
	for _, o := range outcomes {
		if o.Result == WasStarted && o.Owner == "" {
			_, _ = s.m.o.Processes.WatchStart(ctx, o.Process, s.members[o.Process].run) // reviewAll sees the end
		}
	}
}

// reviewAll checks the members that were started here again, since their processes may
// have ended.
func (s *start) reviewAll() {
	for _, name := range s.op.order {
		s.op.update(name, func(o *Outcome) {
			if o.Owner == "" && (o.Result == WasStarted || o.Result == BecameReady) {
				s.review(o)
			}
		})
	}
}

// review changes the outcome of a started member whose process is not running.
func (s *start) review(o *Outcome) {
	st, err := s.m.o.Processes.Status(o.Process)
	if err != nil || st.State == process.Starting || st.State == process.Running {
		return
	}
	switch {
	case st.State == process.Exited && o.Result == WasStarted:
		o.Result = IsDone
	case st.State == process.Exited:
		o.Why = describeEnd(st)
	case st.State == process.Backoff && st.Exit != nil:
		o.Result, o.Why = HasFailed, fmt.Sprintf("it ended with %s and will be started again", st.Exit)
	default:
		o.Result, o.Why = HasFailed, describeEnd(st)
	}
}
