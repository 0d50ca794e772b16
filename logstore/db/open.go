package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// quickCheckTime bounds the integrity check of a file that a server did not close properly.
const quickCheckTime = 2 * time.Second

// A File is the open database.
type File struct {
	Path         string        // symbolic links resolved
	Lock         *FileLock     // held shared while the file is open, exclusively while the schema changes or the file is moved
	MaintLock    ExclusiveLock // held while log is removed
	WriteDB      *sql.DB       // one connection, BEGIN IMMEDIATE
	ReadDB       *sql.DB
	PollDB       *sql.DB // one connection, for PRAGMA data_version
	checkpointDB *sql.DB // one connection, for checkpoints; waits for locks only briefly
	limits       Limits
	WALBlock     walBlock
	Exclusive    bool        // Lock is held exclusively: no other server has the file open
	opened       fs.FileInfo // the file that is open, whatever is at Path later
	Quarantined  string      // where Open moved a corrupt file; "" if it found none
}

// Open opens the database at path, creates or migrates it if needed, and calls claim, which makes the first
// write. A corrupt file is moved aside and replaced with a new one. Open calls crashed with the owners of the
// sessions that have not recorded their end. crashed reports whether one of these owners is dead; if so, Open
// checks the file for damage.
//
// Errors that wrap ErrNewerSchema or ErrForeign are for the user to resolve. Any other error means that
// this session must work without a file.
func Open(ctx context.Context, path string, limits Limits, crashed func([]Owner) bool, claim func(*File) error) (_ *File, err error) {
	if path, err = preparePath(path); err != nil {
		return nil, advise(err)
	}
	f := &File{Path: path, limits: limits}
	defer func() {
		err = advise(err)
		switch {
		case errors.Is(err, ErrNewerSchema), errors.Is(err, ErrForeign), errors.Is(err, errUnsafe):
			f.CloseUnchanged()
		case err != nil:
			_ = f.Close()
		}
	}()
	if err := f.openLocks(ctx); err != nil {
		return nil, err
	}
	err = f.connectOrRepair(ctx, func() error {
		if err := f.connect(ctx, crashed); err != nil {
			return err
		}
		return claim(f)
	})
	if err == nil && f.Exclusive {
		_, err = f.Lock.tryAcquire(false)
	}
	if err == nil {
		err = f.openConnections(ctx)
	}
	if err == nil {
		err = checkAccess(path) // in a directory like /tmp, another user could have created what SQLite opened since the first check
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenReader opens the database at path for reading only. The file must exist and have the schema of this version:
// the error wraps fs.ErrNotExist, ErrOlderSchema, ErrNewerSchema or ErrForeign if not. While a File is open for
// reading, no server migrates the database or moves it aside.
func OpenReader(ctx context.Context, path string) (_ *File, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if path, err = RealPath(path); err != nil {
		return nil, err
	}
	info, err := os.Stat(path) // SQLite reports a missing file only as one that it cannot open
	if err == nil && info.Size() == 0 {
		err = fs.ErrNotExist // no server has used it yet
	}
	if err == nil {
		err = checkAccess(path)
	}
	if err == nil {
		err = checkFirstUse(path)
	}
	if err != nil {
		return nil, err
	}
	f := &File{Path: path, ReadDB: readerPool.Open(path), PollDB: PollPool.Open(path)}
	defer func() {
		if err != nil {
			f.CloseUnchanged()
		}
	}()
	if f.Lock, err = OpenLock(path + LockSuffix); err != nil {
		return nil, err
	}
	shared, err := PollUntil(ctx, lockWait, func() (bool, error) { return f.Lock.tryAcquire(false) })
	if err == nil && !shared {
		err = errors.New("another server holds the log database's lock")
	}
	if err == nil {
		err = CheckSchema(ctx, f.ReadDB)
	}
	if err == nil {
		err = f.openConnections(ctx)
	}
	return f, err
}

// preparePath returns the absolute path of the database with symbolic links resolved. It creates the directory
// and an empty file if they do not exist, and returns an error if what is there is unsafe or not ours.
func preparePath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if path, err = RealPath(path); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("cannot create the directory of the log database: %w", err)
	}
	for _, step := range []func(string) error{checkAccess, checkFirstUse, makeFile} {
		if err := step(path); err != nil {
			return "", err
		}
	}
	return path, nil
}

