package logstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/mattn/go-sqlite3"
)

// maxFaults is how many faults of a broken file CheckFile names.
const maxFaults = 3

// CheckFile says in a few words whether the database at path is whole, and with an error if it is
// not, or not one that this version can use. It reads the whole file and therefore may be cut short
// by ctx, which is no error: the text says so. A file that does not exist yet is no error either.
//
// The file is never opened for writing, so that this is safe beside servers that write, without any
// server, and on what a killed one left.
func CheckFile(ctx context.Context, path string) (text string, err error) {
	if real, err := realPath(path); err == nil { // the write-ahead log is there
		path = real
	}
	if hasFrames(path) {
		text, err = checkLogged(ctx, path)
	} else if text, err = checkAlone(ctx, path); err != nil && hasFrames(path) { // a server has begun to write
		text, err = checkLogged(ctx, path)
	}
	switch {
	case err == nil:
		return text, nil
	case errors.Is(err, fs.ErrNotExist):
		return "not created yet", nil
	case ctx.Err() != nil:
		return "too large to be checked in this time", nil
	default:
		return "", fmt.Errorf("cannot vouch for the log database: %w", err)
	}
}

// walHeaderBytes is the length of the header of a write-ahead log.
const walHeaderBytes = 32

// hasFrames tells whether there is a write-ahead log with something in it. Where a server was killed
// when it had written the header and no frame, SQLite would look for one for 10 s.
func hasFrames(path string) bool {
	info, err := os.Stat(path + "-wal")
	return err == nil && info.Size() > walHeaderBytes
}

// checkAlone reads the file as if there was nothing else.
func checkAlone(ctx context.Context, path string) (string, error) {
	return checkWith(ctx, path, url.Values{"immutable": {"1"}})
}

// checkLogged reads the file and its write-ahead log: by the index of the log as it is, or, where
// there is none, by one that is made.
func checkLogged(ctx context.Context, path string) (string, error) {
	text, err := checkWith(ctx, path, url.Values{"readonly_shm": {"1"}})
	var e sqlite3.Error
	if errors.As(err, &e) && e.Code == sqlite3.ErrCantOpen {
		return checkWith(ctx, path, url.Values{})
	}
	return text, err
}

func checkWith(ctx context.Context, path string, params url.Values) (string, error) {
	// SQLite says only that it cannot open what does not exist.
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return "empty", err
	}
	params.Set("mode", "ro")
	params.Set("_query_only", "true")
	params.Set("_busy_timeout", "1000")
	u := url.URL{Scheme: "file", Path: path, RawQuery: params.Encode()}
	db := sql.OpenDB(&connector{driver: &sqlite3.SQLiteDriver{}, dsn: u.String()})
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	return checkWhole(ctx, db)
}

func checkWhole(ctx context.Context, db *sql.DB) (string, error) {
	switch err := checkSchema(ctx, db); {
	case errors.Is(err, errOlderSchema):
		return "of an older version; the next server brings it up to date", nil
	case err != nil:
		return "", err
	}
	faults, err := faultsOf(ctx, db)
	switch {
	case err != nil:
		return "", err
	case len(faults) > 0:
		return "", fmt.Errorf("%w: %s", errCorrupt, strings.Join(faults, "; "))
	}
	var runs, open int
	err = db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM session WHERE ended = 0)`).Scan(&runs, &open)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("whole, %d runs, %d sessions without an end", runs, open), nil
}

// faultsOf is what SQLite finds wrong with the file, nothing if it is whole.
func faultsOf(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, fmt.Sprintf(`PRAGMA integrity_check(%d)`, maxFaults))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var faults []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, err
		}
		if line != "ok" {
			faults = append(faults, line)
		}
	}
	return faults, rows.Err()
}
