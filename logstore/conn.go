package logstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"
)

const (
	pageBytes   = 16 << 10
	readConns   = 4    // reads that run at once; more wait for one of these
	cacheKB     = 4096 // page cache of one connection
	busyMillis  = 5000
	walPages    = 4096     // 64 MiB: a commit checkpoints by itself when the checkpointer has not kept up
	journalKeep = 64 << 20 // the write-ahead log is cut to this after a checkpoint
)

// connector opens connections with the settings that the connection string cannot carry.
type connector struct {
	driver *sqlite3.SQLiteDriver
	dsn    string
}

func (c *connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c *connector) Driver() driver.Driver                        { return c.driver }

// settings are made on each connection, in this order: the first two have an effect on a new file only, and only before it is in WAL mode.
func settings(c *sqlite3.SQLiteConn) error {
	for _, pragma := range []string{
		"PRAGMA page_size = " + strconv.Itoa(pageBytes),
		"PRAGMA auto_vacuum = INCREMENTAL",
		"PRAGMA journal_mode = WAL",
		"PRAGMA wal_autocheckpoint = " + strconv.Itoa(walPages),
		"PRAGMA journal_size_limit = " + strconv.Itoa(journalKeep),
	} {
		if strings.HasPrefix(pragma, "PRAGMA auto_vacuum") && vacuumsIncrementally(c) {
			continue
		}
		if _, err := c.Exec(pragma, nil); err != nil {
			return fmt.Errorf("cannot set %q: %w", pragma, err)
		}
	}
	return nil
}

// vacuumsIncrementally tells whether the file has the setting. To set it again would read and then write, for which SQLite does not wait while
// another server writes: the file would count as locked.
func vacuumsIncrementally(c *sqlite3.SQLiteConn) bool {
	const incremental = 2
	rows, err := c.Query("PRAGMA auto_vacuum", nil)
	if err != nil {
		return false
	}
	defer rows.Close()
	mode := make([]driver.Value, 1)
	return rows.Next(mode) == nil && mode[0] == int64(incremental)
}

func openPool(path string, readOnly bool, conns int) *sql.DB {
	return openPoolWaiting(path, readOnly, conns, busyMillis)
}

// openPoolWaiting is openPool with the time to wait for a lock in milliseconds.
func openPoolWaiting(path string, readOnly bool, conns, wait int) *sql.DB {
	q := url.Values{}
	q.Set("_busy_timeout", strconv.Itoa(wait))
	q.Set("_synchronous", "NORMAL")
	q.Set("_cache_size", strconv.Itoa(-cacheKB))
	q.Set("_stmt_cache_size", "64")
	q.Set("_foreign_keys", "off")
	d := &sqlite3.SQLiteDriver{}
	if readOnly {
		q.Set("_query_only", "true")
	} else {
		q.Set("_txlock", "immediate")
		d.ConnectHook = settings
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	db := sql.OpenDB(&connector{driver: d, dsn: u.String()})
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db
}

// corrupt tells whether err says that the file is not a database, or a broken one.
func corrupt(err error) bool {
	if errors.Is(err, errForeign) || errors.Is(err, errCorrupt) {
		return true
	}
	var e sqlite3.Error
	return errors.As(err, &e) && (e.Code == sqlite3.ErrCorrupt || e.Code == sqlite3.ErrNotADB)
}

// diskFull tells whether err says that there is no room to write.
func diskFull(err error) bool {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return true
	}
	var e sqlite3.Error
	return errors.As(err, &e) && (e.Code == sqlite3.ErrFull || e.SystemErrno == unix.ENOSPC || e.SystemErrno == unix.EDQUOT)
}

// errCorrupt is what a failed check of the file wraps.
var errCorrupt = errors.New("the log database is corrupt")