// connectOrRepair calls connect. If the file is corrupt or the disk may be full, connectOrRepair moves the file
// aside or frees the reserve, and calls connect again.
func (f *File) connectOrRepair(ctx context.Context, connect func() error) error {
	err := connect()
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, ErrNewerSchema), errors.Is(err, ErrForeign):
	case IsCorrupt(err):
		if f.Exclusive {
			if err = f.quarantine(); err == nil {
				err = connect()
			}
		}
	case !IsBusy(err) && !errors.Is(err, errOlderServer) && f.freeReserve(): // SQLite does not always report a full disk as such
		f.closePools()
		err = connect()
	}
	return err
}

// openConnections opens all connections of the pools and reads once from each. SQLite opens the file and its
// write-ahead log by name, and only when it needs them. A connection that is opened later, or that has not read
// yet, would use whatever file is at the path by then. If the original file was deleted and another server
// created a new one, runs in both files have the same ids.
func (f *File) openConnections(ctx context.Context) (err error) {
	for _, pool := range f.pools() {
		if pool == nil { // of a File that only reads
			continue
		}
		for range pool.Stats().MaxOpenConnections {
			c, err := pool.Conn(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }() // only at the end, so that each iteration gets a different connection
			var version int
			if err := c.QueryRowContext(ctx, `PRAGMA schema_version`).Scan(&version); err != nil { // does not parse the schema
				return err
			}
		}
	}
	f.opened, err = os.Stat(f.Path)
	return err
}

// MissingReason returns why the open file is no longer the file at its path, or "" if it still is. SQLite keeps
// writing to a deleted or replaced file without an error, and such a file is gone once the last server closes
// it.
func (f *File) MissingReason() string {
	gone := ""
	if info, err := os.Stat(f.Path); errors.Is(err, fs.ErrNotExist) {
		gone = "deleted"
	} else if err == nil && !os.SameFile(info, f.opened) {
		gone = "replaced"
	} else {
		return ""
	}
	return f.Path + " was " + gone + "; what this server stores is readable until it ends, and lost then"
}

// checkFirstUse returns ErrForeign if no server has used the file yet and it is not a database: the path is
// probably a mistake, and the file is not ours to move aside. Every server leaves its lock file beside the
// database. If a lock file is there, checkFirstUse does not open the database: closing it would release the
// locks that SQLite holds on it in this process.
func checkFirstUse(path string) error {
	const magic = "SQLite format 3\x00"
	if _, err := os.Lstat(path + LockSuffix); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil // there is nothing to lose, or SQLite reports what is wrong
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(f, start); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if string(start) != magic {
		return ErrForeign
	}
	return nil
}

// makeFile creates an empty file with mode 0600, so that neither SQLite's default mode nor the umask
// matters. It never opens an existing file: closing it would release the locks that SQLite holds on it in
// this process.
func makeFile(path string) error {
	made, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create the log database: %w", err)
	}
	return errors.Join(made.Chmod(0o600), made.Close())
}

// openLocks opens the lock files, and acquires Lock exclusively if no other server has the file open, else
// shared.
func (f *File) openLocks(ctx context.Context) (err error) {
	if f.Lock, err = OpenLock(f.Path + LockSuffix); err != nil {
		return err
	}
	if f.MaintLock.file, err = OpenLock(f.Path + MaintSuffix); err != nil {
		return err
	}
	if f.Exclusive, err = f.Lock.tryAcquire(true); f.Exclusive || err != nil {
		return err
	}
	ok, err := PollUntil(ctx, lockWait, func() (bool, error) { return f.Lock.tryAcquire(false) })
	if err == nil && !ok {
		err = errors.New("another server holds the log database's lock")
	}
	return err
}

// connect opens the pools and ensures that the file has the schema of this version. It writes nothing until
// it is known that the file is ours.
func (f *File) connect(ctx context.Context, crashed func([]Owner) bool) error {
	f.ReadDB = ReadPool.Open(f.Path)
	err := CheckSchema(ctx, f.ReadDB)
	if err != nil && !errors.Is(err, ErrOlderSchema) {
		return err
	}
	f.PollDB = PollPool.Open(f.Path)
	f.WriteDB = WritePool.Open(f.Path)
	f.checkpointDB = checkpointPool.Open(f.Path)
	if errors.Is(err, ErrOlderSchema) {
		if err := f.AwaitSchema(ctx); err != nil {
			return err
		}
	}
	f.restrictPermissions()
	if err := f.checkpointDB.PingContext(ctx); err != nil { // on a full disk it cannot be opened later
		return err
	}
	if !f.Exclusive {
		return f.WriteDB.PingContext(ctx)
	}
	if err := f.ensureWALMode(ctx); err != nil {
		return err
	}
	return f.checkAfterCrash(ctx, crashed)
}

