package process

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// The bounds of a Spec.
const (
	maxNameLength = 64
	// maxSpecBytes bounds args and env together. Linux accepts at most 2 MiB
	// (ARG_MAX), which includes our own environment.
	maxSpecBytes = 1 << 20
	// maxStopTimeout bounds StopSpec.Timeout.
	maxStopTimeout = 10 * time.Minute
	// maxMaxRestarts bounds Spec.MaxRestarts.
	maxMaxRestarts = 1000
)

// NoRestarts is the Spec.MaxRestarts that allows no restart without a stable run.
const NoRestarts = -1

// Spec describes what to run and how. It is a value: the Manager never changes
// the maps and slices of a Spec, and the caller must not change them either.
type Spec struct {
	// Name identifies the process and is unique in the Manager: 1 to 64 letters,
	// digits, dots, underscores, colons, at signs and hyphens, beginning with a
	// letter or digit.
	Name string `json:"name"`
	// Command is the executable: a name looked up in the child's PATH, or a path,
	// relative to Dir if it is not absolute. It is never a shell line.
	Command string `json:"command"`
	// Args are the arguments after argv[0].
	Args []string `json:"args,omitempty"`
	// Dir is the working directory, relative to the project. "" means the
	// project itself.
	Dir string `json:"cwd"`
	// Env is added to pmcp's own environment and overrides it.
	Env map[string]string `json:"env,omitempty"`
	// Stdin gives the child a pipe as standard input, which stays open until the
	// child is stopped. Without Stdin the standard input is /dev/null.
	Stdin bool `json:"stdin,omitempty"`
	// PTY runs the child on its own terminal, for programs that print or ask
	// nothing without one. Both streams are captured as Stdout.
	PTY bool `json:"pty,omitempty"`
	// TerminalSize is the size of that terminal. A zero field means 40 rows or 120 columns.
	TerminalSize TerminalSize `json:"terminal_size,omitzero"`
	// MergeOutput gives the child one pipe for both streams. That preserves the
	// exact order, but everything is captured as Stdout.
	MergeOutput bool `json:"merge_output,omitempty"`
	// Stdio is the use of standard output: "log" (also "") for lines to capture,
	// or "mcp" for messages to Options.TakeStdio. A stop of an MCP run closes its
	// standard input first and allows 10 s by default (see StopSpec.Timeout). An
	// MCP run is ready when SetReady reports that, and its Spec must not have
	// Ready. "mcp-http" is "log" for an MCP server on a TCP port: Options.TakeHTTP
	// gets its address once the other rules of Ready hold, and SetReady reports
	// that it is ready. The address is Ready.HTTP, by default /mcp; a path is on
	// Ready.Port, else on one of Ports, else on the only port of the tree.
	Stdio string `json:"stdio,omitempty"`
	// Ready defines when a run counts as ready. Nil means that readiness is not
	// checked.
	Ready *Ready `json:"ready,omitempty"`
	// Service means that the caller expects the process to serve until it is stopped,
	// so that an exit with code 0 does not complete it. The Manager takes no notice of it.
	Service bool `json:"service,omitempty"`
	// Stop defines how a run is stopped.
	Stop StopSpec `json:"stop,omitzero"`
	// Restart defines when the Manager restarts the process. The zero
	// value means never.
	Restart RestartPolicy `json:"restart,omitempty"`
	// MaxRestarts is how many consecutive restarts the policy makes without a
	// stable run (10 s) before it gives up: at most 1000, 0 means 4. However long
	// the runs live, the policy also gives up at 10 ends of runs within 10
	// minutes, or at MaxRestarts+1 ends if that is larger. NoRestarts means that it
	// restarts only after a stable run.
	MaxRestarts int `json:"max_restarts,omitempty"`
	// Limits bound what the process tree may use. Nil means the Manager's Limits.
	Limits *Limits `json:"limits,omitempty"`
	// Unnamed means that the caller has given no name, and Name was made for this
	// process. The Manager takes no notice of it.
	Unnamed bool `json:"unnamed,omitempty"`
	// Ports are the ports that the caller has assigned to the run, by the environment
	// variable that holds each. The numbers are in Env and Args already.
	Ports map[string]AssignedPort `json:"-"`
	// PathFile is the file that has set PATH in Env, if one has. EnvNote is a sentence on
	// what is missing in such files, or "". The Manager takes no notice of it.
	PathFile, EnvNote string `json:"-"`
	// Until is the time until which the process is kept; zero if its session says how
	// long it lives. The Manager does not stop it then.
	Until time.Time `json:"-"`
	// Watch lists the files whose changes restart the process. The Manager takes no notice of it.
	Watch []string `json:"-"`
}

