// Command pmcp is a process manager for LLM agents: an MCP server on stdin and
// stdout that starts, watches and stops local processes, keeps what they print
// and leaves nothing behind.
//
// This file is flags, environment, wiring, signals and the order of shutdown;
// everything else is in the packages. See README.md for users and the comments
// of the packages for developers.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agnivade/levenshtein"
	"github.com/google/uuid"
	"github.com/kelseyhightower/envconfig"

	"pmcp/groups"
	"pmcp/health"
	"pmcp/logstore"
	"pmcp/logstore/mask"
	"pmcp/process"
	"pmcp/process/guard"
	"pmcp/registry"
	"pmcp/server"
	"pmcp/server/upstream"
)

// version of this program; the commit comes from the build.
const version = "0.1.0"

// Exit codes. Clients show anything but 0 as a failure, so every ordinary end
// of a session is 0.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // flags, environment, or an environment that cannot be served in
)

// sweepPatience is how long a shutdown lets the clean-up after dead servers go
// on. Before it that has registry's own limit.
const sweepPatience = 2 * time.Second

// sweepPauses are those between sweeps while a killed server may still be dying:
// half a minute in all.
var sweepPauses = []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}

// shutdownCeiling bounds a whole shutdown. What hangs then is left to the
// guardian.
const shutdownCeiling = 10 * time.Second

// When each step of a shutdown is given up at the latest, from its beginning on:
// what one leaves of its time is the next one's. Children have 5 s of grace and
// need more to be killed and read to the end.
const (
	groupsEndBy    = 2 * time.Second
	healthEndBy    = 3 * time.Second
	processesEndBy = 9 * time.Second
	serverEndBy    = 9200 * time.Millisecond
	storeEndBy     = 9800 * time.Millisecond
	recordEndBy    = 9900 * time.Millisecond
)

func main() {
	if err := guard.Seal(); err != nil {
		fmt.Fprintln(os.Stderr, "pmcp:", err)
		os.Exit(exitFailed)
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. It returns the exit code.
func run(ctx context.Context, args []string, stdin, stdout, stderr *os.File) int {
	if len(args) >= 2 && args[0] == guard.Verb {
		return serve(ctx, args[1], stdin, stdout, stderr)
	}
	o, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case o.version:
		fmt.Fprintln(stdout, versionText())
		return exitOK
	case o.doctor:
		return doctor(o, stdout, stderr)
	}
	if terminal, ours := guard.Foreground(stdin); terminal && !ours {
		fmt.Fprintln(stderr, "pmcp: started in the background of a terminal, where it cannot read stdin; an MCP client has to start it, or run it in the foreground")
		return exitUsage
	}
	if o.noGuardian {
		return serve(ctx, "", stdin, stdout, stderr)
	}
	return guardian(stderr)
}

// --- flags

type options struct {
	version, doctor, cleanup, json, noGuardian bool
}

const usage = `pmcp %s: a process manager for LLM agents, an MCP server on stdin and stdout.

An MCP client starts it without flags; README.md shows how to configure one.

`

func parseFlags(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("pmcp", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&o.version, "version", false, "print version, commit, Go and SQLite versions, and exit")
	f.BoolVar(&o.doctor, "doctor", false, "list the pmcp servers of this user and what dead ones left, and exit: 0 clean, 1 something stale, 2 failed")
	f.BoolVar(&o.cleanup, "cleanup-stale-records", false, "with --doctor: remove records of dead servers and stop the processes that those left running")
	f.BoolVar(&o.json, "json", false, "with --doctor: print JSON")
	f.BoolVar(&o.noGuardian, "no-guardian", false, "for debugging: serve in this process; when it is killed, its processes are left running")
	f.Usage = func() {
		fmt.Fprintf(stderr, usage, version)
		f.PrintDefaults()
		fmt.Fprintf(stderr, "\nEnvironment variables:\n%s", variablesText())
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q; pmcp takes flags only, see --help", f.Arg(0))
	} else if (o.cleanup || o.json) && !o.doctor {
		err = errors.New("--cleanup-stale-records and --json go with --doctor")
	}
	if err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
	}
	return o, err
}

func versionText() string {
	commit, date := buildInfo()
	return fmt.Sprintf("pmcp %s (commit %s, built %s, %s, SQLite %s)", version, commit, date, runtime.Version(), logstore.SQLiteVersion())
}

