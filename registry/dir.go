// Package registry keeps the records of this user's servers: which client each
// one serves and from where, what it started, and whether it is still alive. It
// also holds the sweep, which cleans up after servers that died without doing so
// themselves. Package doctor shows all that to the user.
//
// A session is four files in one directory:
//
//	<id>.lock   created and locked by the guardian. The server inherits its
//	            descriptor and gives the file its name. The lock is held while
//	            one of them lives, and the kernel frees it when both are dead:
//	            this is the proof of life.
//	<id>.json   the Record. Each change replaces the whole file by a rename.
//	<id>.sock   the socket on which other servers of this user call the server.
//	<id>.procs  one line "pid start" for each process of the session, appended.
//	            The first line names the boot.
//
// When the session ends, the json is removed first and the lock last, so that a
// reader that sees a record also sees its lock. Names that begin with a dot are
// unfinished files.
//
// The package never matches a process by name, and never signals a process whose
// identity it has not proven.
package registry

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dir returns the directory of the records: PM_REGISTRY_DIR, else
// $XDG_RUNTIME_DIR/pmcp/servers, which does not survive a reboot, else "servers"
// in StateDir. XDG_RUNTIME_DIR is used only if it can be written to: after su it
// may be another user's, and in a container or WSL it may not exist. If it is not
// set, Linux's usual /run/user/UID takes its place, because many clients do not
// pass the variable on, and servers of one user that share a database must see
// each other. getenv is os.Getenv outside tests. The path is absolute, unless the
// working directory is unknown. The directory need not exist.
func Dir(getenv func(string) string) string { return dirFor(getenv, runtimeDirs()) }

// RuntimeDir returns the directory in which Dir looks first if PM_REGISTRY_DIR is not set, "" for none.
// It may not exist, or not be this user's.
func RuntimeDir(getenv func(string) string) string {
	return cmp.Or(getenv("XDG_RUNTIME_DIR"), runtimeDir(runtimeDirs()))
}

// runtimeDirs returns the directory that holds every user's runtime directory, "" if there is none.
func runtimeDirs() string {
	if runtime.GOOS == "linux" {
		return "/run/user"
	}
	return ""
}

// dirFor is Dir; users is the directory that holds every user's runtime directory, "" if
// there is none.
func dirFor(getenv func(string) string, users string) string {
	if dir := getenv("PM_REGISTRY_DIR"); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			return abs
		}
		return dir
	}
	dir := cmp.Or(getenv("XDG_RUNTIME_DIR"), runtimeDir(users))
	if filepath.IsAbs(dir) {
		if dir = filepath.Join(dir, "pmcp", "servers"); CheckWritable(dir) == nil {
			return dir
		}
	}
	return filepath.Join(StateDir(getenv), "servers")
}

// runtimeDir returns this user's directory in users if it is what the XDG
// specification demands of a runtime directory: it exists, belongs to this user and
// is closed to all others. Otherwise it returns "".
func runtimeDir(users string) string {
	dir := filepath.Join(users, strconv.Itoa(os.Geteuid()))
	var st unix.Stat_t
	if users == "" || unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR ||
		int(st.Uid) != os.Geteuid() || st.Mode&0o777 != 0o700 {
		return ""
	}
	return dir
}

// StateDir returns the directory for what outlives a session: $XDG_STATE_HOME/pmcp,
// else ~/.local/state/pmcp; on macOS ~/Library/Application Support/pmcp. As the XDG
// specification demands, a relative path in the variable counts as not set. Without
// HOME it returns a directory of this user below the temporary directory.
func StateDir(getenv func(string) string) string {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) && runtime.GOOS != "darwin" {
		return filepath.Join(dir, "pmcp")
	}
	home := getenv("HOME")
	switch {
	case !filepath.IsAbs(home):
		return filepath.Join(os.TempDir(), "pmcp-"+strconv.Itoa(os.Getuid()))
	case runtime.GOOS == "darwin":
		return filepath.Join(home, "Library", "Application Support", "pmcp")
	default:
		return filepath.Join(home, ".local", "state", "pmcp")
	}
}

// DatabasePath returns the path of the log database: PM_DATABASE_PATH, else pmcp.db in
// StateDir. It is absolute, unless the working directory is unknown.
func DatabasePath(getenv func(string) string) string {
	path := getenv("PM_DATABASE_PATH")
	if path == "" {
		path = filepath.Join(StateDir(getenv), "pmcp.db")
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// ErrUnsafeDir is returned for a registry directory that cannot be trusted with
// records: it is not a directory, is a symbolic link, belongs to another user, or
// others may write to it.
var ErrUnsafeDir = errors.New("unsafe registry directory")

// makeDir creates the directory and its parents, with mode 0700, if it does not
// exist, and checks it.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		// The check has the better error for a file in place of the directory.
		if unsafe := checkSafe(dir); errors.Is(unsafe, ErrUnsafeDir) {
			return unsafe
		}
		return fmt.Errorf("cannot make the registry directory: %w", err)
	}
	return checkSafe(dir)
}

// checkSafe returns an error wrapping ErrUnsafeDir unless dir is a directory of this
// user that no other user may write to. Others may list it, since the files in it
// are 0600. If it does not exist, the error is os.ErrNotExist.
func checkSafe(dir string) error {
	f, err := openDir(dir)
	if err != nil {
		return err
	}
	return f.Close()
}

// CheckDir returns an error if a server could not keep its record in dir: the
// directory is unsafe (see ErrUnsafeDir) or cannot be written to. One that does
// not exist is fine if it can be made.
func CheckDir(dir string) error {
	if err := checkSafe(dir); errors.Is(err, ErrUnsafeDir) {
		return err
	}
	return CheckWritable(dir)
}

// CheckWritable returns an error if dir or, where it does not exist, the nearest
// directory above it cannot be written to. It asks the kernel and writes nothing.
func CheckWritable(dir string) error {
	for {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, os.ErrNotExist) && dir != filepath.Dir(dir):
			dir = filepath.Dir(dir)
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory", dir)
		}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("cannot write to %s: %w", dir, err)
		}
		return nil
	}
}

func openDir(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		if _, err := os.Lstat(dir); errors.Is(err, unix.ENOTDIR) { // as below a HOME of /dev/null
			return nil, &os.PathError{Op: "open", Path: dir, Err: os.ErrNotExist}
		}
		return nil, fmt.Errorf("%w: %s is a symbolic link or not a directory", ErrUnsafeDir, dir)
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), dir)
	if err := checkOwner(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// checkOwner returns an error wrapping ErrUnsafeDir unless the open directory belongs
// to this user and no other may write to it.
func checkOwner(dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("cannot check %s: %w", dir.Name(), err)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d, not to %d", ErrUnsafeDir, dir.Name(), st.Uid, os.Geteuid())
	}
	if mode := uint32(st.Mode) & 0o777; mode&0o022 != 0 {
		return fmt.Errorf("%w: others may write to %s (mode %04o); if it is for pmcp alone, chmod 700 it", ErrUnsafeDir, dir.Name(), mode)
	}
	return nil
}
