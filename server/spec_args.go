package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"pmcp/health"
	"pmcp/process"
)

// specArgs are the arguments that say how a process runs: what start_process
// takes, what restart_process may change, and what a stored definition keeps.
type specArgs struct {
	Command     string             `json:"command,omitempty" jsonschema:"executable or command line, no shell; omitted: the stored definition"`
	Args        []string           `json:"args,omitempty"`
	Cwd         string             `json:"cwd,omitempty"`
	Env         map[string]*string `json:"env,omitempty" jsonschema:"over pmcp's own; null takes one back"`
	EnvFiles    []string           `json:"env_files,omitempty"`
	Ready       *readyArgs         `json:"ready,omitempty" jsonschema:"ready when all rules given hold"`
	Restart     string             `json:"restart,omitempty" enum:"never|on-failure|always"`
	MaxRestarts int                `json:"max_restarts,omitempty" min:"1" max:"1000"`
	Health      *healthArgs        `json:"health,omitempty" jsonschema:"one of command, tcp, http"`
	Limits      *limitArgs         `json:"limits,omitempty" jsonschema:"of the whole process tree"`
	Stop        *stopArgs          `json:"stop,omitempty"`
	Stdin       *bool              `json:"stdin,omitempty" jsonschema:"an open pipe; default true, false with wait: exit"`
	PTY         bool               `json:"pty,omitempty"`
	MergeOutput bool               `json:"merge_output,omitempty"`
	Stdio       string             `json:"stdio,omitempty" enum:"log|mcp"`
	Group       string             `json:"group,omitempty"`
	DependsOn   []dependencyArgs   `json:"depends_on,omitempty"`
	// SecretEnv are the names of variables whose values are never stored.
	SecretEnv []string `json:"secret_env,omitempty" schema:"internal"`
	// Masked are the other arguments that a stored definition has with secrets
	// masked, so that it cannot be started without being given them again.
	Masked []string `json:"masked,omitempty" schema:"internal"`
}

type readyArgs struct {
	Log  string `json:"log,omitempty" jsonschema:"RE2 pattern"`
	Port *int   `json:"port,omitempty" jsonschema:"0: any" min:"0" max:"65535"`
	HTTP string `json:"http,omitempty" jsonschema:"URL or path"`
}

type healthArgs struct {
	Command       string   `json:"command,omitempty"`
	Args          []string `json:"args,omitempty"`
	TCP           string   `json:"tcp,omitempty"`
	HTTP          string   `json:"http,omitempty"`
	IntervalMS    int      `json:"interval_ms,omitempty" min:"100" max:"86400000"`
	TimeoutMS     int      `json:"timeout_ms,omitempty" min:"1" max:"60000"`
	Retries       int      `json:"retries,omitempty" min:"1" max:"100"`
	StartPeriodMS int      `json:"start_period_ms,omitempty" min:"1" max:"3600000"`
	OnUnhealthy   string   `json:"on_unhealthy,omitempty" enum:"none|restart"`
}

type dependencyArgs struct {
	Process   string `json:"process"`
	Condition string `json:"condition,omitempty" enum:"started|ready|healthy|exited_ok"`
}

// limitArgs are limits of a process's own. What is not given is as for every
// process; 0 is no limit. An older pmcp stored a 0 as not given.
type limitArgs struct {
	MemoryMB   *int   `json:"memory_mb,omitempty" min:"0"`
	CPUPercent *int   `json:"cpu_percent,omitempty" min:"0" max:"100"`
	Action     string `json:"action,omitempty" enum:"warn|stop|restart"`
}

// over is what is given laid over the limits of every process; nil where that
// changes none.
func (l *limitArgs) over(all process.Limits) *process.Limits {
	if l == nil {
		return nil
	}
	own := all
	if l.MemoryMB != nil {
		own.MemoryMB = *l.MemoryMB
	}
	if l.CPUPercent != nil {
		own.CPUPercent = *l.CPUPercent
	}
	own.Action = cmp.Or(l.Action, own.Action)
	if own == all {
		return nil
	}
	return &own
}

type stopArgs struct {
	Signal    string `json:"signal,omitempty"`
	TimeoutMS int    `json:"timeout_ms,omitempty" min:"1" max:"600000"`
}

