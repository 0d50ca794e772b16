package process

import (
	"errors"
	"fmt"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrInvalid is wrapped by every error about a Spec or an argument; the
	// text says what was wrong and what is allowed.
	ErrInvalid = errors.New("invalid")
	// ErrNoExecutable is wrapped when the command cannot be found or run.
	ErrNoExecutable = errors.New("cannot find the executable")
	// ErrUnknown is wrapped when no entry has the name.
	ErrUnknown = errors.New("no such process")
	// ErrTooMany is wrapped when the limit of live processes is reached.
	ErrTooMany = errors.New("too many live processes")
	// ErrNotAllowed is wrapped when PM_ALLOWED_COMMANDS keeps an executable, or
	// an environment variable that would undermine it, from being used.
	ErrNotAllowed = errors.New("not allowed")
	// ErrNoStdin is wrapped when a process has no standard input to write to.
	ErrNoStdin = errors.New("no standard input")
	// ErrNotReading is wrapped when a process does not take what is written to
	// its standard input.
	ErrNotReading = errors.New("the process does not read its standard input")
	// ErrCalledOff is wrapped by a Start during whose wait a Stop came.
	ErrCalledOff = errors.New("stopped meanwhile by another call")
	// ErrClosed is answered by everything that would start a process once the
	// Manager is closing.
	ErrClosed = errors.New("pmcp is shutting down")
	// ErrSurvivors is wrapped when a stop could not end everything.
	ErrSurvivors = errors.New("processes survived SIGKILL")
)

// EventRemove is the Event of a StateError that Remove answers.
const EventRemove = "remove"

// StateError says that an operation does not fit the state of a process.
type StateError struct {
	// Name is the process.
	Name string
	// State is the state it is in.
	State State
	// Event is what was asked for, such as "start" or EventRemove.
	Event string
}

// Error names the process, its state and what was asked for.
func (e *StateError) Error() string {
	return fmt.Sprintf("cannot %s %s: it is %s", e.Event, e.Name, e.State)
}

// DiffersError says that a process already runs with another Spec.
type DiffersError struct {
	// Name is the process.
	Name string
	// Fields are what differs, as Spec.Differs gives them.
	Fields []string
}

// Error names the process and what differs.
func (e *DiffersError) Error() string {
	return fmt.Sprintf("%s already runs with another definition: %v differ", e.Name, e.Fields)
}
