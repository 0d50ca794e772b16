package process

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"pmcp/process/proctab"
)

// Usage is what a process tree uses at one moment, or on average.
type Usage struct {
	// At is the time of the sample, or the end of the span of an average.
	At time.Time
	// CPUPercent is the processor time used since the sample before, in percent of one
	// core, as ps and top count it: a tree that keeps two cores busy has 200.
	CPUPercent float64
	// MemoryBytes is resident memory, shared pages counted once per process.
	MemoryBytes uint64
	// Processes is the number of living processes.
	Processes int
}

// ofMachine returns CPUPercent in percent of the whole machine.
func (u Usage) ofMachine() float64 { return u.CPUPercent / float64(runtime.NumCPU()) }

// Stats is the usage of one process over a window that ends now. All fields are
// zero if there is no sample.
type Stats struct {
	// From is the time of the first sample in the window.
	From time.Time
	// Samples is the number of samples.
	Samples int
	// Now is what the tree uses at the call. It is zero if no process of it lives.
	Now Usage
	// Average is the mean of the samples. Peak holds the maximum of each figure; its At
	// is the time of the largest memory. Both include Now.
	Average, Peak Usage
	// Series are the samples, oldest first, averaged into at most the requested
	// number of points; it is nil if that is 0.
	Series []Usage
}

// Stats returns what the tree of the current or last run of name used during
// the last window (0: all that is kept, 15 minutes), in at most points points.
// Its error wraps ErrUnknown.
func (m *Manager) Stats(name string, window time.Duration, points int) (Stats, error) {
	st, err := m.Status(name)
	if err != nil {
		return Stats{}, err
	}
	from := time.Time{}
	if window > 0 {
		from = time.Now().Add(-window)
	}
	samples, now := m.meter.since(st.RunID, from), Usage{}
	if living := m.living(st.RunID); len(living) > 0 {
		now = m.meter.now(st.RunID, living, st.StartedAt)
		samples = append(samples, now)
	}
	s := Summarize(samples, points)
	s.Now = now
	return s, nil
}

// Summarize returns the Stats of samples, which are oldest first, in at most points
// points. Now is zero.
func Summarize(samples []Usage, points int) Stats {
	if len(samples) == 0 {
		return Stats{}
	}
	s := Stats{From: samples[0].At, Samples: len(samples), Average: average(samples)}
	for _, u := range samples {
		if u.MemoryBytes > s.Peak.MemoryBytes {
			s.Peak.MemoryBytes, s.Peak.At = u.MemoryBytes, u.At
		}
		s.Peak.CPUPercent = max(s.Peak.CPUPercent, u.CPUPercent)
		s.Peak.Processes = max(s.Peak.Processes, u.Processes)
	}
	points = min(points, len(samples))
	for i := range points {
		s.Series = append(s.Series, average(samples[i*len(samples)/points:(i+1)*len(samples)/points]))
	}
	return s
}

// average returns the mean of samples, which must not be empty.
func average(samples []Usage) Usage {
	var cpu, memory, processes float64
	for _, u := range samples {
		cpu += u.CPUPercent
		memory += float64(u.MemoryBytes)
		processes += float64(u.Processes)
	}
	n := float64(len(samples))
	return Usage{At: samples[len(samples)-1].At, CPUPercent: cpu / n, MemoryBytes: uint64(memory / n), Processes: int(processes/n + 0.5)}
}

// An ElsewhereRun is a live run of another server of this machine.
type ElsewhereRun struct {
	// Run is the id of the run, PID its first process, and Started when that began.
	Run     int64
	PID     int
	Started time.Time
	// Server is the pid of the server that started the run, and Session the id of its session.
	Server  int
	Session string
	// Left are the processes of a run whose server is dead, which the other fields then need not find.
	Left []proctab.Proc
}

// ElsewhereUsage is what the tree of an ElsewhereRun uses, and the TCP ports on which it
// listens, in ascending order and without those of debuggers.
type ElsewhereUsage struct {
	Usage
	Ports []int
}

// An ElsewhereMeter measures the trees of runs of other servers. The zero value is ready for
// use, also by several goroutines. It keeps the samples of the runs of the last call.
type ElsewhereMeter struct {
	mu    sync.Mutex
	meter *meter // guarded by mu
}

// Measure returns the usage of those runs whose processes this server can see, by run. The
// share of the processor is that since the measurement before, or the mean since its start for
// a run that was not measured before. Unless there is a new run, it measures once a second at
// most and else returns the last measurement.
func (m *ElsewhereMeter) Measure(runs []ElsewhereRun) map[int64]ElsewhereUsage {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.meter == nil {
		m.meter = newMeter(nil)
	}
	fresh, wanted := make(map[int64]bool), make(map[int64]bool, len(runs))
	for i := range runs {
		wanted[runs[i].Run] = true
		if _, _, live := m.meter.last(runs[i].Run); !live {
			fresh[runs[i].Run] = true
		}
	}
	m.meter.retain(wanted)
	if now := time.Now(); len(runs) > 0 && (len(fresh) > 0 || now.Sub(m.meter.at) >= samplePeriod) {
		table, err := proctab.All()
		if err != nil {
			return nil // as where /proc is that of another namespace
		}
		trees := elsewhereTrees(table, runs)
		m.meter.sample(&scan{members: trees}, now)
		for i := range runs {
			if fresh[runs[i].Run] {
				m.meter.setShare(runs[i].Run, meanShare(trees[runs[i].Run], now.Sub(runs[i].Started)))
			}
		}
	}
	used := make(map[int64]ElsewhereUsage, len(runs))
	for run := range wanted {
		if u, ports, live := m.meter.last(run); live {
			used[run] = ElsewhereUsage{u, ports}
		}
	}
	return used
}

// elsewhereTrees returns the processes of the runs: those in Left, the children of their servers that are
// their first process or carry their stamp, as daemons do that the server has adopted, and
// what descends from these.
func elsewhereTrees(table []proctab.Proc, runs []ElsewhereRun) map[int64][]proctab.Proc {
	type root struct {
		proctab.Proc
		stamp proctab.Stamp
	}
	roots := make(map[int][]root) // by server
	for i := range runs {
		if runs[i].Left == nil {
			roots[runs[i].Server] = nil
		}
	}
	for _, p := range table {
		if _, ok := roots[p.PPID]; ok && !p.Zombie {
			roots[p.PPID] = append(roots[p.PPID], root{p, proctab.StampOf(p.PID)})
		}
	}
	trees := make(map[int64][]proctab.Proc, len(runs))
	for i := range runs {
		for _, left := range runs[i].Left {
			if at := slices.IndexFunc(table, func(p proctab.Proc) bool { return p.ID == left.ID }); at >= 0 {
				trees[runs[i].Run] = append(trees[runs[i].Run], table[at])
			}
		}
		stamp := proctab.NewStamp(runs[i].Session, runs[i].Run)
		for _, r := range roots[runs[i].Server] {
			if r.PID == runs[i].PID || r.stamp == stamp {
				trees[runs[i].Run] = append(append(trees[runs[i].Run], r.Proc), proctab.Descendants(table, r.PID)...)
			}
		}
	}
	return trees
}

func meanShare(procs []proctab.Proc, age time.Duration) float64 {
	var used uint64
	for _, p := range procs {
		used += cpuTicks(p)
	}
	return share(used, max(age, time.Second))
}

// share returns ticks of processor time, used during span, in percent of one core. It returns
// at most what all cores have.
func share(ticks uint64, span time.Duration) float64 {
	return 100 * min(float64(runtime.NumCPU()), float64(ticks)/(proctab.TicksPerSecond*span.Seconds()))
}
