package command

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
	// maxEntries is how many entries of PATH's directories are searched for names similar to the
	// one that was not found. maxNames is how many similar names an error suggests.
	maxEntries = 4000
	maxNames   = 3
	// maxLength is the longest name that is compared to others.
	maxLength = 64
	// projectDepth is how many directories upwards the project is searched.
	projectDepth = 16
)

// missing returns the error for a command that is in none of the searched directories of PATH.
// It suggests what was probably meant.
func missing(command, dir string, searched []string) error {
	hint := inProject(command, dir)
	if hint == "" && strings.ContainsRune(command, ' ') {
		hint = "with args, command is the program alone: give its arguments in args, all of them; or the whole line in command, without args"
	}
	if hint == "" {
		hint = "give an absolute path, or PATH in env: an editor may have another PATH than your shell"
		if near := nearest(command, searched, maxEntries); len(near) > 0 {
			hint = fmt.Sprintf("near it: %s; else %s", strings.Join(near, ", "), hint)
		}
	}
	return fmt.Errorf("%w: %.100q is not in PATH (directories searched: %d); %s", ErrNoExecutable, command, len(searched), hint)
}

// inProject returns a hint on how to call a file with the name command in dir's project, or ""
// if there is no such file. It searches dir and the directories above it up to the one with
// .git, and in each of them the directories where npm and Python environments put programs.
// Without a .git the project is dir alone, because a directory above it, such as /tmp, may hold
// anything.
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

// projectHeight returns how many levels above dir the directory with .git is, or 0 if there is
// no .git within projectDepth.
func projectHeight(dir string) int {
	for height := range projectDepth {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return height
		}
		dir = filepath.Dir(dir)
	}
	return 0
}

// nearest returns the names of the executables in dirs that are most similar to command, the
// nearest first. It reads at most the given number of entries.
func nearest(command string, dirs []string, entries int) (names []string) {
	if len(command) > maxLength {
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
		if len(names) < maxNames && !slices.Contains(names, c.name) && checkExecutable(c.file) == nil {
			names = append(names, c.name)
		}
	}
	return names
}

// realDirs returns dirs with their links resolved, each once: often /bin is /usr/bin.
func realDirs(dirs []string) (real []string) {
	for _, dir := range dirs {
		if at, err := filepath.EvalSymlinks(dir); err == nil && !slices.Contains(real, at) {
			real = append(real, at)
		}
	}
	return real
}

// readNames returns the names in a directory, at most limit of them.
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

// distance returns how many letters of written must change to turn it into name. Case and a
// version at the end of name do not count. Two swapped letters count as one change, and so does
// an ending of one or two letters.
func distance(written, name string) int {
	if len(name) > 2*maxLength || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return maxLength // too long or unprintable to be suggested in an error
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
