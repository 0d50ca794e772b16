package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pmcp/groups"
	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/project"
)

// latestRuns are the members of groups for a reader, which performs no operation on a group:
// their latest runs, whichever server has started them.
type latestRuns struct {
	groups.Elsewhere
	view *project.Store
	dir  string
}

// RunsElsewhere returns the latest runs of those names, without an owner: to a person all are
// of other servers.
func (l latestRuns) RunsElsewhere(ctx context.Context, names []string) map[string]groups.ForeignRun {
	runs, err := l.view.Latest(ctx, l.dir, names)
	if err != nil {
		return nil // the groups themselves could be read
	}
	found := make(map[string]groups.ForeignRun, len(runs))
	for i := range runs {
		found[runs[i].Spec.Name] = groups.ForeignRun{Status: runs[i].Status}
	}
	return found
}

// A target is what a name on the command line stands for.
type target struct {
	name    string // the address of a process or group
	group   bool
	members []string // of the group, in start order
	state   groups.State
	offered bool // by a file of the project: nothing is stored under the name
}

// targets returns what arguments stand for, or nil for all processes. A process that was not
// removed comes before a group of the same name. With offers, what files of the project offer
// counts, too.
func (r *reader) targets(ctx context.Context, arguments []string, offers bool) (all []target, err error) {
	for _, argument := range strings.FieldsFunc(strings.Join(arguments, ","), func(c rune) bool { return c == ',' }) {
		names, err := r.resolve(ctx, argument)
		if errors.Is(err, process.ErrUnknown) {
			found, err := r.other(ctx, argument, offers)
			if err != nil {
				return nil, err
			}
			all = append(all, found)
			continue
		}
		if err != nil {
			return nil, err
		}
		if names == nil { // *
			return nil, nil
		}
		for _, name := range names {
			if set, err := r.group(ctx, name); err == nil && r.isRemoved(ctx, name) {
				all = append(all, set)
			} else {
				all = append(all, target{name: name})
			}
		}
	}
	return all, nil
}

// isRemoved reports whether only runs and a log are left of a process.
func (r *reader) isRemoved(ctx context.Context, name string) bool {
	_, defined, err := r.project.Definition(ctx, name)
	if defined || err != nil {
		return false
	}
	run, err := r.project.Find(ctx, name)
	return err == nil && run.Owner == nil
}

// other returns what a name stands for that no process has.
func (r *reader) other(ctx context.Context, name string, offers bool) (target, error) {
	found, err := r.group(ctx, name)
	if !errors.Is(err, groups.ErrUnknown) {
		return found, err
	}
	var offered []string
	if offers {
		if program, group := r.project.Offers(name); program || group {
			return target{name: name, group: !program, offered: true}, nil
		}
		offered = r.project.OfferedNames(ctx)
	}
	known, err := r.names(ctx)
	if err != nil {
		return target{}, err
	}
	sets := r.groupNames(ctx)
	there := []string{"there are: " + prose.OrNone(known)}
	if len(sets) > 0 {
		there = append(there, "groups: "+prose.OrNone(sets))
	}
	if len(offered) > 0 {
		there = append(there, "offered: "+prose.OrNone(offered))
	}
	err = fmt.Errorf("%w: %s (%s)", process.ErrUnknown, args.QuoteWithNearest(name, slices.Concat(known, sets, offered)), strings.Join(there, "; "))
	if others := r.others(ctx, name); r.dir != "" && len(others) > 0 {
		err = fmt.Errorf("%w; of other projects: %s", err, strings.Join(others, ", "))
	}
	return target{}, err
}

// group returns the group that a name stands for. Its error wraps groups.ErrUnknown.
func (r *reader) group(ctx context.Context, name string) (target, error) {
	if r.dir == "" { // the names of all projects have no label
		return target{}, groups.ErrUnknown
	}
	all, err := r.project.ListGroups(ctx, name)
	if err != nil {
		return target{}, err
	}
	return target{name: all[0].Group.Name, group: true, members: all[0].Order, state: all[0].State}, nil
}