// buildInfo is the commit of this binary and its date; the file's own date
// where the build did not record one.
func buildInfo() (commit, date string) {
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

// --- environment

// config is the environment, see README.md. A new variable is one field here;
// desc is its line in --help. A name in a tag `envconfig` would be read without
// the prefix too: MAX_MEMORY_MB may be another program's. What is multiplied
// somewhere has a max: 999999 days in nanoseconds are less than none.
type config struct {
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
	Toolsets            toolsets  `split_words:"true" default:"all" desc:"families of tools to offer: lifecycle, monitoring, logs, errors, groups, mcp"`
	ReadOnly            bool      `split_words:"true" default:"false" desc:"offer only tools that change nothing"`
	MaskSecrets         bool      `split_words:"true" default:"true" desc:"false: what looks secret in output is stored and shown as it is"`
	LogLevel            string    `split_words:"true" default:"info" enum:"debug|info|warn|error" desc:"level of pmcp's own log on stderr"`
	AutoRestartEnabled  bool      `split_words:"true" default:"true" desc:"false: nothing is restarted by itself"`
}

const envPrefix = "PM"

// millis is a duration as the environment gives it: 1500 (milliseconds) or 1.5s.
type millis time.Duration

// Decode reads one, for envconfig.
func (m *millis) Decode(value string) error {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		const most = int64(math.MaxInt64 / time.Millisecond) // every max is less
		*m = millis(time.Duration(min(max(n, -most), most)) * time.Millisecond)
		return nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return errors.New("want a duration such as 1500 (milliseconds) or 1.5s")
	}
	*m = millis(d)
	return nil
}

// allowlist is PM_ALLOWED_COMMANDS; nil for any.
type allowlist []string

// Decode reads one, for envconfig.
func (a *allowlist) Decode(value string) (err error) {
	*a, err = process.ParseAllowed(value)
	return err
}

// toolsets is PM_TOOLSETS; nil for all.
type toolsets []string

// Decode reads them, for envconfig.
func (t *toolsets) Decode(value string) (err error) {
	*t, err = server.ParseToolsets(value)
	return err
}

// variable is one field of config as users see it.
type variable struct {
	name, fallback, desc string
	enum                 []string
	min, max             int64
	field                int
}

// variables lists the environment variables that pmcp reads.
func variables() []variable {
	t := reflect.TypeFor[config]()
	var all []variable
	for i := range t.NumField() {
		f := t.Field(i)
		v := variable{name: envPrefix + "_" + upperSnake(f.Name), fallback: f.Tag.Get("default"), desc: f.Tag.Get("desc"), field: i}
		if enum := f.Tag.Get("enum"); enum != "" {
			v.enum = strings.Split(enum, "|")
		}
		v.min, _ = strconv.ParseInt(f.Tag.Get("min"), 10, 64)
		v.max = math.MaxInt64
		if most := f.Tag.Get("max"); most != "" {
			v.max, _ = strconv.ParseInt(most, 10, 64)
		}
		all = append(all, v)
	}
	return all
}

// wordStart is where a word begins inside of a field's name: after a small
// letter, or with the last capital of several.
var wordStart = regexp.MustCompile(`([a-z])([A-Z])|([A-Z])([A-Z][a-z])`)

// upperSnake turns MaxCPUPercent into MAX_CPU_PERCENT, as split_words does.
func upperSnake(name string) string {
	return strings.ToUpper(wordStart.ReplaceAllString(name, "${1}${3}_${2}${4}"))
}

func variablesText() string {
	var b strings.Builder
	for _, v := range variables() {
		fallback := ""
		if v.fallback != "" {
			fallback = " (default " + v.fallback + ")"
		}
		fmt.Fprintf(&b, "  %s\n    \t%s%s\n", v.name, v.desc, fallback)
	}
	return b.String()
}

// readConfig reads and checks the environment. Its error is one line that names
// the variable, the value and what is allowed.
func readConfig() (config, error) {
	unsetEmpty()
	var c config
	err := envconfig.Process(envPrefix, &c)
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
	for _, v := range variables() {
		if err := v.check(reflect.ValueOf(c).Field(v.field)); err != nil {
			return c, err
		}
	}
	return c, c.resolvePaths()
}

