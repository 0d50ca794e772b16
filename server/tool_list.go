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
	More      bool            `json:"more,omitempty"`
	Hint      string          `json:"hint,omitempty"`
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
	t.more(r.More)
	t.optLine("%s", r.Hint)
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
		description: "Processes: state, exit code, ports, usage; running first.",
		hints:       hints{readOnly: true}, app: dashboardURI,
	}, listProcesses)
}

func listProcesses(ctx context.Context, s *call, a listArgs) (listResult, error) {
	if a.State != "" && a.State != stateDefined {
		if _, err := process.ParseState(a.State); err != nil {
			return listResult{}, fmt.Errorf("argument state: %w", err)
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
		p.Stale = run.Stale()
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
