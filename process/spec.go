package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of a Spec.
const (
	maxNameLength = 64
	// maxSpecBytes bounds args and env together. Linux takes 2 MiB at most
	// (ARG_MAX) and our own environment comes on top.
	maxSpecBytes = 1 << 20
	// maxStopTimeout bounds StopSpec.Timeout.
	maxStopTimeout = 10 * time.Minute
	// maxMaxRestarts bounds Spec.MaxRestarts.
	maxMaxRestarts = 1000
)

// Spec says what to run and how. It is a value: the Manager never changes the
// maps and slices of a Spec it was given, and the caller must not either.
type Spec struct {
	// Name addresses the process; unique in the project. 1 to 64 letters,
	// digits, dots, underscores, colons, at signs and hyphens, beginning with a
	// letter or digit.
	Name string `json:"name"`
	// Command is the executable: a name looked up in the child's PATH, or a
	// path, relative to Dir if it is not absolute. Never a shell line.
	Command string `json:"command"`
	// Args are the arguments after argv[0].
	Args []string `json:"args,omitempty"`
	// Dir is the working directory; relative to the project, which is also
	// what "" means.
	Dir string `json:"cwd"`
	// Env is laid over the environment that pmcp itself has.
	Env map[string]string `json:"env,omitempty"`
	// Stdin gives the child a pipe that stays open until it is stopped. Without
	// it stdin is /dev/null.
	Stdin bool `json:"stdin,omitempty"`
	// PTY runs the child on a terminal of its own, for programs that print
	// nothing, or ask nothing, without one. Both streams come out as Stdout.
	PTY bool `json:"pty,omitempty"`
	// MergeOutput gives the child one pipe for both streams: exact order, at
	// the price of not knowing which line came from which. All is Stdout then.
	MergeOutput bool `json:"merge_output,omitempty"`
	// Stdio says what standard output is: "log" (also ""), lines to keep, or
	// "mcp", messages for Options.TakeStdio. Such a run is stopped by closing its
	// standard input first, is given 10 s by default (see StopSpec.Timeout), and
	// is ready when the taker says so; it has no Ready of its own.
	Stdio string `json:"stdio,omitempty"`
	// Ready says when a run counts as ready. Nil: readiness is not checked.
	Ready *Ready `json:"ready,omitempty"`
	// Stop says how a run is stopped.
	Stop StopSpec `json:"stop,omitzero"`
	// Restart says when the Manager starts the process again by itself. The
	// zero value is never.
	Restart RestartPolicy `json:"restart,omitempty"`
	// MaxRestarts is how many restarts in a row without a stable run (10 s)
	// the policy makes before it gives up; 0 means 4, at most 1000. However long
	// the runs live, it also gives up at 10 ends, or at one more than this number
	// if that is larger, within 10 minutes.
	MaxRestarts int `json:"max_restarts,omitempty"`
	// Limits bound what the process tree may use. Nil means the Manager's.
	Limits *Limits `json:"limits,omitempty"`
}

