package logstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

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

// formOfFile gives a new file its form: the first two have an effect only before it is in WAL mode.
// The second one takes the write lock even where it changes nothing, so it is not for connections
// to a file that is made.
var formOfFile = []string{
	"PRAGMA page_size = " + strconv.Itoa(pageBytes),
	"PRAGMA auto_vacuum = INCREMENTAL",
	"PRAGMA journal_mode = WAL",
}

// writerSettings are made on each connection that writes.
var writerSettings = []string{
	"PRAGMA wal_autocheckpoint = " + strconv.Itoa(walPages),
	"PRAGMA journal_size_limit = " + strconv.Itoa(journalKeep),
}

// pool says how the connections of a pool are.
type pool struct {
	readOnly bool // nothing is written by a statement
	leave    bool // nor otherwise: the file is opened for reading
	conns    int
	patience int      // how long to wait for a lock, in milliseconds
	settings []string // that the connection string cannot carry
}

var (
	readPool  = pool{readOnly: true, conns: readConns, patience: busyMillis}
	pollPool  = pool{readOnly: true, conns: 1, patience: busyMillis}
	writePool = pool{conns: 1, patience: busyMillis, settings: writerSettings}
	checkPool = pool{conns: 1, settings: writerSettings}
	leavePool = pool{readOnly: true, leave: true, conns: 1, patience: busyMillis}
	makePool  = pool{conns: 1, patience: busyMillis, settings: slices.Concat(formOfFile, writerSettings)}
)

// open opens the pool on the file. It makes no connection yet.
func (p pool) open(path string) *sql.DB {
	q := url.Values{}
	q.Set("_busy_timeout", strconv.Itoa(p.patience))
	q.Set("_synchronous", "NORMAL")
	q.Set("_cache_size", strconv.Itoa(-cacheKB))
	q.Set("_stmt_cache_size", "64")
	q.Set("_foreign_keys", "off")
	if p.readOnly {
		q.Set("_query_only", "true")
	} else {
		q.Set("_txlock", "immediate")
	}
	if p.leave {
		q.Set("mode", "ro")
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	db := sql.OpenDB(&connector{driver: &sqlite3.SQLiteDriver{ConnectHook: p.set}, dsn: u.String()})
	db.SetMaxOpenConns(p.conns)
	db.SetMaxIdleConns(p.conns)
	return db
}

// set makes the settings on a new connection.
func (p pool) set(c *sqlite3.SQLiteConn) error {
	for _, pragma := range p.settings {
		if _, err := c.Exec(pragma, nil); err != nil {
			return fmt.Errorf("cannot set %q: %w", pragma, err)
		}
	}
	return nil
}

// corrupt tells whether err says that the file is not a database, or a broken one.
func corrupt(err error) bool {
	if errors.Is(err, errCorrupt) {
		return true
	}
	var e sqlite3.Error
	return errors.As(err, &e) && (e.Code == sqlite3.ErrCorrupt || e.Code == sqlite3.ErrNotADB)
}

// busy tells whether err says that another connection has a lock on the file.
func busy(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && (e.Code == sqlite3.ErrBusy || e.Code == sqlite3.ErrLocked)
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
