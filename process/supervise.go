package process

import (
	"context"
	"fmt"
	"time"
)

// launch spawns the next run of e, which is Starting.
func (m *Manager) launch(e *entry) error {
	m.mu.Lock()
	spec, exe := e.status.Spec, e.exe
	m.mu.Unlock()
	before := m.lookAtPorts(spec.Ready)
	id, number := m.o.Journal.NewRun(m.o.Project, spec.Name)
	began := time.Now() // before it: a short run may have ended when it returns
	run, err := m.spawn(spec, exe, id)

	m.mu.Lock()
	defer m.mu.Unlock()
	defer e.endSpawn()
	stop := e.stopping
	e.stopping, e.recycled, e.limits = nil, "", limitWatch{}
	st := &e.status
	st.RunID, st.Run, st.PID = id, number, 0
	st.StartedAt, st.EndedAt, st.Exit, st.Reason, st.LimitExceeded = began, time.Time{}, nil, "", ""
	st.Ready, st.ReadyAt, st.NotReady, st.Ports = nil, time.Time{}, "", nil
	if err != nil { // the number is used up, and the run before keeps its end
		m.o.Journal.EndCapture(id)
		st.EndedAt, st.Reason = st.StartedAt, err.Error()
		m.transition(e, evSpawnFailed)
		return err
	}
	e.run, st.PID = run, run.PID()
	if spec.ChecksReady() {
		st.Ready, st.NotReady = new(bool), before.conflict
	}
	if spec.mcp() {
		st.NotReady = "it has not answered initialize yet"
	}
	m.transition(e, evSpawned)
	if stop != nil {
		run.stop(*stop)
	}
	m.wg.Go(func() { m.supervise(e, run, id, spec.Ready, before) })
	return nil
}

// endSpawn lets those go on who wait for the spawn. Called with Manager.mu held.
func (e *entry) endSpawn() {
	e.spawn.run, e.spawn.id = e.run, e.status.RunID
	close(e.spawn.done)
}

// startRun is what spawn is but in tests.
func (m *Manager) startRun(spec Spec, exe executable, run int64) (runner, error) {
	env := environ(m.o.Environ, spec.Env, spec.Dir, m.o.Session, run)
	r, err := startRun(spec, run, env, exe, m.deps)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// supervise sees one run to its end and does what follows from it.
func (m *Manager) supervise(e *entry, run runner, id int64, ready *Ready, before portsBefore) {
	ctx, cancel := context.WithCancel(m.ctx)
	if ready != nil {
		m.wg.Go(func() { m.awaitReady(ctx, e, run, id, ready, before) })
	}
	<-run.Ended()
	cancel()
	retry, delay := m.settle(e, run)
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

// settle enters the end of run. It returns a context and a delay if the policy
// wants another run: the context ends when that is called off.
func (m *Manager) settle(e *entry, run runner) (retry context.Context, delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := &e.status
	exit, ended := run.Exit()
	st.Exit, st.EndedAt, st.PID = &exit, ended, 0
	st.Ready, st.Ports = nil, nil // NotReady stays: what was missing may be why it ended
	policy := st.Spec.Restart
	if e.recycled != "" {
		policy = RestartAlways
	}
	if m.o.NoAutoRestart || m.closing || st.State == Stopping { // who stops it has decided
		policy = RestartNever
	}
	ev, delay, reason := e.retries.after(policy, st.Spec.MaxRestarts, exit, ended.Sub(st.StartedAt), ended, randomFraction())
	st.Reason = joinReasons(e.recycled, reason)
	if ev == evRetry && st.State == Running {
		retry, e.noRetry = context.WithCancel(m.ctx)
		st.NextRetry = time.Now().Add(delay)
	}
	m.transition(e, ev)
	return retry, delay
}

// retry begins the run that follows run, unless that is called off. It must
// find nothing of the last: ports, locks, files.
func (m *Manager) retry(ctx context.Context, e *entry, run runner) {
	m.mu.Lock()
	spec := e.status.Spec
	m.mu.Unlock()
	cleared := run.stop(stopRequest{signal: spec.Stop.signal(), grace: m.grace(spec), by: ByUser}).wait(ctx)

	m.mu.Lock()
	ok := ctx.Err() == nil && m.transition(e, evStart)
	if ok {
		e.status.Restarts++
	}
	if ok && cleared != nil {
		e.status.Reason = fmt.Sprintf("not restarted: what the last run left is in the way: %v", cleared)
		m.transition(e, evSpawnFailed)
		e.endSpawn()
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

// grace is the time between the first signal and SIGKILL for spec.
func (m *Manager) grace(spec Spec) time.Duration {
	if spec.Stop.Timeout > 0 {
		return spec.Stop.Timeout
	}
	if spec.mcp() {
		return max(mcpStopTimeout, m.o.StopTimeout)
	}
	return m.o.StopTimeout
}

func joinReasons(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
