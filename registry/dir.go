// Package registry keeps the records of the servers of this user: who serves
// which client from where, what was started, and whether it is still alive. It
// also holds the sweep, which cleans up after servers that died without doing
// it themselves, and the doctor, which shows all that to the user.
//
// A session is three files in one directory:
//
//	<id>.lock   made and locked by the guardian, its descriptor inherited by the
//	            server, which gives it its name: while one of them lives the
//	            lock is held, and the kernel frees it when both are dead. This
//	            is the proof of life.
//	<id>.json   the Record, replaced as a whole by a rename at each change.
//	<id>.procs  one line "pid start" for each process of the session, appended;
//	            the first line names the boot.
//
// At the end the json goes first and the lock last, so that whoever sees a
// record sees its lock. Names that begin with a dot are files being written.
//
// Nothing in this package matches a process by name, and nothing signals a
// process whose identity it has not proven.
package registry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dir is the directory of the records: PM_REGISTRY_DIR, else
// $XDG_RUNTIME_DIR/pmcp/servers, which does not survive a reboot, else
// StateDir's servers. XDG_RUNTIME_DIR counts only where it can be used: after su
// it may be another user's, in a container or WSL it may not exist. Where it is
// not set, Linux's usual /run/user/UID stands in for it: many clients do not pass
// it on, and servers of one user that share a database must see each other.
// getenv is os.Getenv outside tests. The answer is absolute, unless the working
// directory is unknown, and need not exist.
func Dir(getenv func(string) string) string {
	users := ""
	if runtime.GOOS == "linux" {
		users = "/run/user"
	}
	return dirFor(getenv, users)
}

// dirFor is Dir where users is the directory of every user's runtime directory;
// "" if there is none.
func dirFor(getenv func(string) string, users string) string {
	if dir := getenv("PM_REGISTRY_DIR"); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			return abs
		}
		return dir
	}
	dir := getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = runtimeDir(users)
	}
	if filepath.IsAbs(dir) {
		if dir = filepath.Join(dir, "pmcp", "servers"); writable(dir) == nil {
			return dir
		}
	}
	return filepath.Join(StateDir(getenv), "servers")
}

// runtimeDir is this user's directory in users if it is what the XDG
// specification demands of a runtime directory: there, this user's and nobody
// else's. Else it is "".
func runtimeDir(users string) string {
	dir := filepath.Join(users, strconv.Itoa(os.Geteuid()))
	var st unix.Stat_t
	if users == "" || unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR ||
		int(st.Uid) != os.Geteuid() || st.Mode&0o777 != 0o700 {
		return ""
	}
	return dir
}

// StateDir is where pmcp keeps what outlives a session: $XDG_STATE_HOME/pmcp,
// else ~/.local/state/pmcp; on macOS ~/Library/Application Support/pmcp. As the
// XDG specification demands, a relative path in the variable counts as not set.
// Without HOME it is a directory of this user below the temporary directory.
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

// ErrUnsafeDir says that the registry directory cannot be trusted with records:
// it is not a directory, a symbolic link, another user's, or others may write
// to it.
var ErrUnsafeDir = errors.New("unsafe registry directory")

// makeDir makes the directory, with mode 0700 and its parents, if it is not
// there, and checks it.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		// What is in the way is told better by the check.
		if unsafe := checkDir(dir); errors.Is(unsafe, ErrUnsafeDir) {
			return unsafe
		}
		return fmt.Errorf("cannot make the registry directory: %w", err)
	}
	return checkDir(dir)
}

// checkDir answers ErrUnsafeDir, wrapped, unless dir is a directory of ours
// that nobody else may write to. Others' being able to list it is harmless: the
// files in it are 0600. If it does not exist the error is os.ErrNotExist.
func checkDir(dir string) error {
	f, err := openDir(dir)
	if err != nil {
		return err
	}
	return f.Close()
}

// openDir opens and checks the directory in one.
func openDir(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
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
