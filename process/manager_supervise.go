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
	e.footing, e.activity = nil, activity{}
	st := &e.status
	st.RunID, st.Run, st.PID = id, number, 0
	st.StartedAt, st.EndedAt, st.Exit, st.Reason, st.LimitExceeded = began, time.Time{}, nil, "", ""
	st.Ready, st.ReadyAt, st.NotReady, st.HTTP, st.Ports, st.refused = nil, time.Time{}, "", nil, nil, false
	st.Lost, st.LostAt, st.stalled, st.Unhealthy, st.Suspended, st.Commit = "", time.Time{}, false, "", "", ""
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
	e.start.run, e.start.id = e.run, e.status.RunID
	close(e.start.done)
}

// spawnRun is Manager.spawn outside tests. Its error comes with a nil runner, not with
// a runner that holds a nil *Run.
func (m *Manager) spawnRun(spec Spec, exe command.Executable, run int64) (runner, error) {
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
		r := readiness{
			treeSockets: treeSockets{m: m, run: id, rules: rules, baseline: before},
			runner:      run, spec: spec,
		}
		m.wg.Go(func() { m.watchReadiness(ctx, e, r) })
	}
	<-run.Ended()
	cancel()
	retry, delay := m.finishRun(e, run)
	if retry == nil {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-retry.Done():
	case <-timer.C:
		m.retry(retry, e, run)
	}
}

// finishRun records the end of run in e. If the policy restarts the process,
// finishRun returns the delay and a context that ends when the restart is cancelled.
func (m *Manager) finishRun(e *entry, run runner) (retry context.Context, delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := &e.status
	exit, ended := run.Exit()
	st.Exit, st.EndedAt, st.PID = &exit, ended, 0
	st.Ready, st.Ports, e.footing, st.Unhealthy, st.Suspended = nil, nil, nil, "", "" // NotReady stays: it may explain the end
	policy := st.Spec.Restart
	if e.recycleReason != "" {
		policy = RestartAlways
	}
	if m.o.NoAutoRestart || m.closing || st.State == Stopping { // an explicit stop overrides the restart policy
		policy = RestartNever
	}
	ev, delay, reason := e.retries.decide(policy, st.Spec.MaxRestarts, exit, ended.Sub(st.StartedAt), ended, rand.Float64())
	st.Reason = prose.Join("; ", e.recycleReason, reason)
	if ev == evRetry && st.State == Running {
		retry, e.cancelRetry = context.WithCancel(m.ctx)
		st.NextRetry = time.Now().Add(delay)
	}
	m.transitionLocked(e, ev)
	return retry, delay
}

// retry starts the run that follows run, unless ctx is cancelled. It first stops the
// survivors of run, because they may hold ports, locks or files.
func (m *Manager) retry(ctx context.Context, e *entry, run runner) {
	m.mu.Lock()
	spec := e.status.Spec
	m.mu.Unlock()
	cleared := run.stop(m.newStopRequest(spec, StopOptions{})).wait(ctx)

	m.mu.Lock()
	was := e.restorable
	ok := ctx.Err() == nil && m.transitionLocked(e, evStart)
	if ok {
		e.rollback = was
		e.status.Restarts++
	}
	if ok && cleared != nil {
		e.status.Reason = fmt.Sprintf("not restarted: cannot stop what the last run left: %v", cleared)
		m.transitionLocked(e, evSpawnFailed)
		e.endSpawnLocked()
		ok = false
	}
	m.mu.Unlock()
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
