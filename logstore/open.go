package logstore

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

// quickCheckTime bounds the check of a file that a server did not close properly.
const quickCheckTime = 2 * time.Second

// file is the open database.
type file struct {
	path        string    // no symbolic link
	lock        *fileLock // shared for life, exclusive while the schema is made or the file is moved
	maint       *soleLock // held while log is removed
	write       *sql.DB   // one connection, BEGIN IMMEDIATE
	read        *sql.DB
	poll        *sql.DB     // one connection, for PRAGMA data_version
	check       *sql.DB     // one connection, for checkpoints; waits for no lock
	alone       bool        // lock is held exclusively
	opened      fs.FileInfo // the file that is open, whatever stands at path later
	quarantined string
}

// openFile makes the file usable, and claims it, which is the first write. A corrupt file is moved
// aside. Of its errors only ErrNewerSchema and ErrForeign are the caller's; all others mean that this
// session must do without a file.
func openFile(ctx context.Context, path string, unclean func([]owner) bool, claim func(*file) error) (_ *file, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if path, err = realPath(path); err != nil {
		return nil, err
	}
	if err := checkFirstUse(path); err != nil {
		return nil, err
	}
	if err := makeFile(path); err != nil {
		return nil, err
	}
	f := &file{path: path}
	defer func() {
		switch {
		case errors.Is(err, ErrNewerSchema), errors.Is(err, ErrForeign):
			f.leave()
		case err != nil:
			_ = f.close()
		}
	}()
	if f.lock, err = openLock(path + lockSuffix); err != nil {
		return nil, err
	}
	if f.maint, err = openSoleLock(path + ".maint"); err != nil {
		return nil, err
	}
	if err := f.takeLock(ctx); err != nil {
		return nil, err
	}
	connect := func() error {
		if err := f.connect(ctx, unclean); err != nil {
			return err
		}
		return claim(f)
	}
	err = connect()
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, ErrNewerSchema), errors.Is(err, ErrForeign):
	case corrupt(err):
		if f.alone {
			if err = f.quarantine(); err == nil {
				err = connect()
			}
		}
	case !busy(err) && !errors.Is(err, errOlderServer) && f.freeReserve(): // the disk may be full, which SQLite does not always say so
		f.closePools()
		err = connect()
	}
	if err == nil && f.alone {
		_, err = f.lock.try(false)
	}
	if err == nil {
		err = f.hold(ctx)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// hold makes all connections to the file, and has each read from it. SQLite opens a file and its
// write-ahead log by their names and when it first needs them: a connection made later, or one that
// has not read yet, would be to what stands there then. Where this file was deleted and another
// server has made a new one, runs of both have the same ids.
func (f *file) hold(ctx context.Context) (err error) {
	for _, pool := range f.pools() {
		for range pool.Stats().MaxOpenConnections {
			c, err := pool.Conn(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }() // all at once, so that each is another one
			var n int
			if err := c.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&n); err != nil {
				return err
			}
		}
	}
	f.opened, err = os.Stat(f.path)
	return err
}

// missing says that the open file is no longer the one at its path: SQLite goes on writing to it
// without an error, and with the last server that has it open it is gone. "" = it is there.
func (f *file) missing() string {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f.path + " was deleted; what this server stores is readable until it ends, and lost then"
	case err == nil && !os.SameFile(info, f.opened):
		return f.path + " was replaced; what this server stores is readable until it ends, and lost then"
	}
	return ""
}

// checkFirstUse refuses a file that is no database if no server has used it yet: the path was mistaken,
// and what stands there is not ours to move aside. Whoever uses it leaves its lock beside it. Else the file
// is not opened: closing it would drop the locks that SQLite holds on it in this process.
func checkFirstUse(path string) error {
	const magic = "SQLite format 3\x00"
	if _, err := os.Lstat(path + lockSuffix); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil // there is nothing to lose, or SQLite says what is wrong with it
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	start := make([]byte, len(magic))
	_, err = io.ReadFull(f, start)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if string(start) != magic {
		return ErrForeign
	}
	return nil
}

// makeFile makes the directory and an empty file, so that SQLite's own modes do not matter. An
// existing file is never opened: closing it would drop the locks that SQLite holds on it in this
// process.
func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cannot make the directory of the log database: %w", err)
	}
	made, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot make the log database: %w", err)
	}
	return made.Close()
}

// takeLock takes the lock exclusively when nobody else has the file open, else shared.
func (f *file) takeLock(ctx context.Context) (err error) {
	if f.alone, err = f.lock.try(true); f.alone || err != nil {
		return err
	}
	ok, err := f.lock.take(ctx, false)
	if err == nil && !ok {
		err = errors.New("another server holds the log database's lock")
	}
	return err
}

