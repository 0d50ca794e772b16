package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"pmcp/process/command"
	"pmcp/process/prose"
)

// launch spawns the next run of e, which is Starting.
func (m *Manager) launch(e *entry) error {
	m.mu.Lock()
	spec, exe := e.status.Spec, e.exe
	m.mu.Unlock()
	before := m.baselinePorts(spec)
	id, number, err := m.o.Journal.NewRun(m.o.Project, spec.Name)
	if err != nil {
		m.undoStart(e, err)
		return err
	}
	began := time.Now() // read before the spawn, because a short run may have ended when spawn returns
	run, err := m.spawn(spec, exe, id)

	m.mu.Lock()
	defer m.mu.Unlock()
	defer e.endSpawnLocked()
	stop := e.pendingStop
	e.pendingStop, e.recycleReason, e.limits = nil, "", limitWatch{}
	st := &e.status
	st.RunID, st.Run, st.PID = id, number, 0
	st.StartedAt, st.EndedAt, st.Exit, st.Reason, st.LimitExceeded = began, time.Time{}, nil, "", ""
	st.Ready, st.ReadyAt, st.NotReady, st.HTTP, st.Ports, st.refused = nil, time.Time{}, "", nil, nil, false
	if err != nil { // the run number is used up; the recorded end of the previous run stays
		m.o.Journal.EndCapture(id)
		st.EndedAt, st.Reason = st.StartedAt, err.Error()
		m.transitionLocked(e, evSpawnFailed)
		return err
	}
	e.run, st.PID = run, run.PID()
	if spec.ChecksReady() {
		st.Ready, st.NotReady = new(bool), before.conflict
	}
	if spec.mcp() {
		st.NotReady = unanswered
	}
	m.transitionLocked(e, evSpawned)
	if stop != nil {
		run.stop(*stop)
	}
	m.wg.Go(func() { m.supervise(e, run, id, spec, before) })
	return nil
}

// undoStart takes back the start of e, whose name another session has claimed. It
// removes an entry that never ran. A pending restart becomes Failed with err as
// the reason; any other entry gets back its state from before the start.
func (m *Manager) undoStart(e *entry, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer e.endSpawnLocked()
	e.pendingStop = nil
	from, was := e.status.State, e.rollback
	if was.status.RunID == 0 { // the entry has never run
		m.removeEntryLocked(e)
		return
	}
	e.restorable = was
	if was.status.State != Backoff {
		m.publishLocked(e, e.status.State) // it has not come to this state again
		return
	}
	e.status.State, e.status.NextRetry = from, time.Time{}
	e.status.Reason = prose.Join("; ", e.status.Reason, fmt.Sprintf("not restarted: %v", err))
	m.transitionLocked(e, evSpawnFailed)
}

// endSpawnLocked releases the callers that wait for the spawn.
func (e *entry) endSpawnLocked() {
	e.spawn.run, e.spawn.id = e.run, e.status.RunID
	close(e.spawn.done)
}

// startRun is the default of Manager.spawn.
func (m *Manager) startRun(spec Spec, exe command.Executable, run int64) (runner, error) {
	r, err := startRun(spec, run, m.environ(spec, run), exe, m.deps)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// supervise follows one run to its end and then applies the restart policy.
func (m *Manager) supervise(e *entry, run runner, id int64, spec Spec, before portBaseline) {
	ctx, cancel := context.WithCancel(m.ctx)
	if rules := spec.rules(); rules != nil {
		r := readiness{m: m, run: id, runner: run, spec: spec, rules: rules, baseline: before}
		m.wg.Go(func() { m.awaitReady(ctx, e, r) })
	}
	<-run.Ended()
	cancel()
	again := m.secondTry(e, run)
	retry, delay := m.finishRun(e, run, again)
	if retry == nil {
		again.decide(false)
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-retry.Done():
		again.decide(false)
	case <-timer.C:
		m.retry(retry, e, run, again)
	}
}

// PortTaken is the Status.Reason of a run that a second try follows.
const PortTaken = "port was taken"

// A SecondRun is a run that follows a failed one at once.
type SecondRun struct {
	Spec Spec
	// Decided is called once: starts reports whether the run is about to start. It is not
	// if, for example, the process is stopped first.
	Decided func(starts bool)

	exe command.Executable
}

// decide calls Decided. s may be nil.
func (s *SecondRun) decide(starts bool) {
	if s != nil {
		s.Decided(starts)
	}
}

// secondTry returns what is to follow run, which has ended, at once, or nil if the restart
// policy decides.
func (m *Manager) secondTry(e *entry, run runner) *SecondRun {
	exit, _ := run.Exit()
	m.mu.Lock()
	st := m.snapshotLocked(e)
	again := m.again
	may := again != nil && len(st.Spec.Ports) > 0 && e.tried == 0 && st.State == Running && e.recycleReason == "" && !m.closing && !m.o.NoAutoRestart
	m.mu.Unlock()
	if !may || exit.Clean() || exit.By != BySelf {
		return nil
	}
	next := again(st)
	if next == nil {
		return nil
	}
	var err error
	if next.Spec, next.exe, err = m.check(next.Spec); err != nil {
		m.o.Log.Error("cannot start with another port", "process", st.Spec.Name, "error", err)
		next.decide(false)
		return nil
	}
	return next
}

// SetSecondTry sets a function that is called when a run with Spec.Ports has failed by
// itself, once until the next start by a caller, unless NoAutoRestart is set. It returns the
// run that is to follow, or nil: for a run that died because another process listens on its
// port. It may call the Manager.
func (m *Manager) SetSecondTry(again func(st Status) *SecondRun) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.again = again
}

