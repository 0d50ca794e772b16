package process

import (
	"errors"
	"fmt"

	"pmcp/process/command"
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrInvalid is wrapped by every error about a Spec or an argument. The text
	// describes what is wrong and what is allowed.
	ErrInvalid = command.ErrInvalid
	// ErrNoExecutable is wrapped when the command cannot be found or executed.
	ErrNoExecutable = command.ErrNoExecutable
	// ErrUnknown is wrapped when no entry has the requested name.
	ErrUnknown = errors.New("no such process")
	// ErrTooMany is wrapped when the limit of live processes is reached.
	ErrTooMany = errors.New("too many live processes")
	// ErrNotAllowed is wrapped when PM_ALLOWED_COMMANDS forbids an executable, or
	// an environment variable that would bypass it.
	ErrNotAllowed = command.ErrNotAllowed
	// ErrNoStdin is wrapped when a process has no standard input to write to.
	ErrNoStdin = errors.New("no standard input")
	// ErrNoTerminal is wrapped when a process has no terminal.
	ErrNoTerminal = errors.New("no terminal")
	// ErrNotReading is wrapped when a process does not read what is written to its
	// standard input.
	ErrNotReading = errors.New("the process does not read its standard input")
	// ErrCalledOff is wrapped when a Stop cancelled a Start that was still
	// waiting.
	ErrCalledOff = errors.New("stopped by another call")
	// ErrClosed is returned by everything that would start a process once the
	// Manager is closing.
	ErrClosed = errors.New("pmcp is shutting down")
	// ErrSurvivors is wrapped when a stop could not end every process.
	ErrSurvivors = errors.New("processes survived SIGKILL")
	// ErrLeft is wrapped when a process is not started because its last run has left others that
	// still run.
	ErrLeft = errors.New("what it has started still runs")
)

// EventRemove is the Event of the StateError that Remove returns.
const EventRemove = "remove"

// A StateError reports that an operation does not fit the state of a process.
type StateError struct {
	// Name is the name of the process.
	Name string
	// State is its current state, and Exit how its last run ended, if that matters.
	State State
	Exit  *Exit
	// Event is the requested operation, such as "start" or EventRemove.
	Event string
}

// Error returns a text that names the process, its state and the operation.
func (e *StateError) Error() string {
	verb := "is"
	if e.State == Exited || e.State == Crashed || e.State == Failed {
		verb = "has"
	}
	return fmt.Sprintf("cannot %s %s: it %s %s", e.Event, e.Name, verb, stateText(e.State, e.Exit))
}

// A DiffersError reports that a process is already running with another Spec.
type DiffersError struct {
	// Name is the name of the process.
	Name string
	// Fields are the differing fields, as returned by Spec.Differs.
	Fields []string
}

// Error returns a text that names the process and the differing fields.
func (e *DiffersError) Error() string {
	return fmt.Sprintf("%s already runs with another definition: %v differ", e.Name, e.Fields)
}