// find returns the names of the processes that arguments stand for, those of the members for a
// group, or nil for all.
func (r *reader) find(ctx context.Context, arguments []string) (names []string, err error) {
	all, err := r.targets(ctx, arguments, false)
	for _, t := range all {
		if !t.group {
			names = append(names, t.name)
		} else if names = append(names, t.members...); len(t.members) == 0 {
			return nil, fmt.Errorf("group %s has no members", t.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// groupNames returns the names of the groups of the project.
func (r *reader) groupNames(ctx context.Context) (names []string) {
	if r.dir == "" {
		return nil
	}
	all, _ := r.project.ListGroups(ctx, "") // without them, names are those of processes
	for i := range all {
		names = append(names, all[i].Group.Name)
	}
	return names
}

// A groupRow is a group in the output of pmcp ps --json.
type groupRow struct {
	Group   string      `json:"group"`
	Project string      `json:"project"`
	State   string      `json:"state"`
	Members []memberRow `json:"members"`
	Problem string      `json:"problem,omitempty"`
}

type memberRow struct {
	Name  string `json:"name"`
	State string `json:"state"` // in the group: up, done, down …, or how the process ended
	Why   string `json:"why,omitempty"`
}

// psGroups prints the groups of the projects of runs, or those with these names.
func (s *screen) psGroups(ctx context.Context, r *reader, runs []project.Run, names []string) error {
	paths := []string{r.project.Dir()}
	for i := range runs {
		paths = append(paths, runs[i].Project)
	}
	slices.Sort(paths)
	var rows [][]cell
	for _, path := range slices.Compact(paths) {
		p, _, err := r.project.At(ctx, path, "", "")
		if err != nil {
			return err
		}
		all, err := p.ListGroups(ctx, "")
		if err != nil {
			return err
		}
		for i := range all {
			if st := &all[i]; len(names) == 0 || slices.Contains(names, st.Group.Name) {
				s.found = true
				row := groupRow{Group: st.Group.Name, Project: path, State: prose.Join(", ", string(st.State), st.Busy), Members: membersOf(st), Problem: st.Problem}
				if !s.json {
					rows = append(rows, row.cells())
				} else if err := s.out.json(row); err != nil {
					return err
				}
			}
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return s.out.table([]column{{title: "GROUP"}, {title: "STATE"}, {title: "MEMBERS"}}, rows)
}

// membersOf returns the members of a group in start order, with what those lack that do not run.
func membersOf(st *groups.Status) []memberRow {
	rows := []memberRow{}
	for _, m := range st.Members {
		row := memberRow{Name: m.Process, State: string(m.Phase), Why: m.Why}
		if m.Phase == groups.MemberDown {
			if row.State, row.Why = endOf(&project.Run{Status: m.Status}), ""; !m.Known {
				row.State = "never started"
			}
			var needs []string
			for _, d := range m.DependsOn {
				if !slices.ContainsFunc(st.Members, func(on groups.MemberStatus) bool { return on.Process == d.Process && isUp(on.Phase) }) {
					needs = append(needs, d.String())
				}
			}
			if len(needs) > 0 {
				row.Why = "needs " + strings.Join(needs, ", ")
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func isUp(p groups.Phase) bool { return p == groups.MemberUp || p == groups.MemberDone }

// cells returns the row of a group in the table. What is wrong comes first.
func (g *groupRow) cells() []cell {
	var wrong, right []string
	for _, m := range g.Members {
		text := prose.Join(": ", m.Name+" "+m.State, m.Why)
		if isUp(groups.Phase(m.State)) {
			right = append(right, text)
		} else {
			wrong = append(wrong, text)
		}
	}
	c := map[string]colour{string(groups.Up): green, string(groups.Down): ""}
	state, known := c[g.State]
	if !known {
		state = yellow
	}
	text := prose.Join("; ", append(append(wrong, right...), g.Problem)...)
	return []cell{{line.Visible(g.Group), bold}, {g.State, state}, {line.Visible(text), ""}}
}
