package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

type listArgs struct {
	State string `json:"state,omitempty"`
	Group string `json:"group,omitempty"`
	Scope string `json:"scope,omitempty" enum:"session|project|all"`
	Limit int    `json:"limit,omitempty" jsonschema:"of ended" min:"1" max:"1000"`
}

type listResult struct {
	Processes []processResult `json:"processes"`
	More      bool            `json:"more,omitempty"`
	Hint      string          `json:"hint,omitempty"`
}

func (r listResult) text() string {
	var b strings.Builder
	for _, p := range r.Processes {
		b.WriteString(p.line())
		b.WriteString(" | " + quoteArgs(p.Command, p.Args))
		if p.Project != "" {
			b.WriteString(" | project " + p.Project)
		}
		b.WriteString("\n")
	}
	if r.More {
		b.WriteString("more: true\n")
	}
	if r.Hint != "" {
		b.WriteString(r.Hint + "\n")
	}
	return b.String()
}

func listProcessesTool() tool {
	return define(tool{
		name: "list_processes", title: "List processes", toolset: setLifecycle,
		description: "Processes: state, exit code, ports, usage; running first.",
		hints:       hints{readOnly: true, idempotent: true},
	}, listProcesses)
}

func listProcesses(ctx context.Context, s *Server, a listArgs) (listResult, error) {
	if a.State != "" {
		if _, err := process.ParseState(a.State); err != nil {
			return listResult{}, fmt.Errorf("argument state: %w", err)
		}
	}
	if a.Limit == 0 {
		a.Limit = lastLines
	}
	all, err := s.everyProcess(ctx, a.Scope)
	if err != nil {
		return listResult{}, err
	}
	if a.Group != "" {
		group, err := s.o.Groups.Status(ctx, a.Group)
		if err != nil {
			return listResult{}, err
		}
		all = slices.DeleteFunc(all, func(p processResult) bool {
			return p.Project != "" || !slices.Contains(group.Order, p.Name) // groups are of this project
		})
	}
	r := listResult{Processes: []processResult{}}
	ended := 0
	for _, p := range all {
		if a.State != "" && p.State != a.State {
			continue
		}
		if p.hasEnded() {
			if ended++; ended > a.Limit {
				r.More = true
				continue
			}
		}
		p.Args = shortArgs(p.Command, p.Args) // get_process_info has the whole
		r.Processes = append(r.Processes, p)
	}
	if len(r.Processes) == 0 {
		r.Hint = "no processes"
	}
	return r, nil
}

// everyProcess lists this session's processes and, as scope asks, those of
// earlier sessions and other servers: what lives first, then the latest ended.
// What was forgotten is not among them, though its runs and log are stored.
func (s *Server) everyProcess(ctx context.Context, scope string) ([]processResult, error) {
	own := s.o.Manager.List()
	runs, err := s.latestRuns(ctx, scope)
	if err != nil {
		return nil, err
	}
	unlisted := make(map[string]*logstore.Run) // by name, of this project
	for i := range runs {
		if runs[i].Project == s.o.Manager.Project() {
			unlisted[runs[i].Name] = &runs[i]
		}
	}
	var live []processResult
	var ended []endedProcess
	for i := range own {
		st := &own[i]
		if run := unlisted[st.Spec.Name]; run != nil && meansOther(st, run) {
			continue // its run is listed
		}
		delete(unlisted, st.Spec.Name)
		p := s.ofStatus(st)
		if st.State.Active() {
			live = append(live, p)
		} else {
			ended = append(ended, endedProcess{p, st.EndedAt})
		}
	}
	defined := definedNames{store: s.o.Store}
	for i := range runs {
		run := &runs[i]
		p := ofRun(run)
		switch inProject := run.Project == s.o.Manager.Project(); {
		case !inProject:
			p.Project = run.Project
		case unlisted[run.Name] == nil: // listed above
			continue
		}
		if run.Live && run.Ended.IsZero() {
			live = append(live, p)
			continue
		}
		known, err := defined.has(ctx, run.Project, run.Name)
		if err != nil {
			return nil, err
		}
		if known {
			ended = append(ended, endedProcess{p, lastKnown(run)})
		}
	}
	slices.SortStableFunc(ended, func(a, b endedProcess) int { return b.at.Compare(a.at) })
	for i := range ended {
		live = append(live, ended[i].processResult)
	}
	return live, nil
}

// endedProcess is a process that has ended, and when.
type endedProcess struct {
	processResult
	at time.Time
}

// lastKnown is when a stored run ended; of one that is lost, when it began.
func lastKnown(run *logstore.Run) time.Time {
	if run.Ended.IsZero() {
		return run.Started
	}
	return run.Ended
}

// latestRuns are the latest stored runs of each process that scope asks for.
func (s *Server) latestRuns(ctx context.Context, scope string) ([]logstore.Run, error) {
	filter := logstore.RunFilter{Project: s.o.Manager.Project(), Limit: 1}
	switch scope {
	case "session":
		return nil, nil
	case "all":
		filter.Project = ""
	}
	runs, err := s.o.Store.Runs(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("cannot list earlier runs: %w", err)
	}
	return runs, nil
}

// definedNames are the names that have a definition, by project, each project
// read once. What was removed has none.
type definedNames struct {
	store    *logstore.Store
	projects map[string]map[string][]byte
}

func (d *definedNames) has(ctx context.Context, project, name string) (bool, error) {
	names, read := d.projects[project]
	if !read {
		var err error
		if names, err = d.store.Definitions(ctx, project); err != nil {
			return false, fmt.Errorf("cannot list the stored definitions: %w", err)
		}
		if d.projects == nil {
			d.projects = make(map[string]map[string][]byte)
		}
		d.projects[project] = names
	}
	_, ok := names[name]
	return ok, nil
}
