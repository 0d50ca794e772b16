package server

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"pmcp/process"
	"pmcp/server/project"
)

type listArgs struct {
	State string `json:"state,omitempty"`
	Group string `json:"group,omitempty"`
	Scope string `json:"scope,omitempty" schema:"flat" jsonschema:"project, session or all" enum:"session|project|all"`
	Limit int    `json:"limit,omitempty" min:"1" max:"1000"`
}

type listResult struct {
	Processes []processResult `json:"processes"`
	Offered   []offeredResult `json:"offered,omitempty" schema:"extra"`
	More      bool            `json:"more,omitempty"`
	Hint      string          `json:"hint,omitempty"`
	Notes     []string        `json:"notes,omitempty" schema:"extra"`
}

// An offeredResult is a program that a file of the project offers.
type offeredResult struct {
	Name    string `json:"name"`
	Command string `json:"command,omitempty"`
	Cwd     string `json:"cwd,omitempty"`
	Source  string `json:"source"`
	Not     string `json:"cannot_start,omitempty"`

	service bool
}

func (r listResult) write(t *answerText) {
	for _, p := range r.Processes {
		t.part("%s | %s", p.line(), quoteArgs(p.Command, p.Args))
		t.optPart(" | project %s", p.Project)
		if p.Stale != "" {
			t.part(" | stale: %s is newer than this run; %s", quoteUnlessPlain(p.Stale), staleAdvice(p.Name))
		}
		t.line("")
	}
	r.writeOffered(t)
	for _, note := range r.Notes {
		t.line("%s", note)
	}
	t.more(r.More)
	t.optLine("%s", r.Hint)
}

// writeOffered writes a section for each file, and the services of a file in one line.
func (r listResult) writeOffered(t *answerText) {
	for i, o := range r.Offered {
		first := i == 0 || r.Offered[i-1].Source != o.Source
		switch {
		case o.service && first:
			t.line("services of %s: %s", o.Source, strings.Join(servicesOf(r.Offered[i:]), ", "))
			continue
		case o.service:
			continue
		case first:
			t.line("%s:", o.Source)
		}
		t.part("%s", o.Name)
		t.optPart(" | %s", o.Command)
		t.optPart(" (in %s)", o.Cwd)
		t.optPart(" | cannot be started: %s", o.Not)
		t.line("")
	}
}

// servicesOf returns the names of the first programs, those of one file.
func servicesOf(all []offeredResult) (names []string) {
	for _, o := range all {
		if o.Source == all[0].Source {
			names = append(names, o.Name)
		}
	}
	return names
}

func staleAdvice(name string) string {
	if strings.HasPrefix(name, project.OnDemandPrefix) {
		return "after stop_process the next call runs it"
	}
	return "restart_process runs it"
}

func listProcessesTool() tool {
	return define(tool{
		name: "list_processes", title: "List processes", toolset: setLifecycle,
		description: "Processes with state, ports, usage. state: offered lists scripts, Procfile …",
		hints:       hints{readOnly: true}, app: dashboardURI,
	}, listProcesses)
}

// maxOfferedCommand is how much of the command of an offered program a list shows, in bytes.
const maxOfferedCommand = 120

// listOffered returns what the files of the project offer.
func listOffered(ctx context.Context, s *call, limit int) listResult {
	r := listResult{Processes: []processResult{}}
	all, notes := s.project.Offered(ctx)
	for _, o := range all {
		if limit > 0 && len(r.Offered) == limit {
			r.More = true
			break
		}
		row := offeredResult{Name: o.Name, Command: cut(o.Command(), maxOfferedCommand), Source: o.Source, Not: o.Not, service: o.IsService()}
		if row.service {
			row.Not = ""
		} else if o.Script == "" {
			row.Cwd = o.Cwd
		}
		r.Offered = append(r.Offered, row)
	}
	r.Notes = notes
	if len(r.Offered)+len(r.Notes) == 0 {
		r.Hint = "nothing is offered: no package.json, Procfile, .claude/launch.json, .vscode/tasks.json or launch.json in " + s.project.Dir()
	}
	size := func() int { return answerSize(&r) }
	if limit == 0 && size() > logLimit(0) {
		dropped := dropLast(&r.Offered, logLimit(0)-2*leftOutBytes, size)
		r.More, r.Hint = true, fmt.Sprintf("%d more: limit: 1000 lists all of them", dropped)
	}
	return r
}

func listProcesses(ctx context.Context, s *call, a listArgs) (listResult, error) {
	if a.State == stateOffered {
		return listOffered(ctx, s, a.Limit), nil
	}
	if a.State != "" && a.State != stateDefined {
		if _, err := process.ParseState(a.State); err != nil {
			return listResult{}, fmt.Errorf("argument state: %w; or %s, %s", err, stateDefined, stateOffered)
		}
	}
	q := project.ListRequest{Scope: a.Scope, Only: s.named, Group: a.Group, Unnamed: a.State != ""}
	// The limit counts ended processes only. If the call gives a limit and a state,
	// it counts all processes.
	limit, limitAll, n := cmp.Or(a.Limit, lastLines), a.Limit > 0 && a.State != "", 0
	if a.State == "" {
		q.Ended = limit
	}
	all, more, err := s.project.List(ctx, q)
	if err != nil {
		return listResult{}, err
	}
	looked := make([]*project.Run, len(all))
	for i := range all {
		looked[i] = &all[i]
	}
	s.project.LookAtSources(ctx, looked...)
	r := listResult{Processes: []processResult{}, More: more}
	for i := range all {
		run := &all[i]
		p := resultOf(run)
		if a.State != "" && p.State != a.State && p.stateText() != a.State {
			continue
		}
		if limitAll || run.Idle() || run.Defined {
			if n++; n > limit {
				r.More = true
				continue
			}
		}
		if p.Stale = run.Stale(); p.Stale != "" {
			p.Changed = ""
		}
		p.Args = shortArgs(p.Command, p.Args) // get_process_info shows them in full
		if a.Scope == "all" && run.Project != s.project.Dir() {
			p.Project = run.Project
		}
		r.Processes = append(r.Processes, p)
	}
	if len(r.Processes) == 0 {
		r.Hint = "no processes"
	} else if a.Limit == 0 {
		r.fit(logLimit(0))
	}
	return r, nil
}

// fit drops the last processes if the answer is longer than limit, and reports that.
func (r *listResult) fit(limit int) {
	size := func() int { return answerSize(r) }
	if size() <= limit {
		return
	}
	dropped := dropLast(&r.Processes, limit-2*leftOutBytes, size)
	r.More, r.Hint = true, fmt.Sprintf("%d more: state or group selects; limit: 1000 lists all of them", dropped)
}
