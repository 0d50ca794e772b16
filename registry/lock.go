package registry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The suffixes of a session's files, in the order in which they are removed.
const (
	recordSuffix = ".json"
	procsSuffix  = ".procs"
	lockSuffix   = ".lock"
)

// file is the path of a session's file.
func file(dir, id, suffix string) string { return filepath.Join(dir, id+suffix) }

// unfinished is the path under which that file is written before the rename.
// There is one writer of each, so that the name need not be random and Remove
// knows it.
func unfinished(dir, id, suffix string) string {
	return filepath.Join(dir, "."+id+suffix+".tmp")
}

// sessionOf takes a file's name apart. ok is false if it is none of ours.
func sessionOf(name string) (id, suffix string, ok bool) {
	if rest, temp := strings.CutSuffix(name, ".tmp"); temp && strings.HasPrefix(rest, ".") {
		name = rest[1:]
	}
	for _, suffix := range []string{recordSuffix, procsSuffix, lockSuffix} {
		if id, found := strings.CutSuffix(name, suffix); found && checkID(id) == nil {
			return id, suffix, true
		}
	}
	return "", "", false
}

// checkID refuses what is not a uuid in its usual form. Nothing less strict
// would do: a registry directory that was set to a project's by mistake holds a
// package.json and a yarn.lock.
func checkID(id string) error {
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	valid := len(id) == len(form)
	for i := 0; valid && i < len(form); i++ {
		c := id[i]
		if form[i] == 'x' {
			valid = c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		} else {
			valid = c == '-'
		}
	}
	if !valid {
		return fmt.Errorf("invalid session id %q: want a lower-case uuid", id)
	}
	return nil
}

// Prepare makes the directory if it must, and the lock of a new session: held,
// but not yet to be seen. The guardian calls it, passes the file on to the
// server and to nothing else, and the server calls Publish. A guardian that is
// killed before there is a server thus leaves no file behind, wherever the file
// system has files without a name; elsewhere one that a sweep removes.
//
// The lock is held until every copy of the file's descriptor is closed: keep
// the file reachable. An unsafe directory is an ErrUnsafeDir.
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
		return nil, errors.Join(fmt.Errorf("cannot create session %s: %w", id, err), f.Close(), removeUnfinished(dir, id))
	}
	return f, nil
}

// Publish makes a prepared lock the session's, for all to see. From then on the
// session is alive (see Alive) until the lock is free.
func Publish(lock *os.File, dir, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	path := file(dir, id, lockSuffix)
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("cannot create session %s: it exists", id)
	}
	nameless, err := isNameless(lock)
	switch {
	case err != nil:
	case nameless:
		err = nameFile(lock, path)
	default:
		err = os.Rename(unfinished(dir, id, lockSuffix), path)
	}
	if err != nil {
		return fmt.Errorf("cannot create session %s: %w", id, err)
	}
	return nil
}

func isNameless(f *os.File) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return st.Nlink == 0, err
}

// removeUnfinished removes a lock that could not be published, and nothing of a
// session that is.
func removeUnfinished(dir, id string) error {
	if err := os.Remove(unfinished(dir, id, lockSuffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Remove removes a session's files, the record first and the lock last. Files
// that are not there are no error, so that guardian and server may both call it.
func Remove(dir, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	var errs []error
	for _, suffix := range []string{recordSuffix, procsSuffix, lockSuffix} {
		for _, path := range []string{file(dir, id, suffix), unfinished(dir, id, suffix)} {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("cannot remove the record: %w", errors.Join(errs...))
	}
	return nil
}

// Alive says whether the guardian or the server of a session lives: whether
// somebody holds its lock. A session without a lock file is not alive; one
// whose lock cannot be opened or tested is taken to be.
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

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
