package project

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"time"

	"pmcp/health"
	"pmcp/process"
	"pmcp/process/command"
	"pmcp/process/ports"
	"pmcp/server/args"
	"pmcp/server/upstream"
)

// A Definition holds the arguments that define how a process runs: start_process
// accepts them, restart_process may change them, and they are stored. The zero value
// of each stands for "not given".
type Definition struct {
	Command  string             `json:"command,omitempty" jsonschema:"omitted: as stored or offered"`
	Args     []string           `json:"args,omitempty"`
	Cwd      string             `json:"cwd,omitempty"`
	Env      map[string]*string `json:"env,omitempty" jsonschema:"null removes one"`
	EnvFiles []string           `json:"env_files,omitempty" schema:"brief"`
	PortArgs
	Ready       *readyArgs  `json:"ready,omitempty"`
	Restart     string      `json:"restart,omitempty" enum:"never|on-failure|always"`
	MaxRestarts *int        `json:"max_restarts,omitempty" schema:"brief" min:"0" max:"1000"`
	Health      *healthArgs `json:"health,omitempty" schema:"flat" jsonschema:"command, tcp or http"`
	Limits      *limitArgs  `json:"limits,omitempty" schema:"brief"`
	Stop        *stopArgs   `json:"stop,omitempty" schema:"brief"`
	Watch       []string    `json:"watch,omitempty" schema:"brief" natural:"list"`
	Streams
	Group     string       `json:"group,omitempty" schema:"brief"`
	DependsOn []Dependency `json:"depends_on,omitempty" schema:"brief"`
	// SecretEnv lists the variables whose values are never stored.
	SecretEnv []string `json:"secret_env,omitempty" schema:"internal"`
	// Masked lists the other arguments of a stored definition in which secrets were
	// masked. The definition cannot be started without new values for them.
	Masked []string `json:"masked,omitempty" schema:"internal"`
	// Removed lists the arguments that a request gives as null. Merged over a stored
	// definition they are removed from it; otherwise they count as not given.
	Removed []string `json:"-"`
	// From is the file that offered the program, as long as no caller has given another
	// command; see TakeOffered.
	From string `json:"from,omitempty" schema:"internal"`
	// unnamed means that it is the definition of an unnamed process, which is kept in memory alone.
	unnamed bool
	// read and check are the command line and that of the health check once they were parsed; see
	// source. Copies share them.
	read, check command.Source
}

// source returns the command line of a, parsed for its directory, which it keeps in a.
func (a *Definition) source(project string) command.Source {
	return readOnce(&a.read, a.Command, a.dir(project))
}

// source is Definition.source for a definition that may have the command line of the call.
func (p *Project) source(def *Definition) command.Source {
	if p.read.Is(def.Command, def.dir(p.name)) {
		def.read = p.read
	}
	return def.source(p.name)
}

// readLines parses the command lines of a, for all that copies it.
func (a *Definition) readLines(project string) {
	a.source(project)
	if a.Health != nil {
		a.checkSource(a.dir(project))
	}
}

// checkSource is source for the health check, which a must have.
func (a *Definition) checkSource(dir string) command.Source {
	return readOnce(&a.check, a.Health.Command, dir)
}

func readOnce(s *command.Source, line, dir string) command.Source {
	if !s.Is(line, dir) {
		*s = command.Read(line, dir)
	}
	return *s
}

// TakeNulls sets Removed. Package args calls it.
func (a *Definition) TakeNulls(names []string) { a.Removed = names }

// Streams are the arguments about the standard streams.
type Streams struct {
	Stdin       *bool    `json:"stdin,omitempty"`
	PTY         *ptyArgs `json:"pty,omitempty"`
	MergeOutput *bool    `json:"merge_output,omitempty" schema:"brief"`
	Stdio       string   `json:"stdio,omitempty" enum:"log|mcp|mcp-http"`
}

// ptyArgs say whether there is a terminal, and its size. true stands for the default size.
type ptyArgs struct {
	Rows int `json:"rows,omitempty" min:"1" max:"200"`
	Cols int `json:"cols,omitempty" min:"1" max:"500"`
	off  bool
}

// TakeBool sets whether there is a terminal. Package args calls it.
func (a *ptyArgs) TakeBool(on bool) { *a = ptyArgs{off: !on} }

func (a *ptyArgs) isSet() bool { return a != nil && !a.off }

// MarshalJSON writes true or false, which older versions of pmcp read too, unless there is a size.
func (a ptyArgs) MarshalJSON() ([]byte, error) {
	if a.off || a == (ptyArgs{}) {
		return json.Marshal(!a.off)
	}
	return json.Marshal(process.TerminalSize{Rows: a.Rows, Cols: a.Cols})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *ptyArgs) UnmarshalJSON(raw []byte) error {
	var on bool
	if json.Unmarshal(raw, &on) == nil {
		a.TakeBool(on)
		return nil
	}
	var size process.TerminalSize
	err := json.Unmarshal(raw, &size)
	*a = ptyArgs{Rows: size.Rows, Cols: size.Cols}
	return err
}

type readyArgs struct {
	Log string `json:"log,omitempty" jsonschema:"RE2"`
	// Port may be the name of one of the ports of the process in braces.
	Port args.IntOrText `json:"port,omitempty" jsonschema:"0: any" min:"0" max:"65535"`
	HTTP string         `json:"http,omitempty" jsonschema:"URL or path"`
}

type healthArgs struct {
	Command       string   `json:"command,omitempty"`
	Args          []string `json:"args,omitempty" schema:"brief"`
	TCP           string   `json:"tcp,omitempty" natural:"text"`
	HTTP          string   `json:"http,omitempty"`
	IntervalMS    int      `json:"interval_ms,omitempty" schema:"brief" min:"100" max:"86400000"`
	TimeoutMS     int      `json:"timeout_ms,omitempty" schema:"brief" min:"1" max:"60000"`
	Retries       int      `json:"retries,omitempty" schema:"brief" min:"1" max:"100"`
	StartPeriodMS *int     `json:"start_period_ms,omitempty" schema:"brief" min:"0" max:"3600000"`
	OnUnhealthy   string   `json:"on_unhealthy,omitempty" enum:"none|restart"`
}

// A Dependency is what a member of a group waits for.
type Dependency struct {
	Process   string `json:"process"`
	Condition string `json:"condition,omitempty" enum:"started|ready|healthy|exited_ok"`
}

// limitArgs are the limits of one process. A limit that is not given defaults to
// the global one; 0 means no limit. Older versions of pmcp did not store a 0: in
// their definitions, no limit reads as not given.
type limitArgs struct {
	MemoryMB   *int   `json:"memory_mb,omitempty" min:"0"`
	CPUPercent *int   `json:"cpu_percent,omitempty" min:"0" max:"100"`
	Action     string `json:"action,omitempty" enum:"warn|stop|restart"`
}

// overlay returns all, the limits of every process, overridden by the limits in l.
// It returns nil if the result equals all.
func (l *limitArgs) overlay(all process.Limits) *process.Limits {
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

// line returns what the command line of def is read as. It is empty if def has args.
func (p *Project) line(def *Definition) command.Line {
	if len(def.Args) > 0 {
		return command.Line{}
	}
	line, _ := p.source(def).Line(p.o.Manager.AllowsAny()) // a start reports the error
	return line
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

func isSet(argument *bool) bool { return argument != nil && *argument }

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

func (a Definition) dir(project string) string {
	if filepath.IsAbs(a.Cwd) {
		return a.Cwd
	}
	return filepath.Join(project, a.Cwd)
}
