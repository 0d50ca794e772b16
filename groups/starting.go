package groups

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pmcp/process"
)

// start is the work of one operation. All of it is one goroutine's, run's, but
// for tasks, which answer it with events.
type start struct {
	m       *Manager
	op      *operation
	starter Starter
	restart bool

	members map[string]*starting
	order   []string // start order
	events  chan func()
	tasks   int            // that have not answered
	wg      sync.WaitGroup // tasks
	next    time.Time      // when the next member may start
	paused  bool           // a task waits for next
}

// starting is one member in a start.
type starting struct {
	Member
	waits   []string        // the dependencies whose condition does not hold yet
	ctx     context.Context // ends when it is blocked
	cancel  context.CancelFunc
	begun   bool   // its start was begun, or found to be unnecessary
	owner   string // the other server that was found to run it
	blocked bool   // it will not start
}

func newStart(m *Manager, op *operation, starter Starter, o StartOptions) *start {
	s := &start{
		m: m, op: op, starter: starter, restart: o.RestartRunning,
		members: make(map[string]*starting), events: make(chan func()),
	}
	for _, outcome := range op.outcomes {
		s.order = append(s.order, outcome.Process)
	}
	return s
}

// run starts everything that can be and returns when no task is left.
func (s *start) run(ctx context.Context) {
	for _, name := range s.order {
		member, _ := s.op.group.member(name)
		waiting := &starting{Member: member}
		for _, d := range member.DependsOn {
			waiting.waits = append(waiting.waits, d.Process)
		}
		waiting.ctx, waiting.cancel = context.WithCancel(ctx)
		defer waiting.cancel()
		s.members[name] = waiting
		s.tellWaits(waiting)
	}
	s.skipRunning(ctx)
	for s.proceed(ctx); s.tasks > 0; s.proceed(ctx) {
		event := <-s.events
		s.tasks--
		event()
	}
	s.wg.Wait()
	s.giveUp(ctx)
	s.reviewAll()
}

// skipRunning finds what runs already: it waits for nothing any more, whatever
// has become of what it depends on.
func (s *start) skipRunning(ctx context.Context) {
	running := make(map[*starting]process.Status)
	elsewhere := s.elsewhere(ctx, s.order...)
	for _, name := range s.order {
		member := s.members[name]
		st, ok := s.runs(name)
		if run, away := elsewhere[name]; away && !ok {
			st, ok, member.owner = run.Status, true, run.Owner
		}
		if ok {
			running[member] = st
			member.begun = true
		}
	}
	for member, st := range running {
		s.skipped(member, st)
	}
}

// runs answers the status of a member that runs and may go on.
func (s *start) runs(name string) (process.Status, bool) {
	st, err := s.m.o.Processes.Status(name)
	return st, err == nil && !s.restart && (st.State == process.Starting || st.State == process.Running)
}

// elsewhere gives those of names that run in another server and may go on.
func (s *start) elsewhere(ctx context.Context, names ...string) map[string]ForeignRun {
	if s.restart {
		return nil // only its own server can restart one
	}
	runs := s.m.elsewhere(ctx, names...)
	maps.DeleteFunc(runs, func(_ string, run ForeignRun) bool { return run.State != process.Running })
	return runs
}

// skipped enters that member runs already.
func (s *start) skipped(member *starting, st process.Status) {
	why := "already " + st.State.String()
	if member.owner != "" {
		why += " " + inServerOf(member.owner)
	}
	s.op.set(member.Process, func(o *Outcome) { o.Result, o.Why, o.Run = Skipped, why, st.Run })
	s.started(member, st)
}

// task runs work beside the loop; the event it returns is handled by the loop.
// Work must end soon after its context.
func (s *start) task(work func() (event func())) {
	s.tasks++
	s.wg.Go(func() { s.events <- work() })
}

