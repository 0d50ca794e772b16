package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"pmcp/process"
	"pmcp/server/worktree"
)

// A scope is what one of Options.Paths asks for.
type scope struct {
	given   string
	top     string // directory, with all below it unless file is set
	file    string // the path of a file in top; "" for all files, or those that match
	pattern string // matches the paths of files relative to top; "" for all
}

// newScope returns the scope of a path that is relative to dir.
func newScope(dir, given string) (s scope, err error) {
	s.given = given
	path := filepath.FromSlash(given)
	if path == "" {
		return s, errors.New("a path is empty")
	}
	if strings.ContainsAny(path, "*?[{") && !exists(join(dir, path)) {
		if !doublestar.ValidatePattern(path) {
			return s, fmt.Errorf("%.200q is no valid pattern", given)
		}
		path, s.pattern = doublestar.SplitPattern(path)
		if !strings.Contains(given, "/") {
			s.pattern = "**/" + s.pattern
		}
		if strings.Trim(s.pattern, "*/") == "" { // as good as the directory
			s.pattern = ""
		}
	}
	path = join(dir, path)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(given, "~"):
		return s, fmt.Errorf("%.200q does not exist: ~ is not replaced, write the home directory itself", given)
	case errors.Is(err, fs.ErrNotExist):
		return s, fmt.Errorf("%.200q does not exist in %s", given, dir)
	case err != nil:
		return s, fmt.Errorf("%.200q: %w", given, err)
	case info.IsDir() && process.IsNoProject(path):
		return s, fmt.Errorf("%.200q is %s, which is too much; give the directories of the program", given, path)
	case info.IsDir():
		s.top = real(path)
	default:
		s.top = real(filepath.Dir(path))
		s.file = filepath.Join(s.top, filepath.Base(path))
	}
	return s, nil
}

func join(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// real returns path without symbolic links in its directory, and itself if it exists.
func real(path string) string {
	if found, err := filepath.EvalSymlinks(path); err == nil {
		return found
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// match reports whether a path is in a scope (below), whether a file there counts (wanted), and whether it
// counts even if git ignores it, because it was asked for by name.
func (w *Watcher) match(path string) (wanted, named, below bool) {
	if w.skips(path) {
		return false, false, false
	}
	for i := range w.scopes {
		s := &w.scopes[i]
		rel, inside := strings.CutPrefix(path, s.top+"/")
		switch {
		case s.file != "":
			named = named || path == s.file
		case !inside && path != s.top:
			continue
		case s.pattern != "":
			ok, _ := doublestar.Match(s.pattern, rel) // it was validated
			named = named || ok
			below = true
		default:
			wanted, below = true, true
		}
	}
	return wanted || named, named, below || named
}

// isTop reports whether a directory is that of a scope.
func (w *Watcher) isTop(dir string) bool {
	return slices.ContainsFunc(w.scopes, func(s scope) bool { return s.file == "" && s.top == dir })
}

// addScopes watches all directories of all scopes, and returns the files in those that were not watched before.
func (w *Watcher) addScopes(ctx context.Context) (found []dirIn, err error) {
	var tops []dirIn
	for i := range w.scopes {
		s := &w.scopes[i]
		if s.file != "" {
			if err := w.addAlone(s.top); err != nil {
				return nil, err
			}
			continue
		}
		repo, _ := worktree.Around(s.top)
		if repo != s.top && w.askIgnored(ctx, []pathIn{{path: s.top, repo: repo}})[s.top] { // then git says nothing about what is in it
			repo = ""
		}
		if s.top != w.o.Dir { // it may be removed and made again
			if err := w.addAlone(filepath.Dir(s.top)); err != nil {
				return nil, err
			}
		}
		tops = append(tops, dirIn{path: s.top, repo: repo, named: true, at: time.Now()})
	}
	return w.addDirs(ctx, tops)
}

// addAlone watches a directory without those in it.
func (w *Watcher) addAlone(dir string) error {
	if err := w.fs.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return limitError(err)
	}
	return nil
}

// A dirIn is a directory that is to be watched, or a file in it.
type dirIn struct {
	path, repo string
	named      bool
	at         time.Time // when the change was seen that brought it
}

// readEntries is how many entries of a directory are read at once.
const readEntries = 1024

// addDirs watches directories with all directories in them that are not ignored, level by level, so that git is asked
// once for each level. It returns the files that match a scope in those that were not watched before, at most one more than fit into a burst.
func (w *Watcher) addDirs(ctx context.Context, level []dirIn) (found []dirIn, err error) {
	for len(level) > 0 {
		var ask []pathIn
		for _, d := range level {
			if !d.named {
				ask = append(ask, pathIn{path: d.path, repo: d.repo, dir: true})
			}
		}
		ignored := w.askIgnored(ctx, ask)
		var next []dirIn
		for _, d := range level {
			if ignored[d.path] {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			_, known := w.dirs[d.path]
			below, err := w.addDir(&d)
			if err != nil {
				return nil, err
			}
			for _, in := range below {
				if in.dir {
					next = append(next, dirIn{path: in.path, repo: d.repo, at: d.at})
				} else if wanted, _, _ := w.match(in.path); wanted && !known && len(found) <= maxFiles {
					found = append(found, dirIn{path: in.path, repo: d.repo, at: d.at})
				}
			}
		}
		level = next
	}
	return found, nil
}

// addDir watches one directory and returns what is in it. A directory that is gone, or cannot be read, is
// empty.
func (w *Watcher) addDir(d *dirIn) (below []pathIn, err error) {
	if _, known := w.dirs[d.path]; !known && len(w.dirs) >= w.o.maxDirs {
		return nil, w.tooMany()
	}
	if err := w.fs.Add(d.path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	} else if err != nil {
		return nil, limitError(err)
	}
	if d.repo != d.path && exists(filepath.Join(d.path, ".git")) { // a submodule, or a repository of its own
		d.repo = d.path
	}
	w.dirs[d.path] = d.repo
	f, err := os.Open(d.path)
	if err != nil {
		return nil, nil
	}
	defer func() { _ = f.Close() }()
	for {
		entries, err := f.ReadDir(readEntries)
		for _, e := range entries {
			if path := filepath.Join(d.path, e.Name()); !w.skips(path) {
				below = append(below, pathIn{path: path, dir: e.IsDir()})
			}
		}
		if err != nil { // io.EOF, or as above
			return below, nil
		}
	}
}

// tooMany is the error of too many directories.
func (w *Watcher) tooMany() error {
	var given []string
	for i := range w.scopes {
		given = append(given, w.scopes[i].given)
	}
	return fmt.Errorf("more than %d directories, without those that are ignored, in %.300q; give those that matter, or have git ignore the others", w.o.maxDirs, strings.Join(given, ", "))
}
