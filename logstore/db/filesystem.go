package db

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// networks are the file systems of other machines, by the number that Linux's statfs returns. FUSE
// is not among them: it may be a local disk.
var networks = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x01021997: "9p",
	0x00c36400: "Ceph", 0x5346414f: "AFS", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS",
}

// CheckFileSystem returns an error if the database at path is, or would be, on a network file
// system. SQLite's write-ahead log is shared memory, which two machines do not share.
func CheckFileSystem(path string) error { return checkFileSystem(path, fileSystem) }

// checkFileSystem is CheckFileSystem; kind returns the number of a file system.
func checkFileSystem(path string, kind func(path string) (uint32, error)) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		number, err := kind(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			continue
		}
		if name := networks[number]; err == nil && name != "" {
			return fmt.Errorf("%s is on a network file system (%s), where two machines can damage the database: set PM_DATABASE_PATH to a file on a local disk", path, name)
		}
		return nil // SQLite reports what else is wrong
	}
}

// advise adds what to do to the error of a place that cannot be written. Nil stays nil.
func advise(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w; set PM_DATABASE_PATH to a file in a directory that can be written", err)
	case IsDiskFull(err):
		return fmt.Errorf("%w; free space there, or set PM_DATABASE_PATH to a file on another disk, and start a new session", err)
	}
	return err
}