// unsetEmpty takes our variables that are empty out of the environment: clients
// whose configuration is filled from a template set them without a value.
func unsetEmpty() {
	for _, v := range variables() {
		if os.Getenv(v.name) == "" {
			_ = os.Unsetenv(v.name)
		}
	}
}

func (v variable) check(value reflect.Value) error {
	switch {
	case len(v.enum) > 0 && !slices.Contains(v.enum, value.String()):
		return fmt.Errorf("%s=%q: want one of %s", v.name, value, strings.Join(v.enum, ", "))
	case value.CanInt() && value.Int() < v.min*unitOf(value):
		return fmt.Errorf("%s=%s: want at least %d", v.name, os.Getenv(v.name), v.min)
	case value.CanInt() && value.Int()/unitOf(value) > v.max:
		return fmt.Errorf("%s=%s: want at most %d", v.name, os.Getenv(v.name), v.max)
	}
	return nil
}

// unitOf is what the minimum and the maximum of a variable count in: durations
// are held in nanoseconds, their bounds are in milliseconds.
func unitOf(value reflect.Value) int64 {
	if value.Type() == reflect.TypeFor[millis]() {
		return int64(time.Millisecond)
	}
	return 1
}

// resolvePaths fills in the paths that were not given.
func (c *config) resolvePaths() error {
	c.RegistryDir = registry.Dir(os.Getenv)
	if c.DatabasePath == "" {
		c.DatabasePath = filepath.Join(registry.StateDir(os.Getenv), "pmcp.db")
	}
	if c.ProjectDir == "" {
		c.ProjectDir = os.Getenv("CLAUDE_PROJECT_DIR")
	} else if info, err := os.Stat(c.ProjectDir); err != nil || !info.IsDir() {
		return fmt.Errorf("PM_PROJECT_DIR=%q: want an existing directory", c.ProjectDir)
	}
	if c.ProjectDir == "" {
		c.ProjectDir = projectRoot()
	}
	for name, path := range map[string]*string{"PM_DATABASE_PATH": &c.DatabasePath, "PM_PROJECT_DIR": &c.ProjectDir} {
		abs, err := filepath.Abs(*path)
		if err != nil { // the working directory was deleted
			return fmt.Errorf("%s=%q: want an absolute path here: %w", name, *path, err)
		}
		*path = abs
	}
	return nil
}

// projectRoot is the nearest directory upwards with .git, else the working
// directory. In the home directory .git keeps somebody's settings, and is of no
// project below.
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

// warnUnknownVariables names PM_* variables that mean nothing here.
func warnUnknownVariables(log *slog.Logger) {
	var known []string
	for _, v := range variables() {
		known = append(known, v.name)
	}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		switch {
		case slices.Contains(known, name) || !strings.HasPrefix(name, envPrefix+"_"):
		case strings.HasPrefix(name, envPrefix+"_DAEMON_"):
			log.Warn("environment variable is not supported: pmcp has no daemon, processes end with the session", "name", name)
		default:
			nearest := slices.MinFunc(known, func(a, b string) int {
				return levenshtein.ComputeDistance(a, name) - levenshtein.ComputeDistance(b, name)
			})
			log.Warn("unknown environment variable", "name", name, "nearest", nearest)
		}
	}
}

func (c *config) logLevel() slog.Level {
	switch strings.ToLower(os.Getenv("DEBUG")) {
	case "1", "true", "yes":
		return slog.LevelDebug
	}
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // checked by its enum
	return level
}

// --- the guardian

// guardian is the life of the launched process.
func guardian(stderr io.Writer) int {
	dir, id := registry.Dir(os.Getenv), uuid.NewString()
	lock, err := prepareLock(dir, id, stderr) // the server publishes it
	if err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
		return exitUsage
	}
	defer func() { _ = lock.Close() }()
	return guard.Run(guard.Config{
		ID: id, Lock: lock,
		OnGone: func() error { return registry.Remove(dir, id) },
		Logf:   func(format string, args ...any) { fmt.Fprintf(stderr, "pmcp: "+format+"\n", args...) },
	})
}

