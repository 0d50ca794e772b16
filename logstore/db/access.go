package db

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// errUnsafe is wrapped by errors about a path that another user could replace or redirect.
var errUnsafe = errors.New("unsafe database path")

// companions are the suffixes of the database and of the files beside it. The suffix "" is that of the database
// itself.
var companions = []string{"", "-wal", "-shm", "-journal", LockSuffix, MaintSuffix, reserveSuffix}

// maxLinks is the maximum number of symbolic links that RealPath follows, the same as in the kernel.
const maxLinks = 40

// RealPath returns path with symbolic links resolved, even if the last link points to a file that does not
// exist yet. SQLite creates the database and its write-ahead log at the resolved path. Our own files must be
// there too, so that servers that were given different paths to one database meet at its locks. A link must
// belong to this user and be in a directory where only this user can replace the link.
func RealPath(path string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		if err == nil {
			err = errors.Join(checkOwner(path, info), checkDir(filepath.Dir(path)))
		}
		if err != nil {
			return "", err
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // before a leading .. of the target is applied
			if err != nil {
				return "", err
			}
			target = filepath.Join(dir, target)
		}
		path = target
	}
	return "", fmt.Errorf("%s: %w", path, syscall.ELOOP)
}

// checkAccess returns an error that wraps errUnsafe unless only this user can write to the database at path
// and to the files beside it. Otherwise the server would trust data that another user wrote, or overwrite the
// file that a link points to. path itself must not be a link.
func checkAccess(path string) error {
	if err := checkDir(filepath.Dir(path)); err != nil {
		return err
	}
	for _, suffix := range companions {
		info, err := os.Lstat(path + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = checkOwner(path+suffix, info)
		}
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%w: %s is a symbolic link or not a file", errUnsafe, path+suffix)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkDir returns an error that wraps errUnsafe unless dir belongs to this user or to root, and no user other
// than these two can replace this user's files in it. If dir is a symbolic link, the link must belong to this
// user or to root as well.
func checkDir(dir string) error {
	for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := stat(dir)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if st.Uid != 0 {
			if err := checkOwner(dir, info); err != nil {
				return err
			}
		}
		if info.IsDir() && info.Mode()&fs.ModeSticky == 0 && info.Mode().Perm()&writableBy(st) != 0 {
			return fmt.Errorf("%w: others may write to %s (mode %04o); chmod go-w it, or set PM_DATABASE_PATH to a file elsewhere", errUnsafe, dir, info.Mode().Perm())
		}
	}
	return nil
}

// writableBy returns the permission bits that let other users write. A group with the same number as its
// user is private to that user; systems with such groups use a umask of 002.
func writableBy(st *syscall.Stat_t) fs.FileMode {
	if int(st.Gid) == os.Getegid() && os.Getegid() == os.Geteuid() {
		return 0o002
	}
	return 0o022
}

// checkOwner returns an error that wraps errUnsafe unless this user owns the file.
func checkOwner(path string, info fs.FileInfo) error {
	if uid := int(info.Sys().(*syscall.Stat_t).Uid); uid != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d, not to %d", errUnsafe, path, uid, os.Geteuid())
	}
	return nil
}

// openPrivate opens a file beside the database, creates it if it does not exist, and gives it mode 0600
// whatever the umask. It does not follow links and refuses files of other users.
func openPrivate(path string) (*os.File, error) {
	open := func() (*os.File, error) {
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	}
	f, err := open()
	if errors.Is(err, fs.ErrPermission) && os.Chmod(path, 0o600) == nil { // created by an older version under a umask of 777
		f, err = open()
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkOwner(path, info)
	}
	if err == nil && info.Mode().Perm() != 0o600 {
		err = f.Chmod(0o600)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// restrictPermissions removes the permissions of group and others from the database, in case it was created
// with them. It is called only after the file is known to be ours. A failure is ignored: the log is usable
// without it.
func (f *File) restrictPermissions() {
	for _, suffix := range []string{"", "-wal", "-shm"} { // SQLite copies the database's mode to the other two
		path := f.Path + suffix
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 && checkOwner(path, info) == nil {
			_ = os.Chmod(path, 0o600)
		}
	}
}
