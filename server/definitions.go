package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/joho/godotenv"

	"pmcp/health"
	"pmcp/logstore/mask"
	"pmcp/process"
)

// specArgs are the arguments that say how a process runs: what start_process
// takes, what restart_process may change, and what a stored definition keeps.
type specArgs struct {
	Command     string             `json:"command,omitempty" jsonschema:"executable or command line, no shell; omitted: the stored definition"`
	Args        []string           `json:"args,omitempty"`
	Cwd         string             `json:"cwd,omitempty"`
	Env         map[string]*string `json:"env,omitempty" jsonschema:"over pmcp's own; null removes one"`
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

type limitArgs struct {
	MemoryMB   int    `json:"memory_mb,omitempty" min:"0"`
	CPUPercent int    `json:"cpu_percent,omitempty" min:"0" max:"100"`
	Action     string `json:"action,omitempty" enum:"warn|stop|restart"`
}

type stopArgs struct {
	Signal    string `json:"signal,omitempty"`
	TimeoutMS int    `json:"timeout_ms,omitempty" min:"1" max:"600000"`
}

// definitions are what this session's processes were started with, secret
// values included; those live here only.
type definitions struct {
	defsMu sync.Mutex
	defs   map[string]specArgs
}

// definition returns what name was last started with: in this session, or
// stored by an earlier one.
func (s *Server) definition(ctx context.Context, name string) (specArgs, bool, error) {
	s.defsMu.Lock()
	args, ok := s.defs[name]
	s.defsMu.Unlock()
	if ok {
		return args.clone(), true, nil
	}
	raw, ok, err := s.o.Store.Definition(ctx, s.o.Manager.Project(), name)
	if err != nil || !ok {
		return specArgs{}, false, err
	}
	if err := json.Unmarshal(raw, &args); err != nil {
		return specArgs{}, false, fmt.Errorf("cannot read the stored definition of %s: %w", name, err)
	}
	return args, true, nil
}

// keepDefinition remembers args for name and stores them without secret values.
func (s *Server) keepDefinition(name string, args specArgs) {
	s.defsMu.Lock()
	if s.defs == nil {
		s.defs = make(map[string]specArgs)
	}
	s.defs[name] = args.clone()
	s.defsMu.Unlock()

	raw, err := args.withoutSecrets(s.o.Manager.Project(), s.o.Mask).masked(s.o.Mask)
	if err != nil {
		s.o.Log.Error("cannot store a definition", "process", name, "error", err)
		return
	}
	s.o.Store.SaveDefinition(s.o.Manager.Project(), name, raw)
}

// withoutSecrets is a with the variables that may be stored: the values of those
// that look secret, by their name or by what is in them, are left out, and their
// names noted.
func (a specArgs) withoutSecrets(project string, masker *mask.Masker) specArgs {
	a = a.clone()
	a.liftSecretAssignments(project, masker)
	for key, value := range a.Env {
		if isSecretVariable(key, value, masker) {
			delete(a.Env, key)
			a.SecretEnv = append(a.SecretEnv, key)
		}
	}
	slices.Sort(a.SecretEnv)
	a.SecretEnv = slices.Compact(a.SecretEnv)
	return a
}

// isSecretVariable says whether the value of a variable must not be stored.
func isSecretVariable(key string, value *string, masker *mask.Masker) bool {
	return mask.SecretName(key) || value != nil && masker.Text(*value) != *value
}

// masked is a as JSON with the secrets in its other arguments masked, and those
// arguments noted.
func (a specArgs) masked(masker *mask.Masker) (json.RawMessage, error) {
	raw, err := json.Marshal(a)
	if err != nil || bytes.Equal(masker.JSON(raw), raw) {
		return raw, err
	}
	var arguments map[string]json.RawMessage
	if err := json.Unmarshal(raw, &arguments); err != nil {
		return nil, err
	}
	a.Masked = nil
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		if !bytes.Equal(masker.JSON(arguments[name]), arguments[name]) {
			a.Masked = append(a.Masked, name)
		}
	}
	raw, err = json.Marshal(a)
	return masker.JSON(raw), err
}

// demandMasked refuses a definition that is not whole.
func (a specArgs) demandMasked() error {
	if len(a.Masked) == 0 {
		return nil
	}
	return fmt.Errorf("argument %s needed; the definition is stored with the secrets in it masked. Give it again; a secret in env can be taken from env_files or pmcp's own environment instead", strings.Join(a.Masked, ", "))
}

// liftSecretAssignments moves the leading NAME=value words of a command line to
// Env if one of them looks secret: else the line would be stored with it. Env
// wins over the line, as when it is run.
func (a *specArgs) liftSecretAssignments(project string, masker *mask.Masker) {
	if len(a.Args) > 0 {
		return
	}
	assigned, argv, err := process.SplitCommandLine(a.Command, a.dir(project))
	secret := false
	for key, value := range assigned {
		secret = secret || isSecretVariable(key, &value, masker)
	}
	if err != nil || !secret {
		return
	}
	if a.Env == nil {
		a.Env = make(map[string]*string, len(assigned))
	}
	for key, value := range assigned {
		if a.Env[key] == nil {
			a.Env[key] = &value
		}
	}
	for i, word := range argv {
		argv[i] = quoteWord(word)
	}
	a.Command = strings.Join(argv, " ")
}