// prepareLock makes the lock of a record that is still to come. Where there can
// be none it says so and answers nil, for a session can do without; its error is
// of a directory that is not safe to use.
func prepareLock(dir, id string, stderr io.Writer) (*os.File, error) {
	lock, err := registry.Prepare(dir, id)
	switch {
	case errors.Is(err, registry.ErrUnsafeDir):
		return nil, fmt.Errorf("%w; choose another with PM_REGISTRY_DIR", err)
	case err != nil:
		fmt.Fprintf(stderr, "pmcp: serving without a record: %v\n", err)
		return nil, nil
	}
	return lock, nil
}

// --- the doctor

func doctor(o options, stdout, stderr io.Writer) int {
	c, err := readConfig()
	if err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
		return exitUsage
	}
	warnUnknownVariables(slog.New(slog.NewTextHandler(stderr, nil)))
	return registry.Doctor(stdout, registry.DoctorOptions{
		Dir: c.RegistryDir, Cleanup: o.cleanup, JSON: o.json, MaxServers: c.MaxServers, Database: c.DatabasePath, Allowed: c.AllowedCommands,
		Checks: []registry.Check{{Name: "integrity", Run: func(ctx context.Context) (string, error) {
			return logstore.CheckFile(ctx, c.DatabasePath)
		}}},
	})
}

// --- the server

// session is everything that serve has started, for shutdown.
type session struct {
	id       string
	c        config
	log      *slog.Logger
	mask     *mask.Masker    // nil: secrets are not masked
	lifeline *guard.Lifeline // nil without a guardian
	lock     *os.File        // the record's; nil if there can be none
	record   *registry.Registration
	store    *logstore.Store
	manager  *process.Manager
	upstream *upstream.Hub
	runs     *server.RunTable
	health   *health.Monitor
	groups   *groups.Manager
	server   *server.Server
	sweep    sync.WaitGroup
	endSweep context.CancelFunc
	endRest  context.CancelFunc // between two sweeps
	// stopSignals is how many TERM and INT there were before the shutdown.
	stopSignals int
}

// gcPercent is how much garbage there may be beside what is in use (see GOGC).
// Most of that is text that waits to be stored, which costs the collector
// nothing to look at: fifty floods took 100 MB instead of 150, and no more
// processor time.
const gcPercent = 30

// serve is the life of the server. id is "" without a guardian.
func serve(ctx context.Context, id string, stdin, stdout, stderr *os.File) int {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	s := &session{id: id}
	if code, err := s.prepare(stderr); err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
		return code
	}
	defer s.release()
	own := server.NewStderr(stderr)
	defer own.Close()
	s.logTo(own)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	// Notified but not read: a write to a closed stdout is EPIPE, not our death,
	// and children do not inherit it as signal.Ignore would have them.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	if err := s.open(ctx); err != nil {
		if errors.Is(err, logstore.ErrNewerSchema) || errors.Is(err, logstore.ErrForeign) {
			fmt.Fprintf(stderr, "pmcp: %s_DATABASE_PATH: %v; it is left as it is: give another path\n", envPrefix, err)
			return exitUsage
		}
		fmt.Fprintln(stderr, "pmcp:", err)
		return exitFailed
	}
	s.greet(stdin, stderr)
	impatient := s.untilEnd(ctx, signals, stdin, stdout)
	return s.shutdown(impatient, stdout)
}

// prepare takes over what the guardian gives, or makes what it would, and reads
// the configuration. exitCode is that of the error.
func (s *session) prepare(stderr io.Writer) (exitCode int, err error) {
	alone := s.id == ""
	if !alone {
		if s.lifeline, err = guard.Inherit(); err != nil {
			return exitUsage, fmt.Errorf("%s is for pmcp itself: %w", guard.Verb, err)
		}
		s.lock = s.lifeline.Lock()
	}
	if s.c, err = readConfig(); err != nil {
		return exitUsage, err
	}
	if alone {
		s.id = uuid.NewString()
		if s.lock, err = prepareLock(s.c.RegistryDir, s.id, stderr); err != nil {
			return exitUsage, err
		}
	}
	return exitFailed, guard.Subreaper()
}

// release lets go of the lifeline, and of the lock, which is held while its file
// is open.
func (s *session) release() {
	if s.lifeline != nil {
		_ = s.lifeline.Close()
	}
	_ = s.lock.Close()
}

