package watch

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// gitTime is how long git may take for one answer.
	gitTime = 5 * time.Second
	// gitBytes bounds the paths that git gets at once.
	gitBytes = 128 << 10
)

var (
	// neverEntered are names of directories that hold no sources in any project.
	neverEntered = []string{".git", ".hg", ".svn", "node_modules", "__pycache__", ".cache"}
	// outputDirs are names of directories that are ignored where no git says what is.
	outputDirs = []string{"dist", "build", "out", "target", "coverage", "tmp", "venv", ".venv", ".next", ".nuxt", ".tox", ".idea", ".vscode"}
	// editorFile matches the names of files that editors make beside the one that is edited.
	editorFile = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:.*~|\.#.*|#.*#|\..*\.sw[a-z]|4913|.*___jb_(?:tmp|old)___|\.goutputstream-.*)$`)
	})
)

// skips reports whether a path is ignored whatever git says of it.
func (w *Watcher) skips(path string) bool {
	name := filepath.Base(path)
	return slices.Contains(neverEntered, name) || editorFile().MatchString(name) ||
		slices.ContainsFunc(w.o.Skip, func(begin string) bool { return strings.HasPrefix(path, begin) })
}

// A pathIn is a path in a repository, or in none if repo is "".
type pathIn struct {
	path, repo string
	dir, gone  bool
}

// askIgnored returns which of paths are ignored: by the rules of git or, outside of a repository and if git cannot say,
// directories by their names.
func (w *Watcher) askIgnored(ctx context.Context, paths []pathIn) map[string]bool {
	ignored := make(map[string]bool)
	byRepo := make(map[string][]string)
	for _, p := range paths {
		byRepo[p.repo] = append(byRepo[p.repo], p.path)
		if p.gone { // git takes it for a directory only if it is asked for a file in it
			byRepo[p.repo] = append(byRepo[p.repo], p.path+"/x")
		}
	}
	for repo, asked := range byRepo {
		if w.askGit(ctx, repo, asked, ignored) {
			continue
		}
		for _, p := range paths {
			if p.repo == repo && (p.dir || p.gone) && slices.Contains(outputDirs, filepath.Base(p.path)) {
				ignored[p.path] = true
			}
		}
	}
	for _, p := range paths {
		if ignored[p.path+"/x"] {
			ignored[p.path] = true
		}
	}
	return ignored
}

// askGit adds those of paths that git ignores to ignored. ok is false if git cannot say.
func (w *Watcher) askGit(ctx context.Context, repo string, paths []string, ignored map[string]bool) (ok bool) {
	if repo == "" || w.o.Git == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	for len(paths) > 0 {
		args, size := []string{"-c", "core.quotePath=false", "check-ignore", "--"}, 0
		n := 0
		for n < len(paths) && (n == 0 || size+len(paths[n]) < gitBytes) {
			size += len(paths[n])
			n++
		}
		output, code, err := w.o.Git(ctx, repo, append(args, paths[:n]...)...)
		if err != nil || code > 1 { // 1: none of them
			return false
		}
		for line := range strings.Lines(string(output)) {
			line = strings.TrimSuffix(line, "\n")
			if plain, err := strconv.Unquote(line); err == nil {
				line = plain
			}
			ignored[line] = true
		}
		paths = paths[n:]
	}
	return true
}
