package logstore

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// sampleSpan is how much time one stored sample stands for.
	sampleSpan = 10 * time.Second
	// maxUnsavedSamples bounds those in memory, and maxSamples those in the file, two weeks of one
	// process; older ones go.
	maxUnsavedSamples = 10_000
	maxSamples        = 120_000
)

// Sample is what the process tree of a run used over 10 seconds.
type Sample struct {
	// Run is the run's id, At the end of the span.
	Run int64
	At  time.Time
	// CPUPercent is the mean, MemoryBytes and Processes are the largest values.
	CPUPercent  float64
	MemoryBytes uint64
	Processes   int
}

// span is a sample that is still growing.
type span struct {
	Sample
	began time.Time
	n     int
}

// SaveSample takes one measurement of a run. It is buffered; measurements are stored as one Sample
// for each 10 s, the last span when the Store is closed.
func (s *Store) SaveSample(run int64, at time.Time, cpuPercent float64, memoryBytes uint64, processes int) {
	if run <= 0 { // a check's command, which is no run
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.spans[run]
	if g != nil && at.Sub(g.began) >= sampleSpan {
		s.endSpan(g)
		g = nil
	}
	if g == nil {
		s.endStaleSpans(at)
		g = &span{began: at, Sample: Sample{Run: run}}
		s.spans[run] = g
	}
	g.n++
	g.At = at
	g.CPUPercent += (cpuPercent - g.CPUPercent) / float64(g.n)
	g.MemoryBytes, g.Processes = max(g.MemoryBytes, memoryBytes), max(g.Processes, processes)
}

// endSpan hands a span to the flusher. s.mu is held.
func (s *Store) endSpan(g *span) {
	delete(s.spans, g.Run)
	s.samples.add(maxUnsavedSamples, g.Sample)
	notify(s.kick)
}

// endStaleSpans ends those of runs that are measured no more. s.mu is held.
func (s *Store) endStaleSpans(now time.Time) {
	for _, g := range s.spans {
		if now.Sub(g.At) >= sampleSpan {
			s.endSpan(g)
		}
	}
}

// endAllSpans is for Close.
func (s *Store) endAllSpans() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.spans {
		s.endSpan(g)
	}
}

// Samples gives the stored samples of a run since a time, oldest first. Those of the last 10 s are not among them.
func (s *Store) Samples(ctx context.Context, run int64, since time.Time) ([]Sample, error) {
	s.settle(ctx)
	unsaved := s.unsavedSamples(run, since) // before the file is read: what is committed meanwhile is in both
	if s.unreadable() {
		return unsaved, nil
	}
	rows, err := s.file.read.QueryContext(ctx, `SELECT at, cpu, memory, processes FROM sample WHERE run = ? AND at >= ? ORDER BY at`, run, nanos(since))
	if err != nil {
		return nil, fmt.Errorf("cannot read the samples: %w", err)
	}
	defer rows.Close()
	var all []Sample
	for rows.Next() {
		x := Sample{Run: run}
		var at, memory int64
		if err := rows.Scan(&at, &x.CPUPercent, &memory, &x.Processes); err != nil {
			return nil, fmt.Errorf("cannot read the samples: %w", err)
		}
		x.At, x.MemoryBytes = moment(at), uint64(memory)
		all = append(all, x)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("cannot read the samples: %w", err)
	}
	return slices.Concat(all, slices.DeleteFunc(unsaved, func(x Sample) bool {
		return slices.ContainsFunc(all, func(stored Sample) bool { return stored.At.Equal(x.At) })
	})), nil
}

func (s *Store) unsavedSamples(run int64, since time.Time) (some []Sample) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, x := range s.samples.unsaved() {
		if x.Run == run && !x.At.Before(since) {
			some = append(some, x)
		}
	}
	return some
}

func storeSample(ctx context.Context, q querier, x *Sample) error {
	_, err := q.ExecContext(ctx, `INSERT OR REPLACE INTO sample (run, at, cpu, memory, processes) VALUES (?, ?, ?, ?, ?)`,
		x.Run, nanos(x.At), x.CPUPercent, int64(x.MemoryBytes), x.Processes)
	if err != nil {
		return fmt.Errorf("cannot store a sample: %w", err)
	}
	return nil
}

// retireSamples drops those before the cutoff, and the oldest beyond the bound.
func retireSamples(ctx context.Context, q querier, cutoff int64) error {
	for _, step := range []struct {
		statement string
		arg       int64
	}{
		{`DELETE FROM sample WHERE at < ?`, cutoff},
		{`DELETE FROM sample WHERE at < (SELECT at FROM sample ORDER BY at DESC LIMIT 1 OFFSET ?)`, maxSamples},
	} {
		if _, err := q.ExecContext(ctx, step.statement, step.arg); err != nil {
			return fmt.Errorf("cannot drop old samples: %w", err)
		}
	}
	return nil
}