// logTo has the session's log, in which secrets are masked, written to stderr.
func (s *session) logTo(stderr io.Writer) {
	if s.c.MaskSecrets {
		s.mask = mask.New()
		s.mask.LearnEnviron(os.Environ()) // every child inherits them
	}
	s.log = slog.New(slog.NewTextHandler(s.mask.Writer(stderr), &slog.HandlerOptions{Level: s.c.logLevel()}))
	warnUnknownVariables(s.log)
}

// open starts everything but the connection.
func (s *session) open(ctx context.Context) error {
	guardian := 0
	if s.lifeline != nil {
		guardian = s.lifeline.Guardian()
	}
	record := registry.Describe(guardian)
	record.Version, record.Project, record.Database = version, s.c.ProjectDir, s.c.DatabasePath
	s.register(record)
	if err := s.openStore(ctx); err != nil {
		_ = s.unregister() // what the store says is what matters
		return err
	}
	s.manage(record.Server.PID)
	s.offer(record.Guardian.PID)
	_, date := buildInfo()
	s.log.Info("serving", "version", version, "built", date, "pid", record.Server.PID, "guardian", record.Guardian.PID,
		"project", s.c.ProjectDir, "database", s.c.DatabasePath)
	sweeping, end := context.WithCancel(ctx)
	s.endSweep = end
	rested, endRest := context.WithCancel(sweeping)
	s.endRest = endRest
	s.sweep.Go(func() { s.sweepDead(sweeping, rested) })
	return nil
}

// register makes the session's lock and record visible, if it has a lock.
func (s *session) register(record registry.Record) {
	if s.lock == nil {
		return
	}
	err := registry.Publish(s.lock, s.c.RegistryDir, s.id)
	if err == nil {
		s.record, err = registry.Register(s.c.RegistryDir, s.id, record)
	}
	if err != nil {
		s.log.Warn("serving without a record", "error", err)
	}
}

// unregister takes the record back. A guardian does so itself.
func (s *session) unregister() error {
	var errs []error
	if s.record != nil {
		errs = append(errs, s.record.Close())
	}
	if s.lifeline == nil {
		errs = append(errs, registry.Remove(s.c.RegistryDir, s.id))
	}
	return errors.Join(errs...)
}

// endRecord takes the record back unless processes, the error of ending them,
// says that some may be left: then it goes on naming them. A guardian removes it
// once it has killed them; else it is for the next server's sweep.
func (s *session) endRecord(processes error) error {
	if errors.Is(processes, process.ErrSurvivors) || errors.Is(processes, errGivenUp) {
		s.log.Warn("the record stays for what may be left")
		return nil
	}
	return s.unregister()
}

func (s *session) openStore(ctx context.Context) (err error) {
	s.store, err = logstore.Open(ctx, logstore.Options{
		Path: s.c.DatabasePath, Session: s.id, RetentionDays: s.c.LogRetentionDays,
		MaxBytes: int64(s.c.MaxLogSizeMB) * 1e6, Logger: s.log, Mask: s.mask,
		Registry: s.c.RegistryDir, Alive: func(dir, session string) bool {
			return registry.Alive(cmp.Or(dir, s.c.RegistryDir), session)
		},
	})
	return err
}

// manage makes what starts processes and watches over them; pid is our own.
func (s *session) manage(pid int) {
	var recorder process.Recorder
	if s.record != nil {
		recorder = s.record
	}
	s.upstream = upstream.NewHub(upstream.Options{
		Capture: func(run int64, at time.Time, line []byte) { s.store.Capture(run, logstore.Messages, at, line) },
		Head:    s.mask.Head,
		OnReady: func(name string, run int64, ready bool, why string) { s.manager.SetReady(name, run, ready, why) },
		Version: version, Log: s.log,
	})
	s.manager = process.NewManager(process.Options{
		Project: s.c.ProjectDir, Session: s.id, Journal: s.store, Recorder: recorder, Log: s.log,
		MaxProcesses: s.c.MaxProcesses, StopTimeout: time.Duration(s.c.StopTimeout), NoAutoRestart: !s.c.AutoRestartEnabled,
		Subreaper: runtime.GOOS == "linux", AwaitLine: s.awaitLine, TakeStdio: s.upstream.Take, Allowed: s.c.AllowedCommands,
		MaxCPUPercent: s.c.MaxCPUPercent, MaxMemoryMB: s.c.MaxMemoryMB, LimitAction: s.c.LimitAction,
		OnSample: s.store.SaveSample,
	})
	s.runs = server.NewRunTable(s.manager, s.store, pid, s.log)
	s.health = health.NewMonitor(health.Options{
		Processes: s.manager, Changes: s.manager.Watch(), Journal: s.store, Project: s.c.ProjectDir,
		Interval: time.Duration(s.c.HealthCheckInterval), Log: s.log, Mask: s.mask.Part,
	})
	s.groups = groups.New(groups.Options{
		Processes: s.manager, Journal: s.store, Health: s.health, Elsewhere: s.runs, Project: s.c.ProjectDir, Log: s.log,
	})
}

