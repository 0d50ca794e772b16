package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"pmcp/process"
)

type restartArgs struct {
	Process string `json:"process"`
	changes `schema:"brief"`

	raw json.RawMessage
}

// changes are the arguments of start_process that a restart takes as well.
type changes struct {
	specArgs
	Wait      string `json:"wait,omitempty" enum:"started|ready|exit"`
	TimeoutMS int    `json:"timeout_ms,omitempty" min:"1" max:"600000"`
}

// takeRaw keeps what was given, so that it can be laid over a definition.
func (a *restartArgs) takeRaw(raw json.RawMessage) { a.raw = raw }

func restartProcessTool() tool {
	return define(tool{
		name: "restart_process", title: "Restart process", toolset: setLifecycle,
		description: "Stops a process and starts it again, with any changed argument of start_process.",
		hints:       hints{destructive: true, openWorld: true},
		waits:       func(json.RawMessage) bool { return true },
	}, restartProcess)
}

func restartProcess(ctx context.Context, s *Server, a restartArgs) (runResult, error) {
	name, err := s.resolveName(ctx, a.Process)
	if err != nil {
		return runResult{}, err
	}
	if err := s.ownOnly(ctx, name); err != nil {
		return runResult{}, err
	}
	def, err := s.overStored(ctx, name, a.raw, func(base specArgs) (specArgs, error) {
		over := restartArgs{changes: changes{specArgs: base}}
		err := decodeArguments(a.raw, &over)
		return over.specArgs, err
	})
	if err != nil {
		return runResult{}, err
	}
	if def.Command == "" { // it has a log but was forgotten: the call has to say all
		def = a.specArgs
	}
	return startProcess(ctx, s, startArgs{
		Name: name, specArgs: def, Wait: a.Wait, TimeoutMS: a.TimeoutMS, IfRunning: string(process.RestartRunning), raw: a.raw,
	})
}

type killArgs struct {
	Process string `json:"process"`
}

func killProcessTool() tool {
	return define(tool{
		name: "kill_process", title: "Kill process", toolset: setLifecycle,
		description: "Ends a process and all it started by SIGKILL.",
		hints:       hints{destructive: true, idempotent: true},
		waits:       func(json.RawMessage) bool { return true },
	}, func(ctx context.Context, s *Server, a killArgs) (stopResult, error) {
		return stopProcess(ctx, s, stopProcessArgs{Process: a.Process, Force: true})
	})
}

type removeArgs struct {
	Process string `json:"process" jsonschema:"names with commas"`
}

type removeResult struct {
	Removed []string `json:"removed"`
}

func (r removeResult) text() string {
	return fmt.Sprintf("forgotten: %s; the log stays until its retention ends\n", strings.Join(r.Removed, ", "))
}

func removeProcessTool() tool {
	return define(tool{
		name: "remove_process", title: "Forget process", toolset: setLifecycle,
		description: "Forgets a stopped process and its definition. Its log stays.",
		hints:       hints{destructive: true, idempotent: true},
	}, removeProcess)
}

func removeProcess(ctx context.Context, s *Server, a removeArgs) (removeResult, error) {
	names, err := s.resolveNames(ctx, a.Process)
	if err != nil {
		return removeResult{}, err
	}
	if len(names) == 0 {
		return removeResult{}, fmt.Errorf("argument process: want the names of stopped processes, got %q", a.Process)
	}
	var started []string
	for _, name := range names { // a name that cannot be removed changes nothing
		if err := s.ownOnly(ctx, name); err != nil {
			return removeResult{}, err
		}
		if _, err := s.o.Manager.Status(name); err == nil {
			started = append(started, name)
		}
	}
	if err := s.o.Manager.Remove(ctx, started...); err != nil {
		return removeResult{}, err
	}
	for _, name := range names {
		s.forgetDefinition(name)
		_ = s.o.Health.Set(name, nil) // without a check there is nothing to refuse
		s.changed(name)
	}
	return removeResult{Removed: names}, nil
}
