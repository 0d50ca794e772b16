package db

import "golang.org/x/sys/unix"

// fileSystem returns the number of the file system of a path.
func fileSystem(path string) (uint32, error) {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	return uint32(st.Type), err
}
