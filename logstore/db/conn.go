package db

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
	PageBytes           = 16 << 10
	ReadConns           = 4    // concurrent reads; further reads wait
	cacheKB             = 4096 // page cache of one connection
	busyMillis          = 5000
	checkpointMillis    = 20       // short, because writers wait while a checkpoint waits for readers
	autoCheckpointPages = 4096     // 64 MiB: a commit checkpoints by itself when the checkpointer falls behind
	journalSizeLimit    = 64 << 20 // the write-ahead log is truncated to this size after a checkpoint
)

// connector opens connections with settings that the connection string cannot express.
type connector struct {
	driver *sqlite3.SQLiteDriver
	dsn    string
}

// NewConnector returns a connector for sql.OpenDB that uses the given driver and connection string.
func NewConnector(d *sqlite3.SQLiteDriver, dsn string) driver.Connector {
	return &connector{driver: d, dsn: dsn}
}

func (c *connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c *connector) Driver() driver.Driver                        { return c.driver }

// creationPragmas configure a new file. The first two pragmas only take effect before the file is in WAL mode.
// The second pragma takes the write lock even if it changes nothing, so connections to an existing file do not
// use it.
var creationPragmas = []string{
	"PRAGMA page_size = " + strconv.Itoa(PageBytes),
	"PRAGMA auto_vacuum = INCREMENTAL",
	"PRAGMA journal_mode = WAL",
}

// writerPragmas are set on each connection that writes.
var writerPragmas = []string{
	"PRAGMA wal_autocheckpoint = " + strconv.Itoa(autoCheckpointPages),
	"PRAGMA journal_size_limit = " + strconv.Itoa(journalSizeLimit),
}

// A PoolConfig describes the connections of a pool.
type PoolConfig struct {
	readOnly    bool   // statements cannot write
	file        string // further parameters of the connection string, such as "mode=ro"
	maxConns    int
	busyTimeout int      // milliseconds
	pragmas     []string // settings that the connection string cannot express
}

// The configurations of the pools that a File uses, or that open a database without a File.
var (
	ReadPool       = PoolConfig{readOnly: true, maxConns: ReadConns, busyTimeout: busyMillis}
	readerPool     = PoolConfig{readOnly: true, maxConns: 1, busyTimeout: busyMillis}
	PollPool       = PoolConfig{readOnly: true, maxConns: 1, busyTimeout: busyMillis}
	WritePool      = PoolConfig{maxConns: 1, busyTimeout: busyMillis, pragmas: writerPragmas}
	checkpointPool = PoolConfig{maxConns: 1, busyTimeout: checkpointMillis, pragmas: writerPragmas}
	readOnlyPool   = PoolConfig{readOnly: true, file: "mode=ro", maxConns: 1, busyTimeout: busyMillis}
	createPool     = PoolConfig{maxConns: 1, busyTimeout: busyMillis, pragmas: slices.Concat(creationPragmas, writerPragmas)}
)

// Open returns a pool for the file at path. It does not connect yet.
func (p PoolConfig) Open(path string) *sql.DB {
	q, _ := url.ParseQuery(p.file)
	q.Set("_busy_timeout", strconv.Itoa(p.busyTimeout))
	q.Set("_synchronous", "NORMAL")
	q.Set("_cache_size", strconv.Itoa(-cacheKB))
	q.Set("_stmt_cache_size", "64")
	q.Set("_foreign_keys", "off")
	if p.readOnly {
		q.Set("_query_only", "true")
	} else {
		q.Set("_txlock", "immediate")
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	db := sql.OpenDB(NewConnector(&sqlite3.SQLiteDriver{ConnectHook: p.applyPragmas}, u.String()))
	db.SetMaxOpenConns(p.maxConns)
	db.SetMaxIdleConns(p.maxConns)
	return db
}

// applyPragmas applies the pragmas to a new connection.
func (p PoolConfig) applyPragmas(c *sqlite3.SQLiteConn) error {
	for _, pragma := range p.pragmas {
		if _, err := c.Exec(pragma, nil); err != nil {
			return fmt.Errorf("cannot set %q: %w", pragma, err)
		}
	}
	return nil
}

// IsCorrupt reports whether err means that the file is corrupt or not a database.
func IsCorrupt(err error) bool {
	return errors.Is(err, ErrCorrupt) || hasCode(err, sqlite3.ErrCorrupt, sqlite3.ErrNotADB)
}

// IsBusy reports whether err means that another connection holds a lock on the file.
func IsBusy(err error) bool { return hasCode(err, sqlite3.ErrBusy, sqlite3.ErrLocked) }

// IsDiskFull reports whether err means that there is no space left to write.
func IsDiskFull(err error) bool {
	var e sqlite3.Error
	return hasCode(err, sqlite3.ErrFull) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) ||
		errors.As(err, &e) && (e.SystemErrno == unix.ENOSPC || e.SystemErrno == unix.EDQUOT)
}

// hasCode reports whether err is an error of SQLite with one of the codes.
func hasCode(err error, codes ...sqlite3.ErrNo) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

// SQLiteVersion returns the version of SQLite that the program is built with.
func SQLiteVersion() string {
	version, _, _ := sqlite3.Version()
	return version
}