// specOf is the spec of a definition, whose secrets are known from then on: those
// in its command line before anything can be said of it.
func (s *Server) specOf(ctx context.Context, name string, def specArgs, exits bool) (process.Spec, error) {
	s.o.Mask.Spare(name, def.Group, def.dir(s.o.Manager.Project()))
	for _, d := range def.DependsOn {
		s.o.Mask.Spare(d.Process)
	}
	s.o.Mask.LearnArgs(append([]string{def.Command}, def.Args...)...)
	if def.Health != nil {
		s.o.Mask.LearnArgs(append([]string{def.Health.Command}, def.Health.Args...)...)
	}
	spec, err := def.spec(ctx, name, s.o.Manager.Project(), exits)
	spec.Limits = def.Limits.over(s.o.Manager.Limits())
	s.o.Mask.LearnArgs(spec.Args...)
	s.o.Mask.LearnEnv(spec.Env)
	return spec, err
}

// spec is what a definition means: command line split, files read, durations
// typed; but for its limits, which those of every process are part of. exits says
// that the call waits for the end, where stdin is /dev/null unless asked for. ctx
// bounds the reading of files.
func (a specArgs) spec(ctx context.Context, name, project string, exits bool) (process.Spec, error) {
	if err := a.demandMasked(); err != nil {
		return process.Spec{}, err
	}
	dir := a.dir(project)
	spec := process.Spec{
		Name: name, Command: a.Command, Args: a.Args, Dir: a.Cwd, Stdin: !exits,
		PTY: a.PTY, MergeOutput: a.MergeOutput, MaxRestarts: a.MaxRestarts,
	}
	if a.Stdin != nil {
		spec.Stdin = *a.Stdin
	}
	if a.Stdio != process.StdioLog {
		spec.Stdio = a.Stdio
	}
	if a.Restart != "never" {
		spec.Restart = process.RestartPolicy(a.Restart)
	}
	if a.Ready != nil {
		spec.Ready = &process.Ready{Log: a.Ready.Log, Port: a.Ready.Port, HTTP: a.Ready.HTTP}
	}
	if a.Stop != nil {
		spec.Stop = process.StopSpec{Signal: a.Stop.Signal, Timeout: time.Duration(a.Stop.TimeoutMS) * time.Millisecond}
	}
	env, err := readEnvFiles(ctx, a.EnvFiles, dir)
	if err != nil {
		return spec, err
	}
	if len(a.Args) == 0 {
		assigned, argv, err := process.SplitCommandLine(a.Command, dir)
		if err != nil {
			return spec, err
		}
		spec.Command, spec.Args = argv[0], argv[1:]
		maps.Copy(env, assigned)
	}
	for key, value := range a.Env {
		if value != nil {
			env[key] = *value
		}
	}
	spec.Env = env
	return spec, a.demandSecrets(env)
}

// healthSpec is the health check of a definition; nil without one.
// dir is where a relative command is looked for.
func (a specArgs) healthSpec(dir string) (*health.Spec, error) {
	if a.Health == nil {
		return nil, nil
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	h := a.Health
	check := &health.Spec{
		Command: h.Command, Args: h.Args, TCP: h.TCP, HTTP: h.HTTP,
		Interval: ms(h.IntervalMS), Timeout: ms(h.TimeoutMS), Retries: h.Retries, StartPeriod: ms(h.StartPeriodMS),
	}
	if h.Command != "" && len(h.Args) == 0 {
		assigned, argv, err := process.SplitCommandLine(h.Command, dir)
		if err != nil {
			return nil, fmt.Errorf("argument health: %w", err)
		}
		if len(assigned) > 0 {
			return nil, errors.New("argument health.command: it has the environment of the process; NAME=value goes into env")
		}
		check.Command, check.Args = argv[0], argv[1:]
	}
	if h.OnUnhealthy == "restart" {
		check.OnUnhealthy = health.ActRestart
	}
	return check, check.Validate()
}

// dir is the working directory, absolute.
func (a specArgs) dir(project string) string {
	if filepath.IsAbs(a.Cwd) {
		return a.Cwd
	}
	return filepath.Join(project, a.Cwd)
}