// offer makes what speaks MCP of it all.
func (s *session) offer(guardian int) {
	_, date := buildInfo()
	s.server = server.New(server.Options{
		Manager: s.manager, Store: s.store, Health: s.health, Groups: s.groups, Upstream: s.upstream, Log: s.log,
		Registry: s.record, RegistryDir: s.c.RegistryDir, Session: s.id, Version: version, BuildDate: date, GuardianPID: guardian,
		MaxServers: s.c.MaxServers, OnClient: s.recordClient, RateLimit: s.c.RateLimit, Toolsets: s.c.Toolsets,
		ReadOnly: s.c.ReadOnly, Mask: s.mask,
	})
}

// awaitLine is how readiness sees the lines of a run.
func (s *session) awaitLine(ctx context.Context, run int64, match func(string) bool) (string, error) {
	line, err := s.store.WaitLine(ctx, run, 0, func(l logstore.Line) bool { return match(l.Text) })
	return line.Text, err
}

// recordClient enters the client in the record and in what is stored of runs
// once it has said who it is.
func (s *session) recordClient(name, version string) {
	s.runs.SetClient(strings.TrimSpace(name + " " + version))
	if s.record == nil {
		return
	}
	if err := s.record.Update(func(r *registry.Record) { r.ClientName, r.ClientVersion = name, version }); err != nil {
		s.log.Warn("cannot update the record", "error", err)
	}
}

// sweepDead cleans up after servers that died, in the background of the start,
// and again while one may be dying, until rested ends.
func (s *session) sweepDead(ctx, rested context.Context) {
	for round := 0; ; round++ {
		found, err := registry.Sweep(ctx, s.c.RegistryDir, s.log)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("cannot clean up after dead servers", "error", err)
		}
		if !found.Dying || round == len(sweepPauses) {
			return
		}
		pause := sweepPauses[round]
		s.log.Debug("a server may be dying; its record is looked at again", "after", pause)
		select {
		case <-rested.Done():
			return
		case <-time.After(pause):
		}
	}
}

// greet tells a person at a terminal what this is.
func (s *session) greet(stdin *os.File, stderr io.Writer) {
	if terminal, _ := guard.Foreground(stdin); !terminal {
		return
	}
	exe, err := os.Executable()
	if err != nil {
		exe = "pmcp"
	}
	fmt.Fprint(stderr, greeting(exe, s.c.DatabasePath))
}

