package project

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/server/args"
)

// A ListRequest selects processes.
type ListRequest struct {
	// Scope is session for those that this session started, all for those of every
	// project of the database; else it is those of the projects of the session.
	Scope string
	// Only means that of the projects only p counts.
	Only bool
	// Group selects the members of a group; "" = all.
	Group string
	// Unnamed also selects unnamed processes that have ended.
	Unnamed bool
	// Ended is how many processes that have ended, or never ran, are returned at most;
	// 0 means all.
	Ended int
}

// A listEntry is a process that List may return. The run is only then made, because most
// of the time goes into decoding it.
type listEntry struct {
	project, name string
	end           time.Time // see endOf
	ended         bool      // or never ran
	kept          bool      // see IsKept
	run           func() Run
}

// List returns this session's processes and, depending on the scope, processes of
// earlier sessions and other windows, and definitions that never ran or whose runs are
// gone. Kept processes come first, then active ones, then the others, latest first. Removed
// processes are left out, although their runs and logs are stored, and so are unnamed
// ones that have ended. Live processes of other windows have their ports and usage of now.
// more reports whether a.Ended left out others.
func (p *Project) List(ctx context.Context, a ListRequest) (runs []Run, more bool, err error) {
	var members []string
	if a.Group != "" {
		found, err := p.ListGroups(ctx, a.Group)
		if err != nil {
			return nil, false, err
		}
		members = found[0].Order
	}
	paths := p.o.Store.projects()
	if a.Only {
		paths = []string{p.name}
	}
	rows, err := p.latestRuns(ctx, a.Scope, paths) // of each process, that in another window or else the latest
	if err != nil {
		return nil, false, err
	}
	all, listed := p.listHere(rows, a, paths)
	stored, err := p.listStored(ctx, rows, a, paths, listed)
	if err != nil {
		return nil, false, err
	}
	all = append(all, stored...)
	slices.SortStableFunc(all, func(a, b listEntry) int {
		if a.kept != b.kept {
			return map[bool]int{true: -1, false: 1}[a.kept]
		}
		return b.end.Compare(a.end)
	})
	ended := 0
	for _, e := range all {
		if a.Group != "" && (!p.IsOfSession(e.project) || !slices.Contains(members, e.name)) {
			continue
		}
		if e.ended {
			if ended++; a.Ended > 0 && ended > a.Ended {
				more = true
				continue
			}
		}
		runs = append(runs, e.run())
	}
	measureElsewhere(&p.elsewhere, runs)
	return runs, more, nil
}

