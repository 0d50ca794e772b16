package registry

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The suffixes of a session's files.
const (
	recordSuffix = ".json"
	socketSuffix = ".sock"
	procsSuffix  = ".procs"
	lockSuffix   = ".lock"
)

func file(dir, id, suffix string) string { return filepath.Join(dir, id+suffix) }

// unfinished returns the path under which a session's file is written before it is renamed.
// Each file has only one writer, so the name need not be random, and Remove can find it.
func unfinished(dir, id, suffix string) string {
	return filepath.Join(dir, "."+id+suffix+".tmp")
}

// paths returns the paths of a session's files, finished and unfinished, in the order in
// which they are removed.
func paths(dir, id string) (all []string) {
	for _, suffix := range []string{recordSuffix, socketSuffix, procsSuffix, lockSuffix} {
		all = append(all, file(dir, id, suffix), unfinished(dir, id, suffix))
	}
	return all
}

// SocketPaths returns the path of a session's socket, and the path under which the server
// creates the socket before it renames it. The error is that of an unsafe directory (see
// ErrUnsafeDir), or of one that cannot be opened.
func SocketPaths(dir, id string) (path, temp string, err error) {
	if err := checkID(id); err != nil {
		return "", "", err
	}
	return file(dir, id, socketSuffix), unfinished(dir, id, socketSuffix), checkSafe(dir)
}

// sessionOf returns the session in a file's name. ok is false if the file is not one of a
// session.
func sessionOf(name string) (id string, ok bool) {
	if rest, temp := strings.CutSuffix(name, ".tmp"); temp && strings.HasPrefix(rest, ".") {
		name = rest[1:]
	}
	for _, suffix := range []string{recordSuffix, socketSuffix, procsSuffix, lockSuffix} {
		if id, found := strings.CutSuffix(name, suffix); found && checkID(id) == nil {
			return id, true
		}
	}
	return "", false
}

// NewID returns the id of a new session in the registry directory dir, a uuid that is random but for its
// first two bytes, which are those of every session there: see proctab.Stamp. (Package uuid would make
// the guardian initialise package net.)
func NewID(dir string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	binary.BigEndian.PutUint16(b[:], tag(dir))
	b[6] = b[6]&0x0f | 0x40 // version 4
	b[8] = b[8]&0x3f | 0x80 // variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// tag returns the bytes with which the ids of all sessions in dir begin.
func tag(dir string) uint16 {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(dir))
	return uint16(h.Sum64())
}

// checkID returns an error unless id is a uuid in its usual form. The check must be this
// strict: if the registry directory is set to a project's by mistake, it holds a
// package.json and a yarn.lock.
func checkID(id string) error {
	shape := strings.Map(func(r rune) rune {
		switch {
		case '0' <= r && r <= '9', 'a' <= r && r <= 'f':
			return 'x'
		case r == '-':
			return r
		}
		return '?'
	}, id)
	if shape != "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" {
		return fmt.Errorf("invalid session id %q: want a lower-case uuid", id)
	}
	return nil
}

// Prepare creates the lock of a new session, and the directory if it does not exist. The
// lock is held but not yet visible. The guardian calls Prepare and passes the file to the
// server alone; the server calls Publish. A guardian that is killed before it has started
// a server leaves no file behind where the file system supports files without a name;
// elsewhere it leaves one that a sweep removes.
//
// The lock is held until every copy of the file's descriptor is closed: keep the file
// reachable. For an unsafe directory the error wraps ErrUnsafeDir.
func Prepare(dir, id string) (*os.File, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	f, err := openNameless(dir)
	if err != nil {
		f, err = os.OpenFile(unfinished(dir, id, lockSuffix), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot create session %s: %w", id, err)
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot create session %s: %w", id, err), f.Close(), removeFile(unfinished(dir, id, lockSuffix)))
	}
	return f, nil
}

// Publish gives a prepared lock its name and so makes the session visible. From then on
// the session is alive (see Alive) until the lock is free.
func Publish(lock *os.File, dir, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	path := file(dir, id, lockSuffix)
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("cannot create session %s: it exists", id)
	}
	var st unix.Stat_t
	err := unix.Fstat(int(lock.Fd()), &st)
	switch {
	case err != nil:
	case st.Nlink == 0:
		err = nameFile(lock, path)
	default:
		err = os.Rename(unfinished(dir, id, lockSuffix), path)
	}
	if err != nil {
		return fmt.Errorf("cannot create session %s: %w", id, err)
	}
	return nil
}

// Remove removes a session's files, the record first and the lock last. Missing files are
// not an error, so guardian and server may both call it.
func Remove(dir, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	var errs []error
	for _, path := range paths(dir, id) {
		errs = append(errs, removeFile(path))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot remove the record: %w", err)
	}
	return nil
}

// Alive reports whether the guardian or the server of a session lives, which is whether
// its lock is held. A session without a lock file is not alive. A session whose lock
// cannot be opened or tested is assumed to be.
func Alive(dir, id string) bool {
	if checkID(id) != nil {
		return false
	}
	fd, err := unix.Open(file(dir, id, lockSuffix), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return false
	case err != nil:
		return true
	}
	f := os.NewFile(uintptr(fd), id)
	defer func() { _ = f.Close() }() // frees the lock that the test took
	return flock(f, unix.LOCK_SH|unix.LOCK_NB) != nil
}

// flock is flock(2), which it retries while a signal interrupts it.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
