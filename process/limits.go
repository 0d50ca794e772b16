package process

import (
	"cmp"
	"fmt"
	"time"
)

// Values of Limits.Action.
const (
	LimitWarn    = "warn"
	LimitStop    = "stop"
	LimitRestart = "restart"
)

// Limits bound what one process tree may use. The Limits of a Spec replace those
// of the Manager as a whole, including figures that are 0.
type Limits struct {
	// MemoryMB is the memory limit in MiB, at most 1e9. The limit is exceeded once
	// two samples in a row are above it. 0 means no limit.
	MemoryMB int `json:"memory_mb,omitempty"`
	// CPUPercent is the limit in percent of the whole machine. The limit is
	// exceeded once the usage stays above it for 30 s. 0 means no limit.
	CPUPercent int `json:"cpu_percent,omitempty"`
	// Action is LimitWarn, LimitStop or LimitRestart. "" means the Manager's.
	Action string `json:"action,omitempty"`
}

// check returns an error wrapping ErrInvalid for a figure or an action that is not
// allowed.
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
	// maxMemoryMB is the largest memory limit: far beyond the memory of any
	// machine, and small enough that its number of bytes does not overflow.
	maxMemoryMB = 1_000_000_000
	// cpuHeld is how long usage must stay above a CPU limit before pmcp acts: a
	// build may take the whole machine for a while.
	cpuHeld = 30 * time.Second
	// memoryHeld is how many samples in a row must be above a memory limit.
	memoryHeld = 2
)

// limitWatch tracks how long one run has exceeded its limits. The zero value is
// ready for a new run.
type limitWatch struct {
	memory   int       // samples in a row over the memory limit
	cpuSince time.Time // when usage rose above the CPU limit; zero while below
	acted    bool
}

// near reports whether u is more than half of a limit.
func (l Limits) near(u Usage) bool {
	return l.MemoryMB > 0 && u.MemoryBytes > uint64(l.MemoryMB)<<20/2 || l.CPUPercent > 0 && u.ofMachine() > float64(l.CPUPercent)/2
}

// observe adds a sample and returns a sentence about the limit that has been
// exceeded for long enough, or "".
func (w *limitWatch) observe(l Limits, u Usage) string {
	const mb = 1 << 20
	if l.MemoryMB > 0 && u.MemoryBytes > uint64(l.MemoryMB)*mb {
		w.memory++
	} else {
		w.memory = 0
	}
	switch {
	case l.CPUPercent == 0 || u.ofMachine() <= float64(l.CPUPercent):
		w.cpuSince = time.Time{}
	case w.cpuSince.IsZero():
		w.cpuSince = u.At
	}
	switch {
	case w.memory >= memoryHeld:
		return fmt.Sprintf("memory %d MB is over the limit of %d MB", u.MemoryBytes/mb, l.MemoryMB)
	case !w.cpuSince.IsZero() && u.At.Sub(w.cpuSince) >= cpuHeld:
		return fmt.Sprintf("CPU %.0f %% of the machine is over the limit of %d %% since %s", u.ofMachine(), l.CPUPercent, w.cpuSince.Format(time.TimeOnly))
	}
	return ""
}

// Limits returns the limits of every process whose Spec has no Limits.
func (m *Manager) Limits() Limits { return m.limitsOf(Spec{}) }

// limitsOf returns the limits that apply to spec.
func (m *Manager) limitsOf(spec Spec) Limits {
	l := Limits{MemoryMB: m.o.MaxMemoryMB, CPUPercent: m.o.MaxCPUPercent}
	if spec.Limits != nil {
		l = *spec.Limits
	}
	l.Action = cmp.Or(l.Action, m.o.LimitAction)
	return l
}

// watchLimits compares the last sample of each running process with its limits and
// acts on them. It also drops the samples of runs that no entry shows any more. It
// reports whether one uses more than half of a limit.
func (m *Manager) watchLimits() (near bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := make(map[int64]bool, len(m.entries))
	defer func() { m.meter.retain(current) }()
	for _, e := range m.entries {
		current[e.status.RunID] = true
		if e.status.State != Running {
			continue
		}
		if u, _, live := m.meter.last(e.status.RunID); live {
			m.checkLimitsLocked(e, u)
			near = near || m.limitsOf(e.status.Spec).near(u)
		}
	}
	return near
}

// checkLimitsLocked compares one sample of e with the limits of e. It acts once
// per run; LimitExceeded is set for as long as the excess lasts.
func (m *Manager) checkLimitsLocked(e *entry, u Usage) {
	limits := m.limitsOf(e.status.Spec)
	what := e.limits.observe(limits, u)
	st := &e.status
	if (what == "") == (st.LimitExceeded == "") {
		return // an ongoing excess is not published again: its figures are in the sample
	}
	st.LimitExceeded = what
	if what == "" || e.limits.acted {
		m.publishLocked(e, st.State)
		return
	}
	e.limits.acted = true
	m.o.Log.Warn("limit exceeded", "process", st.Spec.Name, "what", what, "action", limits.Action)
	m.actOnLimitLocked(e, limits.Action, what)
}

// actOnLimitLocked carries out the action of a limit.
func (m *Manager) actOnLimitLocked(e *entry, action, what string) {
	switch {
	case action == LimitStop:
		e.status.LimitExceeded += "; stopped"
		e.status.Reason = what
		m.requestStopLocked(e, m.newStopRequest(e.status.Spec, StopOptions{By: ByLimit}))
	case action == LimitRestart && !m.o.NoAutoRestart:
		e.status.LimitExceeded += "; restarted"
		m.recycleLocked(e, ByLimit, what)
	default:
		m.publishLocked(e, e.status.State)
	}
}
