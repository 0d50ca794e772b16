package project

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"pmcp/health"
	"pmcp/process"
	"pmcp/process/command"
	"pmcp/process/ports"
	"pmcp/server/upstream"
)

// Spec returns the spec of a definition and has the masker learn its secrets. It
// learns those in the command line first, before any error can quote it. exits is set
// if the caller waits for the end. p must be the project of the process.
func (p *Project) Spec(name string, def Definition, exits bool) (process.Spec, error) {
	if def.assigned == nil {
		def = p.withLikelyPorts(name, def)
	}
	p.exempt(name, def.Group)
	p.o.Mask.Exempt(def.dir(p.name))
	for _, d := range def.DependsOn {
		p.exempt(d.Process)
	}
	dir := def.dir(p.name)
	p.learnLine(def.Command, def.Args, p.source(&def))
	if def.Health != nil {
		p.learnLine(def.Health.Command, def.Health.Args, def.checkSource(dir))
	}
	spec, err := def.spec(name, p.name, exits, p.o.Manager.AllowsAny())
	if !p.isOwn() { // the Manager knows only the session's own project
		spec.Dir = Definition{Cwd: spec.Dir}.dir(p.name)
	}
	spec.Limits = def.Limits.overlay(p.o.Manager.Limits())
	p.o.Mask.LearnArgs(spec.Args...)
	p.o.Mask.LearnEnv(spec.Env)
	return spec, err
}

// exempt exempts the names of processes and groups from masking.
func (p *Project) exempt(addresses ...string) {
	p.o.Mask.Exempt(addresses...)
	for _, address := range addresses {
		if path, name := p.o.Store.split("", address); path != "" {
			p.o.Mask.Exempt(name)
		}
	}
}

// learnLine has the masker learn the secrets in a command line or in a program and its
// arguments.
func (p *Project) learnLine(line string, args []string, source command.Source) {
	p.o.Mask.LearnArgs(append([]string{"-c", line}, args...)...)
	if len(args) > 0 {
		return
	}
	for name, values := range source.Assigned() {
		for _, value := range values {
			p.o.Mask.LearnEnv(map[string]string{name: value})
		}
	}
}

// spec converts a definition to a process.Spec: it splits the command line, reads
// files and parses durations. It leaves out the limits, which depend on the limits
// of every process. exits is set if the call waits for the end; stdin is then
// /dev/null, unless the definition sets it or asks for a terminal. shell is set if a shell may execute the
// command line.
func (a Definition) spec(name, project string, exits, shell bool) (process.Spec, error) {
	if err := errors.Join(a.requireUnmasked(), a.checkPorts(project)); err != nil {
		return process.Spec{}, err
	}
	spec := process.Spec{
		Name: name, Command: a.Command, Args: a.Args, Dir: a.Cwd, Stdin: !exits || a.PTY.isSet(),
		PTY: a.PTY.isSet(), MergeOutput: isSet(a.MergeOutput), MaxRestarts: orNone(a.MaxRestarts), Watch: a.Watch,
	}
	if len(a.assigned) > 0 {
		spec.Ports = a.assigned
	}
	if a.PTY.isSet() {
		spec.TerminalSize = process.TerminalSize{Rows: a.PTY.Rows, Cols: a.PTY.Cols}
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
	var err error
	if spec.Ready, err = a.Ready.spec(); err != nil {
		return spec, err
	}
	if a.Stop != nil {
		spec.Stop = process.StopSpec{Signal: a.Stop.Signal, Timeout: time.Duration(a.Stop.TimeoutMS) * time.Millisecond}
	}
	env := make(map[string]string)
	if len(a.Args) == 0 {
		line, err := a.source(project).Line(shell)
		if err != nil {
			return spec, err
		}
		spec.Command, spec.Args = line.Argv[0], line.Argv[1:]
		if line.Dir != "" {
			spec.Dir = Definition{Cwd: line.Dir}.dir(a.Cwd)
		}
		maps.Copy(env, line.Env)
	}
	for key, value := range a.Env {
		if value != nil {
			env[key] = *value
		} else if command.HasDefault(key) {
			env[key] = "" // removes it
		}
	}
	for variable, port := range a.assigned {
		env[variable] = strconv.Itoa(port.Port)
	}
	dir := Definition{Cwd: spec.Dir}.dir(project)
	files, err := readEnvFiles(a.EnvFiles, dir, env)
	if err != nil {
		return spec, cmp.Or(process.CheckDir(dir, project), err)
	}
	if _, own := env["PATH"]; !own {
		spec.PathFile = files.path
	}
	env, spec.EnvNote = files.vars, files.note()
	spec.Env = env
	if process.SpeaksMCP(spec.Stdio) {
		_, err := upstream.LimitsOf(env)
		return spec, errors.Join(err, a.requireSecrets(env))
	}
	return spec, a.requireSecrets(env)
}

// spec returns the readiness rule, or nil if there is none.
func (a *readyArgs) spec() (*process.Ready, error) {
	if a == nil {
		return nil, nil
	}
	rule := &process.Ready{Log: a.Log, HTTP: a.HTTP}
	if port, ok := a.Port.Int(); ok {
		rule.Port = &port
	} else if a.Port != "" {
		return nil, fmt.Errorf("argument ready.port: want an integer from 0 to %d, or one of ports in braces, as {PORT}, got %.100q", ports.Max, a.Port)
	}
	return rule, nil
}

// healthSpec returns the health check of a definition, or nil if it has none. dir
// is the directory in which a relative command is looked up. shell is set if a shell may
// execute the check.
func (a Definition) healthSpec(dir string, shell bool) (*health.Spec, error) {
	if a.Health == nil {
		return nil, nil
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	h := a.Health
	check := &health.Spec{
		Command: h.Command, Args: h.Args, TCP: h.TCP, HTTP: h.HTTP,
		Interval: ms(h.IntervalMS), Timeout: ms(h.TimeoutMS), Retries: h.Retries, StartPeriod: ms(orNone(h.StartPeriodMS)),
	}
	if h.Command != "" && len(h.Args) == 0 {
		line, err := a.checkSource(dir).Line(shell)
		switch {
		case err != nil:
			return nil, fmt.Errorf("argument health: %w", err)
		case len(line.Env) > 0:
			return nil, errors.New("argument health.command: NAME=value is not allowed here; put it into env, which applies to the check as well")
		case line.Dir != "":
			return nil, errors.New("argument health.command: cd is not allowed here; the check runs in the cwd of the process")
		}
		check.Command, check.Args = line.Argv[0], line.Argv[1:]
	}
	if h.OnUnhealthy == "restart" {
		check.OnUnhealthy = health.ActRestart
	}
	return check, check.Validate()
}

// orNone returns a number in the form of specs, in which 0 stands for the default and
// NoRestarts, like any negative number, for none.
func orNone(n *int) int {
	switch {
	case n == nil:
		return 0
	case *n == 0:
		return process.NoRestarts
	}
	return *n
}
