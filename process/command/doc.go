// Package command prepares what a child runs: it splits a command line as a shell
// would, or has a shell execute the line if only that can, finds the executable in the child's directory and PATH, checks it against the
// list of allowed commands, and builds the child's environment.
//
// The package guarantees that a line that needs no shell is executed without one, that
// with a list of allowed commands no shell is involved that the caller has not named, and
// that the file that was checked is the file that is executed. It refuses what cannot be
// found and what is not allowed, with an error that suggests what to write instead. It
// starts no process.
package command

import "errors"

var (
	// ErrInvalid is wrapped when a command line cannot be split. The text says what is
	// wrong and what is allowed.
	ErrInvalid = errors.New("invalid")
	// ErrNoExecutable is wrapped when the command cannot be found or run.
	ErrNoExecutable = errors.New("cannot find the executable")
	// ErrNotAllowed is wrapped when PM_ALLOWED_COMMANDS forbids an executable, or an
	// environment variable that would undermine the list.
	ErrNotAllowed = errors.New("not allowed")
)
