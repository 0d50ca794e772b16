package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Searched counts the searches of PATH. Tests read it.
var Searched atomic.Int64

// lookup returns the absolute path of the executable that command stands for in a child with
// working directory dir and PATH path. It does not resolve symbolic links: a Python environment
// finds itself by the link through which its interpreter was called.
//
// os/exec would search the server's directory and PATH, but a definition means those of the
// child. Like os/exec since Go 1.19, lookup skips relative and empty entries of path. Its
// errors wrap ErrNoExecutable.
func lookup(command, dir, path string) (string, error) {
	if strings.Contains(command, "/") {
		file := command
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		return file, checkExecutable(file)
	}
	Searched.Add(1)
	var found error
	var searched, skipped []string
	for _, entry := range filepath.SplitList(path) {
		if !filepath.IsAbs(entry) {
			skipped = append(skipped, entry)
			continue
		}
		searched = append(searched, entry)
		file := filepath.Join(entry, command)
		err := checkExecutable(file)
		if err == nil {
			return file, nil
		}
		if !isAbsent(err) && found == nil {
			found = err // returned unless a later entry of PATH has an executable file
		}
	}
	if found != nil {
		return "", found
	}
	if slices.ContainsFunc(skipped, isUnexpanded) {
		return "", fmt.Errorf("%w: %.100q is not in PATH, which is used as it is: $PATH and ~ in env are not replaced (skipped: %.200q)", ErrNoExecutable, command, skipped)
	}
	return "", missing(command, dir, searched)
}

// isUnexpanded reports whether an entry of PATH contains what only a shell replaces.
func isUnexpanded(entry string) bool {
	return strings.Contains(entry, "$") || strings.HasPrefix(entry, "~")
}

// isAbsent reports whether err means that there can be no such file. err may be ENOTDIR because
// an entry of PATH may itself be a file.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG)
}

// checkExecutable returns nil if this user may execute file. Its errors wrap ErrNoExecutable
// and, if there is no file, fs.ErrNotExist.
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
	// Access checks the permissions of the real user, which is also our effective user. Even
	// root needs one x bit that is set.
	if unix.Access(file, unix.X_OK) != nil {
		return fmt.Errorf("%w: %s is not executable (mode %s); chmod +x it, or name its interpreter as command", ErrNoExecutable, file, info.Mode().Perm())
	}
	return nil
}
