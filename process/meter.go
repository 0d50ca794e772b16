package process

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"pmcp/process/proctab"
)

const (
	// samplePeriod is how often the process table is read while anything runs.
	samplePeriod = time.Second
	// seriesSize is how many samples of a run are kept: 15 minutes.
	seriesSize = 900
)

// sample looks at the process table once a second while there is anything to
// look for: so that what will be orphaned is known before it is, that orphans
// that end do not stay zombies, and that usage and limits are known.
func (m *Manager) sample() {
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.ctx.Done():
			return
		}
		if m.deps.tree.watching() {
			now := time.Now()
			found := m.deps.tree.look(now)
			if found.began.Before(now) {
				continue // it failed, and shows what was measured before
			}
			m.meter.sample(found, now)
			m.watchLimits()
			m.deps.oom.note()
		}
	}
}

// meter measures what the trees of the runs use: once a second, in one pass
// over the process table and one over the socket tables, so that its cost grows
// with the processes that are ours by a few microseconds each.
type meter struct {
	tree     *tree
	onSample func(run int64, at time.Time, cpuPercent float64, memoryBytes uint64, processes int)
	cpus     float64

	// Only sample, which the sampler alone calls, touches these.
	at      time.Time               // of the last sample
	ticks   map[proctab.ID]uint64   // processor time then
	sockets []socket                // of our processes
	seen    map[uint64]bool         // keys of all sockets then
	members map[proctab.ID]struct{} // our processes then

	mu   sync.Mutex
	runs map[int64]*series
	pids map[proctab.ID]Usage // single processes, as of the last sample
}

// series is what is known of the usage of one run.
type series struct {
	usage []Usage // at most seriesSize, oldest first
	ports []int
	live  bool // the last sample found a living process
}

// reading is the last sample of a run.
type reading struct {
	Usage
	ports []int
}

func newMeter(t *tree, onSample func(int64, time.Time, float64, uint64, int)) *meter {
	return &meter{tree: t, onSample: onSample, cpus: float64(runtime.NumCPU()), runs: make(map[int64]*series)}
}

// sample measures every run that found shows.
func (m *meter) sample(found *scan, now time.Time) {
	share := m.shares(found, now)
	ports := m.ports(found)
	pids := make(map[proctab.ID]Usage, len(share))
	usage := make(map[int64]Usage, len(found.members))
	for run, members := range found.members {
		if run < 0 { // a command of Exec
			continue
		}
		total := Usage{At: now, Processes: len(members)}
		for _, p := range members {
			one := Usage{At: now, CPUPercent: share[p.ID], MemoryBytes: memory(p.PID), Processes: 1}
			pids[p.ID] = one
			total.CPUPercent += one.CPUPercent
			total.MemoryBytes += one.MemoryBytes
		}
		usage[run] = total
	}
	m.keep(usage, ports, pids)
	if m.onSample != nil {
		for run, u := range usage {
			m.onSample(run, now, u.CPUPercent, u.MemoryBytes, u.Processes)
		}
	}
}

// shares answers for each member the share of the whole machine, in percent,
// that it used since the last sample. One that began since then used all it
// has used.
func (m *meter) shares(found *scan, now time.Time) map[proctab.ID]float64 {
	ticks := make(map[proctab.ID]uint64, len(m.ticks))
	share := make(map[proctab.ID]float64, len(m.ticks))
	span := now.Sub(m.at).Seconds() * proctab.TicksPerSecond * m.cpus
	for _, members := range found.members {
		for _, p := range members {
			used := cpuTicks(p)
			ticks[p.ID] = used
			if before := m.ticks[p.ID]; used > before {
				share[p.ID] = min(100, 100*float64(used-before)/span)
			}
		}
	}
	m.at, m.ticks = now, ticks
	return share
}

// ports answers which ports each run listens on. Who holds a socket is looked
// up only when there are other sockets, or other processes of ours, than at
// the last sample: descriptors are what costs.
func (m *meter) ports(found *scan) map[int64][]int {
	all, err := listening()
	if err != nil {
		return nil
	}
	seen := make(map[uint64]bool, len(all))
	for _, s := range all {
		seen[s.key] = true
	}
	members := make(map[proctab.ID]struct{})
	run := make(map[int]int64)
	for id, procs := range found.members {
		for _, p := range procs {
			members[p.ID] = struct{}{}
			run[p.PID] = id
		}
	}
	if !maps.Equal(seen, m.seen) || !maps.Equal(members, m.members) {
		addHolders(all, slices.Collect(maps.Keys(run)))
		m.sockets, m.seen, m.members = all, seen, members
	}
	return portsByRun(m.sockets, run)
}

// portsByRun answers which ports each run listens on, a debugger's left out.
// run is pid → run.
func portsByRun(sockets []socket, run map[int]int64) map[int64][]int {
	byRun := make(map[int64][]socket)
	for _, s := range sockets {
		for _, pid := range s.holders {
			id, ours := run[pid]
			if ours && !isDebugger(s.port(), commandLine(pid)) {
				byRun[id] = append(byRun[id], s)
			}
		}
	}
	ports := make(map[int64][]int, len(byRun))
	for id, sockets := range byRun {
		ports[id] = portsOf(sockets)
	}
	return ports
}

// keep enters a sample.
func (m *meter) keep(usage map[int64]Usage, ports map[int64][]int, pids map[proctab.ID]Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pids = pids
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

// last returns the last sample of run; nil if it has none or nothing of it
// lived then.
func (m *meter) last(run int64) *reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.runs[run]
	if s == nil || !s.live {
		return nil
	}
	return &reading{s.usage[len(s.usage)-1], s.ports}
}

// of returns the last sample of one process; zero if there is none.
func (m *meter) of(id proctab.ID) Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pids[id]
}

// since returns the samples of run from a moment on, oldest first.
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

// retain drops the samples of all runs but those.
func (m *meter) retain(runs map[int64]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.runs, func(run int64, _ *series) bool { return !runs[run] })
}
