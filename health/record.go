package health

import (
	"fmt"
	"time"

	"pmcp/process"
)

// handleResult records the result of a check of w, and restarts the process if the
// result demands that.
func (m *Monitor) handleResult(w *watch, result Result) {
	if !m.recordResult(w, result) {
		return
	}
	reason := fmt.Sprintf("unhealthy: %d checks in a row failed, the last with: %s", w.spec.Retries, result.Message)
	m.o.Log.Warn("process is unhealthy", "process", w.name, "run", w.run, "reason", result.Message, "action", string(w.spec.OnUnhealthy))
	if w.spec.OnUnhealthy != ActRestart {
		return
	}
	if result.cannotRun {
		m.setNotRestarted(w, fmt.Errorf("its check cannot be run: %s", result.Message))
		return
	}
	if err := m.o.Processes.Recycle(w.name, w.run, process.ByHealth, reason); err != nil {
		m.o.Log.Error("cannot restart an unhealthy process", "process", w.name, "error", err)
		m.setNotRestarted(w, err)
	}
}

// setNotRestarted records why an unhealthy process is not being restarted, and
// wakes the callers that wait for the process to become healthy.
func (m *Monitor) setNotRestarted(w *watch, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[w.name]; e != nil && e.watch == w && e.status.State == Unhealthy {
		e.status.NotRestarted = err.Error()
		m.publishLocked(e, Unhealthy, time.Now())
	}
}

// recordResult records a result of w. It reports whether the result made the process
// unhealthy, or the process was already unhealthy and is now due a restart.
func (m *Monitor) recordResult(w *watch, result Result) (unhealthy bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[w.name]
	if e == nil || e.watch != w {
		return false
	}
	e.status.Results = append(e.status.Results, result)
	if extra := len(e.status.Results) - maxResults; extra > 0 {
		e.status.Results = e.status.Results[extra:]
	}
	counts := !result.Requested && (e.tally.everHealthy || result.At.Sub(w.began) >= w.spec.StartPeriod)
	e.tally.add(result.OK, counts, w.spec.Retries)
	changed := m.updateStateLocked(e, time.Now())
	m.o.Processes.SetHealth(w.name, w.run, e.status.trouble(), e.status.Since)
	if changed {
		e.tally.owesRestart = e.status.State == Unhealthy && result.cannotRun
		return e.status.State == Unhealthy
	}
	if !e.tally.owesRestart || result.OK || !counts || result.cannotRun {
		return false
	}
	e.tally.owesRestart, e.status.NotRestarted = false, ""
	return true
}

// updateStateLocked sets the state of e to that of its tally, and reports whether
// the state changed. A change is published.
func (m *Monitor) updateStateLocked(e *entry, now time.Time) (changed bool) {
	from := e.status.State
	e.status.State, e.status.Failures = e.tally.state, e.tally.failures
	if e.status.State == from {
		return false
	}
	e.status.Since, e.status.NotRestarted = now, ""
	m.publishLocked(e, from, now)
	return true
}

// publishLocked sends the status of e to every Feed, as a change from the state from.
func (m *Monitor) publishLocked(e *entry, from State, now time.Time) {
	st := e.status
	if last := st.Last(); last != nil {
		st.Results = []Result{*last}
	}
	m.changes.Publish(Change{At: now, From: from, To: st.State, Status: st})
}
