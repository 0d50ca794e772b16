package logstore

import "errors"

var (
	// ErrNewerSchema is wrapped by Open's error when the file was written by a newer version of the program.
	ErrNewerSchema = errors.New("the log database was written by a newer version")
	// ErrForeign is wrapped by Open's error when the file is a SQLite database of another program, or no
	// database and has never been one of ours. It is left as it was.
	ErrForeign = errors.New("the file is another program's, not a log database")
	// ErrCursor is wrapped when a cursor is not one that this package made.
	ErrCursor = errors.New("not a valid cursor")
	// ErrEnded is returned by WaitLine when the run's capture ended without a matching line.
	ErrEnded = errors.New("the run's output ended")
	// ErrClosed is returned by what is called on a closed Store.
	ErrClosed = errors.New("the log store is closed")
	// ErrUnknownRun is wrapped when a run id belongs to no run that is kept.
	ErrUnknownRun = errors.New("no such run")
)
