package project

import (
	"context"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

// Live returns the processes of this session that are running.
func (p *Project) Live() []Run {
	var live []Run
	own := p.o.Manager.List()
	for i := range own {
		if own[i].State.Live() {
			live = append(live, p.here(&own[i]))
		}
	}
	return live
}

// StorageStatus returns the status of the store.
func (p *Project) StorageStatus() logstore.Status { return p.o.Store.Status() }

// RunStats returns a summary of the log of a run.
func (p *Project) RunStats(ctx context.Context, run int64) (logstore.RunStats, error) {
	return p.o.Store.RunStats(ctx, run)
}

// End returns the cursor after everything that the named processes have printed.
func (p *Project) End(ctx context.Context, names []string) (string, error) {
	return p.o.Store.End(ctx, p.name, names)
}

// EndOfStopped is End for processes that were just stopped. Their runs were the only ones of their
// names, so the cursor is made of them alone and the database is not read, unless it must be.
func (p *Project) EndOfStopped(ctx context.Context, names []string, stopped []Stopped) (string, error) {
	var runs []int64
	for i := range stopped {
		one := &stopped[i]
		shared := strings.HasPrefix(one.Run.Spec.Name, OnDemandPrefix) // other windows may run the same
		if !one.WasRunning || one.Run.Stored || one.Run.Alive() || shared || one.Run.Project != stopped[0].Run.Project {
			return p.End(ctx, names)
		}
		runs = append(runs, one.Run.RunID)
	}
	if cursor, ok := p.o.Store.EndOfRuns(runs); ok {
		return cursor, nil
	}
	return p.End(ctx, names)
}

// StopLines returns the numbers of the last line of a run of this session before its stop began, and of the
// last line since. Both are 0 for any other run.
func (p *Project) StopLines(run int64) (before, last int64) { return p.o.Store.StopLines(run) }

// FirstUnordered reports whether it is called for the first time about a process.
func (p *Project) FirstUnordered(name string) bool {
	_, again := p.unordered.LoadOrStore(name, true)
	return !again
}

// Read returns the lines of the project that q selects.
func (p *Project) Read(ctx context.Context, q logstore.Query) (*logstore.Page, error) {
	q.Project = p.name
	return p.o.Store.Read(ctx, q)
}

// Search returns the lines of the project that match q.
func (p *Project) Search(ctx context.Context, q logstore.SearchQuery) (*logstore.Matches, error) {
	q.Project = p.name
	return p.o.Store.Search(ctx, q)
}

// ClearLogs removes the lines of the named processes, or of all if names is nil, that
// are older than until, or all lines if until is zero.
func (p *Project) ClearLogs(ctx context.Context, names []string, until time.Time) (lines, bytes int64, err error) {
	affected := names
	if names == nil {
		if affected, err = p.Names(ctx); err != nil {
			return 0, 0, err
		}
	}
	if lines, bytes, err = p.o.Store.Clear(ctx, p.name, names, until); err != nil {
		return lines, bytes, err
	}
	for _, name := range affected { // even if no line was removed: errors of runs without output go too
		p.o.Changed(name, lines > 0)
	}
	return lines, bytes, nil
}

// Faults returns the errors of the project that q selects, and how many there are. Unless
// q.SkipFlush is set, it waits briefly, as RunFaults does, for the latest runs.
func (p *Project) Faults(ctx context.Context, q logstore.FaultQuery) ([]logstore.Fault, int, error) {
	q.Project = p.name
	if !q.SkipFlush {
		latest, err := p.o.Store.Runs(ctx, logstore.RunFilter{Project: p.name, Names: q.Names, Current: true})
		if err != nil {
			return nil, 0, err
		}
		bounded, cancel := context.WithTimeout(ctx, recogniseTime)
		defer cancel()
		for i := range latest {
			p.o.Store.Recognised(bounded, latest[i].ID)
		}
	}
	return p.o.Store.Faults(ctx, q)
}

// recogniseTime is how long RunFaults waits for errors whose last lines may still
// follow. Silence of 300 ms completes them.
const recogniseTime = 500 * time.Millisecond

// RunFaults returns the errors of a run whose latest occurrence is after a cursor, or
// of the whole run if after is "", with the cause first (see logstore.SortByCause). It
// waits briefly until the errors in the lines printed so far are known.
func (p *Project) RunFaults(ctx context.Context, run int64, after string) ([]logstore.Fault, error) {
	bounded, cancel := context.WithTimeout(ctx, recogniseTime)
	defer cancel()
	p.o.Store.Recognised(bounded, run)
	all, _, err := p.o.Store.Faults(ctx, logstore.FaultQuery{Project: p.name, Runs: []int64{run}, After: after, Limit: maxRunFaults})
	logstore.SortByCause(all)
	return all, err
}

// maxRunFaults is how many kinds of errors of a run RunFaults returns, the latest.
const maxRunFaults = 1000

// MarkFault marks an error of any project as resolved, or as open. changed reports whether it was not so before; the
// window that runs the process, or has run it last, then learns of it.
func (p *Project) MarkFault(ctx context.Context, id string, resolved bool, note string) (f logstore.Fault, changed bool, err error) {
	f, changed, err = p.o.Store.MarkFault(ctx, id, resolved, note)
	if err == nil && p.IsOfSession(f.Project) {
		p.o.Changed(f.Name, false)
	}
	if changed {
		p.o.Store.tellOfMark(ctx, &f, p.by)
	}
	return f, changed, err
}

// awaitSilent returns true once no process in names can print any more in this
// session, and false when ctx ends. A process that another window is running can
// always print.
func (p *Project) awaitSilent(ctx context.Context, names []string) bool {
	for _, name := range names {
		_, _ = p.o.Manager.Await(ctx, name, func(st process.Status) bool { return !st.GoesOn() }) // error: the process is unknown because it never ran here
		if run, err := p.Find(ctx, name); err == nil && run.Owner != nil {
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}
