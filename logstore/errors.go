package logstore

import (
	"errors"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
)

var (
	// ErrNewerSchema is wrapped by Open's error when a newer version of the program wrote the file.
	ErrNewerSchema = db.ErrNewerSchema
	// ErrOlderSchema is wrapped by Open's error when a file opened with ReadOnly must be migrated first: by an Open
	// without ReadOnly.
	ErrOlderSchema = db.ErrOlderSchema
	// ErrForeign is wrapped by Open's error when the file is another program's SQLite database, or when the file
	// is not a database and no server has ever used it. Open leaves such a file unchanged.
	ErrForeign = db.ErrForeign
	// ErrCursor is wrapped by errors about an invalid cursor.
	ErrCursor = errors.New("not a valid cursor")
	// ErrPattern is wrapped by errors about a search text or regular expression that cannot be used.
	ErrPattern = match.ErrPattern
	// ErrEnded is returned by WaitLine when the run's capture ended without a matching line.
	ErrEnded = errors.New("the run's output ended")
	// ErrClosed is returned by the methods of a closed Store.
	ErrClosed = errors.New("the log store is closed")
	// ErrUnknownRun is wrapped by errors about a run id that belongs to no stored run.
	ErrUnknownRun = errors.New("no such run")

	// errReadOnly is returned by what needs to write to a Store that only reads.
	errReadOnly = errors.New("the log database is open for reading only")
	// errFoundDamage is wrapped by one error only: that of the read that finds the damage. The caller repeats the
	// read, which then uses memory only.
	errFoundDamage = errors.New("the log database is corrupt")
)
