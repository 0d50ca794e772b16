package offered

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"go.yaml.in/yaml/v3"
)

// packageFile is the file of npm and of those that read its format.
const packageFile = "package.json"

// Bounds of what is read for the workspaces of a package.
const (
	maxWorkspaces  = 100
	maxDirectories = 5000 // directories in which workspaces are looked for
)

type manifest struct {
	Scripts        map[string]json.RawMessage `json:"scripts"`
	Workspaces     json.RawMessage            `json:"workspaces"`
	PackageManager any                        `json:"packageManager"`
}

// packages reads package.json and those of its workspaces.
func (r *reader) packages() {
	root, ok := r.manifest(packageFile)
	patterns := r.workspacePatterns(root.Workspaces)
	if !ok && len(patterns) == 0 {
		return
	}
	r.top = root
	r.scripts(packageFile, "", root)
	dirs := r.workspaces(patterns)
	for _, dir := range dirs {
		file := path.Join(dir, packageFile)
		if m, ok := r.manifest(file); ok {
			label := path.Base(dir)
			if slices.ContainsFunc(dirs, func(other string) bool { return other != dir && path.Base(other) == label }) {
				label = strings.ReplaceAll(dir, "/", "-")
			}
			r.scripts(file, label+":", m)
		}
	}
}

func (r *reader) manifest(file string) (m manifest, ok bool) {
	content, ok := r.read(file)
	return m, ok && r.decodeJSON(file, content, &m)
}

// scripts adds the scripts of a package. Their names begin with prefix.
func (r *reader) scripts(file, prefix string, m manifest) {
	manager := r.manager()
	for _, name := range slices.Sorted(maps.Keys(m.Scripts)) {
		var script string
		if json.Unmarshal(m.Scripts[name], &script) != nil {
			r.note(file, "script %.100q is not text", name)
			continue
		}
		p := Program{Source: file, Argv: []string{manager, "run", name}, Script: script, Cwd: r.relative(filepath.Join(r.dir, path.Dir(file)))}
		if strings.HasPrefix(name, "-") {
			p.Not = manager + " would take its name for an option"
		}
		r.add(kindNPM, prefix+name, p)
	}
}

// lockFiles are the files by which the package managers are told, in the order of their weight.
var lockFiles = []struct{ file, manager string }{
	{"pnpm-lock.yaml", "pnpm"}, {"pnpm-workspace.yaml", "pnpm"}, {"yarn.lock", "yarn"}, {"bun.lock", "bun"}, {"bun.lockb", "bun"},
	{"package-lock.json", "npm"}, {"npm-shrinkwrap.json", "npm"},
}

// manager returns the package manager of the directory: what package.json or else a lock file
// names, here or in the nearest directory upwards to the root that names one.
func (r *reader) manager() string {
	m := r.top
	for dir := r.dir; ; dir = filepath.Dir(dir) {
		if dir != r.dir {
			m = manifest{}
			if content, err := ReadFile(filepath.Join(dir, packageFile)); err == nil {
				_ = json.Unmarshal(content, &m) // a file that is not read as programs gets no note
			}
		}
		named, _ := m.PackageManager.(string)
		named, _, _ = strings.Cut(named, "@")
		for _, lock := range lockFiles {
			if lock.manager == named {
				return named
			}
		}
		for _, lock := range lockFiles {
			if exists(dir, lock.file) {
				return lock.manager
			}
		}
		if dir == r.root || dir == filepath.Dir(dir) || !strings.HasPrefix(dir, r.root) {
			return "npm"
		}
	}
}

// workspacePatterns returns the patterns of the directories of workspaces.
func (r *reader) workspacePatterns(field json.RawMessage) []string {
	var listed []string
	var object struct{ Packages []string }
	if len(field) > 0 && json.Unmarshal(field, &listed) != nil {
		if json.Unmarshal(field, &object) != nil {
			r.note(packageFile, "workspaces is not a list of directories")
		}
		listed = object.Packages
	}
	const file = "pnpm-workspace.yaml"
	var pnpm struct{ Packages []string }
	if content, ok := r.read(file); ok && r.decodeYAML(file, content, &pnpm) {
		listed = append(listed, pnpm.Packages...)
	}
	return listed
}

func (r *reader) decodeYAML(file string, content []byte, value any) bool {
	err := yaml.Unmarshal(content, value)
	var kind *yaml.TypeError
	switch {
	case errors.As(err, &kind): // it quotes the file
		r.note(file, "not of the expected form")
	case err != nil:
		r.note(file, "not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	return err == nil
}

// workspaces returns the sorted directories that the patterns match and that have a package.
func (r *reader) workspaces(patterns []string) []string {
	found := make(map[string]bool)
	files := &workspaceFiles{os.DirFS(r.dir).(fs.StatFS), maxDirectories}
	for _, pattern := range patterns {
		pattern, excluded := strings.CutPrefix(pattern, "!")
		pattern = path.Clean(pattern)
		if path.IsAbs(pattern) || pattern == ".." || strings.HasPrefix(pattern, "../") {
			r.note(packageFile, "workspaces %.100q are outside of the directory", pattern)
			continue
		}
		var options []doublestar.GlobOption
		if strings.Contains(pattern, "**") { // a link may lead back
			options = append(options, doublestar.WithNoFollow())
		}
		matches, _ := doublestar.Glob(files, path.Join(pattern, packageFile), options...) // a bad pattern matches nothing
		for _, file := range matches {
			if dir := path.Dir(file); excluded {
				delete(found, dir)
			} else {
				found[dir] = true
			}
		}
	}
	delete(found, ".")
	dirs := slices.Sorted(maps.Keys(found))
	if len(dirs) > maxWorkspaces || files.left == 0 {
		r.note(packageFile, "too many workspaces: only the first %d are read", min(len(dirs), maxWorkspaces))
		dirs = dirs[:min(len(dirs), maxWorkspaces)]
	}
	return dirs
}

// workspaceFiles lists directories without hidden ones and node_modules, at most left of them.
type workspaceFiles struct {
	fs.StatFS
	left int
}

func (w *workspaceFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	if w.left == 0 {
		return nil, nil
	}
	w.left--
	entries, err := fs.ReadDir(w.StatFS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "node_modules" || strings.HasPrefix(e.Name(), ".") }), err
}
