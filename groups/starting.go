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

// start is the work of one operation that starts a group: one goroutine for each member.
type start struct {
	m       *Manager
	op      *operation
	starter Starter
	members map[string]*memberStart
	turns   turns
}

// memberStart is what the dependents of a member need to know of its start.
type memberStart struct {
	Member
	decided chan struct{} // closed once the fields below are set
	run     *ForeignRun   // nil: the member will not be started
	why     string        // why not; "" if the operation ended first
}

// decide sets run and why.
func (member *memberStart) decide(run *ForeignRun, why string) {
	member.run, member.why = run, why
	close(member.decided)
}

// run starts every member that can be started, and returns once all outcomes are final.
func (s *start) run(ctx context.Context) {
	for _, name := range s.op.order {
		member, _ := s.op.group.member(name)
		s.members[name] = &memberStart{Member: member, decided: make(chan struct{})}
		s.setWaitReason(name, member.DependsOn)
	}
	running := s.alreadyRunning(ctx)
	s.turns.changed = make(chan struct{})
	for i, name := range s.op.order {
		if _, ok := running[name]; !ok && len(s.members[name].DependsOn) == 0 {
			s.turns.join(i) // all of them before the first begins
		}
	}
	var wg sync.WaitGroup
	for i, name := range s.op.order {
		wg.Go(func() {
			if run, ok := running[name]; ok {
				s.skip(ctx, s.members[name], run)
			} else {
				s.start(ctx, s.members[name], i)
			}
		})
	}
	wg.Wait()
	s.blockPending(ctx)
	s.watchStarted(ctx)
	s.reviewAll()
}

// alreadyRunning returns the runs of the members that are running and are to be kept, whatever the state of their
// dependencies.
func (s *start) alreadyRunning(ctx context.Context) map[string]ForeignRun {
	running := make(map[string]ForeignRun)
	if s.op.restart { // a restart fails for a member of another server
		return running
	}
	for name, run := range s.m.runningElsewhere(ctx, s.op.order...) {
		if run.State == process.Running {
			running[name] = run
		}
	}
	for _, name := range s.op.order {
		if run, ok := s.runningHere(name); ok {
			running[name] = run
		}
	}
	return running
}

// runningHere returns the run of a member in this server, and reports whether the
// run is live and is to be kept.
func (s *start) runningHere(name string) (ForeignRun, bool) {
	st, err := s.m.o.Processes.Status(name)
	return ForeignRun{Status: st}, err == nil && !s.op.restart && (st.State == process.Starting || st.State == process.Running)
}

// skip records that member is already running, as run.
func (s *start) skip(ctx context.Context, member *memberStart, run ForeignRun) {
	why := "already " + run.State.String()
	if run.Owner != "" {
		why += " " + inOtherServer(run.Owner)
	}
	s.op.update(member.Process, func(o *Outcome) { o.Result, o.Why, o.Run, o.Owner = Skipped, why, run.Run, run.Owner })
	member.decide(&run, "")
	if s.op.group.awaitsExit(member.Process) {
		s.awaitOutcome(ctx, member, ExitedOK, IsDone, run)
	}
}

// start starts member, the i-th in order, once its dependencies hold and its turn has come.
func (s *start) start(ctx context.Context, member *memberStart, i int) {
	hold, why := s.awaitDependencies(ctx, member)
	switch {
	case why != "":
		s.block(member, why)
		return
	case !hold, !s.turns.await(ctx, i, s.op.group.StartDelay):
		member.decide(nil, "")
		return
	}
	name := member.Process
	if run, ok := s.runningHere(name); ok { // another caller has started it
		s.skip(ctx, member, run)
		return
	}
	s.op.update(name, func(o *Outcome) { o.Result, o.Why = InProgress, "" })
	if !s.isStillMember(ctx, member) {
		s.block(member, "removed from the group before its turn came")
		return
	}
	if st, ok := s.lastDone(ctx, member); ok {
		why := fmt.Sprintf("exited 0 %s ago; rerun: true runs it", age(time.Since(st.EndedAt)))
		s.op.update(name, func(o *Outcome) { o.Result, o.Why, o.Run = Skipped, why, st.Run })
		member.decide(&ForeignRun{Status: st}, "")
		return
	}
	before, _ := s.m.o.Processes.Status(name)
	st, err := s.startMember(ctx, member)
	s.begun(ctx, member, before.RunID, st, err)
}

// awaitDependencies waits until all that member depends on holds, and reports whether it does. why is the reason why
// something cannot hold any more; it is "" if the operation ended before a dependency was started.
func (s *start) awaitDependencies(ctx context.Context, member *memberStart) (hold bool, why string) {
	type decision struct {
		Dependency
		hold bool
		why  string
	}
	ctx, cancel := context.WithCancel(ctx)
	decisions, enough := make(chan decision, len(member.DependsOn)), make(chan struct{})
	var waits sync.WaitGroup
	defer waits.Wait()
	defer close(enough)
	defer cancel()
	for _, d := range member.DependsOn {
		waits.Go(func() {
			on := s.members[d.Process]
			select {
			case <-on.decided: // also if ctx ends, soon after that
			case <-enough:
				return
			}
			is := decision{d, on.run != nil, on.why}
			if on.run != nil {
				if err := s.m.awaitCondition(ctx, d, *on.run); err != nil {
					is.why = err.Error()
				}
			}
			decisions <- is
		})
	}
	for unmet := slices.Clone(member.DependsOn); len(unmet) > 0; {
		is := <-decisions
		if !is.hold || is.why != "" {
			return false, is.why
		}
		unmet = slices.DeleteFunc(unmet, func(d Dependency) bool { return d == is.Dependency })
		s.setWaitReason(member.Process, unmet)
	}
	return true, ""
}

