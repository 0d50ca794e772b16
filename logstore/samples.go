package logstore

import (
	"context"
	"database/sql"
	"runtime"
	"slices"
	"time"

	"pmcp/logstore/db"
)

const (
	// sampleSpan is the time that one stored sample covers.
	sampleSpan = 10 * time.Second
	// maxUnsavedSamples is the maximum number of samples in memory. maxSamples is the maximum in the file, which
	// is enough for two weeks of one process. Beyond either, the oldest samples are removed.
	maxUnsavedSamples = 10_000
	maxSamples        = 120_000
)

// A Sample is what the process tree of a run used over 10 seconds.
type Sample struct {
	// Run is the run's id. At is the end of the span.
	Run int64
	At  time.Time
	// CPUPercent, of one core, is the mean over the span. MemoryBytes and Processes are the maxima.
	CPUPercent  float64
	MemoryBytes uint64
	Processes   int
}

// A span is a sample that is still growing.
type span struct {
	Sample
	began time.Time
	n     int
}

// SaveSample records one measurement of a run. The measurement is buffered. Measurements are stored as one
// Sample for each 10 s of the clock, those of all runs together; the last span is stored when the Store is closed.
func (r *records) SaveSample(run int64, at time.Time, cpuPercent float64, memoryBytes uint64, processes int) {
	if run <= 0 { // the command of a health check is not a run
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.spans[run]
	if g != nil && at.Sub(g.began) >= sampleSpan {
		r.endSpanLocked(g)
		g = nil
	}
	if g == nil {
		r.endStaleSpansLocked(at)
		g = &span{began: at.Truncate(sampleSpan), Sample: Sample{Run: run}}
		r.spans[run] = g
	}
	g.n++
	g.At = at
	g.CPUPercent += (cpuPercent - g.CPUPercent) / float64(g.n)
	g.MemoryBytes, g.Processes = max(g.MemoryBytes, memoryBytes), max(g.Processes, processes)
}

// endSpanLocked hands a span to the flusher.
func (r *records) endSpanLocked(g *span) {
	delete(r.spans, g.Run)
	r.samples.add(maxUnsavedSamples, g.Sample)
	notify(r.kick)
}

// endStaleSpansLocked ends the spans of runs that are no longer measured.
func (r *records) endStaleSpansLocked(now time.Time) {
	for _, g := range r.spans {
		if now.Sub(g.At) >= sampleSpan {
			r.endSpanLocked(g)
		}
	}
}

// endAllSpans ends all spans when the Store is closed.
func (r *records) endAllSpans() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.spans {
		r.endSpanLocked(g)
	}
}

// Samples returns the stored samples of a run since a time, oldest first. The last 10 s are not included.
func (w *writer) Samples(ctx context.Context, run int64, since time.Time) ([]Sample, error) {
	w.flushBeforeRead(ctx)
	unsaved := w.unsavedSamples(run, since) // before the file is read: a sample committed in between is in both
	if w.memoryOnly() {
		return unsaved, nil
	}
	all, err := queryAll(ctx, w.file.ReadDB, "read the samples", func(row *sql.Rows, x *Sample) error {
		var at, memory int64
		err := row.Scan(&at, &x.CPUPercent, &memory, &x.Processes)
		x.CPUPercent *= float64(runtime.NumCPU())
		x.Run, x.At, x.MemoryBytes = run, timeFromNanos(at), uint64(memory)
		return err
	}, `SELECT at, cpu, memory, processes FROM sample WHERE run = ? AND at >= ? ORDER BY at`, run, nanos(since))
	if err != nil {
		return nil, err
	}
	return slices.Concat(all, slices.DeleteFunc(unsaved, func(x Sample) bool {
		return slices.ContainsFunc(all, func(stored Sample) bool { return stored.At.Equal(x.At) })
	})), nil
}

func (r *records) unsavedSamples(run int64, since time.Time) (some []Sample) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, x := range r.samples.unsaved() {
		if x.Run == run && !x.At.Before(since) {
			some = append(some, x)
		}
	}
	return some
}

// storeSample stores the CPU share in percent of the whole machine, as older versions did.
func storeSample(ctx context.Context, q db.Querier, x *Sample) error {
	return execute(ctx, q, "store a sample", `INSERT OR REPLACE INTO sample (run, at, cpu, memory, processes) VALUES (?, ?, ?, ?, ?)`,
		x.Run, nanos(x.At), x.CPUPercent/float64(runtime.NumCPU()), int64(x.MemoryBytes), x.Processes)
}

// retireSamples deletes the samples before the cutoff, and the oldest samples beyond the limit.
func retireSamples(ctx context.Context, q db.Querier, cutoff int64) error {
	return execute(ctx, q, "drop old samples",
		`DELETE FROM sample WHERE at < max(?, coalesce((SELECT at FROM sample ORDER BY at DESC LIMIT 1 OFFSET ?), 0))`, cutoff, maxSamples)
}
