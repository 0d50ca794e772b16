package guardian

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"pmcp/process/guard"
	"pmcp/registry"
)

// commandVerb is the sub-command that guards a command.
const commandVerb = "guard"

// daemonToken is the variable that a command does not get: with it the command could ask the daemon
// to run anything.
const daemonToken = "PM_DAEMON_TOKEN"

const commandUsage = `usage: pmcp guard -- COMMAND [ARGUMENT...]

Runs a command, such as another MCP server, with the stdin, stdout and stderr of pmcp guard, and
leaves nothing of it behind: when the client or a process between client and pmcp ends, or pmcp
guard itself is killed, the command and all that it has started is ended, browsers included.
The exit code is the command's; 127: not found, 126: cannot be executed, 128+N: killed by signal N.
`

// The exit codes for a command that does not start, as of a shell.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// leftGrace is how long the processes that a command leaves have to end after SIGTERM.
const leftGrace = 2 * time.Second

// runCommand is the process that the client launches with `pmcp guard`. It starts a second
// guardian, which starts the command, so that the command is guarded even if one of the two is
// killed. It continues without a record if none can be written.
func runCommand(args []string, stderr io.Writer) (exitCode int) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	} else if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		args = nil
	}
	if len(args) == 0 {
		fmt.Fprint(stderr, commandUsage)
		return exitUsage
	}
	dir := registry.Dir(os.Getenv)
	id := registry.NewID(dir)
	lock, err := registry.Prepare(dir, id)
	if err != nil {
		fmt.Fprintf(stderr, "pmcp: guarding without a record: %v\n", err)
	} else {
		defer func() { _ = lock.Close() }()
	}
	return guard.Run(guard.Config{
		ID: id, Verb: guard.HoldVerb, Args: args, Lock: lock, Grace: leftGrace,
		OnGone: func() error { return registry.Remove(dir, id) },
		Logf:   logTo(stderr),
	})
}

// holdCommand is the second guardian. Its arguments are the session id and the command.
func holdCommand(args []string, stderr io.Writer) (exitCode int) {
	life, err := guard.Inherit()
	if err == nil && len(args) < 2 {
		err = errors.New("no command")
	}
	if err != nil {
		fmt.Fprintf(stderr, "pmcp: %s is for pmcp itself: %v\n", guard.HoldVerb, err)
		return exitUsage
	}
	defer func() { _ = life.Close() }()
	if err := os.Unsetenv(daemonToken); err != nil {
		fmt.Fprintln(stderr, "pmcp: cannot guard:", err)
		return exitFailed
	}
	id, argv := args[0], args[1:]
	path, err := exec.LookPath(argv[0])
	if err != nil {
		fmt.Fprintln(stderr, "pmcp: cannot guard:", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return exitNotFound
		}
		return exitNotExecutable
	}
	dir := registry.Dir(os.Getenv)
	record, err := register(dir, id, life, argv)
	if err != nil {
		fmt.Fprintf(stderr, "pmcp: guarding without a record: %v\n", err)
	}
	return guard.Hold(guard.Config{
		ID: id, Grace: leftGrace, Logf: logTo(stderr),
		OnGone: func() error {
			if record != nil {
				return record.Close()
			}
			return registry.Remove(dir, id) // the lock may have its name
		},
	}, life, path, argv)
}

// register publishes the lock and the record of a command. It returns nil if there is no lock:
// runCommand has reported why.
func register(dir, id string, life *guard.Lifeline, argv []string) (*registry.Registration, error) {
	if life.Lock() == nil {
		return nil, nil
	}
	if err := registry.Publish(life.Lock(), dir, id); err != nil {
		return nil, err
	}
	r := registry.Describe(life.Guardian())
	r.Guards = argv
	return registry.Register(dir, id, r)
}
