package process

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

const (
	// likenedEntries is how many entries of PATH's directories are looked at for
	// a name that is like the one that was not found, and likenedNames how many
	// such names are told.
	likenedEntries = 4000
	likenedNames   = 3
	// maxLikened is the longest name that is likened to others.
	maxLikened = 64
	// projectDepth is how many directories upwards a project is looked through.
	projectDepth = 16
)

// missing says that command is in none of the searched directories of PATH,
// and how to come by what was probably meant.
func missing(command, dir string, searched []string) error {
	hint := inProject(command, dir)
	if hint == "" && strings.ContainsRune(command, ' ') {
		hint = "beside args, command is the program alone: give its arguments in args, all of them; or the whole line in command, without args"
	}
	if hint == "" {
		hint = "give an absolute path, or PATH in env: an editor may have another PATH than your shell"
		if near := nearest(command, searched, likenedEntries); len(near) > 0 {
			hint = fmt.Sprintf("near it: %s; else %s", strings.Join(near, ", "), hint)
		}
	}
	return fmt.Errorf("%w: %.100q is not in PATH (directories searched: %d); %s", ErrNoExecutable, command, len(searched), hint)
}

// inProject says how a file of that name in dir's project is called: one in dir
// or a directory above it, up to the one with .git, or one that npm or a Python
// environment has put there. "" if there is none. Without a .git the project is
// dir: above it, in /tmp say, may lie anything.
func inProject(command, dir string) (hint string) {
	for at, depth := dir, projectHeight(dir); depth >= 0; at, depth = filepath.Dir(at), depth-1 {
		for _, place := range []string{"", "node_modules/.bin", ".venv/bin", "venv/bin"} {
			file := filepath.Join(at, place, command)
			call := file
			if at == dir {
				call = "./" + filepath.Join(place, command)
			}
			info, err := os.Stat(file)
			switch {
			case err != nil || !info.Mode().IsRegular():
			case checkExecutable(file) == nil:
				return "there is one in the project: use " + call
			case hint == "":
				hint = call + " is not executable: chmod +x it, or name its interpreter as command"
			}
		}
	}
	return hint
}

// projectHeight is how many directories above dir the one with .git is; 0 if
// there is none among projectDepth.
func projectHeight(dir string) int {
	for height := range projectDepth {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return height
		}
		dir = filepath.Dir(dir)
	}
	return 0
}

// nearest gives the executables in the directories that are most like command,
// the nearest first. It looks at so many entries at most.
func nearest(command string, dirs []string, entries int) (names []string) {
	if len(command) > maxLikened {
		return nil
	}
	type candidate struct {
		name, file string
		distance   int
	}
	var all []candidate
	for _, dir := range realDirs(dirs) {
		list := readNames(dir, entries)
		entries -= len(list)
		for _, name := range list {
			if d := distance(command, name); d <= max(1, len(command)/3) {
				all = append(all, candidate{name, filepath.Join(dir, name), d})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(len(a.name), len(b.name)), strings.Compare(a.name, b.name))
	})
	for _, c := range all {
		if len(names) < likenedNames && !slices.Contains(names, c.name) && checkExecutable(c.file) == nil {
			names = append(names, c.name)
		}
	}
	return names
}

// realDirs resolves links, so that each directory is there once: often /bin is
// /usr/bin.
func realDirs(dirs []string) (real []string) {
	for _, dir := range dirs {
		if at, err := filepath.EvalSymlinks(dir); err == nil && !slices.Contains(real, at) {
			real = append(real, at)
		}
	}
	return real
}

// readNames gives the names in a directory, limit of them at most.
func readNames(dir string, limit int) []string {
	if limit <= 0 {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	names, _ := f.Readdirnames(limit)
	return names
}

// distance is how many letters of written have to change to make it name,
// where case and a version at name's end do not count, two letters that
// are exchanged count as one, and so does an ending of one or two letters.
func distance(written, name string) int {
	if len(name) > 2*maxLikened || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return maxLikened // not a name to tell
	}
	written, name = strings.ToLower(written), strings.ToLower(name)
	d := levenshtein.ComputeDistance(written, name)
	if stem := strings.TrimRight(name, ".-0123456789"); stem != "" && stem != name {
		d = min(d, distance(written, stem))
	}
	if d == 2 && (sameLetters(written, name) || strings.HasPrefix(name, written)) {
		d = 1
	}
	return d
}

func sameLetters(a, b string) bool {
	x, y := []byte(a), []byte(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
