// Command pmcp is a process manager for LLM agents: an MCP server on stdin and
// stdout that starts, watches and stops local processes, keeps their output and
// leaves nothing behind.
//
// This file holds the wiring and the order of start and shutdown; the packages hold
// everything else. README.md is for users, e2e/README.md for
// developers.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"pmcp/groups"
	"pmcp/health"
	"pmcp/logstore"
	"pmcp/logstore/db"
	"pmcp/logstore/mask"
	"pmcp/process"
	"pmcp/process/guard"
	"pmcp/registry"
	"pmcp/registry/guardian"
	"pmcp/server"
	"pmcp/server/cli"
	"pmcp/server/config"
	"pmcp/server/daemon"
	"pmcp/server/host"
	"pmcp/server/project"
	"pmcp/server/socket"
	"pmcp/server/upstream"
)

// version is the version of this program. The build records the commit.
const version = "0.1.0"

// Exit codes. Clients show anything but 0 as a failure, so every ordinary end
// of a session is 0.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // wrong flags or variables, or an environment in which pmcp cannot serve
)

func main() {
	if err := guard.Seal(); err != nil {
		fmt.Fprintln(os.Stderr, "pmcp:", err)
		os.Exit(exitFailed)
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdin, stdout, stderr *os.File) int {
	if len(args) >= 2 && args[0] == guard.Verb {
		if guard.IsDaemon(args[2:]) {
			return serveDaemon(ctx, args[1], stderr)
		}
		return serve(ctx, args[1], stdin, stdout, stderr)
	}
	if cli.IsCommand(args) {
		return cli.Run(ctx, args, stdout, stderr)
	}
	o, err := config.ParseFlags(args, version, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case o.Version:
		commit, date := config.BuildInfo()
		fmt.Fprintf(stdout, "pmcp %s (commit %s, built %s, %s, SQLite %s)\n", version, commit, date, runtime.Version(), db.SQLiteVersion())
		return exitOK
	case o.Doctor:
		return cli.Doctor(o.Report, stdout, stderr)
	}
	if !o.NoGuardian {
		return guardian.Run(stdin, stderr) // without flags, package guardian has done this before main
	}
	if err := guardian.CheckStdin(stdin); err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
		return exitUsage
	}
	return serve(ctx, "", stdin, stdout, stderr)
}

// A session is everything that serve has started and shutdown ends.
type session struct {
	id       string
	c        config.Config
	log      *slog.Logger
	mask     *mask.Masker    // nil: secrets are not masked
	lifeline *guard.Lifeline // nil without a guardian
	lock     *os.File        // the lock of the record; nil if there can be no record
	record   *registry.Registration
	socket   *socket.Listener // nil if there is no record
	store    *logstore.Store
	manager  *process.Manager
	upstream *upstream.Hub
	runs     *project.RunTable
	health   *health.Monitor
	groups   *groups.Manager
	server   *server.Server
	sweep    sync.WaitGroup
	endSweep context.CancelFunc
	endPause context.CancelFunc // ends the pause between two sweeps
	hosted   *host.Hosted       // nil unless the daemon has started this session
	adoptErr error              // why orphans are not re-parented to us; nil if they are, and on macOS
}

// serverThreads is how many threads a busy server needs beside the runtime's own. They are
// created at the start, because the system may refuse more later.
const serverThreads = 8

