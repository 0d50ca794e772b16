package project

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// At returns the project of a call: what project names, by its path or label, else the
// project of the directory cwd, to which the command line may change, else p. dir is the
// cwd to use in that project: a relative cwd that leads out of p is made absolute.
func (p *Project) At(ctx context.Context, project, cwd, line string) (at *Project, dir string, err error) {
	path, dir := p.name, cwd
	def := Definition{Command: line, Cwd: cwd}
	if project == "" && strings.HasPrefix(strings.TrimSpace(line), "cd ") {
		cwd = Definition{Cwd: p.line(&def).Dir}.dir(cwd)
	}
	switch {
	case project != "":
		path, err = p.named(ctx, project)
	case filepath.IsAbs(cwd) || cwd != "" && !process.IsNoProject(p.name):
		path, err = projectOf(p.name, Definition{Cwd: cwd}.dir(p.name))
		if path != p.name && (dir != "" || !filepath.IsAbs(cwd)) {
			dir = Definition{Cwd: dir}.dir(p.name)
		}
	}
	if err == nil {
		err = p.o.Store.join(ctx, path)
	}
	if def.Cwd = dir; line != "" {
		def.source(path)
	}
	return &Project{session: p.session, name: path, chosen: project != "" || cwd != "", read: def.read}, dir, err
}

// named returns the path of the project that an argument names.
func (p *Project) named(ctx context.Context, project string) (string, error) {
	if path, _ := p.o.Store.split("", "@"+project); path != "" {
		return path, nil
	}
	if p.o.Store.has(project) {
		return project, nil
	}
	paths, err := p.o.Store.labels.ProjectPaths(ctx, project)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot list the projects: %w", err)
	case len(paths) == 1:
		return paths[0], nil
	case len(paths) > 1:
		return "", fmt.Errorf("argument project: %.200q may be %s; give one of these paths", project, strings.Join(paths, " or "))
	case project == filepath.Base(p.o.Manager.Project()):
		return p.o.Manager.Project(), nil
	}
	dir := Definition{Cwd: project}.dir(p.name)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("argument project: no project is known as %.200q; give the path of a directory, or a label as in web@label", project)
	}
	return projectOf(p.o.Manager.Project(), dir)
}
