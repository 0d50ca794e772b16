package process

import (
	"fmt"
	"time"
)

// Values of Limits.Action.
const (
	LimitWarn    = "warn"
	LimitStop    = "stop"
	LimitRestart = "restart"
)

// Limits bound what one process tree may use. Those of a Spec hold in place of
// the Manager's, figures that are 0 too.
type Limits struct {
	// MemoryMB is the most memory, in MiB, held for two samples in a row: at
	// most 1e9. 0 means no limit.
	MemoryMB int `json:"memory_mb,omitempty"`
	// CPUPercent is the largest share of the whole machine, held for 30 s. 0
	// means no limit.
	CPUPercent int `json:"cpu_percent,omitempty"`
	// Action is LimitWarn, LimitStop or LimitRestart. "" means the Manager's.
	Action string `json:"action,omitempty"`
}

// check answers an error wrapping ErrInvalid, or nil.
func (l *Limits) check() error {
	switch {
	case l == nil:
		return nil
	case l.MemoryMB < 0 || l.MemoryMB > maxMemoryMB:
		return fmt.Errorf("%w: limits.memory_mb %d: want 0 (no limit) to %d", ErrInvalid, l.MemoryMB, maxMemoryMB)
	case l.CPUPercent < 0 || l.CPUPercent > 100:
		return fmt.Errorf("%w: limits.cpu_percent %d: want 0 (no limit) to 100 (the whole machine)", ErrInvalid, l.CPUPercent)
	}
	switch l.Action {
	case "", LimitWarn, LimitStop, LimitRestart:
		return nil
	default:
		return fmt.Errorf("%w: limits.action %q: want warn, stop or restart", ErrInvalid, l.Action)
	}
}

const (
	// maxMemoryMB is the largest memory limit: far beyond any machine, and its
	// bytes can be counted.
	maxMemoryMB = 1_000_000_000
	// cpuHeld is how long a CPU limit must be exceeded before anything is done:
	// a build may take the whole machine for a while.
	cpuHeld = 30 * time.Second
	// memoryHeld is how many samples in a row a memory limit must be exceeded.
	memoryHeld = 2
)

// limitWatch is what is known of one run with regard to its limits. The zero
// value is that of a new run.
type limitWatch struct {
	memory   int       // samples in a row over the memory limit
	cpuSince time.Time // since when over the CPU limit; zero if it is not
	acted    bool
}

// exceeded enters a sample and says in a sentence which limit is exceeded, ""
// if none has been for long enough.
func (w *limitWatch) exceeded(l Limits, u Usage) string {
	const mb = 1 << 20
	if l.MemoryMB > 0 && u.MemoryBytes > uint64(l.MemoryMB)*mb {
		w.memory++
	} else {
		w.memory = 0
	}
	switch {
	case l.CPUPercent == 0 || u.CPUPercent <= float64(l.CPUPercent):
		w.cpuSince = time.Time{}
	case w.cpuSince.IsZero():
		w.cpuSince = u.At
	}
	switch {
	case w.memory >= memoryHeld:
		return fmt.Sprintf("memory %d MB is over the limit of %d MB", u.MemoryBytes/mb, l.MemoryMB)
	case !w.cpuSince.IsZero() && u.At.Sub(w.cpuSince) >= cpuHeld:
		return fmt.Sprintf("CPU %.0f %% of the machine is over the limit of %d %% since %s", u.CPUPercent, l.CPUPercent, w.cpuSince.Format(time.TimeOnly))
	}
	return ""
}

// Limits are those of every process whose Spec has none of its own.
func (m *Manager) Limits() Limits { return m.limitsOf(Spec{}) }

// limitsOf are the limits that hold for spec.
func (m *Manager) limitsOf(spec Spec) Limits {
	l := Limits{MemoryMB: m.o.MaxMemoryMB, CPUPercent: m.o.MaxCPUPercent}
	if spec.Limits != nil {
		l = *spec.Limits
	}
	if l.Action == "" {
		l.Action = m.o.LimitAction
	}
	return l
}

// watchLimits compares the last sample of each running process with its limits
// and does what they say. Samples of runs that no entry shows any more go.
func (m *Manager) watchLimits() {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := make(map[int64]bool, len(m.entries))
	defer func() { m.meter.retain(current) }()
	for _, e := range m.entries {
		current[e.status.RunID] = true
		if e.status.State != Running {
			continue
		}
		if seen := m.meter.last(e.status.RunID); seen != nil {
			m.checkLimits(e, seen.Usage)
		}
	}
}

// checkLimits enters one sample of e. What is done is done once a run; the
// report goes and comes back with the excess. Called with m.mu held.
func (m *Manager) checkLimits(e *entry, u Usage) {
	limits := m.limitsOf(e.status.Spec)
	what := e.limits.exceeded(limits, u)
	st := &e.status
	if (what == "") == (st.LimitExceeded == "") {
		return // the figures of a standing excess are in the sample
	}
	st.LimitExceeded = what
	if what == "" || e.limits.acted {
		m.publish(e, st.State)
		return
	}
	e.limits.acted = true
	m.o.Log.Warn("limit exceeded", "process", st.Spec.Name, "what", what, "action", limits.Action)
	m.actOnLimit(e, limits.Action, what)
}

// actOnLimit does what a limit's action says. Called with m.mu held.
func (m *Manager) actOnLimit(e *entry, action, what string) {
	switch {
	case action == LimitStop:
		e.status.LimitExceeded += "; stopped"
		e.status.Reason = what
		m.beginStop(e, m.stopRequest(e.status.Spec, StopOptions{By: ByLimit}))
	case action == LimitRestart && !m.o.NoAutoRestart:
		e.status.LimitExceeded += "; restarted"
		m.recycle(e, ByLimit, what)
	default:
		m.publish(e, e.status.State)
	}
}