// serve runs the server and returns the exit code. id is "" without a guardian.
func serve(ctx context.Context, id string, stdin, stdout, stderr *os.File) int {
	s := &session{id: id}
	if err := s.prepare(stderr); err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
		s.answerCaller(stdout, err)
		return exitUsage
	}
	defer s.release()
	own := server.NewStderr(stderr)
	defer own.Close()
	s.logTo(own)
	signals := guard.ReceiveSignals()
	defer signals.Stop()
	if s.hosted == nil && s.c.Daemon.Mode == config.DaemonEnabled {
		return s.shim(ctx, signals, stdin, stdout, stderr)
	}
	if err := s.open(ctx, stdin); err != nil {
		s.answerCaller(stdout, err)
		if errors.Is(err, logstore.ErrNewerSchema) || errors.Is(err, logstore.ErrForeign) {
			fmt.Fprintf(stderr, "pmcp: PM_DATABASE_PATH: %v; the file is unchanged; set another path\n", err)
			return exitUsage
		}
		fmt.Fprintln(stderr, "pmcp:", err)
		return exitFailed
	}
	if terminal, _ := guard.Foreground(stdin); terminal {
		exe, _ := os.Executable()
		fmt.Fprint(stderr, s.c.Greeting(version, cmp.Or(exe, "pmcp")))
	}
	s.answerCaller(stdout, nil)
	impatient := s.untilEnd(ctx, signals, stdin, stdout)
	return s.shutdown(impatient, stdout)
}

// serveDaemon runs the daemon of a database and returns the exit code. stderr is its log.
func serveDaemon(ctx context.Context, id string, stderr *os.File) int {
	life, err := guard.Inherit()
	var c config.Config
	if err == nil {
		c, err = config.Read()
	}
	if err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
		return exitUsage
	}
	defer func() { _ = life.Close(); _ = life.Lock().Close() }()
	file := daemon.NewLog(stderr)
	own := server.NewStderr(file)
	defer own.Close()
	log := slog.New(slog.NewTextHandler(own, &slog.HandlerOptions{Level: c.Level()}))
	signals := guard.ReceiveDaemonSignals()
	defer signals.Stop()
	record := registry.Describe(life.Guardian())
	record.Version, record.Database = version, c.DatabasePath
	sweep := func(pausing context.Context) { registry.SweepDying(ctx, pausing, c.RegistryDir, log) }
	sessions := host.New(host.Options{Token: c.Daemon.Token, Version: version, Stderr: stderr, Died: sweep, Log: log})
	tcp, err := daemon.ListenTCP(c.Daemon.TCP())
	if err != nil {
		log.Warn("the daemon has only its socket", "error", err)
	}
	defer sessions.ServeTCP(ctx, tcp)()
	d := daemon.Daemon{ID: id, Dir: c.RegistryDir, SocketPath: c.Daemon.SocketPath, Record: record, Life: life, Log: log, File: file, Host: sessions}
	if err := d.Serve(ctx, signals); err != nil {
		log.Error("the daemon has failed", "error", err)
		return exitFailed
	}
	_ = daemon.RemoveLog(c.RegistryDir, c.DatabasePath) // the next one appends to it
	return exitOK
}

// answerCaller sends the daemon's caller that the session begins or, if err is not nil, why not. It does
// nothing in a session that the daemon has not started.
func (s *session) answerCaller(stdout io.Writer, err error) {
	if s.hosted == nil {
		return
	}
	if err := s.hosted.AnswerCaller(stdout, s.id, err); err != nil && s.log != nil {
		s.log.Warn("cannot tell the caller that the session begins", "error", err)
	}
}

// prepare takes over what the guardian passes on, or creates it if there is no guardian, and
// reads the configuration.
func (s *session) prepare(stderr io.Writer) (err error) {
	alone := s.id == ""
	if !alone {
		if s.lifeline, err = guard.Inherit(); err != nil {
			return fmt.Errorf("%s is for pmcp itself: %w", guard.Verb, err)
		}
		s.lock = s.lifeline.Lock()
	}
	if s.hosted, err = host.Inherit(); err != nil {
		return err
	}
	umask() // before there are files and children
	if s.c, err = config.Read(); err != nil {
		return err
	}
	for _, name := range []string{"PM_DAEMON_TOKEN", "PM_DAEMON_TCP_BIND", "PM_DAEMON_TCP_PORT"} {
		_ = os.Unsetenv(name) // children must not inherit the secret, and a pmcp among them not what needs it
	}
	if alone {
		s.id = registry.NewID(s.c.RegistryDir)
		if s.lock, err = guardian.PrepareLock(s.c.RegistryDir, s.id, stderr); err != nil {
			return err
		}
	}
	s.adoptErr = guard.Subreaper()
	return nil
}