// SecondTry reports whether a run of name has ended and a second try follows or has
// followed it.
func (m *Manager) SecondTry(name string, run int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[name]
	return e != nil && run != 0 && e.tried == run
}

// finishRun records the end of run in e. If the policy restarts the process, or again is
// to follow, finishRun returns the delay and a context that ends when the restart is
// cancelled.
func (m *Manager) finishRun(e *entry, run runner, again *SecondRun) (retry context.Context, delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := &e.status
	exit, ended := run.Exit()
	st.Exit, st.EndedAt, st.PID = &exit, ended, 0
	st.Ready, st.Ports = nil, nil // NotReady stays: it may explain the end
	policy := st.Spec.Restart
	if e.recycleReason != "" {
		policy = RestartAlways
	}
	if m.o.NoAutoRestart || m.closing || st.State == Stopping { // an explicit stop overrides the restart policy
		policy = RestartNever
	}
	ev, delay, reason := e.retries.decide(policy, st.Spec.MaxRestarts, exit, ended.Sub(st.StartedAt), ended, rand.Float64())
	if again != nil && st.State == Running {
		ev, delay, reason = evRetry, 0, PortTaken
		e.tried = st.RunID
	}
	st.Reason = prose.Join("; ", e.recycleReason, reason)
	if ev == evRetry && st.State == Running {
		retry, e.cancelRetry = context.WithCancel(m.ctx)
		st.NextRetry = time.Now().Add(delay)
	}
	m.transitionLocked(e, ev)
	return retry, delay
}

// retry starts the run that follows run, with the definition again if that is not nil,
// unless ctx is cancelled. It first stops the survivors of run, because they may hold
// ports, locks or files.
func (m *Manager) retry(ctx context.Context, e *entry, run runner, again *SecondRun) {
	m.mu.Lock()
	spec := e.status.Spec
	m.mu.Unlock()
	cleared := run.stop(m.stopRequest(spec, StopOptions{})).wait(ctx)

	m.mu.Lock()
	was := e.restorable
	ok := ctx.Err() == nil && m.transitionLocked(e, evStart)
	if ok {
		e.rollback = was
		e.status.Restarts++
		if again != nil {
			e.status.Spec, e.status.Executable, e.exe = again.Spec, again.exe.Argv0, again.exe
		}
	}
	if ok && cleared != nil {
		e.status.Reason = fmt.Sprintf("not restarted: cannot stop what the last run left: %v", cleared)
		m.transitionLocked(e, evSpawnFailed)
		e.endSpawnLocked()
		ok = false
	}
	m.mu.Unlock()
	again.decide(ok)
	if !ok {
		return
	}
	if err := m.launch(e); err != nil {
		m.o.Log.Error("cannot restart", "process", spec.Name, "error", err)
	}
}

// grace returns the time between the first signal and SIGKILL for spec.
func (m *Manager) grace(spec Spec) time.Duration {
	if spec.Stop.Timeout > 0 {
		return spec.Stop.Timeout
	}
	if spec.mcp() {
		return max(mcpStopTimeout, m.o.StopTimeout)
	}
	return m.o.StopTimeout
}
