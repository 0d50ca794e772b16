package project

import (
	"context"
	"fmt"
	"slices"
	"time"

	"pmcp/logstore"
	"pmcp/server/args"
)

// List returns this session's processes and, depending on scope (session, project or
// all), processes of earlier sessions and other windows; group selects the members of
// a group. Processes that go on come first, then the others, latest first. Removed
// processes are left out, although their runs and logs are stored, and so are unnamed
// ones that have ended, unless unnamed is set.
func (p *Project) List(ctx context.Context, scope, group string, unnamed bool) ([]Run, error) {
	var members []string
	if group != "" {
		st, err := p.o.Groups.Status(ctx, group)
		if err != nil {
			return nil, err
		}
		members = st.Order
	}
	var runs []Run // of each process, that in another window or else the latest
	if scope != "session" {
		filter := logstore.RunFilter{Project: p.name, Current: true}
		if scope == "all" {
			filter.Project = ""
		}
		rows, err := p.o.Store.Runs(ctx, filter)
		if err != nil {
			return nil, fmt.Errorf("cannot list earlier runs: %w", err)
		}
		runs = history(rows, Run{})
	}
	inWindows := make(map[string]bool) // names that stand for a run of another window
	for i := range runs {
		inWindows[runs[i].Spec.Name] = inWindows[runs[i].Spec.Name] || runs[i].Project == p.name && runs[i].Owner != nil
	}
	var all []Run
	listed := make(map[string]bool)
	own := p.o.Manager.List()
	for i := range own {
		if st := &own[i]; st.GoesOn() || !inWindows[st.Spec.Name] {
			listed[st.Spec.Name] = true
			if _, named := p.definitions.Load(st.Spec.Name); named || unnamed || !st.Spec.Unnamed || st.GoesOn() {
				all = append(all, p.here(st))
			}
		}
	}
	defined := make(map[string]map[string][]byte) // definitions, keyed by project
	for _, run := range runs {
		if run.Project == p.name && listed[run.Spec.Name] {
			continue
		}
		if _, read := defined[run.Project]; !read {
			names, err := p.o.Store.Definitions(ctx, run.Project)
			if err != nil {
				return nil, fmt.Errorf("cannot list the stored definitions: %w", err)
			}
			defined[run.Project] = names
		}
		if _, ok := defined[run.Project][run.Spec.Name]; ok || !run.Over() { // a removed process has no definition
			all = append(all, run)
		}
	}
	slices.SortStableFunc(all, func(a, b Run) int { return endOf(&b).Compare(endOf(&a)) })
	if group != "" {
		all = slices.DeleteFunc(all, func(r Run) bool { return r.Project != p.name || !slices.Contains(members, r.Spec.Name) })
	}
	return all, nil
}

// endOf returns the time at which a run ended or, if it was lost, at which it started.
// For a run that goes on it returns a time after all others.
func endOf(r *Run) time.Time {
	switch {
	case r.State.Active():
		return args.MaxTime
	case r.EndedAt.IsZero():
		return r.StartedAt
	}
	return r.EndedAt
}

// History returns the latest runs of a process, latest first. The run of this session
// is taken from the manager, since its row is written a moment later.
func (p *Project) History(ctx context.Context, name string, limit int) ([]Run, error) {
	rows, err := p.o.Store.Runs(ctx, logstore.RunFilter{Project: p.name, Names: []string{name}, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("cannot list the runs of %s: %w", name, err)
	}
	st, _ := p.o.Manager.Status(name) // the zero Status has no run
	return history(rows, p.here(&st)), nil
}

// history returns rows as runs, with here in place of its own row.
func history(rows []logstore.Run, here Run) []Run {
	runs := make([]Run, len(rows))
	for i := range rows {
		if runs[i] = stored(&rows[i]); rows[i].ID == here.RunID && !betweenRuns(&here.Status) {
			runs[i] = here
			runs[i].State = stateOfRun(&here.Status)
		}
	}
	return runs
}

// A Selection is the processes, runs and time that the arguments of a call select. Nil
// stands for all.
type Selection struct {
	Names        []string
	Runs         []int64
	Since, Until time.Time
}

// Select returns what arguments select: the names of processes, the number of a run (0:
// all), and a span of time.
func (p *Project) Select(ctx context.Context, names string, run int, since, until string) (s Selection, err error) {
	now := time.Now()
	if s.Names, err = p.Resolve(ctx, names); err != nil {
		return s, err
	}
	if s.Since, s.Until, err = args.ParseSpan(since, until, now); err != nil {
		return s, err
	}
	if run != 0 {
		s.Runs, err = p.runIDs(ctx, s.Names, run)
	}
	return s, err
}

// runIDs returns the ids of the runs that have the given number, one for each process
// in names; a negative number counts from the latest run. If names is nil, it covers
// all processes.
func (p *Project) runIDs(ctx context.Context, names []string, number int) ([]int64, error) {
	runs, err := p.o.Store.Runs(ctx, logstore.RunFilter{Project: p.name, Names: names, Number: number})
	if err != nil {
		return nil, fmt.Errorf("cannot list runs: %w", err)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("argument run: there is no run %d%s", number, p.runRange(ctx, names))
	}
	ids := make([]int64, len(runs))
	for i, run := range runs {
		ids[i] = run.ID
	}
	return ids, nil
}

// runRange describes, for an error text, which runs exist.
func (p *Project) runRange(ctx context.Context, names []string) string {
	if len(names) != 1 {
		return ""
	}
	latest, ok, err := p.latest(ctx, names[0])
	if err != nil || !ok {
		return fmt.Sprintf(" of %s: it never ran", names[0])
	}
	return fmt.Sprintf(" of %s; the latest is %d", names[0], latest.Run)
}