// release closes the lifeline and the lock, which is held while its file is open.
func (s *session) release() {
	if s.lifeline != nil {
		_ = s.lifeline.Close()
	}
	_ = s.lock.Close()
}

// logTo makes the session's log, which masks secrets and goes to stderr.
func (s *session) logTo(stderr io.Writer) {
	if s.c.MaskSecrets {
		s.mask = mask.New()
		s.mask.LearnEnviron(os.Environ()) // every child inherits these variables
	}
	s.log = slog.New(slog.NewTextHandler(s.mask.Writer(stderr), &slog.HandlerOptions{Level: s.c.Level()}))
	s.c.Warn(s.log)
}

// open starts everything except the connection to the client.
func (s *session) open(ctx context.Context, stdin *os.File) error {
	guardianPID := 0
	if s.lifeline != nil {
		guardianPID = s.lifeline.Guardian()
	}
	record := registry.Describe(guardianPID)
	record.Version, record.Project, record.Database = version, s.c.ProjectDir, s.c.DatabasePath
	if s.hosted == nil {
		client := guard.Client(record.Parent.PID)
		record.Client = registry.Process{PID: client.PID, Start: client.Start}
	}
	published := s.publish()
	var err error
	var opening sync.WaitGroup
	opening.Go(func() { err = s.openStore(ctx) })
	s.register(record, published)
	commit, built := config.BuildInfo()
	guard.MakeThreads(serverThreads)
	opening.Wait()
	if err != nil {
		_ = s.unregister() // the error of the store matters more
		return err
	}
	s.wire(record, commit, built, s.keep(stdin))
	if s.adoptErr != nil {
		s.log.Warn("daemons are found by their marks instead", "error", s.adoptErr)
	}
	s.log.Info("serving", "version", version, "built", built, "pid", record.Server.PID, "guardian", record.Guardian.PID,
		"project", s.c.ProjectDir, "database", s.c.DatabasePath)
	var sweeping, pausing context.Context
	sweeping, s.endSweep = context.WithCancel(ctx)
	pausing, s.endPause = context.WithCancel(sweeping)
	s.sweep.Go(func() { registry.SweepDying(sweeping, pausing, s.c.RegistryDir, s.log) })
	return nil
}

// publish publishes the session's lock, if it has one: from then on the session is alive for those who
// find it in the database.
func (s *session) publish() error {
	if s.lock == nil {
		return nil
	}
	return registry.Publish(s.lock, s.c.RegistryDir, s.id)
}

// register publishes the session's socket and record, if it has a lock. err is that of publish.
func (s *session) register(record registry.Record, err error) {
	if s.lock == nil {
		return
	}
	if err == nil {
		record.Socket = s.listen()
		s.record, err = registry.Register(s.c.RegistryDir, s.id, record)
	}
	if err != nil {
		s.log.Warn("serving without a record", "error", err)
	}
}

// listen creates the session's socket and returns its path, "" if it cannot be created.
func (s *session) listen() string {
	var err error
	if s.socket, err = socket.Listen(s.c.RegistryDir, s.id, s.log); err != nil {
		s.log.Warn("other servers cannot reach this one", "error", err)
		return ""
	}
	return s.socket.Path()
}

// unregister removes the record. If there is a guardian, it removes what is left.
func (s *session) unregister() error {
	switch {
	case s.record != nil:
		return s.record.Close()
	case s.lifeline == nil:
		return registry.Remove(s.c.RegistryDir, s.id)
	}
	return nil
}

// endRecord removes the record, unless stopped, the error of ending the processes, means that some
// may be left: then the record keeps naming these. A guardian removes the record once it has killed
// them; without a guardian, the next server's sweep does.
func (s *session) endRecord(stopped error) error {
	if errors.Is(stopped, process.ErrSurvivors) || errors.Is(stopped, guard.ErrTimeout) {
		s.log.Warn("keeping the record: it names processes that may be left")
		return nil
	}
	return s.unregister()
}

// keepsNothing returns why a session without a database keeps nothing: no other session would see
// what it keeps.
func (s *session) keepsNothing() error {
	return fmt.Errorf("keep needs the log database: %s", s.store.Status().Reason)
}

