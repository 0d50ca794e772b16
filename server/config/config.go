// Package config holds pmcp's configuration: the flags, the environment variables,
// and the lines of a client's configuration that a person at a terminal is shown.
//
// It refuses a value that a variable may not have with one line that names the
// variable, the value and what is allowed.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"pmcp/process"
	"pmcp/process/command"
	"pmcp/registry"
	"pmcp/server"
	"pmcp/server/args"
)

// Config holds the environment variables; see server/README.md. To add a variable, add a field
// here; desc is its line in --help. The names are not in `envconfig` tags, because those would also
// be read without the prefix, and MAX_MEMORY_MB may be another program's. A number that is
// multiplied somewhere has a max: 999999 days in nanoseconds overflow.
type Config struct {
	DatabasePath        string    `split_words:"true" desc:"log and state database"`
	RegistryDir         string    `split_words:"true" desc:"directory of the server records"`
	ProjectDir          string    `split_words:"true" desc:"directory that names and relative cwds belong to"`
	LogRetentionDays    int       `split_words:"true" default:"30" min:"1" max:"36500" desc:"days after which log is dropped"`
	MaxLogSizeMB        int       `split_words:"true" default:"100" min:"1" max:"1000000000" desc:"cap of the database in MB"`
	MaxProcesses        int       `split_words:"true" default:"50" min:"1" desc:"live processes at once"`
	AllowedCommands     allowlist `split_words:"true" desc:"comma-separated files and directories that executables may come from; unset or * for any"`
	HealthCheckInterval millis    `split_words:"true" default:"60000" min:"100" max:"86400000" desc:"default interval of health checks"`
	MaxCPUPercent       int       `split_words:"true" default:"80" min:"0" desc:"CPU limit of a process tree in percent of the machine, held for 30 s; 0 = off"`
	MaxMemoryMB         int       `split_words:"true" default:"1024" min:"0" max:"1000000000" desc:"memory limit of a process tree in MB; 0 = off"`
	LimitAction         string    `split_words:"true" default:"warn" enum:"warn|stop|restart" desc:"what happens when a limit is exceeded"`
	StopTimeout         millis    `split_words:"true" default:"5000" min:"1" max:"86400000" desc:"time between the stop signal and SIGKILL"`
	MaxServers          int       `split_words:"true" default:"9" min:"1" desc:"more live servers than this are reported as degraded"`
	RateLimit           int       `split_words:"true" default:"50" min:"0" max:"1000000" desc:"calls a second of each tool that changes something, burst three times that; 0 = off"`
	Offer
	MaskSecrets        bool      `split_words:"true" default:"true" desc:"false: what looks secret in output is stored and shown as it is"`
	LogLevel           string    `split_words:"true" default:"info" enum:"debug|info|warn|error" desc:"level of pmcp's own log on stderr"`
	AutoRestartEnabled bool      `split_words:"true" default:"true" desc:"false: nothing is restarted by itself"`
	MCP                MCPLimits `split_words:"true"`
	Daemon             Daemon    `split_words:"true"`
}

// Offer holds the variables that choose which tools are offered.
type Offer struct {
	Toolsets toolsets `split_words:"true" default:"all" desc:"families of tools to offer: lifecycle, monitoring, logs, errors, groups, mcp"`
	ReadOnly bool     `split_words:"true" default:"false" desc:"offer only tools that change nothing"`

	StructuredOutput bool `split_words:"true" default:"false" desc:"answers also have a structured form, with schemas; clients may then hide the text"`
	Channel          bool `split_words:"true" default:"false" desc:"what the model must react to is sent to a channel of Claude Code"`
}

// MCPLimits holds the variables PM_MCP_*: the limits of MCP servers that run as processes.
type MCPLimits struct {
	StartupTimeout  millis `split_words:"true" default:"30000" min:"1" max:"3600000" desc:"time that an MCP server has to answer initialize"`
	MaxMessageBytes int    `split_words:"true" default:"10485760" min:"1024" max:"1073741824" desc:"largest message of an MCP server"`
	CacheSize       int    `split_words:"true" default:"16" min:"1" max:"1000" desc:"MCP servers on demand that are kept running"`
}

// prefix begins the name of every variable.
const prefix = "PM"

// millis is a duration as written in the environment: 1500 (milliseconds), 1.5s or 2d.
type millis time.Duration