// ensureWALMode puts a file that was copied or repaired back into WAL mode. A copy made by VACUUM INTO, for
// example, is not in WAL mode.
func (f *File) ensureWALMode(ctx context.Context) error {
	var mode string
	if err := f.ReadDB.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil || mode == "wal" {
		return err
	}
	db := createPool.Open(f.Path)
	return errors.Join(db.PingContext(ctx), db.Close())
}

// errOlderServer means that the file must be migrated, which has to wait until another server exits.
var errOlderServer = errors.New("the log database must be migrated, but an older server uses it: pmcp --doctor names it, and a session that begins after its end migrates")

// AwaitSchema waits until the file has the schema of this version. It migrates the file itself as soon as
// no other server has it open. It is needed when a server died before the schema was complete, and when an
// older version created the file.
func (f *File) AwaitSchema(ctx context.Context) error {
	ready, err := PollUntil(ctx, lockWait, func() (ready bool, err error) {
		if f.Exclusive, err = f.Lock.tryAcquire(true); f.Exclusive || err != nil {
			return f.Exclusive, err
		}
		if ok, err := f.Lock.tryAcquire(false); !ok || err != nil {
			return false, err
		}
		if CheckSchema(ctx, f.ReadDB) == nil {
			return true, nil
		}
		f.Lock.release() // so that one of the waiting servers can acquire it exclusively
		return false, nil
	})
	switch {
	case err != nil:
		return err
	case !ready:
		return errOlderServer
	case f.Exclusive:
		db := createPool.Open(f.Path) // its pragmas only affect a new file
		return errors.Join(migrate(ctx, db), db.Close())
	}
	return nil
}

// checkAfterCrash checks the file for damage if a session ended without recording its end.
func (f *File) checkAfterCrash(ctx context.Context, crashed func([]Owner) bool) error {
	open, err := OpenSessions(ctx, f.ReadDB)
	if err != nil || len(open) == 0 || !crashed(open) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, quickCheckTime)
	defer cancel()
	var verdict string
	err = f.ReadDB.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict)
	switch {
	case ctx.Err() != nil: // the file is too large to check in this time and is used unchecked
		return nil
	case err != nil:
		return err
	case verdict != "ok":
		return fmt.Errorf("%w: %s", ErrCorrupt, verdict)
	}
	return nil
}

// quarantine moves the database and its write-ahead log aside and creates an empty file in its place. The
// caller must hold the lock exclusively.
func (f *File) quarantine() error {
	f.closePools()
	to := f.Path + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000000000Z")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		err := os.Rename(f.Path+suffix, to+suffix)
		if err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("cannot move the corrupt log database aside: %w", err)
		}
	}
	f.Quarantined = to
	return makeFile(f.Path)
}

func (f *File) pools() []*sql.DB { return []*sql.DB{f.ReadDB, f.PollDB, f.checkpointDB, f.WriteDB} }

func (f *File) closePools() {
	for _, pool := range f.pools() {
		if pool != nil {
			_ = pool.Close()
		}
	}
}

// Close truncates the write-ahead log and releases the locks. It does not wait for
// other servers: if one reads or writes at that moment, the last server that closes the file does the
// cleanup.
func (f *File) Close() (err error) {
	if f.WriteDB != nil {
		for _, pragma := range []string{`busy_timeout = 0`, `wal_checkpoint(TRUNCATE)`} {
			if _, e := f.WriteDB.Exec(`PRAGMA ` + pragma); e != nil && !IsBusy(e) {
				err = errors.Join(err, e)
			}
		}
	}
	f.closePools()
	f.closeLocks()
	return err
}

// CloseUnchanged closes a file that is damaged or not ours to write, without changing it. When the last
// connection closes, SQLite would copy the write-ahead log into the database, so CloseUnchanged opens a
// connection that cannot write and closes it last. If even that connection cannot read the file, what
// SQLite does on close is up to SQLite.
func (f *File) CloseUnchanged() {
	last := readOnlyPool.Open(f.Path)
	defer func() { _ = last.Close() }()
	_ = CheckSchema(context.Background(), last) // makes SQLite open the file
	f.closePools()
	f.closeLocks()
}

func (f *File) closeLocks() {
	f.MaintLock.file.Close()
	f.Lock.Close()
}
