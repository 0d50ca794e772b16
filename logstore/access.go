package logstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxLinks is how many symbolic links a path may lead through, as in the kernel.
const maxLinks = 40

// realPath follows path where it is a symbolic link, be it to what does not exist yet: there SQLite
// makes the file and its log, and there our own files must be, so that servers that were given
// different paths to one database meet at its locks.
func realPath(path string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // before .. is taken from it
			if err != nil {
				return "", err
			}
			target = filepath.Join(dir, target)
		}
		path = target
	}
	return "", fmt.Errorf("%s: %w", path, syscall.ELOOP)
}

// closeToOthers takes the rights of others to the database away, where somebody made it with more than
// its owner's. It is called when it is known to be ours. Where the file system or another owner does
// not let it, it stays as it is: the log can be kept all the same.
func (f *file) closeToOthers() {
	for _, suffix := range []string{"", "-wal", "-shm"} { // SQLite gives the file's mode to the two others
		info, err := os.Lstat(f.path + suffix)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0 {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			_ = os.Chmod(f.path+suffix, 0o600)
		}
	}
}