// Decode parses a duration, for envconfig.
func (m *millis) Decode(value string) error {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		const most = int64(math.MaxInt64 / time.Millisecond) // the max of every variable is smaller
		*m = millis(time.Duration(min(max(n, -most), most)) * time.Millisecond)
		return nil
	}
	d, err := args.ParseDuration(value)
	if err != nil {
		return errors.New("want a duration such as 1500 (milliseconds) or 1.5s")
	}
	*m = millis(d)
	return nil
}

// allowlist is PM_ALLOWED_COMMANDS; nil allows every command.
type allowlist []string

// Decode parses an allowlist, for envconfig.
func (a *allowlist) Decode(value string) (err error) {
	*a, err = command.ParseAllowed(value)
	return err
}

// toolsets is PM_TOOLSETS; nil offers all.
type toolsets []string

// Decode parses toolsets, for envconfig.
func (t *toolsets) Decode(value string) (err error) {
	*t, err = server.ParseToolsets(value)
	return err
}

// printVariables writes the lines of --help about the environment.
func printVariables(w io.Writer) {
	for _, v := range fields() {
		tag, fallback := v.Tag, ""
		if value := tag.Get("default"); value != "" {
			fallback = " (default " + value + ")"
		}
		fmt.Fprintf(w, "  %s\n    \t%s%s\n", v.variable, tag.Get("desc"), fallback)
	}
}

// wordStart matches where a word begins within a field's name: after a small letter, or at the
// last of several capitals.
var wordStart = regexp.MustCompile(`([a-z])([A-Z])|([A-Z])([A-Z][a-z])`)

// A field is a field of Config, or of a struct in it, and the name of its variable. Its Index is
// that within Config.
type field struct {
	reflect.StructField
	variable string
}

// fields returns the fields of Config, in order. envconfig.Usagef knows their names, too, but it
// links text/template, with which the linker keeps all methods: 2.5 MB.
func fields() []field { return fieldsOf(reflect.TypeFor[Config](), prefix, nil) }

func fieldsOf(t reflect.Type, prefix string, index []int) (all []field) {
	for i := range t.NumField() {
		f := field{StructField: t.Field(i)}
		f.Index = append(slices.Clone(index), i)
		f.variable = prefix + "_" + strings.ToUpper(wordStart.ReplaceAllString(f.Name, "${1}${3}_${2}${4}"))
		switch {
		case f.Anonymous:
			all = append(all, fieldsOf(f.Type, prefix, f.Index)...)
		case f.Type.Kind() == reflect.Struct:
			all = append(all, fieldsOf(f.Type, f.variable, f.Index)...)
		default:
			all = append(all, f)
		}
	}
	return all
}

func variables() (names []string) {
	for _, f := range fields() {
		names = append(names, f.variable)
	}
	return names
}

// Read returns the configuration in the environment. Its error is one line that names the
// variable, the value and what is allowed.
func Read() (Config, error) {
	for _, name := range variables() {
		// Clients whose configuration is filled in from a template set variables without a value.
		if os.Getenv(name) == "" {
			_ = os.Unsetenv(name)
		}
	}
	var c Config
	err := envconfig.Process(prefix, &c)
	var parse *envconfig.ParseError
	if errors.As(err, &parse) {
		switch parse.TypeName {
		case "int":
			parse.Err = errors.New("want an integer")
		case "bool":
			parse.Err = errors.New("want true or false")
		}
		return c, fmt.Errorf("%s=%q: %w", parse.KeyName, parse.Value, parse.Err)
	}
	if err != nil {
		return c, fmt.Errorf("cannot read the environment: %w", err)
	}
	if err := c.check(); err != nil {
		return c, err
	}
	if err := c.Daemon.complete(); err != nil {
		return c, err
	}
	return c, c.resolvePaths()
}

// check returns an error if a variable has a value that it may not have.
func (c *Config) check() error {
	values := reflect.ValueOf(*c)
	for _, f := range fields() {
		value, tag, name := values.FieldByIndex(f.Index), f.Tag, f.variable
		if enum := tag.Get("enum"); enum != "" && !slices.Contains(strings.Split(enum, "|"), value.String()) {
			return fmt.Errorf("%s=%q: want one of %s", name, value, strings.ReplaceAll(enum, "|", ", "))
		}
		unit := int64(1) // of the bounds: those of a duration are in milliseconds
		if value.Type() == reflect.TypeFor[millis]() {
			unit = int64(time.Millisecond)
		}
		if least, err := strconv.ParseInt(tag.Get("min"), 10, 64); err == nil && value.Int() < least*unit {
			return fmt.Errorf("%s=%s: want at least %d", name, os.Getenv(name), least)
		}
		if most, err := strconv.ParseInt(tag.Get("max"), 10, 64); err == nil && value.Int()/unit > most {
			return fmt.Errorf("%s=%s: want at most %d", name, os.Getenv(name), most)
		}
	}
	return nil
}