func (s *start) setWaitReason(name string, unmet []Dependency) {
	why := ""
	if len(unmet) > 0 {
		why = "waits for " + listed(unmet)
	}
	s.op.update(name, func(o *Outcome) { o.Why = why })
}

// lastDone returns the latest run of a member that need not run again: the run has
// exited with code 0, as another member requires, of the present definition, and no
// process that the member depends on has a newer run.
func (s *start) lastDone(ctx context.Context, member *memberStart) (st process.Status, ok bool) {
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
	for _, needed := range s.m.runningElsewhere(ctx, needs...) {
		if needed.RunID > st.RunID {
			return st, false
		}
	}
	return st, s.starter.RanUnchanged(ctx, st)
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

// begun handles the end of a member's start, which has returned st and err. before
// is the id of the member's previous run.
func (s *start) begun(ctx context.Context, member *memberStart, before int64, st process.Status, err error) {
	var away *ElsewhereError
	if errors.As(err, &away) {
		switch {
		case away.Kept:
			s.begunElsewhere(ctx, member, away.ForeignRun, "by the daemon, which keeps it")
		case away.Restarted:
			s.begunElsewhere(ctx, member, away.ForeignRun, "restarted by its pmcp server ("+away.Owner+")")
		default:
			s.skip(ctx, member, away.ForeignRun)
		}
		return
	}
	if err == nil || st.RunID != before { // a failed attempt may have created a run
		s.op.update(member.Process, func(o *Outcome) { o.Run = st.Run })
	}
	switch {
	case err == nil:
		s.awaitStarted(ctx, member, ForeignRun{Status: st})
	case ctx.Err() != nil:
		s.fail(member, context.Cause(ctx).Error())
	default:
		s.fail(member, fmt.Sprintf("cannot start: %s", err))
	}
}

// begunElsewhere records that another server has started member, as run. why says
// which server.
func (s *start) begunElsewhere(ctx context.Context, member *memberStart, run ForeignRun, why string) {
	s.op.update(member.Process, func(o *Outcome) { o.Why, o.Run, o.Owner = why, run.Run, run.Owner })
	s.awaitStarted(ctx, member, run)
}

// isStillMember reports whether member still belongs to the group; the member may
// have been removed since the start began. If the definition cannot be read,
// isStillMember assumes that nothing changed.
func (s *start) isStillMember(ctx context.Context, member *memberStart) bool {
	current, err := s.m.find(ctx, s.op.group.Name, false)
	if err != nil || current.err != nil {
		return !errors.Is(err, ErrUnknown)
	}
	_, ok := current.member(member.Process)
	return ok
}

// startMember starts the process of member, after waiting for a stop of the
// process that is in progress.
func (s *start) startMember(ctx context.Context, member *memberStart) (process.Status, error) {
	_, err := s.m.o.Processes.Await(ctx, member.Process, func(st process.Status) bool { return st.State != process.Stopping })
	if err != nil && !errors.Is(err, process.ErrUnknown) { // unknown: the process never ran in this session
		return process.Status{}, err
	}
	ifRunning := process.KeepRunning
	if s.op.restart {
		ifRunning = process.RestartRunning
	}
	return s.starter.StartMember(ctx, member.Process, ifRunning)
}

// awaitStarted waits for the readiness of a member that was started as run, if the
// process has rules for readiness, or for the exit that others wait for.
func (s *start) awaitStarted(ctx context.Context, member *memberStart, run ForeignRun) {
	member.decide(&run, "")
	switch {
	case run.Spec.ChecksReady():
		s.awaitOutcome(ctx, member, Ready, BecameReady, run)
	case s.op.group.awaitsExit(member.Process):
		s.awaitOutcome(ctx, member, ExitedOK, IsDone, run)
	default:
		s.op.update(member.Process, func(o *Outcome) { o.Result = WasStarted })
	}
}

// awaitOutcome waits until condition, Ready or ExitedOK, holds for run, a run of
// member. The result of the member is then holds.
func (s *start) awaitOutcome(ctx context.Context, member *memberStart, condition Condition, holds Result, run ForeignRun) {
	result, why := holds, ""
	s.op.update(member.Process, func(o *Outcome) { why, o.Result = o.Why, InProgress })
	if err := s.m.awaitState(ctx, member.Process, condition, run); err != nil {
		result, why = HasFailed, ownReason(err)
	}
	s.op.update(member.Process, func(o *Outcome) { o.Result, o.Why = result, why })
}

func (s *start) fail(member *memberStart, why string) {
	s.op.update(member.Process, func(o *Outcome) { o.Result, o.Why = HasFailed, why })
	member.decide(nil, fmt.Sprintf("%s failed: %s", member.Process, why))
}

// block records that member will not start.
func (s *start) block(member *memberStart, why string) {
	s.op.update(member.Process, func(o *Outcome) { o.Result, o.Why, o.Blocked = Skipped, why, true })
	member.decide(nil, member.Process+" was not started")
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
			_, _ = s.m.o.Processes.WatchStart(ctx, o.Process, s.members[o.Process].run.RunID) // reviewAll sees the end
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
