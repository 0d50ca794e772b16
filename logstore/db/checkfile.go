package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/mattn/go-sqlite3"
)

// maxReportedFaults is how many faults of a corrupt file CheckFile lists.
const maxReportedFaults = 3

// CheckFile returns a short description of the database at path. It returns an error if the database is
// damaged or if this version cannot use it. A file that does not exist yet is not an error.
//
// CheckFile reads the whole file, so it may take long. If ctx ends first, the text says so and the error is
// nil.
//
// The file is never opened for writing. CheckFile is therefore safe while servers are writing, while no
// server runs, and on files that a killed server left behind.
func CheckFile(ctx context.Context, path string) (text string, err error) {
	real, err := RealPath(path)
	if err == nil {
		path = real // the write-ahead log is beside the resolved path
		if err = checkAccess(path); errors.Is(err, fs.ErrNotExist) {
			err = nil // the directory does not exist yet either
		}
	}
	if errors.Is(err, errUnsafe) {
		return "", fmt.Errorf("servers do not use the log database: %w", err)
	}
	withWAL := walHasFrames(path)
	if !withWAL {
		text, err = checkWith(ctx, path, "immutable=1")
		withWAL = err != nil && walHasFrames(path) // a server started to write
	}
	if withWAL {
		text, err = checkWith(ctx, path, "readonly_shm=1")
		if hasCode(err, sqlite3.ErrCantOpen) { // there is no index of the log yet
			text, err = checkWith(ctx, path, "")
		}
	}
	switch {
	case err == nil:
		return text, nil
	case errors.Is(err, fs.ErrNotExist):
		return "not created yet", nil
	case ctx.Err() != nil:
		return "too large to be checked in this time", nil
	default:
		return "", fmt.Errorf("the check of the log database failed: %w", err)
	}
}

// WALHeaderBytes is the length of the header of a write-ahead log.
const WALHeaderBytes = 32

// walHasFrames reports whether there is a write-ahead log with at least one frame. If a server was killed
// after it wrote the header but before the first frame, SQLite would search for a frame for 10 s.
func walHasFrames(path string) bool { return fileSize(path+"-wal") > WALHeaderBytes }

// checkWith opens the database read-only with the parameters file, checks its schema and its integrity, and
// returns a summary.
func checkWith(ctx context.Context, path, file string) (string, error) {
	// SQLite reports a missing file only as a file that it cannot open.
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return "empty", err
	}
	db := PoolConfig{readOnly: true, file: "mode=ro&" + file, maxConns: 1, busyTimeout: 1000}.Open(path)
	defer func() { _ = db.Close() }()
	switch err := CheckSchema(ctx, db); {
	case errors.Is(err, ErrOlderSchema):
		return "of an older version; the next server brings it up to date", nil
	case err != nil:
		return "", err
	}
	var verdict string
	err := db.QueryRowContext(ctx, `SELECT group_concat(fault, '; ')
		FROM (SELECT integrity_check AS fault FROM pragma_integrity_check LIMIT ?)`, maxReportedFaults).Scan(&verdict)
	switch {
	case err != nil:
		return "", err
	case verdict != "ok":
		return "", fmt.Errorf("%w: %s", ErrCorrupt, verdict)
	}
	var runs, open int
	err = db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM session WHERE ended = 0)`).Scan(&runs, &open)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("whole, runs: %d, sessions without an end: %d", runs, open), nil
}