// greeting is what a person at a terminal reads. A binary that go run has made
// is gone with it, so its path is nothing to configure.
func greeting(exe, database string) string {
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
`, version, database, first, exe)
}

// untilEnd serves until the first reason to end. It returns a context that ends
// when a further signal asks for impatience.
func (s *session) untilEnd(ctx context.Context, signals <-chan os.Signal, stdin io.Reader, stdout io.Writer) context.Context {
	serving, end := context.WithCancelCause(ctx)
	impatient, hurry := context.WithCancel(context.WithoutCancel(ctx))
	var watchers sync.WaitGroup
	watchers.Go(func() { s.watchSignals(serving, signals, end) })
	if s.lifeline != nil {
		watchers.Go(func() { s.watchGuardian(serving, end) })
		watchers.Go(func() { s.watchParent(serving, end) })
	}
	if err := s.server.Serve(serving, stdin, stdout); err != nil {
		s.log.Error("the connection failed", "error", err)
	}
	if reason := context.Cause(serving); reason != nil {
		s.log.Info("shutting down", "reason", reason)
	} else {
		s.log.Info("shutting down", "reason", "the client closed the connection")
	}
	end(nil)
	watchers.Wait()
	go hurryOnSecond(signals, s.stopSignals, hurry) // ends with the process
	return impatient
}

// watchSignals ends serving on the first signal.
func (s *session) watchSignals(serving context.Context, signals <-chan os.Signal, end context.CancelCauseFunc) {
	select {
	case got := <-signals:
		if got != syscall.SIGHUP {
			s.stopSignals = 1
		}
		end(fmt.Errorf("signal: %s", got))
	case <-serving.Done():
	}
}

// hurryOnSecond calls hurry on the second TERM or INT; seen is how many there
// were. Clients that close stdin send the first as a matter of course.
func hurryOnSecond(signals <-chan os.Signal, seen int, hurry context.CancelFunc) {
	for got := range signals {
		if got == syscall.SIGHUP {
			continue
		}
		if seen++; seen >= 2 {
			hurry()
		}
	}
}

// watchGuardian ends serving when the guardian dies.
func (s *session) watchGuardian(serving context.Context, end context.CancelCauseFunc) {
	select {
	case <-s.lifeline.Gone():
		end(errors.New("the guardian is dead"))
	case <-serving.Done():
	}
}

// watchParent ends serving when the guardian's parent is gone and the client
// with it.
func (s *session) watchParent(serving context.Context, end context.CancelCauseFunc) {
	for {
		select {
		case <-s.lifeline.ParentChanged():
			s.log.Info("the parent has ended; asking the client")
			err := s.server.AwaitClientGone(serving)
			if err == nil {
				end(errors.New("the parent has ended and the client does not answer"))
				return
			}
			s.log.Info("the session goes on", "reason", err)
		case <-serving.Done():
			return
		}
	}
}

// shutdown takes everything down in order; no step is skipped for an earlier
// one's failure, or for one that hangs. impatient ends the grace of children.
func (s *session) shutdown(impatient context.Context, stdout io.Closer) int {
	s.endRest()
	defer time.AfterFunc(sweepPatience, s.endSweep).Stop()
	e := ending{began: time.Now()}
	e.step("groups", groupsEndBy, without(s.groups.Close))
	e.step("health checks", healthEndBy, without(s.health.Close))
	e.step("processes", processesEndBy, func() error { return s.manager.Close(impatient) })
	processes := e.last
	e.step("MCP servers", serverEndBy, without(s.upstream.Close))
	e.step("server", serverEndBy, without(s.server.Close))
	e.step("run table", serverEndBy, without(s.runs.Close))
	e.step("database", storeEndBy, s.store.Close)
	e.step("clean-up after dead servers", recordEndBy, without(s.sweep.Wait))
	e.step("record", recordEndBy, func() error { return s.endRecord(processes) })
	e.step("stdout", shutdownCeiling, stdout.Close)
	if len(e.errs) > 0 {
		s.log.Error("shutdown was not clean", "error", errors.Join(e.errs...))
		return exitFailed
	}
	return exitOK
}

// ending is a shutdown under way.
type ending struct {
	began time.Time
	errs  []error
	last  error // of the latest step
}

// errGivenUp is of a step that did not end in time.
var errGivenUp = errors.New("shutdown took too long")

// step does one step and returns when it has ended, or at endBy from the
// beginning on: what then hangs in the kernel goes on in a goroutine that ends
// with the process, which is about to. What went wrong is e.last, and added to
// e.errs.
func (e *ending) step(name string, endBy time.Duration, do func() error) {
	done := make(chan error, 1)
	go func() { done <- do() }()
	late := time.NewTimer(time.Until(e.began.Add(endBy)))
	defer late.Stop()
	select {
	case e.last = <-done:
	case <-late.C:
		e.last = fmt.Errorf("%w, given up after %v", errGivenUp, time.Since(e.began).Round(time.Millisecond))
	}
	if e.last != nil {
		e.last = fmt.Errorf("cannot end the %s: %w", name, e.last)
		e.errs = append(e.errs, e.last)
	}
}

// without is a step that cannot fail.
func without(end func()) func() error {
	return func() error { end(); return nil }
}
