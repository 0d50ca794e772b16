package project

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"pmcp/process"
	"pmcp/server/worktree"
)

// projectOf returns the path of the project that a directory belongs to: the deeper of
// own, if the directory is below it, and the nearest directory upwards with a .git. A
// linked worktree is always a project. Of the others, a submodule belongs to the
// repository around it, and a repository below own belongs to own. A directory that is
// below neither belongs to own. dir must be absolute; if it does not exist, its nearest
// directory upwards that does counts.
func projectOf(own, dir string) (string, error) {
	at, err := existing(dir)
	if err != nil {
		return "", err
	}
	self, err := filepath.EvalSymlinks(own)
	if err != nil {
		self = own
	}
	inside := !process.IsNoProject(own) && (at == self || strings.HasPrefix(at, strings.TrimSuffix(self, "/")+"/"))
	for ; !process.IsNoProject(at); at = filepath.Dir(at) {
		if inside && at == self {
			return own, nil
		}
		kind, err := gitKind(at)
		if err != nil {
			return "", err
		}
		if kind == linkedWorktree || kind == repository && !inside {
			return at, nil
		}
	}
	return own, nil
}

// existing returns dir without symbolic links, or the nearest directory upwards that
// exists.
func existing(dir string) (string, error) {
	for {
		at, err := filepath.EvalSymlinks(dir)
		switch {
		case err == nil:
			return at, nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR), dir == filepath.Dir(dir):
			return "", fmt.Errorf("cannot find the project of %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
}

// What a directory is to git.
const (
	noRepository   = iota // it has no .git or one that links to itself, or is the top of a submodule
	repository            // the top of a repository, or of a work tree whose repository is elsewhere
	linkedWorktree        // the top of a linked worktree
)

// gitKind returns what a directory is to git, as its .git says.
func gitKind(dir string) (int, error) {
	gitDir, isFile, err := worktree.ReadFile(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP): // as for git
		return noRepository, nil
	case err != nil:
		return 0, fmt.Errorf("cannot find the project of %s: %w; argument project names one", dir, err)
	case !isFile:
		return repository, nil
	case worktree.IsModule(gitDir):
		return noRepository, nil
	case filepath.Base(filepath.Dir(gitDir)) == "worktrees":
		return linkedWorktree, nil
	}
	return repository, nil
}
