package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"pmcp/process/prose"
	"pmcp/server/project"
)

type restartArgs struct {
	Process        string `json:"process"`
	startOverrides `schema:"brief"`
}

// startOverrides are the arguments of start_process that a restart accepts as well.
type startOverrides struct {
	project.Definition
	Wait      string         `json:"wait,omitempty" enum:"started|ready|exit"`
	TimeoutMS *int           `json:"timeout_ms,omitempty" min:"0" max:"600000"`
	Steps     []project.Step `json:"steps,omitempty"`
	outputArgs
}

func restartProcessTool() tool {
	return define(tool{
		name: "restart_process", title: "Restart process", toolset: setLifecycle,
		description: "Stops and starts a process, with any argument of start_process: env merges, others replace, null removes.",
		hints:       hints{destructive: true, openWorld: true},
	}, restartProcess)
}

func restartProcess(ctx context.Context, s *call, a restartArgs) (runResult, error) {
	name, err := s.project.ResolveOne(ctx, a.Process, s.reads)
	if err != nil {
		return runResult{}, err
	}
	return s.start(ctx, project.StartRequest{Name: name, Definition: a.Definition, Wait: a.Wait, Restart: true, Steps: a.Steps}, a.TimeoutMS, a.outputArgs)
}

type killArgs struct {
	Process string `json:"process"`
}

func killProcessTool() tool {
	return define(tool{
		name: "kill_process", title: "Kill process", toolset: setLifecycle,
		description: "Sends SIGKILL to a process and all it started.",
		hints:       hints{destructive: true},
	}, func(ctx context.Context, s *call, a killArgs) (stopResult, error) {
		return stopProcess(ctx, s, stopProcessArgs{Process: a.Process, Force: true})
	})
}

type removeArgs struct {
	Process string `json:"process" jsonschema:"a,b"`
}

type removeResult struct {
	Removed []string `json:"removed"`
	Hint    string   `json:"hint,omitempty"`
}

func (r removeResult) write(t *answerText) {
	t.line("removed: %s; the log stays until its retention ends", strings.Join(r.Removed, ", "))
	t.hint(r.Hint)
}

func removeProcessTool() tool {
	return define(tool{
		name: "remove_process", title: "Remove process", toolset: setLifecycle,
		description: "Deletes a stopped process and its definition. Its log stays.",
		hints:       hints{destructive: true},
	}, removeProcess)
}

func removeProcess(ctx context.Context, s *call, a removeArgs) (removeResult, error) {
	names, err := s.project.Resolve(ctx, a.Process, s.reads)
	if err != nil {
		return removeResult{}, err
	}
	if len(names) == 0 {
		return removeResult{}, fmt.Errorf("argument process: want the names of stopped processes, got %q", a.Process)
	}
	if err := s.project.Remove(ctx, names); err != nil {
		return removeResult{}, err
	}
	hint := stillMembers(ctx, s.project, names)
	limit := outputArgs{}.limit()
	return removeResult{Removed: boundWords(names, limit/2), Hint: cut(hint, limit/3)}, nil
}

// stillMembers returns a hint that lists the groups that can no longer start
// because one of their members is in names, which were removed. It returns "" if
// there are no such groups.
func stillMembers(ctx context.Context, p *project.Project, names []string) string {
	all, err := p.ListGroups(ctx, "")
	if err != nil {
		return "" // a hint is not worth an error
	}
	var hints []string
	for i := range all {
		for _, m := range all[i].Members {
			if slices.Contains(names, m.Process) {
				hints = append(hints, fmt.Sprintf("%s is still a member of the group %s, which cannot start without its definition; remove_from_group removes it", m.Process, all[i].Group.Name))
			}
		}
	}
	return prose.Join("; ", hints...)
}
