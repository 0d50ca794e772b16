package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// lookup finds the executable that command means for a child in dir whose
// PATH is path, and returns its absolute path. Symbolic links stay as they
// are: a Python environment finds itself by the link it was called through.
//
// os/exec looks in the server's directory and PATH instead, which is not what
// the child's definition says. Relative and empty entries of path are passed
// over, as os/exec does since Go 1.19. Errors wrap ErrNoExecutable.
func lookup(command, dir, path string) (string, error) {
	if strings.Contains(command, "/") {
		file := command
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		return file, checkExecutable(file)
	}
	var found error
	var searched, passed []string
	for _, entry := range filepath.SplitList(path) {
		if !filepath.IsAbs(entry) {
			passed = append(passed, entry)
			continue
		}
		searched = append(searched, entry)
		file := filepath.Join(entry, command)
		err := checkExecutable(file)
		if err == nil {
			return file, nil
		}
		if !isNothing(err) && found == nil {
			found = err // there is one, but it cannot be run: say so if nothing better comes
		}
	}
	if found != nil {
		return "", found
	}
	if slices.ContainsFunc(passed, isUnexpanded) {
		return "", fmt.Errorf("%w: %.100q is not in PATH, which is taken as it stands: $PATH and ~ in env are not replaced (passed over: %.200q)", ErrNoExecutable, command, passed)
	}
	return "", missing(command, dir, searched)
}

// isUnexpanded says whether an entry of PATH has what only a shell replaces.
func isUnexpanded(entry string) bool {
	return strings.Contains(entry, "$") || strings.HasPrefix(entry, "~")
}

// isNothing tells whether err says that there can be no such file: a PATH entry
// may itself be a file.
func isNothing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG)
}

// checkExecutable answers nil if file is one that this user may execute. Its
// errors wrap ErrNoExecutable and, where nothing is there, fs.ErrNotExist.
func checkExecutable(file string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s: %w", ErrNoExecutable, file, fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNoExecutable, err)
	case info.IsDir():
		return fmt.Errorf("%w: %s is a directory", ErrNoExecutable, file)
	}
	// Access asks with the real user, which is who we are; for root it still
	// wants one x bit to be set.
	if unix.Access(file, unix.X_OK) != nil {
		return fmt.Errorf("%w: %s is not executable (mode %s); chmod +x it, or name its interpreter as command", ErrNoExecutable, file, info.Mode().Perm())
	}
	return nil
}
