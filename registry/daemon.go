package registry

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A daemon is a server that no client has launched (see Record.Daemon). There is at most one
// for a database. Beside the four files of its session it has two that are named after the
// database:
//
//	daemon-<hash>.lock  locked by the daemon's guardian, whose descriptor its server
//	                    inherits. It is held while one of them lives. It holds the id of
//	                    the session while the server takes connections.
//	daemon-<hash>.log   what guardian and server write to stderr. It goes when the daemon
//	                    ends without an error, or when the doctor cleans up.
const (
	daemonPrefix = "daemon-"
	logSuffix    = ".log"
)

// maxDaemonLock is how many bytes of a daemon's lock are read: those of an id.
const maxDaemonLock = 64

// TransportDaemon is the Transport of a daemon's record, and ClientDaemon the ClientName of a session
// of the daemon that has no client, or none any more.
const (
	TransportDaemon = "daemon"
	ClientDaemon    = "daemon"
)

// DaemonScope begins the name of a daemon's own control group.
const DaemonScope = "pmcp-daemon-"

// Daemon reports whether the record is that of a daemon.
func (r Record) Daemon() bool { return r.Transport == TransportDaemon }

// daemonFile returns the path of a daemon's file in dir; database is the absolute path of its
// database.
func daemonFile(dir, database, suffix string) string {
	if real, err := filepath.EvalSymlinks(filepath.Dir(database)); err == nil {
		database = filepath.Join(real, filepath.Base(database))
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, database)
	return filepath.Join(dir, fmt.Sprintf("%s%016x%s", daemonPrefix, h.Sum64(), suffix))
}

// isDaemonFile reports whether a file of that name belongs to a daemon.
func isDaemonFile(name string) bool {
	hash, found := strings.CutPrefix(name, daemonPrefix)
	if !found {
		return false
	}
	suffix := filepath.Ext(hash)
	return len(hash) == 16+len(suffix) && (suffix == lockSuffix || suffix == logSuffix) &&
		strings.Trim(hash[:16], "0123456789abcdef") == ""
}

// DaemonLog returns the path of the log of the daemon for a database.
func DaemonLog(dir, database string) string { return daemonFile(dir, database, logSuffix) }

// Daemon returns the session of the daemon for a database, which must be an absolute path,
// and reports whether a daemon lives. The session is "" while the daemon takes no
// connections, because it is starting or ending.
func Daemon(dir, database string) (id string, lives bool) {
	f, err := openOwn(daemonFile(dir, database, lockSuffix), unix.O_RDONLY)
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }() // frees the lock that the test took
	if flock(f, unix.LOCK_SH|unix.LOCK_NB) == nil {
		return "", false
	}
	return readDaemon(f), true
}

// DaemonRecord returns the record of the daemon for a database, which must be an absolute path.
// The record is zero if none takes connections.
func DaemonRecord(dir, database string) Record {
	id, _ := Daemon(dir, database)
	if id == "" {
		return Record{}
	}
	r, err := readRecord(dir, id)
	if err != nil {
		return Record{}
	}
	return r
}

// readDaemon returns the session that a daemon's lock names, "" for none.
func readDaemon(f *os.File) string {
	content := make([]byte, maxDaemonLock)
	n, _ := f.ReadAt(content, 0)
	id, whole := strings.CutSuffix(string(content[:n]), "\n")
	if !whole || checkID(id) != nil {
		return ""
	}
	return id
}

// ErrDaemonLives is returned by LockDaemon while another daemon for the database lives.
var ErrDaemonLives = errors.New("a daemon for this database lives")

// LockDaemon makes this process and those that inherit the returned file the daemon for a
// database, which must be an absolute path, until every copy of the file's descriptor is
// closed. It creates the directory if it does not exist. Errors may wrap ErrDaemonLives or
// ErrUnsafeDir.
func LockDaemon(dir, database string) (*os.File, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	path := daemonFile(dir, database, lockSuffix)
	for {
		f, err := openOwn(path, unix.O_RDWR|unix.O_CREAT)
		if err != nil {
			return nil, fmt.Errorf("cannot lock the daemon: %w", err)
		}
		if flock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil, errors.Join(ErrDaemonLives, f.Close())
		}
		if !isAt(f, path) { // removed since it was opened
			_ = f.Close()
			continue
		}
		if err := AnnounceDaemon(f, ""); err != nil { // a dead one may have left its id
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
}

// AnnounceDaemon writes the session of the daemon to its lock, once the daemon takes
// connections. An empty id says that it does not any more.
func AnnounceDaemon(lock *os.File, id string) error {
	err := lock.Truncate(0)
	if err == nil && id != "" {
		_, err = lock.WriteAt([]byte(id+"\n"), 0)
	}
	if err != nil {
		return fmt.Errorf("cannot announce the daemon: %w", err)
	}
	return nil
}

// RemoveDaemon removes the daemon's lock, which the caller must hold. It does nothing if the
// file is not there any more.
func RemoveDaemon(lock *os.File, dir, database string) error {
	path := daemonFile(dir, database, lockSuffix)
	if !isAt(lock, path) {
		return nil
	}
	return removeFile(path)
}

// removeDeadDaemons removes the locks of dead daemons. Their logs stay: see RemoveDaemonLogs.
func removeDeadDaemons(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, daemonPrefix+"*"+lockSuffix))
	for _, path := range paths {
		if !isDaemonFile(filepath.Base(path)) {
			continue
		}
		f, e := openOwn(path, unix.O_RDONLY)
		if e != nil {
			continue
		}
		if flock(f, unix.LOCK_EX|unix.LOCK_NB) == nil && isAt(f, path) {
			err = errors.Join(err, removeFile(path))
		}
		_ = f.Close()
	}
	return err
}

// RemoveDaemonLogs removes the logs of dead daemons.
func RemoveDaemonLogs(dir string) error {
	logs, err := filepath.Glob(filepath.Join(dir, daemonPrefix+"*"+logSuffix))
	for _, log := range logs {
		if !isDaemonFile(filepath.Base(log)) {
			continue
		}
		lock, e := openOwn(strings.TrimSuffix(log, logSuffix)+lockSuffix, unix.O_RDONLY)
		if e == nil {
			e = flock(lock, unix.LOCK_SH|unix.LOCK_NB)
			_ = lock.Close() // frees the lock that the test took
		}
		if e == nil || errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, removeFile(log))
		}
	}
	return err
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func isAt(f *os.File, path string) bool {
	var opened, found unix.Stat_t
	return unix.Fstat(int(f.Fd()), &opened) == nil && unix.Lstat(path, &found) == nil &&
		opened.Dev == found.Dev && opened.Ino == found.Ino
}

// openOwn opens a plain file of this user. For a symbolic link, another user's file and
// anything but a plain file it returns errForeign. It does not block on such a file.
func openOwn(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%w: a symbolic link", errForeign)
	case errors.Is(err, unix.ENXIO): // a socket
		return nil, fmt.Errorf("%w: not a plain file", errForeign)
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := checkPlain(fd); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