// plainWord matches what a command line takes without quotes.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,-]+$`)

// quoteWord writes a word as SplitCommandLine reads it.
func quoteWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// forgetDefinition forgets what name was started with, here and in the store.
func (s *Server) forgetDefinition(name string) {
	s.defsMu.Lock()
	delete(s.defs, name)
	s.defsMu.Unlock()
	s.o.Store.SaveDefinition(s.o.Manager.Project(), name, nil)
}

// clone copies what decoding over a definition would change in place.
func (a specArgs) clone() specArgs {
	a.Env, a.SecretEnv, a.Masked = maps.Clone(a.Env), slices.Clone(a.SecretEnv), slices.Clone(a.Masked)
	return a
}

// decodeOver decodes given over base: env merges, everything else that is given
// replaces, and a new command line takes the old arguments with it.
func (a specArgs) decodeOver(given json.RawMessage, decode func(base specArgs) (specArgs, error)) (specArgs, error) {
	base := a.clone()
	var keys map[string]json.RawMessage
	if json.Unmarshal(given, &keys) == nil && !isMissing(keys["command"]) {
		base.Args = nil
		keys["args"] = keys["command"] // what was there went with it
	}
	base.Masked = slices.DeleteFunc(base.Masked, func(name string) bool { return !isMissing(keys[name]) })
	merged, err := decode(base)
	if err != nil {
		return a, err
	}
	for key, value := range merged.Env {
		if value == nil {
			delete(merged.Env, key)
			merged.SecretEnv = slices.DeleteFunc(merged.SecretEnv, func(k string) bool { return k == key })
		}
	}
	return merged, nil
}

func isMissing(raw json.RawMessage) bool { return len(raw) == 0 || isNothing(raw) }

// specOf is the spec of a definition, whose secrets are known from then on: those
// in its command line before anything can be said of it.
func (s *Server) specOf(name string, def specArgs, exits bool) (process.Spec, error) {
	s.o.Mask.LearnArgs(append([]string{def.Command}, def.Args...)...)
	if def.Health != nil {
		s.o.Mask.LearnArgs(append([]string{def.Health.Command}, def.Health.Args...)...)
	}
	spec, err := def.spec(name, s.o.Manager.Project(), exits)
	s.o.Mask.LearnArgs(spec.Args...)
	s.o.Mask.LearnEnv(spec.Env)
	return spec, err
}

// spec is what a definition means: command line split, files read, durations
// typed. exits says that the call waits for the end, where stdin is /dev/null
// unless asked for.
func (a specArgs) spec(name, project string, exits bool) (process.Spec, error) {
	if err := a.demandMasked(); err != nil {
		return process.Spec{}, err
	}
	dir := a.dir(project)
	spec := process.Spec{
		Name: name, Command: a.Command, Args: a.Args, Dir: a.Cwd, Stdin: !exits,
		PTY: a.PTY, MergeOutput: a.MergeOutput, MaxRestarts: a.MaxRestarts, Group: a.Group,
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
	if a.Limits != nil {
		spec.Limits = &process.Limits{MemoryMB: a.Limits.MemoryMB, CPUPercent: a.Limits.CPUPercent, Action: a.Limits.Action}
	}
	if a.Stop != nil {
		spec.Stop = process.StopSpec{Signal: a.Stop.Signal, Timeout: time.Duration(a.Stop.TimeoutMS) * time.Millisecond}
	}
	env, err := readEnvFiles(a.EnvFiles, dir)
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

// demandSecrets checks that every value that could not be stored has come from
// somewhere: the call, a file, or pmcp's own environment.
func (a specArgs) demandSecrets(env map[string]string) error {
	var missing []string
	for _, key := range a.SecretEnv {
		if _, given := env[key]; given {
			continue
		}
		if _, inherited := os.LookupEnv(key); !inherited {
			missing = append(missing, key)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("argument env: %s needed; the definition is stored without values that look secret. Give them in env, in env_files, or in pmcp's own environment", strings.Join(missing, ", "))
}

// readEnvFiles reads dotenv files; later ones win.
func readEnvFiles(files []string, dir string) (map[string]string, error) {
	env := make(map[string]string)
	for _, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		values, err := godotenv.Read(file)
		var missing *os.PathError
		switch {
		case errors.As(err, &missing):
			return nil, fmt.Errorf("argument env_files: %w", err)
		case err != nil: // its text quotes the file, which may hold secrets
			return nil, fmt.Errorf("argument env_files: %s is not in dotenv syntax (NAME=value lines)", file)
		}
		maps.Copy(env, values)
	}
	return env, nil
}