func (s *session) openStore(ctx context.Context) (err error) {
	s.store, err = logstore.Open(ctx, logstore.Options{
		Path: s.c.DatabasePath, Session: s.id, RetentionDays: s.c.LogRetentionDays,
		MaxBytes: int64(s.c.MaxLogSizeMB) * 1e6, Logger: s.log, Mask: s.mask,
		Registry: s.c.RegistryDir, Alive: s.c.Alive,
	})
	if err == nil && s.hosted != nil && s.hosted.Keeper && s.store.Status().State == logstore.StateMemory {
		err = errors.Join(s.keepsNothing(), s.store.Close())
	}
	return err
}

// keeperIdle is how long a keeper waits for another process to keep, and hostedIdle how long
// a session waits for a restart of one, after the last has ended.
const (
	keeperIdle = time.Minute
	hostedIdle = 2 * time.Second
)

// refuseKeep returns the Keep of a session that keeps nothing.
func refuseKeep(why error) project.Keep {
	return project.Keep{Keeper: func(context.Context, string) (string, error) { return "", why }}
}

// keep returns how processes outlive the session. stdin is the client's.
func (s *session) keep(stdin *os.File) project.Keep {
	switch {
	case s.hosted == nil && s.c.Daemon.Mode == config.DaemonNever:
		return refuseKeep(errors.New("PM_DAEMON_MODE=never refuses keep"))
	case s.store.Status().State == logstore.StateMemory:
		return refuseKeep(s.keepsNothing())
	case s.hosted == nil:
		return project.Keep{Keeper: host.NewCaller(s.dialDaemon, s.hello).Keeper}
	}
	k := project.Keep{Here: true, DiesWith: registry.DaemonRecord(s.c.RegistryDir, s.c.DatabasePath).DiesWith, Idle: hostedIdle, Disconnect: func() {
		s.hosted.Disconnect(stdin)
		s.recordClient(registry.ClientDaemon, "")
	}}
	if s.hosted.Keeper {
		k.Idle = keeperIdle
	}
	if s.c.Daemon.Mode == config.DaemonEnabled {
		k.For = time.Duration(s.c.Daemon.Keep)
	}
	return k
}

// wire creates the managers of processes, health checks and groups, and the MCP server. commit and
// built are those of this binary.
func (s *session) wire(record registry.Record, commit, built string, keep project.Keep) {
	var recorder process.Recorder
	if s.record != nil {
		recorder = s.record
	}
	s.upstream = upstream.NewHub(upstream.Options{
		Capture: func(run int64, at time.Time, line []byte) { s.store.Capture(run, logstore.Messages, at, line) },
		Head:    s.mask.Head,
		OnReady: func(name string, run int64, ready bool, why string) { s.manager.SetReady(name, run, ready, why) },
		Version: version, Log: s.log, StartTimeout: time.Duration(s.c.MCP.StartupTimeout),
		MaxMessage: s.c.MCP.MaxMessageBytes, MaxOnDemand: s.c.MCP.CacheSize,
	})
	store := project.NewStore(s.store, s.c.ProjectDir)
	store.ReachWindows(s.c.RegistryDir, 0)
	s.manager = process.NewManager(process.Options{
		Project: s.c.ProjectDir, Session: s.id, Journal: store, Recorder: recorder, Log: s.log,
		MaxProcesses: s.c.MaxProcesses, StopTimeout: time.Duration(s.c.StopTimeout), NoAutoRestart: !s.c.AutoRestartEnabled,
		Subreaper: runtime.GOOS == "linux" && s.adoptErr == nil, AwaitLine: s.awaitLine, TakeStdio: s.upstream.Take, TakeHTTP: s.upstream.TakeHTTP, Allowed: s.c.AllowedCommands,
		MaxCPUPercent: s.c.MaxCPUPercent, MaxMemoryMB: s.c.MaxMemoryMB, LimitAction: s.c.LimitAction,
		OnSample: s.store.SaveSample,
	})
	s.runs = project.NewRunTable(s.manager, store, record.Server.PID, s.log)
	s.health = health.NewMonitor(health.Options{
		Processes: s.manager, Changes: s.manager.Watch(),
		Interval: time.Duration(s.c.HealthCheckInterval), Log: s.log, Mask: s.mask.Part,
	})
	s.groups = groups.New(groups.Options{
		Processes: s.manager, Journal: store, Health: s.health, Elsewhere: s.runs, Project: s.c.ProjectDir,
	})
	s.server = server.New(server.Options{
		Manager: s.manager, Store: store, Health: s.health, Groups: s.groups, Upstream: s.upstream, Log: s.log,
		Registry: s.record, RegistryDir: s.c.RegistryDir, Socket: s.socket, Session: s.id, Build: server.Build{Version: version, Date: built, Commit: commit},
		GuardianPID: record.Guardian.PID, MaxServers: s.c.MaxServers, OnClient: s.recordClient, RateLimit: s.c.RateLimit,
		Toolsets: s.c.Toolsets, ReadOnly: s.c.ReadOnly, Structured: s.c.StructuredOutput, Mask: s.mask,
		Keep: keep, Channel: s.c.Channel,
	})
	if keep.Here && s.hosted.Keeper {
		s.recordClient(registry.ClientDaemon, "")
	}
}

