package offered

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// A launch is a configuration of .vscode/launch.json or .claude/launch.json.
type launch struct {
	Name, Type, Request         string
	RuntimeExecutable, Program  string
	Module, Command, Mode       string
	RuntimeArgs, Args, Python   words
	Cwd, EnvFile, PreLaunchTask string
	BuildFlags                  words
	Env                         map[string]*text
	Port                        text
	AutoPort                    *bool
}

// A task is one of .vscode/tasks.json.
type task struct {
	Label, TaskName, Type string
	Command               text
	Script, Path          string
	Args                  words
	DependsOn             any
	Options               struct {
		Cwd   string
		Env   map[string]*text
		Shell json.RawMessage
	}
}

// defaultPort is the port of a configuration of .claude/launch.json that names none.
const defaultPort = text("3000")

// claude reads .claude/launch.json, the servers that Claude Code starts for its preview.
func (r *reader) claude() {
	const file = ".claude/launch.json"
	for i, raw := range r.list(file, "configurations") {
		var c launch
		if !r.entry(file, i, raw, &c) || c.Name == "" {
			continue
		}
		p := r.configured(file, &c)
		if c.RuntimeExecutable == "" && c.Program != "" {
			c.RuntimeExecutable = "node"
		}
		p.Argv = slices.Concat(present(c.RuntimeExecutable), c.RuntimeArgs, present(c.Program), c.Args)
		port, err := strconv.Atoi(string(cmp.Or(c.Port, defaultPort)))
		switch {
		case err != nil:
			p.Not = "its port is not a number"
		case c.AutoPort == nil && c.Port == "", p.Env["PORT"] != nil:
		case c.AutoPort == nil || *c.AutoPort:
			p.Ports = map[string]int{"PORT": port}
		default:
			p.Port = port
		}
		r.resolve(&p, false)
		r.add(kindClaude, c.Name, p)
	}
}

// launch reads .vscode/launch.json. What only attaches to a process or opens a browser starts
// nothing.
func (r *reader) launch() {
	const file = ".vscode/launch.json"
	for i, raw := range r.list(file, "configurations") {
		var c launch
		if !r.entry(file, i, raw, &c) || c.Name == "" || c.Request == "attach" || slices.Contains([]string{"chrome", "msedge", "pwa-chrome", "pwa-msedge", "firefox"}, c.Type) {
			continue
		}
		p := r.configured(file, &c)
		switch c.Type {
		case "node", "pwa-node":
			p.Argv = slices.Concat(present(cmp.Or(c.RuntimeExecutable, "node")), c.RuntimeArgs, present(c.Program), c.Args)
		case "node-terminal":
			p.Line = c.Command
		case "python", "debugpy":
			p.Argv = slices.Clone(c.Python)
			if len(p.Argv) == 0 {
				p.Argv = []string{r.python()}
			}
			if c.Module != "" {
				p.Argv = append(p.Argv, "-m", c.Module)
			}
			p.Argv = slices.Concat(p.Argv, present(c.Program), c.Args)
		case "go":
			r.golang(&p, &c)
		case "cppdbg", "lldb", "lldb-dap", "cppvsdbg":
			p.Argv = slices.Concat(present(c.Program), c.Args)
		default:
			p.Not = fmt.Sprintf("its type %.50q is not known", c.Type)
		}
		r.resolve(&p, p.Line != "")
		r.add(kindLaunch, c.Name, p)
	}
}

// configured returns the part of a program that all configurations have in common.
func (r *reader) configured(file string, c *launch) Program {
	p := Program{Source: file, Cwd: c.Cwd, Env: texts(c.Env)}
	if c.EnvFile != "" {
		p.EnvFiles = []string{c.EnvFile}
	}
	if c.PreLaunchTask != "" {
		p.Ignored = fmt.Sprintf("its preLaunchTask %.100q was not run", c.PreLaunchTask)
	}
	return p
}

// python returns the python of the project's virtual environment, if there is one.
func (r *reader) python() string {
	for _, file := range []string{".venv/bin/python", "venv/bin/python"} {
		if exists(r.dir, file) {
			return filepath.Join(r.dir, file)
		}
	}
	return "python3"
}

// golang sets what a configuration for Go runs. The package is built in its own directory,
// which is also where it runs unless cwd says otherwise.
func (r *reader) golang(p *Program, c *launch) {
	program := cmp.Or(c.Program, "${workspaceFolder}")
	switch c.Mode {
	case "", "auto", "debug":
		if filepath.Ext(program) == ".go" {
			program = filepath.Dir(program)
		}
		if p.Cwd == "" {
			p.Cwd, program = program, "."
		} else if !strings.ContainsAny(program[:1], "./$") {
			program = "./" + program // a directory, not a package of the standard library
		}
		p.Argv = slices.Concat([]string{"go", "run"}, c.BuildFlags, []string{program}, c.Args)
	case "exec":
		p.Argv = slices.Concat([]string{program}, c.Args)
	default:
		p.Not = fmt.Sprintf("its mode %.50q is not known", c.Mode)
	}
}