// StopSpec says how a run is stopped. The zero value is SIGTERM and the
// Manager's default timeout.
type StopSpec struct {
	// Signal is the first signal: "SIGINT" or "INT", any signal that a program
	// can catch. "" means SIGTERM.
	Signal string `json:"signal,omitempty"`
	// Timeout is the time between that and SIGKILL. 0 means the Manager's
	// default; at most 10 minutes.
	Timeout time.Duration `json:"timeout,omitempty"`
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]*$`)

// CheckName answers an error that says what a process or group may be called,
// or nil.
func CheckName(name string) error {
	if len(name) > maxNameLength || !validName.MatchString(name) {
		return fmt.Errorf("%w: name %.200q: want 1 to %d letters, digits and . _ : @ - beginning with a letter or digit", ErrInvalid, name, maxNameLength)
	}
	return nil
}

// Validate answers an error wrapping ErrInvalid for a Spec that could never run,
// whatever files there are, or nil. It looks for neither Dir nor Command.
func (s Spec) Validate() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	if s.Command == "" {
		return fmt.Errorf("%w: command is empty", ErrInvalid)
	}
	for _, err := range []error{s.checkSize(), s.checkStdio(), s.checkChangeable()} {
		if err != nil {
			return err
		}
	}
	return nil
}

// resolved returns s with an absolute Dir, after checking everything that can
// be checked without starting it. Its errors wrap ErrInvalid.
func (s Spec) resolved(project string) (Spec, error) {
	if err := s.Validate(); err != nil {
		return s, err
	}
	dir, err := resolveDir(s.Dir, project)
	s.Dir = dir
	return s, err
}

// checkStdio refuses streams that contradict one another.
func (s Spec) checkStdio() error {
	switch {
	case s.Stdio != "" && s.Stdio != StdioLog && s.Stdio != StdioMCP:
		return fmt.Errorf("%w: stdio %q: want log or mcp", ErrInvalid, s.Stdio)
	case s.Stdio == StdioMCP && (s.PTY || s.MergeOutput):
		return fmt.Errorf("%w: stdio mcp goes with neither pty nor merge_output: stdout carries messages and nothing else", ErrInvalid)
	case s.Stdio == StdioMCP && s.Ready != nil:
		return fmt.Errorf("%w: stdio mcp goes without ready: an MCP server is ready when it has answered initialize", ErrInvalid)
	}
	return nil
}

// checkChangeable checks what may be changed while the process runs, and Ready.
func (s Spec) checkChangeable() error {
	if _, err := parseSignal(s.Stop.Signal); err != nil {
		return err
	}
	if s.Stop.Timeout < 0 || s.Stop.Timeout > maxStopTimeout {
		return fmt.Errorf("%w: stop timeout %s: want 0 to %s", ErrInvalid, s.Stop.Timeout, maxStopTimeout)
	}
	if s.MaxRestarts < 0 || s.MaxRestarts > maxMaxRestarts {
		return fmt.Errorf("%w: max_restarts %d: want 0 (the default limits) to %d", ErrInvalid, s.MaxRestarts, maxMaxRestarts)
	}
	if err := s.Restart.check(); err != nil {
		return err
	}
	if err := s.Limits.check(); err != nil {
		return err
	}
	return s.Ready.check()
}

// checkSize refuses what the kernel could not take, and NUL bytes, which it
// would cut at.
func (s Spec) checkSize() error {
	size := len(s.Command)
	for _, arg := range s.Args {
		if slices.Contains([]byte(arg), 0) {
			return fmt.Errorf("%w: argument %q holds a NUL byte", ErrInvalid, arg)
		}
		size += len(arg) + 1
	}
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		if key == "" || slices.ContainsFunc([]byte(key), func(c byte) bool { return c == 0 || c == '=' }) {
			return fmt.Errorf("%w: environment variable name %q", ErrInvalid, key)
		}
		if slices.Contains([]byte(s.Env[key]), 0) {
			return fmt.Errorf("%w: environment variable %s holds a NUL byte", ErrInvalid, key)
		}
		size += len(key) + len(s.Env[key]) + 2
	}
	if size > maxSpecBytes {
		return fmt.Errorf("%w: args and env take %d bytes together, at most %d are allowed", ErrInvalid, size, maxSpecBytes)
	}
	return nil
}

// IsNoProject says whether dir is / or the home directory, by whatever path: HOME
// may be a symbolic link to where editors start servers, or end in a slash.
func IsNoProject(dir string) bool {
	home, _ := os.UserHomeDir()
	if dir == "/" || dir == home {
		return true
	}
	at, err := os.Stat(dir)
	if err != nil {
		return false
	}
	is := func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && os.SameFile(at, info)
	}
	return is("/") || is(home)
}

// resolveDir makes dir absolute and checks that it is a directory. A relative
// dir counts from project; where project is no project at all (/ or the home
// directory, what GUI editors start servers in) that is refused.
func resolveDir(dir, project string) (string, error) {
	tilde := dir == "~" || strings.HasPrefix(dir, "~/")
	if !filepath.IsAbs(dir) {
		if IsNoProject(project) {
			return dir, fmt.Errorf("%w: cwd %q is relative and pmcp runs in %s, which is no project: give an absolute cwd, or set PM_PROJECT_DIR", ErrInvalid, dir, project)
		}
		dir = filepath.Join(project, dir)
	}
	dir = filepath.Clean(dir)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if tilde {
			return dir, fmt.Errorf("%w: cwd %s does not exist: ~ is not replaced, write the home directory itself", ErrInvalid, dir)
		}
		return dir, fmt.Errorf("%w: cwd %s does not exist", ErrInvalid, dir)
	case errors.Is(err, os.ErrPermission):
		return dir, fmt.Errorf("%w: cwd %s is not accessible: permission denied", ErrInvalid, dir)
	case err != nil:
		return dir, fmt.Errorf("%w: cwd %s: %w", ErrInvalid, dir, err)
	case !info.IsDir():
		return dir, fmt.Errorf("%w: cwd %s is not a directory", ErrInvalid, dir)
	}
	return dir, nil
}

// Values of Spec.Stdio.
const (
	StdioLog = "log"
	StdioMCP = "mcp"
)

// Differs names the fields in which two specs of one process differ such that
// only a new run can bring the change about, in the words of the tools:
// "command", "args", "cwd", "env", "stdin", … It is empty for specs that would
// run the same; what Reconfigure can change does not count.
func (s Spec) Differs(other Spec) []string {
	var names []string
	note := func(name string, same bool) {
		if !same {
			names = append(names, name)
		}
	}
	note("command", s.Command == other.Command)
	note("args", slices.Equal(s.Args, other.Args))
	note("cwd", s.Dir == other.Dir)
	note("env", maps.Equal(s.Env, other.Env))
	note("stdin", s.Stdin == other.Stdin)
	note("pty", s.PTY == other.PTY)
	note("merge_output", s.MergeOutput == other.MergeOutput)
	note("stdio", s.mcp() == other.mcp())
	note("ready", s.Ready.equal(other.Ready))
	return names
}

// ChecksReady says whether runs of s become ready: by rules, or as an MCP server
// that has answered.
func (s Spec) ChecksReady() bool { return s.Ready != nil || s.mcp() }

func (s Spec) mcp() bool { return s.Stdio == StdioMCP }