// latestRuns returns the current stored run of each process in the scope.
func (p *Project) latestRuns(ctx context.Context, scope string, paths []string) (rows []logstore.Run, err error) {
	switch scope {
	case "session":
		return nil, nil
	case "all":
		paths = []string{""}
	}
	for _, path := range paths {
		more, err := p.o.Store.freshRuns(ctx, logstore.RunFilter{Project: path, Current: true})
		if err != nil {
			return nil, fmt.Errorf("cannot list earlier runs: %w", err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// listHere returns the processes of this session that a selects. listed has their
// addresses.
func (p *Project) listHere(rows []logstore.Run, a ListRequest, paths []string) (here []listEntry, listed map[string]bool) {
	elsewhere := make(map[string]int) // the latest run of another window by address
	for i := range rows {
		switch r := &rows[i]; {
		case r.Own || !p.IsOfSession(r.Project):
		case inWindow(r):
			elsewhere[r.Name] = math.MaxInt
		default:
			elsewhere[r.Name] = max(elsewhere[r.Name], r.Number)
		}
	}
	listed = make(map[string]bool)
	own := p.o.Manager.List()
	for i := range own {
		st := &own[i]
		name := st.Spec.Name
		if !slices.Contains(paths, p.of(name).name) || !st.GoesOn() && elsewhere[name] > st.Run {
			continue
		}
		listed[name] = true
		if _, named := p.definitions.Load(name); named || a.Unnamed || !st.Spec.Unnamed || st.GoesOn() {
			r := Run{Status: *st}
			here = append(here, listEntry{p.of(name).name, name, endOf(&r), r.Idle(), r.IsKept(), func() Run { return p.here(st) }})
		}
	}
	return here, listed
}

// listStored returns the runs of processes that are not listed, without removed
// processes, and the definitions that have no run.
func (p *Project) listStored(ctx context.Context, rows []logstore.Run, a ListRequest, paths []string, listed map[string]bool) (all []listEntry, err error) {
	type process struct{ project, name string }
	seen := make(map[process]bool)
	defined := make(map[string]map[string][]byte) // definitions, keyed by project
	read := func(path string) error {
		if _, ok := defined[path]; ok {
			return nil
		}
		names, err := p.o.Store.Definitions(ctx, path)
		if err != nil {
			return fmt.Errorf("cannot list the stored definitions: %w", err)
		}
		defined[path] = names
		return nil
	}
	left := p.left(ctx, rows)
	for i := range rows {
		row := &rows[i]
		seen[process{row.Project, row.Name}] = true
		if listed[row.Name] && p.IsOfSession(row.Project) {
			continue
		}
		if err := read(row.Project); err != nil {
			return nil, err
		}
		e := listEntry{project: row.Project, name: row.Name, end: row.Ended, ended: true, run: func() Run { return stored(row) }}
		switch r, isLeft := left[row.ID]; {
		case isLeft:
			e.end, e.ended, e.run = args.MaxTime, false, func() Run { return r }
		case row.Lost:
			e.end = row.Started
		case row.Ended.IsZero() || row.Live && !row.Own:
			r := latestOf(row)
			if !r.State.Active() {
				break
			}
			e.end, e.ended, e.kept, e.run = endOf(&r), false, r.IsKept(), func() Run { return r }
		}
		if _, ok := defined[row.Project][row.Name]; ok || !e.ended { // a removed process has no definition
			all = append(all, e)
		}
	}
	if a.Scope == "session" {
		return all, nil
	}
	for _, path := range paths {
		if err := read(path); err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(defined[path])) {
			if !listed[name] && !seen[process{path, name}] {
				all = append(all, listEntry{project: path, name: name, ended: true, run: func() Run { return p.defined(path, name, defined[path][name]) }})
			}
		}
	}
	return all, nil
}

// left returns the lost ones among rows of which processes still run, by id.
func (p *Project) left(ctx context.Context, rows []logstore.Run) map[int64]Run {
	var lost []*Run
	for i := range rows {
		if rows[i].Lost {
			r := stored(&rows[i])
			lost = append(lost, &r)
		}
	}
	p.o.Store.addLeft(ctx, lost...)
	left := make(map[int64]Run)
	for _, r := range lost {
		if r.IsLeft() {
			left[r.RunID] = *r
		}
	}
	return left
}

// defined returns a definition as a process that has no run.
func (p *Project) defined(path, name string, raw []byte) Run {
	r := Run{Project: path, Stored: true, Defined: true}
	r.Spec.Name = name
	if def, err := readDefinition(name, raw); err == nil {
		d := Details{Run: r}
		(&Project{session: p.session, name: path}).describe(&d, name, def)
		r = d.Run
	}
	return r
}

// endOf returns the time at which a run ended or, if it was lost, at which it started.
// For a run that has not ended it returns a time after all others.
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
	runs := history(rows, p.here(&st))
	events, err := p.o.Store.Events(ctx, p.name, []string{name}, maxHistoryEvents)
	if err != nil {
		return nil, fmt.Errorf("cannot list the events of %s: %w", name, err)
	}
	for i := range runs {
		at := slices.IndexFunc(events, func(e logstore.Event) bool {
			return e.Run == runs[i].RunID && (e.Kind == logstore.EventStarted || e.Kind == logstore.EventRestarted)
		})
		if at >= 0 {
			_, cause, _ := strings.Cut(events[at].Text, "restarted")
			runs[i].By = cmp.Or(events[at].By, strings.TrimPrefix(strings.Trim(cause, " ,"), "by "))
		}
	}
	return runs, nil
}

// maxHistoryEvents is how many events of a process, the latest, History searches for who started its runs.
const maxHistoryEvents = 1000

// history returns rows as runs, with here in place of its own row.
func history(rows []logstore.Run, here Run) []Run {
	runs := make([]Run, len(rows))
	for i := range rows {
		if runs[i] = stored(&rows[i]); rows[i].ID == here.RunID && !here.BetweenRuns() {
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
	if s.Names, err = p.Resolve(ctx, names, true); err != nil {
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
