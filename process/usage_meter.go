package process

import (
	"maps"
	"slices"
	"sync"
	"time"

	"pmcp/process/proctab"
	"pmcp/process/sockets"
)

const (
	// samplePeriod is the interval of samples while any process is running, and calmPeriod once no
	// process has been started for calmAfter and none is near a limit or suspended. It is
	// stallSilence while a run prints whose readiness is checked: then a failure is found within twice that.
	samplePeriod = time.Second
	calmPeriod   = 4 * time.Second
	calmAfter    = 10 * time.Second
	// seriesSize is how many samples of a run are kept: at least 15 minutes of them.
	seriesSize = 900
)

// sample scans the process table each period while a process is running. That finds
// the members of a tree before they are orphaned, reaps orphans that have exited, and
// measures usage for the limits. Without a process it sleeps.
func (m *Manager) sample() {
	near, printing := false, false // a limit, and a run whose readiness is checked
	var suspended map[proctab.ID]string
	for {
		if !m.deps.tree.needsScans() {
			select {
			case <-m.deps.tree.leaderAdded:
			case <-m.ctx.Done():
				return
			}
		}
		period, added := samplePeriod, (<-chan struct{})(nil)
		if !near && len(suspended) == 0 && m.deps.tree.isSettled(calmAfter) {
			period, added = calmPeriod, m.deps.tree.leaderAdded
			if printing {
				period = stallSilence
			}
		}
		select {
		case <-time.After(period):
		case <-added:
			continue
		case <-m.ctx.Done():
			return
		}
		now := time.Now()
		found := m.deps.tree.scanSince(now)
		if found.began.Before(now) {
			continue // the scan failed and scanSince returned an earlier scan
		}
		m.meter.sample(found, now)
		checkOpen(m.standing(), m.meter.openSockets())
		printing = m.watchStalls(found, now)
		suspended = m.watchSuspensions(found, suspended)
		near = m.watchLimits()
		m.deps.oom.advance()
	}
}

// meter measures the usage of the trees of all runs. Each period it makes one pass
// over the process table and one over the socket tables, so its cost grows by a few
// microseconds for each process of ours.
type meter struct {
	onSample func(run int64, at time.Time, cpuPercent float64, memoryBytes uint64, processes int)

	// The fields from listeners to members are used only by sample, which only the
	// sampler calls.
	listeners []sockets.Socket        // listening sockets of our processes
	seen      map[uint64]bool         // keys of all sockets at that sample
	members   map[proctab.ID]struct{} // our processes at that sample

	mu    sync.Mutex
	at    time.Time              // time of the last sample; guarded by mu
	ticks map[proctab.ID]uint64  // processor time at that sample; guarded by mu
	runs  map[int64]*series      // guarded by mu
	share map[proctab.ID]float64 // CPU share of single processes at the last sample; guarded by mu
	held  heldSockets            // guarded by mu
}

// heldSockets are the listening sockets of the machine at the last sample, with our
// processes as holders. Once stored it is not changed.
type heldSockets struct {
	sockets []sockets.Socket
	keys    map[uint64]bool
	run     map[int]int64 // pid → run
}

// series holds the samples of one run.
type series struct {
	usage []Usage // at most seriesSize, oldest first
	ports []int   // as of the last sample
	live  bool    // whether the last sample found a living process
}

func newMeter(onSample func(int64, time.Time, float64, uint64, int)) *meter {
	return &meter{onSample: onSample, runs: make(map[int64]*series)}
}

// sample measures every run in found.
func (m *meter) sample(found *scan, now time.Time) {
	shares := m.shares(found, now)
	ports := m.ports(found)
	usage := make(map[int64]Usage, len(found.members))
	for run, members := range found.members {
		if run < 0 { // a negative run is a command of Exec
			continue
		}
		total := Usage{At: now, Processes: len(members)}
		for _, p := range members {
			total.CPUPercent += shares[p.ID]
			total.MemoryBytes += memory(p)
		}
		usage[run] = total
	}
	m.store(usage, ports, shares)
	if m.onSample != nil {
		for run, u := range usage {
			m.onSample(run, now, u.CPUPercent, u.MemoryBytes, u.Processes)
		}
	}
}

// shares returns for each member the processor time that it used since the last sample, in
// percent of one core. A process that began since then counts with all its processor time.
func (m *meter) shares(found *scan, now time.Time) map[proctab.ID]float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	ticks := make(map[proctab.ID]uint64, len(m.ticks))
	shares := make(map[proctab.ID]float64, len(m.ticks))
	for _, members := range found.members {
		for _, p := range members {
			used := cpuTicks(p)
			ticks[p.ID] = used
			if before := m.ticks[p.ID]; used > before {
				shares[p.ID] = share(used-before, now.Sub(m.at))
			}
		}
	}
	m.at, m.ticks = now, ticks
	return shares
}