// resolvePaths fills in the paths that are not set, and makes paths absolute.
func (c *Config) resolvePaths() error {
	c.RegistryDir = registry.Dir(os.Getenv)
	if c.DatabasePath == "" {
		c.DatabasePath = registry.DatabasePath(os.Getenv)
	}
	if c.ProjectDir == "" {
		c.ProjectDir = os.Getenv("CLAUDE_PROJECT_DIR")
	} else if info, err := os.Stat(c.ProjectDir); err != nil || !info.IsDir() {
		return fmt.Errorf("PM_PROJECT_DIR=%q: want an existing directory", c.ProjectDir)
	}
	if c.ProjectDir == "" {
		c.ProjectDir = projectRoot()
	}
	paths := map[string]*string{"PM_DATABASE_PATH": &c.DatabasePath, "PM_PROJECT_DIR": &c.ProjectDir}
	if c.Daemon.SocketPath != "" {
		paths["PM_DAEMON_SOCKET_PATH"] = &c.Daemon.SocketPath
	}
	for name, path := range paths {
		abs, err := filepath.Abs(*path)
		if err != nil { // the working directory was deleted
			return fmt.Errorf("%s=%q: want an absolute path here: %w", name, *path, err)
		}
		*path = abs
	}
	return nil
}

// projectRoot returns the nearest directory upwards with .git, else the working directory. A .git
// in the home directory does not count, because it keeps the user's settings.
func projectRoot() string {
	cwd, err := os.Getwd()
	if err != nil {
		return "/"
	}
	for dir := cwd; !process.IsNoProject(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
	}
	return cwd
}

// Warn logs an XDG_RUNTIME_DIR that is set and cannot be used, and the PM_* variables that pmcp
// does not have.
func (c *Config) Warn(log *slog.Logger) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && os.Getenv("PM_REGISTRY_DIR") == "" && !strings.HasPrefix(c.RegistryDir, filepath.Clean(dir)+"/") {
		log.Warn("XDG_RUNTIME_DIR cannot be used; windows in which it is another do not see this one", "dir", dir, "records", c.RegistryDir)
	}
	known := variables()
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains(known, name) || !strings.HasPrefix(name, prefix+"_") {
			continue
		}
		attributes := []any{"name", name}
		if nearest := args.Nearest(name, known); nearest != "" {
			attributes = append(attributes, "nearest", nearest)
		}
		log.Warn("unknown environment variable", attributes...)
	}
}

// Alive reports whether the server with that session lives. dir is the directory of its record, ""
// for that of this one.
func (c *Config) Alive(dir, session string) bool {
	return registry.Alive(cmp.Or(dir, c.RegistryDir), session)
}

// Level returns the level of the log: PM_LOG_LEVEL, or debug if DEBUG asks for it.
func (c *Config) Level() slog.Level {
	switch strings.ToLower(os.Getenv("DEBUG")) {
	case "1", "true", "yes":
		return slog.LevelDebug
	}
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // cannot fail: an enum restricts the variable
	return level
}

// Greeting returns the text for a person at a terminal; exe is the path of this program. A binary
// that "go run" has built is deleted when it ends, so its path is of no use in a client's
// configuration.
func (c *Config) Greeting(version, exe string) string {
	first := "To use it, put"
	if strings.Contains(exe, string(filepath.Separator)+"go-build") {
		first, exe = "To use it, build it with `go build -o ~/.local/bin/pmcp .`; then put", "/home/me/.local/bin/pmcp"
		if home, err := os.UserHomeDir(); err == nil {
			exe = filepath.Join(home, ".local", "bin", "pmcp")
		}
	}
	return fmt.Sprintf(`pmcp %s speaks MCP on stdin and stdout; it waits for a client's messages here.
Its database is %s
%s this into the configuration of an MCP client:

  {"mcpServers": {"pmcp": {"command": %q}}}

Ctrl-C ends it.
`, version, c.DatabasePath, first, exe)
}

// BuildInfo returns the commit of this binary and the date of the build, or the date of the file if
// the build did not record one.
func BuildInfo() (commit, date string) {
	commit, date = "unknown", "unknown"
	if exe, err := os.Executable(); err == nil {
		if info, err := os.Stat(exe); err == nil {
			date = info.ModTime().UTC().Format(time.DateOnly)
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				commit = s.Value
			case "vcs.time":
				date = s.Value
			}
		}
	}
	return commit, date
}
