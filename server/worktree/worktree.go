// Package worktree finds work trees of git. It does not run git.
package worktree

import (
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxGitFile is how much of a .git file is read, in bytes.
const maxGitFile = 8 << 10

// Around returns the top of the work tree that an absolute directory is in, and the git directory of that. Both are "" if
// it is in none.
func Around(dir string) (top, gitDir string) {
	for {
		gitDir, isFile, err := ReadFile(dir)
		up := filepath.Dir(dir)
		switch {
		case err == nil && isFile:
			return dir, gitDir
		case err == nil:
			return dir, filepath.Join(dir, ".git")
		case up == dir:
			return "", ""
		}
		dir = up
	}
}

// ReadFile returns the absolute path of the git directory that the .git file of a directory names. isFile is false if it
// names none, or .git is a directory. The error is that of reading it.
func ReadFile(dir string) (gitDir string, isFile bool, err error) {
	path := filepath.Join(dir, ".git")
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return "", false, err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", false, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxGitFile))
	gitDir, isFile = strings.CutPrefix(string(content), "gitdir:")
	if gitDir = strings.TrimSpace(gitDir); !filepath.IsAbs(gitDir) {
		gitDir = filepath.Join(dir, gitDir)
	}
	return gitDir, isFile, err
}

// IsModule reports whether a git directory is that of a submodule. A submodule has a
// repository of its own, while a linked worktree has the file commondir. What does not
// exist any more is recognised by its path.
func IsModule(gitDir string) bool {
	if _, err := os.Stat(filepath.Join(gitDir, "commondir")); err == nil {
		return false
	}
	if _, err := os.Stat(filepath.Join(gitDir, "HEAD")); err != nil && filepath.Base(filepath.Dir(gitDir)) == "worktrees" {
		return false
	}
	return strings.Contains(gitDir, "/modules/")
}