// tasks reads .vscode/tasks.json.
func (r *reader) tasks() {
	const file = ".vscode/tasks.json"
	for i, raw := range r.list(file, "tasks") {
		var c task
		if !r.entry(file, i, raw, &c) {
			continue
		}
		name := cmp.Or(c.Label, c.TaskName)
		if name == "" && c.Type == "npm" {
			name = c.Script
		}
		if name == "" {
			continue
		}
		p := Program{Source: file, Cwd: c.Options.Cwd, Env: texts(c.Options.Env)}
		if c.DependsOn != nil {
			p.Ignored = "what it depends on was not run"
		}
		switch {
		case c.Type == "npm" && c.Script != "":
			p.Argv, p.Cwd = []string{r.manager(), "run", c.Script}, cmp.Or(c.Path, p.Cwd)
		case c.Command == "" && c.DependsOn != nil:
			p.Not = "it only runs other tasks"
		case c.Type == "process":
			p.Argv = slices.Concat(present(string(c.Command)), c.Args)
		case c.Type != "shell" && c.Type != "":
			p.Not = fmt.Sprintf("its type %.50q is not known", c.Type)
		case len(c.Options.Shell) > 0:
			p.Not = "it names a shell of its own"
		default:
			p.Line = string(c.Command)
			for _, arg := range c.Args {
				p.Line += " " + quote(arg)
			}
		}
		r.resolve(&p, p.Line != "")
		r.add(kindTask, name, p)
	}
}

// list returns the objects of a list in a file that may have comments and trailing commas.
func (r *reader) list(file, key string) []json.RawMessage {
	content, ok := r.read(file)
	if !ok {
		return nil
	}
	standard, err := hujson.Standardize(content)
	if err != nil {
		r.note(file, "not JSON: %s", strings.TrimPrefix(err.Error(), "hujson: "))
		return nil
	}
	var object map[string]json.RawMessage
	var entries []json.RawMessage
	if !r.decodeJSON(file, standard, &object) || len(object[key]) == 0 {
		return nil
	}
	if json.Unmarshal(object[key], &entries) != nil {
		r.note(file, "%s is not a list", key)
	}
	return entries
}

// entry decodes the entry i of a list, over which its part for this system holds.
func (r *reader) entry(file string, i int, raw json.RawMessage, into any) bool {
	var own map[string]json.RawMessage
	err := json.Unmarshal(raw, into)
	if err == nil {
		err = json.Unmarshal(raw, &own)
	}
	if system := own[cmp.Or(map[string]string{"darwin": "osx"}[runtime.GOOS], runtime.GOOS)]; err == nil && len(system) > 0 {
		err = json.Unmarshal(system, into)
	}
	if err != nil {
		r.note(file, "entry %d: %s", i+1, reason(err))
	}
	return err == nil
}

// variable matches a variable of VS Code.
var variable = regexp.MustCompile(`\$\{[^}]*\}`)

// ofShell matches a variable that VS Code leaves to the shell.
var ofShell = regexp.MustCompile(`^\$\{[A-Z_][A-Z0-9_]*\}$`)

// resolve replaces the variables of VS Code in p. One that is not known, and a program that is
// not named, is why p cannot be started.
func (r *reader) resolve(p *Program, shell bool) {
	text := func(s string) string {
		return variable.ReplaceAllStringFunc(s, func(v string) string {
			name := v[2 : len(v)-1]
			env, isEnv := strings.CutPrefix(name, "env:")
			switch {
			case name == "workspaceFolder" || name == "workspaceRoot":
				return r.dir
			case name == "workspaceFolderBasename":
				return filepath.Base(r.dir)
			case name == "command:python.interpreterPath":
				return r.python()
			case isEnv:
				return os.Getenv(env)
			case shell && ofShell.MatchString(v):
			case p.Not == "":
				p.Not = fmt.Sprintf("%.100s is not known", v)
			}
			return v
		})
	}
	p.Line = text(p.Line)
	if p.Cwd = text(p.Cwd); p.Cwd != "" {
		p.Cwd = r.relative(r.absolute(p.Cwd))
	}
	p.Argv = slices.Clone(p.Argv)
	for i, arg := range p.Argv {
		p.Argv[i] = text(arg)
		if below, ok := strings.CutPrefix(p.Argv[i], r.dir+"/"); ok && p.Cwd == "" {
			p.Argv[i] = below
			if i == 0 && !strings.Contains(below, "/") {
				p.Argv[i] = "./" + below // not one of PATH
			}
		}
	}
	for name, value := range p.Env {
		if value != nil {
			p.Env[name] = new(text(*value))
		}
	}
	for i, file := range p.EnvFiles {
		p.EnvFiles[i] = r.absolute(text(file))
	}
	if len(p.Argv) == 0 && p.Line == "" && p.Not == "" {
		p.Not = "it names no program"
	}
}

func (r *reader) absolute(file string) string {
	if filepath.IsAbs(file) {
		return filepath.Clean(file)
	}
	return filepath.Join(r.dir, file)
}

// A text is a JSON string, number or truth value.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	switch raw = bytes.TrimSpace(raw); {
	case raw[0] != '"' && raw[0] != '{' && raw[0] != '[':
		*t = text(raw)
		return nil
	default:
		err := json.Unmarshal(raw, &s)
		*t = text(s)
		return err
	}
}

// words is a list of texts. Each may be an object with a value, and one text stands for the
// words in it.
type words []string

func (w *words) UnmarshalJSON(raw []byte) error {
	var line string
	if json.Unmarshal(raw, &line) == nil {
		*w = strings.Fields(line)
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	*w = nil
	for _, raw := range list {
		var object struct{ Value text }
		if err := json.Unmarshal(raw, &object.Value); err != nil {
			if err := json.Unmarshal(raw, &object); err != nil {
				return err
			}
		}
		*w = append(*w, string(object.Value))
	}
	return nil
}

// texts returns env with its values as strings.
func texts(env map[string]*text) map[string]*string {
	if len(env) == 0 {
		return nil
	}
	all := make(map[string]*string, len(env))
	for name, value := range env {
		all[name] = (*string)(value)
	}
	return all
}

func present(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// plain matches a word that needs no quotes in a command line.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,={}$-]+$`)

// quote returns word quoted for a shell where it has to be. VS Code leaves variables of the
// shell to it, and so does this.
func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