// proceed begins the start of each member that waits for nothing, in order and
// with the pause that the group demands.
func (s *start) proceed(ctx context.Context) {
	for _, name := range s.order {
		member := s.members[name]
		if member.begun || member.blocked || len(member.waits) > 0 || s.paused || ctx.Err() != nil {
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

// begin starts one member, unless somebody else has meanwhile.
func (s *start) begin(member *starting) {
	member.begun = true
	name := member.Process
	if st, ok := s.runs(name); ok {
		s.skipped(member, st)
		return
	}
	s.op.set(name, func(o *Outcome) { o.Result, o.Why = InProgress, "" })
	s.next = time.Now().Add(s.op.group.StartDelay)
	s.task(func() func() {
		if run, ok := s.elsewhere(member.ctx, name)[name]; ok {
			return func() {
				member.owner = run.Owner
				s.skipped(member, run.Status)
			}
		}
		if !s.stillMember(member) {
			return func() { s.removed(member) }
		}
		before, _ := s.m.o.Processes.Status(name)
		st, err := s.startMember(member)
		return func() {
			if err != nil && st.RunID != before.RunID { // an attempt is a run, too; that of before is none of this start
				s.op.set(name, func(o *Outcome) { o.Run = st.Run })
			}
			switch {
			case err != nil && member.ctx.Err() != nil:
				s.failed(member, context.Cause(member.ctx).Error())
				return
			case err != nil:
				s.failed(member, fmt.Sprintf("cannot start: %s", err))
				return
			}
			s.op.set(name, func(o *Outcome) { o.Run = st.Run })
			s.started(member, st)
			s.settle(member, st.Spec)
		}
	})
}

// startMember starts a process, after a stop of it that is under way.
func (s *start) startMember(member *starting) (process.Status, error) {
	_, err := s.m.o.Processes.Await(member.ctx, member.Process, func(st process.Status) bool { return st.State != process.Stopping })
	if err != nil && !errors.Is(err, process.ErrUnknown) { // unknown: it never ran in this session
		return process.Status{}, err
	}
	ifRunning := process.KeepRunning
	if s.restart {
		ifRunning = process.RestartRunning
	}
	return s.starter.StartMember(member.ctx, member.Process, ifRunning)
}

// started begins to wait for what the dependents of member demand of it.
func (s *start) started(member *starting, st process.Status) {
	for _, name := range s.op.group.dependents(member.Process) {
		dependent := s.members[name]
		if dependent.blocked || dependent.begun {
			continue
		}
		i := slices.IndexFunc(dependent.DependsOn, func(d Dependency) bool { return d.Process == member.Process })
		d, owner := dependent.DependsOn[i], member.owner
		s.task(func() func() {
			var err error
			if owner == "" {
				err = s.m.awaitCondition(dependent.ctx, d, st.RunID)
			} else {
				err = s.m.awaitElsewhere(dependent.ctx, d, ForeignRun{Status: st, Owner: owner})
			}
			return func() { s.answered(dependent, d, err) }
		})
	}
}

// answered takes the end of the wait for one condition.
func (s *start) answered(dependent *starting, d Dependency, err error) {
	switch {
	case dependent.blocked, dependent.begun:
	case err != nil:
		s.block(dependent, err.Error())
	default:
		dependent.waits = slices.DeleteFunc(dependent.waits, func(name string) bool { return name == d.Process })
		s.tellWaits(dependent)
	}
}

// settle waits for the readiness of what was started, if it has rules for it.
func (s *start) settle(member *starting, spec process.Spec) {
	if !spec.ChecksReady() {
		s.op.set(member.Process, func(o *Outcome) { o.Result, o.Why = WasStarted, "" })
		return
	}
	s.task(func() func() {
		err := s.m.awaitVerdict(member.ctx, member.Process, Ready, readiness)
		return func() {
			s.op.set(member.Process, func(o *Outcome) {
				o.Result, o.Why = BecameReady, ""
				if err != nil {
					o.Result, o.Why = HasFailed, err.Error()
				}
			})
		}
	})
}

// failed enters that member could not be started, and blocks what depends on it.
func (s *start) failed(member *starting, why string) {
	s.op.set(member.Process, func(o *Outcome) { o.Result, o.Why = HasFailed, why })
	for _, name := range s.op.group.dependents(member.Process) {
		s.block(s.members[name], fmt.Sprintf("%s failed: %s", member.Process, why))
	}
}

// block enters that member will not start, and blocks what depends on it.
func (s *start) block(member *starting, why string) {
	if member.blocked || member.begun {
		return
	}
	member.blocked = true
	member.cancel() // what is still waited for on its behalf
	s.op.set(member.Process, func(o *Outcome) { o.Result, o.Why, o.Blocked = Skipped, why, true })
	for _, name := range s.op.group.dependents(member.Process) {
		s.block(s.members[name], fmt.Sprintf("%s was not started", member.Process))
	}
}

// tellWaits enters what a pending member waits for.
func (s *start) tellWaits(member *starting) {
	why := ""
	if len(member.waits) > 0 {
		var words []string
		for _, d := range member.DependsOn {
			if slices.Contains(member.waits, d.Process) {
				words = append(words, d.String())
			}
		}
		why = "waits for " + strings.Join(words, ", ")
	}
	s.op.set(member.Process, func(o *Outcome) { o.Why = why })
}

// giveUp blocks what was not started when the operation was called off or its
// time was over.
func (s *start) giveUp(ctx context.Context) {
	if ctx.Err() == nil {
		return
	}
	for _, name := range s.order {
		s.op.set(name, func(o *Outcome) {
			if o.Result == Pending {
				o.Result, o.Why, o.Blocked = Skipped, joinWhy(context.Cause(ctx).Error(), o.Why), true
			}
		})
	}
}

func joinWhy(first, second string) string {
	if second == "" {
		return first
	}
	return first + "; " + second
}

// reviewAll looks once more at what was started: it may have ended since.
func (s *start) reviewAll() {
	for _, name := range s.order {
		s.op.set(name, func(o *Outcome) {
			if o.Result == WasStarted || o.Result == BecameReady {
				s.review(o)
			}
		})
	}
}

func (s *start) review(o *Outcome) {
	st, err := s.m.o.Processes.Status(o.Process)
	if err != nil || st.State == process.Starting || st.State == process.Running {
		return
	}
	switch {
	case st.State == process.Exited:
		o.Why = ending(st)
	case st.State == process.Backoff && st.Exit != nil:
		o.Result, o.Why = HasFailed, fmt.Sprintf("it ended with %s and will be started again", st.Exit)
	default:
		o.Result, o.Why = HasFailed, ending(st)
	}
}