// awaitLine returns the first line of a run that matches. It waits until there is such a line.
func (s *session) awaitLine(ctx context.Context, run, after int64, match func(uint8, string) bool) (string, error) {
	line, err := s.store.WaitLine(ctx, run, after, func(l logstore.Line) bool { return match(l.Stream, l.Text) })
	return line.Text, err
}

// shim serves the client by a session of the daemon and returns the exit code.
func (s *session) shim(ctx context.Context, signals *guard.Signals, stdin, stdout, stderr *os.File) int {
	defer func() { _ = s.unregister() }()
	guard.MakeThreads(serverThreads)
	hello, err := s.hello()
	if err == nil {
		var watchers sync.WaitGroup
		serving, end := guard.Serving(ctx, &watchers, signals, s.lifeline)
		err = (&host.Shim{In: stdin, Out: stdout, Dial: s.dialDaemon, Hello: hello, Log: s.log}).Run(serving)
		end(nil)
		watchers.Wait()
	}
	if err != nil {
		fmt.Fprintln(stderr, "pmcp: PM_DAEMON_MODE=enabled:", err)
		return exitFailed
	}
	return exitOK
}

// umask returns the umask with which the session began.
var umask = sync.OnceValue(host.Umask)

// startsDaemons reports whether this session may start a daemon, and can.
func (s *session) startsDaemons() bool { return s.c.Daemon.AutoStart && s.lifeline != nil }

// hello returns what a session of the daemon needs to be as this one would be. A session that starts no
// daemon says no version, for which a daemon of another one would end.
func (s *session) hello() (host.Hello, error) {
	own := version
	if !s.startsDaemons() {
		own = ""
	}
	return host.NewHello(own, s.c.Daemon.Token, umask(), guardian.Limits(), map[string]string{
		"PM_PROJECT_DIR": s.c.ProjectDir, "PM_DATABASE_PATH": s.c.DatabasePath, "PM_REGISTRY_DIR": s.c.RegistryDir,
	})
}

// dialDaemon connects to the daemon, which it starts if there is none and the variables allow it.
func (s *session) dialDaemon(ctx context.Context) (net.Conn, error) {
	o := daemon.Options{Dir: s.c.RegistryDir, Database: s.c.DatabasePath, SocketPath: s.c.Daemon.SocketPath}
	if s.startsDaemons() {
		o.Start = s.lifeline.Detach
	}
	c, err := daemon.Dial(ctx, o)
	switch {
	case !errors.Is(err, daemon.ErrNone):
	case !s.c.Daemon.AutoStart:
		err = fmt.Errorf("%w, and PM_DAEMON_AUTO_START=false lets none be started", err)
	default:
		err = fmt.Errorf("%w, and a server without a guardian starts none", err)
	}
	return c, err
}

