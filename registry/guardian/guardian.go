// Package guardian runs the process that a client launches. That is the guardian of a session
// (see package guard), which holds the lock of the session's record and removes the record at
// the end.
//
// A program without arguments is a guardian, as are both processes of `pmcp guard` and the
// guardian of a daemon, and its life begins in this package's init and ends there. The guardian needs none of what the server initialises: regular expressions, SQLite,
// HTTP, JSON schemas, a third of the time of a start and a third of the guardian's memory. The
// language defines the order: packages are sorted by import path, and the first one whose imports
// are initialised is next. So this package must import little; a test lists what precedes it.
package guardian

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"pmcp/process/guard"
	"pmcp/registry"
)

// The exit codes of a guardian that starts no server.
const (
	exitFailed = 1
	exitUsage  = 2 // an environment in which pmcp cannot serve
)

func init() {
	if len(os.Args) == 0 || strings.HasSuffix(os.Args[0], ".test") { // the binary of a Go test
		return
	}
	life := func() int { return Run(os.Stdin, os.Stderr) }
	if len(os.Args) > 1 {
		switch args := os.Args[2:]; os.Args[1] {
		case commandVerb:
			life = func() int { return runCommand(args, os.Stderr) }
		case guard.HoldVerb:
			life = func() int { return holdCommand(args, os.Stderr) }
		case guard.DetachVerb:
			life = func() int { return detachDaemon(args, os.Stderr) }
		case guard.DaemonVerb:
			life = func() int { return runDaemon(args, os.Stderr) }
		default:
			return
		}
	}
	if err := guard.Seal(); err != nil {
		fmt.Fprintln(os.Stderr, "pmcp:", err)
		os.Exit(exitFailed)
	}
	os.Exit(life())
}

// Run runs the guardian, which starts the server and lives until no process of the session is
// left, and returns its exit code. Reports go to stderr. See guard.Run for what Run does with the
// process; guard.Seal must have been called.
func Run(stdin *os.File, stderr io.Writer) (exitCode int) {
	if err := CheckStdin(stdin); err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
		return exitUsage
	}
	dir := registry.Dir(os.Getenv)
	id := registry.NewID(dir)
	lock, err := PrepareLock(dir, id, stderr) // the server publishes the lock
	if err != nil {
		fmt.Fprintln(stderr, "pmcp:", err)
		return exitUsage
	}
	defer func() { _ = lock.Close() }()
	return guard.Run(guard.Config{
		ID: id, Lock: lock,
		OnGone: func() error { return registry.Remove(dir, id) },
		Logf:   logTo(stderr),
	})
}

func logTo(stderr io.Writer) func(format string, args ...any) {
	return func(format string, args ...any) { fmt.Fprintf(stderr, "pmcp: "+format+"\n", args...) }
}

// CheckStdin returns an error if stdin is a terminal from which this process may not read.
func CheckStdin(stdin *os.File) error {
	if terminal, ours := guard.Foreground(stdin); terminal && !ours {
		return errors.New("started in the background of a terminal, where it cannot read stdin; an MCP client has to start it, or run it in the foreground")
	}
	return nil
}

// PrepareLock creates the lock of the session's record. If it cannot, it writes the reason to
// stderr and returns nil, since a session can do without a record. It returns an error only for a
// directory that is not safe to use.
func PrepareLock(dir, id string, stderr io.Writer) (*os.File, error) {
	lock, err := registry.Prepare(dir, id)
	switch {
	case errors.Is(err, registry.ErrUnsafeDir):
		return nil, fmt.Errorf("%w; choose another with PM_REGISTRY_DIR", err)
	case err != nil:
		fmt.Fprintf(stderr, "pmcp: serving without a record: %v; set PM_REGISTRY_DIR to a directory that can be written\n", err)
		return nil, nil
	}
	return lock, nil
}
