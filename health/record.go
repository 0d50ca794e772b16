package health

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"pmcp/process"
)

// record enters the result of a check of w, and acts if that made the process
// unhealthy.
func (m *Monitor) record(w *watch, result Result) {
	if !m.enter(w, result) {
		return
	}
	reason := fmt.Sprintf("unhealthy: %d checks in a row failed, the last with: %s", w.spec.Retries, result.Message)
	m.o.Log.Warn("process is unhealthy", "process", w.name, "run", w.run, "reason", result.Message, "action", string(w.spec.OnUnhealthy))
	if w.spec.OnUnhealthy != ActRestart {
		return
	}
	if result.cannotRun {
		m.noteNotRestarted(w, fmt.Errorf("its check cannot be run: %s", result.Message))
		return
	}
	if err := m.o.Processes.Recycle(w.name, w.run, process.ByHealth, reason); err != nil {
		m.o.Log.Error("cannot restart an unhealthy process", "process", w.name, "error", err)
		m.noteNotRestarted(w, err)
	}
}

// noteNotRestarted enters that nothing is being done about an unhealthy
// process, and tells who waits for it to become healthy.
func (m *Monitor) noteNotRestarted(w *watch, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[w.name]; e != nil && e.watch == w && e.status.State == Unhealthy {
		e.status.NotRestarted = err.Error()
		m.publish(e, Unhealthy, time.Now())
	}
}

// enter enters a result and says whether the process became unhealthy by it, or
// was so already and is owed a restart.
func (m *Monitor) enter(w *watch, result Result) (unhealthy bool) {
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
	counts := !result.Requested && (e.tally.once || result.At.Sub(w.began) >= w.spec.StartPeriod)
	e.tally.add(result.OK, counts, w.spec.Retries)
	if m.settle(e, time.Now()) {
		e.tally.owed = e.status.State == Unhealthy && result.cannotRun
		return e.status.State == Unhealthy
	}
	if !e.tally.owed || result.OK || !counts || result.cannotRun {
		return false
	}
	e.tally.owed, e.status.NotRestarted = false, ""
	return true
}

// settle brings e's status in line with its watch and tally. It answers whether
// the state changed, and publishes and stores it if so. Called with m.mu held.
func (m *Monitor) settle(e *entry, now time.Time) (changed bool) {
	from := e.status.State
	e.status.State, e.status.Failures = Unknown, e.tally.failures
	if e.watch != nil {
		e.status.State = e.tally.state()
	}
	if e.status.State == from {
		return false
	}
	e.status.Since, e.status.NotRestarted = now, ""
	m.publish(e, from, now)
	m.save(e)
	return true
}

// publish tells every Feed of e. Called with m.mu held.
func (m *Monitor) publish(e *entry, from State, now time.Time) {
	st := e.status
	if last := st.Last(); last != nil {
		st.Results = []Result{*last}
	}
	m.changes.Publish(Change{At: now, From: from, To: st.State, Status: st})
}

// Bounds of what is stored of one process.
const (
	storedResults = 5
	storedOutput  = 512
)

// stored is the JSON in the Journal.
type stored struct {
	State   State          `json:"state"`
	Since   time.Time      `json:"since"`
	RunID   int64          `json:"run_id"`
	Run     int            `json:"run"`
	Results []storedResult `json:"results,omitempty"`
}

type storedResult struct {
	At        time.Time `json:"at"`
	TookUS    int64     `json:"took_us"`
	Run       int       `json:"run"`
	OK        bool      `json:"ok"`
	Requested bool      `json:"requested,omitempty"`
	Message   string    `json:"message"`
	Output    string    `json:"output,omitempty"`
}

// save hands e to the Journal: at each change of state and at the end, not with
// each result, so that a check every second costs the disk nothing. Called with
// m.mu held.
func (m *Monitor) save(e *entry) {
	if m.o.Journal == nil || e.status.Since.IsZero() {
		return
	}
	s := stored{State: e.status.State, Since: e.status.Since, RunID: e.status.RunID, Run: e.status.Run}
	for _, r := range lastOf(e.status.Results, storedResults) {
		s.Results = append(s.Results, storedResult{
			At: r.At, TookUS: r.Took.Microseconds(), Run: r.Run, OK: r.OK, Requested: r.Requested,
			Message: r.Message, Output: tailOf(r.Output, storedOutput),
		})
	}
	raw, err := json.Marshal(s)
	if err != nil {
		m.o.Log.Error("cannot store health", "process", e.status.Name, "error", err)
		return
	}
	m.o.Journal.SaveHealth(m.o.Project, e.status.Name, raw)
}

func lastOf(results []Result, n int) []Result { return results[max(0, len(results)-n):] }

// Stored returns the health that was stored in the project, by name: of
// processes of earlier sessions, and of this one's as of their last change. It
// may wait for storage.
func (m *Monitor) Stored(ctx context.Context) (map[string]Status, error) {
	all := make(map[string]Status)
	if m.o.Journal == nil {
		return all, nil
	}
	rows, err := m.o.Journal.Health(ctx, m.o.Project)
	if err != nil {
		return nil, fmt.Errorf("cannot read stored health: %w", err)
	}
	for name, raw := range rows {
		var s stored
		if err := json.Unmarshal(raw, &s); err != nil {
			m.o.Log.Warn("stored health is not readable", "process", name, "error", err)
			continue
		}
		all[name] = s.status(name)
	}
	return all, nil
}

func (s stored) status(name string) Status {
	st := Status{Name: name, State: s.State, Since: s.Since, RunID: s.RunID, Run: s.Run}
	for _, r := range s.Results {
		st.Results = append(st.Results, Result{
			At: r.At, Took: time.Duration(r.TookUS) * time.Microsecond, Run: r.Run, OK: r.OK, Requested: r.Requested,
			Message: r.Message, Output: r.Output,
		})
	}
	return st
}