// recordClient adds the client's name to the record and to the stored data of runs.
func (s *session) recordClient(name, version string) {
	s.runs.SetClient(name, version)
	s.updateRecord(func(r *registry.Record) { r.ClientName, r.ClientVersion = name, version })
}

// updateRecord changes the record if there is one.
func (s *session) updateRecord(change func(*registry.Record)) {
	if s.record == nil {
		return
	}
	if err := s.record.Update(change); err != nil {
		s.log.Warn("cannot update the record", "error", err)
	}
}

// untilEnd serves until there is a reason to end. It returns a context that ends with the
// second SIGTERM or SIGINT, which asks for a faster shutdown.
func (s *session) untilEnd(ctx context.Context, signals *guard.Signals, stdin io.Reader, stdout io.Writer) context.Context {
	var watchers sync.WaitGroup
	serving, end := guard.Serving(ctx, &watchers, signals, s.lifeline)
	impatient, hurry := context.WithCancel(context.WithoutCancel(ctx))
	if s.lifeline != nil {
		watchers.Go(func() { s.watchParent(serving, end) })
	}
	if err := s.server.Serve(serving, stdin, stdout); err != nil {
		s.log.Error("the connection failed", "error", err)
	}
	reason := context.Cause(serving)
	if reason == nil {
		reason = errors.New("the client closed the connection")
	}
	s.log.Info("shutting down", "reason", reason)
	end(nil)
	watchers.Wait()
	go func() { signals.WaitForSecond(); hurry() }() // ends with the process
	return impatient
}

// watchParent ends serving when the guardian's parent, or a process above it up to the client, has
// ended and the client does not answer.
func (s *session) watchParent(serving context.Context, end context.CancelCauseFunc) {
	for {
		select {
		case <-s.lifeline.ParentChanged():
			if s.hosted != nil {
				end(errors.New("the daemon is dead"))
				return
			}
			s.log.Info("the parent has ended, or a process above it; asking the client")
			err := s.server.AwaitClientGone(serving)
			if err == nil {
				end(errors.New("a parent has ended and the client does not answer"))
				return
			}
			s.log.Info("the session continues", "reason", err)
			if errors.Is(err, server.ErrClientLives) {
				s.updateRecord(func(r *registry.Record) { r.ClientAnsweredAt = time.Now() })
			}
		case <-serving.Done():
			return
		}
	}
}

// shutdown ends everything in order and returns the exit code. A step that fails or hangs does not
// keep later ones from being done. When the context impatient ends, so does the grace of children.
//
// The deadline of each step is measured from the start of the shutdown, so that a step can use the
// time that earlier ones have left. Children have 5 s of grace, and need more time to be killed and
// to have their output read to the end. The guardian ends whatever hangs after 10 s.
func (s *session) shutdown(impatient context.Context, stdout io.Closer) int {
	s.endPause()
	const sweepPatience = 2 * time.Second // before a shutdown, only registry's own limit applies
	defer time.AfterFunc(sweepPatience, s.endSweep).Stop()
	e := guard.NewEnding()
	e.Close("groups", 2*time.Second, s.groups.Close)
	e.Close("health checks", 3*time.Second, s.health.Close)
	stopped := e.Step("processes", 9*time.Second, func() error { return s.manager.Close(impatient) })
	e.Close("MCP servers", 9200*time.Millisecond, s.upstream.Close)
	e.Close("server", 9200*time.Millisecond, s.server.Close)
	e.Close("run table", 9200*time.Millisecond, s.runs.Close)
	_ = e.Step("database", 9800*time.Millisecond, s.store.Close)
	e.Close("clean-up after dead servers", 9900*time.Millisecond, s.sweep.Wait)
	_ = e.Step("record", 9900*time.Millisecond, func() error { return s.endRecord(stopped) })
	_ = e.Step("stdout", 10*time.Second, stdout.Close)
	if err := e.Err(); err != nil {
		s.log.Error("shutdown was not clean", "error", err)
		return exitFailed
	}
	return exitOK
}
