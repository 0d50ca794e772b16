package process

import "time"

// Usage is what a process tree uses at one moment, or on average.
type Usage struct {
	// At is the moment; of an average the end of its span.
	At time.Time
	// CPUPercent is the share of the whole machine.
	CPUPercent float64
	// MemoryBytes is resident memory, shared pages counted once per process.
	MemoryBytes uint64
	// Processes is the number of living processes.
	Processes int
}

// Stats are the usage of one process over a window that ends now. All is zero
// where there is no sample.
type Stats struct {
	// From is the first sample in the window.
	From time.Time
	// Samples is how many there are.
	Samples int
	// Now is the last sample, Average the mean. Peak holds each figure's largest
	// value, At that of the largest memory.
	Now, Average, Peak Usage
	// Series are the samples, oldest first, averaged into at most as many points
	// as were asked for.
	Series []Usage
}

// defaultPoints is how many points a series has if nobody says.
const defaultPoints = 20

// Stats returns what the tree of the current or last run of name used during
// the last window (0: all that is kept, 15 minutes), in at most points points
// (0: 20, at most 900). Its error wraps ErrUnknown.
func (m *Manager) Stats(name string, window time.Duration, points int) (Stats, error) {
	st, err := m.Status(name)
	if err != nil {
		return Stats{}, err
	}
	from := time.Time{}
	if window > 0 {
		from = time.Now().Add(-window)
	}
	if points <= 0 {
		points = defaultPoints
	}
	return summarize(m.meter.since(st.RunID, from), min(points, seriesSize)), nil
}

// summarize makes Stats of samples, oldest first.
func summarize(samples []Usage, points int) Stats {
	if len(samples) == 0 {
		return Stats{}
	}
	s := Stats{From: samples[0].At, Samples: len(samples), Now: samples[len(samples)-1], Average: average(samples)}
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

// average is the mean of samples, of which there is one at least.
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
