package project

import (
	"cmp"
	"encoding/json"
	"path/filepath"

	"pmcp/process"
	"pmcp/process/command"
	"pmcp/server/args"
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

// line returns what the command line of def is read as. It is empty if def has args.
func (p *Project) line(def *Definition) command.Line {
	if len(def.Args) > 0 {
		return command.Line{}
	}
	line, _ := p.source(def).Line(p.o.Manager.AllowsAny()) // a start reports the error
	return line
}

func isSet(argument *bool) bool { return argument != nil && *argument }

func (a Definition) dir(project string) string {
	if filepath.IsAbs(a.Cwd) {
		return a.Cwd
	}
	return filepath.Join(project, a.Cwd)
}
