package logstore

import (
	"errors"

	"pmcp/logstore/db"
	"pmcp/logstore/match"
)

var (
	// ErrNewerSchema is wrapped by Open's error when a newer version of the program wrote the file.
	ErrNewerSchema = db.ErrNewerSchema
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
)