// connect opens the pools and sees to it that the schema is the one of this version. Nothing is
// written before it is known that the file is ours.
func (f *file) connect(ctx context.Context, unclean func([]owner) bool) error {
	f.read = readPool.open(f.path)
	err := checkSchema(ctx, f.read)
	if err != nil && !errors.Is(err, errOlderSchema) {
		return err
	}
	f.poll = pollPool.open(f.path)
	f.write = writePool.open(f.path)
	f.check = checkPool.open(f.path)
	if errors.Is(err, errOlderSchema) {
		if err := f.awaitSchema(ctx); err != nil {
			return err
		}
	}
	f.closeToOthers()
	if err := f.check.PingContext(ctx); err != nil { // on a full disk it could not be opened
		return err
	}
	if !f.alone {
		return f.write.PingContext(ctx)
	}
	if err := f.keepWAL(ctx); err != nil {
		return err
	}
	return f.checkAfterCrash(ctx, unclean)
}

// keepWAL gives a file that somebody has copied or repaired its form back: a copy by VACUUM INTO is not in WAL mode.
func (f *file) keepWAL(ctx context.Context) error {
	var mode string
	if err := f.read.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil || mode == "wal" {
		return err
	}
	db := makePool.open(f.path)
	return errors.Join(db.PingContext(ctx), db.Close())
}

// make gives the file the schema of this version, and its form if it is new.
func (f *file) make(ctx context.Context) error {
	db := makePool.open(f.path)
	return errors.Join(migrate(ctx, db), db.Close())
}

// errOlderServer: the file has to be migrated, which must wait for the end of a server.
var errOlderServer = errors.New("the log database must be migrated, but an older server uses it")

// awaitSchema makes the schema as soon as no other server has the file open, unless another makes it
// first. It is called when whoever made the file died before its schema was complete, and when an older
// version made it.
func (f *file) awaitSchema(ctx context.Context) error {
	ready, err := awaitLock(ctx, func() (ready bool, err error) {
		if f.alone, err = f.lock.try(true); f.alone || err != nil {
			return f.alone, err
		}
		if ok, err := f.lock.try(false); !ok || err != nil {
			return false, err
		}
		if checkSchema(ctx, f.read) == nil {
			return true, nil
		}
		f.lock.unlock() // so that one of those who wait can be alone
		return false, nil
	})
	switch {
	case err != nil:
		return err
	case !ready:
		return errOlderServer
	case f.alone:
		return f.make(ctx)
	}
	return nil
}

// checkAfterCrash looks for damage when a session ended without a word.
func (f *file) checkAfterCrash(ctx context.Context, unclean func([]owner) bool) error {
	open, err := openSessions(ctx, f.read)
	if err != nil || len(open) == 0 || !unclean(open) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, quickCheckTime)
	defer cancel()
	var verdict string
	err = f.read.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict)
	switch {
	case ctx.Err() != nil: // too large to check at once: use it
		return nil
	case err != nil:
		return err
	case verdict != "ok":
		return fmt.Errorf("%w: %s", errCorrupt, verdict)
	}
	return nil
}

// quarantine moves the file aside with its companions and makes room for a new one. The caller
// holds the lock exclusively.
func (f *file) quarantine() error {
	f.closePools()
	to := f.path + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000000000Z")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		err := os.Rename(f.path+suffix, to+suffix)
		if err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("cannot move the corrupt log database aside: %w", err)
		}
	}
	f.quarantined = to
	return makeFile(f.path)
}

func (f *file) pools() []*sql.DB { return []*sql.DB{f.read, f.poll, f.check, f.write} }

func (f *file) closePools() {
	for _, pool := range f.pools() {
		if pool != nil {
			_ = pool.Close()
		}
	}
}

// close tidies the file and drops the locks. It waits for no other server: where one reads or writes
// at the moment, the tidying is left to the last that closes.
func (f *file) close() (err error) {
	if f.write != nil {
		for _, pragma := range []string{`busy_timeout = 0`, `optimize`, `wal_checkpoint(TRUNCATE)`} {
			if _, e := f.write.Exec(`PRAGMA ` + pragma); e != nil && !busy(e) {
				err = errors.Join(err, e)
			}
		}
	}
	f.closePools()
	f.unlock()
	return err
}

// leave is close for a file that is damaged or not ours to write, which is left as it is. With its last
// connection SQLite would copy the write-ahead log into it, so one that cannot write is the last.
// If that cannot read the file either, SQLite does as it likes.
func (f *file) leave() {
	last := leavePool.open(f.path)
	defer func() { _ = last.Close() }()
	_ = checkSchema(context.Background(), last) // so that it has the file open
	f.closePools()
	f.unlock()
}

func (f *file) unlock() {
	f.maint.close()
	f.lock.close()
}
