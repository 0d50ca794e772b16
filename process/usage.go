package process

import "time"

// Usage is what a process tree uses at one moment, or on average.
type Usage struct {
	// At is the time of the sample, or the end of the span of an average.
	At time.Time
	// CPUPercent is the share of the whole machine, used since the sample before.
	CPUPercent float64
	// MemoryBytes is resident memory, shared pages counted once per process.
	MemoryBytes uint64
	// Processes is the number of living processes.
	Processes int
}

// Stats is the usage of one process over a window that ends now. All fields are
// zero if there is no sample.
type Stats struct {
	// From is the time of the first sample in the window.
	From time.Time
	// Samples is the number of samples.
	Samples int
	// Now is the last sample, Average the mean. Peak holds the maximum of each
	// figure; its At is the time of the largest memory.
	Now, Average, Peak Usage
	// Series are the samples, oldest first, averaged into at most the requested
	// number of points.
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
	return Summarize(m.meter.since(st.RunID, from), points), nil
}

// Summarize returns the Stats of samples, which are oldest first, in at most points
// points.
func Summarize(samples []Usage, points int) Stats {
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
