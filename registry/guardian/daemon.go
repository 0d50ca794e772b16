package guardian

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/process/guard"
	"pmcp/registry"
)

// The waiting of a daemon that finds another one that takes no connections: it is starting, or
// ending, which takes a server and its guardian 12 s at most.
var turnLimit = guard.Limit(30 * time.Second)

const turnPoll = 10 * time.Millisecond

// sessionsGrace is how long the sessions of a daemon that was killed have to end: they have 10 s to
// stop their processes and to store what these have printed.
var sessionsGrace = guard.Limit(11 * time.Second)

// detachDaemon is the process between a session's guardian and a daemon, or the same in the control
// group of the daemon (see inScope). It runs in the directory of the session, so paths are made
// absolute here.
func detachDaemon(args []string, stderr io.Writer) (exitCode int) {
	if len(args) == 0 && inScope() {
		return 0
	}
	if err := guard.StartDaemon(daemonEnviron(os.Environ())); err != nil {
		fmt.Fprintln(stderr, "pmcp: cannot start a daemon:", err)
		return exitFailed
	}
	return 0
}

// daemonEnviron returns env with absolute paths and without the project, which a daemon has
// none of.
func daemonEnviron(env []string) (kept []string) {
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "PM_PROJECT_DIR", "CLAUDE_PROJECT_DIR":
			continue
		case "PM_DATABASE_PATH", "PM_REGISTRY_DIR", "PM_DAEMON_SOCKET_PATH":
			if abs, err := filepath.Abs(value); err == nil && value != "" {
				entry = name + "=" + abs
			}
		}
		kept = append(kept, entry)
	}
	return kept
}

// runDaemon is the guardian of a daemon. It ends at once if another daemon for the database
// takes connections. args has the pid of the process that started it. Its reports, and those of its server, go to the daemon's log.
func runDaemon(args []string, stderr *os.File) (exitCode int) {
	if len(args) > 0 {
		guard.AwaitOrphaned(args[0])
	}
	dir, database := registry.Dir(os.Getenv), registry.DatabasePath(os.Getenv)
	own, err := awaitTurn(dir, database)
	if err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
		return exitFailed
	}
	if own == nil {
		return 0
	}
	defer func() { _ = own.Close() }()
	if err := logToFile(registry.DaemonLog(dir, database), stderr); err != nil {
		fmt.Fprintln(stderr, "pmcp: without a log:", err)
	}
	id := registry.NewID(dir)
	lock, err := registry.Prepare(dir, id)
	if err != nil {
		fmt.Fprintln(stderr, "pmcp: no daemon without a record:", err)
		_ = registry.RemoveDaemon(own, dir, database) // the next clean-up does it
		return exitUsage
	}
	defer func() { _ = lock.Close() }()
	return guard.Run(guard.Config{
		ID: id, Lock: lock, Daemon: own, Grace: sessionsGrace,
		OnGone: func() error {
			return errors.Join(removeSocket(os.Getenv("PM_DAEMON_SOCKET_PATH")), registry.Remove(dir, id), registry.RemoveDaemon(own, dir, database))
		},
		Logf: logTo(stderr),
	})
}

// awaitTurn returns the lock of the daemon for a database, or nil if another one has it and
// takes connections.
func awaitTurn(dir, database string) (*os.File, error) {
	for deadline := time.Now().Add(turnLimit); ; time.Sleep(turnPoll) {
		own, err := registry.LockDaemon(dir, database)
		if !errors.Is(err, registry.ErrDaemonLives) {
			return own, err
		}
		if id, _ := registry.Daemon(dir, database); id != "" {
			return nil, nil
		}
		if time.Now().After(deadline) {
			return nil, err
		}
	}
}

// logToFile makes stderr the file at path, to which it appends.
func logToFile(path string, stderr *os.File) error {
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_APPEND|syscall.O_CREAT|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = syscall.Close(fd) }()
	return guard.Replace(stderr, fd)
}

// removeSocket removes the socket that a daemon has left at path, unless path is "" or another
// process listens there.
func removeSocket(path string) error {
	var st unix.Stat_t
	if path == "" || unix.Lstat(path, &st) != nil || uint32(st.Mode)&unix.S_IFMT != unix.S_IFSOCK {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !errors.Is(unix.Connect(fd, &unix.SockaddrUnix{Name: path}), unix.ECONNREFUSED) {
		return nil
	}
	return os.Remove(path)
}