// An AssignedPort is a port that a run was told to listen on.
type AssignedPort struct {
	// Preferred is the port that was asked for; 0 means any.
	Preferred int
	// Port is the port that was assigned.
	Port int
	// Why is a sentence on why Port is not Preferred, or "".
	Why string
}

// StopSpec defines how a run is stopped. The zero value means SIGTERM and the
// Manager's default timeout.
type StopSpec struct {
	// Signal is the first signal, such as "SIGINT" or "INT": any signal that a
	// program can catch. "" means SIGTERM.
	Signal string `json:"signal,omitempty"`
	// Timeout is the time between that signal and SIGKILL, at most 10 minutes. 0
	// means the Manager's default.
	Timeout time.Duration `json:"timeout,omitempty"`
}

var (
	validName    = lazily(`^[A-Za-z0-9][A-Za-z0-9._:@-]*$`)
	validAddress = lazily(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}@[^\x00-\x1f]+$`)
)

// lazily returns a function that compiles pattern when it is first called, which is rarely at the
// start.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// CheckName returns an error that describes the valid names of processes and
// groups if name is not valid.
func CheckName(name string) error {
	if len(name) > maxNameLength || !validName().MatchString(name) {
		return fmt.Errorf("%w: name %.200q: want 1 to %d letters, digits and . _ : @ - beginning with a letter or digit", ErrInvalid, name, maxNameLength)
	}
	return nil
}

// CheckAddress is CheckName for a name that may be followed by @ and the label of a
// project, as web@feature: so the processes of several projects differ. A label is the path
// of a directory or its end, and must not have a control character.
func CheckAddress(address string) error {
	if validAddress().MatchString(address) {
		return nil
	}
	if name, label, ok := strings.Cut(address, "@"); ok && CheckName(name) == nil && strings.ContainsFunc(label, func(r rune) bool { return r < ' ' }) {
		return fmt.Errorf("%w: the directory %.200q has a control character in its name, so its processes cannot be named from another project: rename it, or start pmcp in it", ErrInvalid, label)
	}
	return CheckName(address)
}

// Validate returns an error wrapping ErrInvalid for a Spec that could never
// run, whatever files exist. It looks for neither Dir nor Command.
func (s Spec) Validate() error {
	if err := CheckAddress(s.Name); err != nil {
		return err
	}
	if s.Command == "" {
		return fmt.Errorf("%w: command is empty", ErrInvalid)
	}
	return cmp.Or(s.checkSize(), s.checkStdio(), s.checkLiveSettings())
}

// resolved returns s with an absolute Dir, after all checks that need no start.
// Its errors wrap ErrInvalid.
func (s Spec) resolved(project string) (Spec, error) {
	if err := s.Validate(); err != nil {
		return s, err
	}
	dir, err := resolveDir(s.Dir, project)
	s.Dir = dir
	return s, err
}

// CheckDir returns an error wrapping ErrInvalid if no process can be started in dir,
// which may be relative to the project.
func CheckDir(dir, project string) error {
	_, err := resolveDir(dir, project)
	return err
}

// checkStdio rejects settings of the streams that contradict each other.
func (s Spec) checkStdio() error {
	switch size := s.TerminalSize; {
	case size.Rows < 0 || size.Rows > MaxTerminalRows || size.Cols < 0 || size.Cols > MaxTerminalCols:
		return fmt.Errorf("%w: a terminal of %d rows and %d columns: at most %d and %d are allowed", ErrInvalid, size.Rows, size.Cols, MaxTerminalRows, MaxTerminalCols)
	case s.Stdio != "" && s.Stdio != StdioLog && !SpeaksMCP(s.Stdio):
		return fmt.Errorf("%w: stdio %q: want log, mcp or mcp-http", ErrInvalid, s.Stdio)
	case s.Stdio == StdioHTTP && s.Ready != nil && len(s.Ready.targets()) > 1:
		return fmt.Errorf("%w: ready.http: with stdio mcp-http it is the one URL or path that speaks MCP", ErrInvalid)
	case s.Stdio == StdioMCP && (s.PTY || s.MergeOutput):
		return fmt.Errorf("%w: stdio mcp goes with neither pty nor merge_output: stdout carries messages and nothing else", ErrInvalid)
	case s.Stdio == StdioMCP && s.Ready != nil:
		return fmt.Errorf("%w: stdio mcp goes without ready: an MCP server is ready when it has answered initialize", ErrInvalid)
	}
	return nil
}

// checkLiveSettings checks the settings that can change while the process is
// running, and Ready.
func (s Spec) checkLiveSettings() error {
	if _, err := parseSignal(s.Stop.Signal); err != nil {
		return err
	}
	if s.Stop.Timeout < 0 || s.Stop.Timeout > maxStopTimeout {
		return fmt.Errorf("%w: stop timeout %s: want 0 to %s", ErrInvalid, s.Stop.Timeout, maxStopTimeout)
	}
	if s.MaxRestarts < NoRestarts || s.MaxRestarts > maxMaxRestarts {
		return fmt.Errorf("%w: max_restarts %d: want -1 (none), 0 (the default limits) or up to %d", ErrInvalid, s.MaxRestarts, maxMaxRestarts)
	}
	return cmp.Or(s.Restart.check(), s.Limits.check(), s.Ready.check())
}

// checkSize rejects arguments and environments that the kernel would not accept,
// and NUL bytes, at which the kernel would cut them.
func (s Spec) checkSize() error {
	size := len(s.Command)
	var env []string
	for _, arg := range s.Args {
		if slices.Contains([]byte(arg), 0) {
			return fmt.Errorf("%w: argument %q holds a NUL byte", ErrInvalid, arg)
		}
		size += len(arg) + 1
	}
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		switch {
		case key == "":
			return fmt.Errorf("%w: environment variable name \"\" is empty", ErrInvalid)
		case strings.ContainsAny(key, "=\x00"):
			return fmt.Errorf("%w: environment variable name %q holds a = or a NUL byte", ErrInvalid, key)
		}
		if slices.Contains([]byte(s.Env[key]), 0) {
			return fmt.Errorf("%w: environment variable %s holds a NUL byte", ErrInvalid, key)
		}
		size += len(key) + len(s.Env[key]) + 2
		env = append(env, key+"="+s.Env[key])
	}
	if size > maxSpecBytes {
		longest, bytes := longestOf(s.Args, env)
		return fmt.Errorf("%w: args and env take %d bytes together, at most %d are allowed; the longest is %s with %d", ErrInvalid, size, maxSpecBytes, longest, bytes)
	}
	return nil
}

// IsNoProject reports whether dir is / or the home directory, by whatever path:
// HOME may be a symbolic link to the directory in which an editor starts the
// server, or end in a slash.
func IsNoProject(dir string) bool {
	home, _ := os.UserHomeDir()
	at, atErr := os.Stat(dir)
	return slices.ContainsFunc([]string{"/", home}, func(path string) bool {
		info, err := os.Stat(path)
		return dir == path || atErr == nil && err == nil && os.SameFile(at, info)
	})
}

// resolveDir returns dir as an absolute path and checks that it is a directory. A
// relative dir is resolved against project, unless project is / or the home
// directory, where GUI editors start servers.
func resolveDir(dir, project string) (string, error) {
	tilde := dir == "~" || strings.HasPrefix(dir, "~/")
	if !filepath.IsAbs(dir) {
		what := "no cwd is given"
		if dir != "" {
			what = fmt.Sprintf("cwd %q is relative", dir)
		}
		if IsNoProject(project) {
			return dir, fmt.Errorf("%w: %s and pmcp runs in %s, which is no project: give an absolute cwd, or set PM_PROJECT_DIR", ErrInvalid, what, project)
		}
		dir = filepath.Join(project, dir)
	}
	dir = filepath.Clean(dir)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist) && tilde:
		return dir, fmt.Errorf("%w: cwd %s does not exist: ~ is not replaced, write the home directory itself", ErrInvalid, dir)
	case errors.Is(err, os.ErrNotExist):
		return dir, fmt.Errorf("%w: cwd %s does not exist: %s", ErrInvalid, dir, missingDir(dir, project))
	case errors.Is(err, os.ErrPermission):
		return dir, fmt.Errorf("%w: cwd %s is not accessible: permission denied", ErrInvalid, dir)
	case err != nil:
		return dir, fmt.Errorf("%w: cwd %s: %w", ErrInvalid, dir, err)
	case !info.IsDir():
		return dir, fmt.Errorf("%w: cwd %s is not a directory", ErrInvalid, dir)
	}
	return dir, nil
}

// missingDir returns what is missing if dir does not exist, and the way out, as the end of a sentence.
func missingDir(dir, project string) string {
	isMissing := func(path string) bool { _, err := os.Stat(path); return errors.Is(err, os.ErrNotExist) }
	if isMissing(project) {
		return fmt.Sprintf("the project's directory %s was removed; make it again, or give an absolute cwd elsewhere", project)
	}
	const wayOut = "make it, or give another cwd"
	missing := dir
	for isMissing(filepath.Dir(missing)) {
		missing = filepath.Dir(missing)
	}
	if missing == dir {
		return wayOut
	}
	return fmt.Sprintf("there is no %s; %s", missing, wayOut)
}

// Values of Spec.Stdio.
const (
	StdioLog  = "log"
	StdioMCP  = "mcp"
	StdioHTTP = "mcp-http"
)

// SpeaksMCP reports whether a process with that Spec.Stdio is an MCP server.
func SpeaksMCP(stdio string) bool { return stdio == StdioMCP || stdio == StdioHTTP }

// Differs returns the fields in which two Specs of one process differ and which
// only a new run can change. It names them as the tools do: "command", "args",
// "cwd", "env", "stdin", … It ignores what Reconfigure can change.
func (s Spec) Differs(other Spec) []string {
	var names []string
	compare := func(name string, same bool) {
		if !same {
			names = append(names, name)
		}
	}
	compare("command", s.Command == other.Command)
	compare("args", slices.Equal(s.Args, other.Args))
	compare("cwd", s.Dir == other.Dir)
	compare("env", maps.Equal(s.envBeside(other.Ports), other.envBeside(s.Ports)))
	compare("stdin", s.Stdin == other.Stdin)
	compare("pty", s.PTY == other.PTY && (!s.PTY || s.TerminalSize.orDefault() == other.TerminalSize.orDefault()))
	compare("merge_output", s.MergeOutput == other.MergeOutput)
	compare("stdio", cmp.Or(s.Stdio, StdioLog) == cmp.Or(other.Stdio, StdioLog))
	compare("ports", maps.EqualFunc(s.Ports, other.Ports, func(a, b AssignedPort) bool { return a.Preferred == b.Preferred }))
	compare("ready", reflect.DeepEqual(s.Ready, other.Ready))
	return names
}

// envBeside returns the variables that are set to no assigned port, of s or in ports.
func (s Spec) envBeside(ports map[string]AssignedPort) map[string]string {
	env := maps.Clone(s.Env)
	maps.DeleteFunc(env, func(name, _ string) bool {
		_, own := s.Ports[name]
		_, others := ports[name]
		return own || others
	})
	return env
}

// ChecksReady reports whether runs of s become ready: by rules, or as an MCP
// server that answers.
func (s Spec) ChecksReady() bool { return s.Ready != nil || SpeaksMCP(s.Stdio) }

func (s Spec) mcp() bool { return s.Stdio == StdioMCP }

// rules returns the rules that the Manager checks: Ready, except that the MCP client
// requests what Ready.HTTP names itself.
func (s Spec) rules() *Ready {
	if s.Stdio != StdioHTTP {
		return s.Ready
	}
	rules := Ready{}
	if s.Ready != nil {
		rules = *s.Ready
	}
	if rules.Port == nil && (rules.HTTP == "" || strings.HasPrefix(rules.HTTP, "/")) {
		rules.Port = new(int) // any
	}
	rules.HTTP = ""
	return &rules
}