// now returns what living, the processes of run, use now. The share of the processor is that
// since the last sample or, if that is less than a period ago, that of the last sample. It
// is the mean since began before the second sample: the first one spans time before the run.
func (m *meter) now(run int64, living []proctab.Proc, began time.Time) Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := Usage{At: time.Now(), Processes: len(living)}
	used := uint64(0)
	for _, p := range living {
		u.MemoryBytes += memory(p)
		if now, before := cpuTicks(p), m.ticks[p.ID]; now > before {
			used += now - before
		}
	}
	switch s := m.runs[run]; {
	case s == nil || len(s.usage) < 2:
		u.CPUPercent = meanShare(living, u.At.Sub(began))
	case u.At.Sub(m.at) < samplePeriod:
		u.CPUPercent = s.usage[len(s.usage)-1].CPUPercent
	default:
		u.CPUPercent = share(used, u.At.Sub(m.at))
	}
	return u
}

// ports returns the ports that each run listens on. It looks up the holders of
// sockets only if the sockets or our processes have changed since the last sample,
// because reading descriptors is the expensive part.
func (m *meter) ports(found *scan) map[int64][]int {
	all, err := sockets.Listening()
	if err != nil {
		return nil
	}
	seen := make(map[uint64]bool, len(all))
	for _, s := range all {
		seen[s.Key] = true
	}
	members := make(map[proctab.ID]struct{})
	run := make(map[int]int64)
	var ours []proctab.Proc
	for id, procs := range found.members {
		ours = append(ours, procs...)
		for _, p := range procs {
			members[p.ID] = struct{}{}
			run[p.PID] = id
		}
	}
	if !maps.Equal(seen, m.seen) || !maps.Equal(members, m.members) {
		sockets.AddHolders(all, ours)
		m.listeners, m.seen, m.members = all, seen, members
	}
	m.mu.Lock()
	m.held = heldSockets{m.listeners, m.seen, run}
	m.mu.Unlock()
	return portsByRun(m.listeners, run)
}

// portsOf returns the ports on which run listens, those of debuggers included. known is
// false unless listening, the listening sockets of the machine now, are those of the last
// sample.
func (m *meter) portsOf(run int64, listening []sockets.Socket) (ports []int, known bool) {
	m.mu.Lock()
	held := m.held
	m.mu.Unlock()
	isNew := func(s sockets.Socket) bool { return !held.keys[s.Key] }
	if len(listening) != len(held.keys) || slices.ContainsFunc(listening, isNew) {
		return nil, false
	}
	var own []sockets.Socket
	for _, s := range held.sockets {
		if slices.ContainsFunc(s.Holders, func(pid int) bool { return held.run[pid] == run }) {
			own = append(own, s)
		}
	}
	return sockets.Ports(own), true
}

// openSockets returns the keys of the sockets of the machine at the last sample.
func (m *meter) openSockets() map[uint64]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held.keys
}

// portsByRun returns the ports that each run listens on, except those of
// debuggers. run is pid → run.
func portsByRun(listeners []sockets.Socket, run map[int]int64) map[int64][]int {
	byRun := make(map[int64][]sockets.Socket)
	for _, s := range listeners {
		for _, pid := range s.Holders {
			id, ours := run[pid]
			if ours && !sockets.IsDebugger(s.Port(), commandLine(pid)) {
				byRun[id] = append(byRun[id], s)
			}
		}
	}
	ports := make(map[int64][]int, len(byRun))
	for id, listeners := range byRun {
		ports[id] = sockets.Ports(listeners)
	}
	return ports
}

// store adds a sample to the series.
func (m *meter) store(usage map[int64]Usage, ports map[int64][]int, share map[proctab.ID]float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.share = share
	for run, s := range m.runs {
		if _, live := usage[run]; !live {
			s.live, s.ports = false, nil
		}
	}
	for run, u := range usage {
		s := m.runs[run]
		if s == nil {
			s = &series{}
			m.runs[run] = s
		}
		s.live, s.ports = true, ports[run]
		if len(s.usage) == seriesSize {
			s.usage = slices.Delete(s.usage, 0, 1)
		}
		s.usage = append(s.usage, u)
	}
}

// last returns the last sample of run with the ports. It returns false if run has no
// sample or no process of it lived then.
func (m *meter) last(run int64) (u Usage, ports []int, live bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.runs[run]; s != nil && s.live {
		return s.usage[len(s.usage)-1], s.ports, true
	}
	return u, nil, false
}

// setPorts replaces the ports of the last sample of run.
func (m *meter) setPorts(run int64, ports []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.runs[run]
	if s == nil {
		s = &series{}
		m.runs[run] = s
	}
	s.ports = ports
}

// setShare replaces the share of the processor in the last sample of run, if there is one.
func (m *meter) setShare(run int64, percent float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.runs[run]; s != nil && len(s.usage) > 0 {
		s.usage[len(s.usage)-1].CPUPercent = percent
	}
}

func (m *meter) cpuPercent(id proctab.ID) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.share[id]
}

// since returns the samples of run from the given time on, oldest first.
func (m *meter) since(run int64, from time.Time) []Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.runs[run]
	if s == nil {
		return nil
	}
	first, _ := slices.BinarySearchFunc(s.usage, from, func(u Usage, t time.Time) int { return u.At.Compare(t) })
	return slices.Clone(s.usage[first:])
}

func (m *meter) retain(runs map[int64]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.runs, func(run int64, _ *series) bool { return !runs[run] })
}
