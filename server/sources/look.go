package sources

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Program is a process of a run, or the command that started the run.
type Program struct {
	// Command is the command line, its words joined with blanks.
	Command string
	// Dir is the working directory, absolute.
	Dir string
	// Started is when the program began to read its files.
	Started time.Time
}

// A Run is what a look needs to know of a run.
type Run struct {
	// Executable is the absolute path of the first program.
	Executable string
	// Programs are the command of the run, then the processes of its tree. There is at least one.
	Programs []Program
	// Commit is that at which the run started, as the function Commit returned it, or "".
	Commit string
	// Reloads reports whether the run has shown that it loads again what has changed, which was at since at the earliest.
	// It is called once something has changed.
	Reloads func(since time.Time) bool
}

// Changed is what was found out about a run.
type Changed struct {
	// Files are the changed files, the latest first, three at most, relative to the directory of the run.
	Files []string
	// Count is how many there are, or MaxCount if there may be more.
	Count int
	// Current means that the run has the code that is there: nothing has changed, or it loads what changes.
	Current bool
}

const (
	MaxCount   = 100 // of the files that git is asked about
	maxNamed   = 3
	maxFiles   = 20_000                 // that a look reads the names of
	maxTime    = 200 * time.Millisecond // for that; a tenth is usual
	maxGitTime = time.Second            // once something has changed; some 10 ms are usual
)

// Git runs git with these arguments in a directory and returns what it prints. It returns an error if git fails.
type Git func(ctx context.Context, dir string, arguments ...string) (string, error)

// A reader is what has read the sources of a language below a directory, since then.
type reader struct {
	*language
	dir    string
	since  time.Time
	script string // relative to dir; "" if it has none there
	built  bool   // dir holds what was built from sources, which git may ignore
}

// Look returns what has changed of what the runs have read. What cannot be found out in time counts as not changed.
func Look(ctx context.Context, git Git, runs []Run) []Changed {
	all, since := make([][]reader, len(runs)), make(map[string]time.Time)
	current := make([]bool, len(runs))
	for i := range runs {
		all[i], current[i] = readers(&runs[i])
		for _, r := range all[i] {
			if at, ok := since[r.dir]; !ok || r.since.Before(at) {
				since[r.dir] = r.since
			}
		}
	}
	found := make(map[string]*listing, len(since))
	walking, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	for dir, at := range since {
		found[dir] = list(walking, dir, at, maxFiles)
	}
	ctx, cancel = context.WithTimeout(ctx, maxGitTime)
	defer cancel()
	changed := make([]Changed, len(runs))
	for i := range runs {
		if changed[i].Current = current[i]; !current[i] {
			changed[i] = look(ctx, git, &runs[i], all[i], found)
		}
	}
	return changed
}

// readers returns what has read sources in the run. reloads means that the run reads them again by itself.
func readers(run *Run) (all []reader, reloads bool) {
	for _, p := range run.Programs {
		c := newCommand(p.Command)
		if c.reloadsByItself() {
			return nil, true
		}
		if len(c.head) == 0 || c.isRunner() {
			continue
		}
		r, ok := c.reader(filepath.Clean(p.Dir))
		if !ok {
			continue
		}
		r.since = p.Started
		i := slices.IndexFunc(all, func(o reader) bool { return o.dir == r.dir && o.language == r.language && o.built == r.built })
		if i < 0 {
			all = append(all, r)
			continue
		}
		all[i].script = cmp.Or(all[i].script, r.script)
		if r.since.After(all[i].since) { // a worker that was started again
			all[i].since = r.since
		}
	}
	return all, false
}

// reader returns what the command reads. ok is false if it is in no language and is given no file of one, or is a tool that
// is not known to run the project's code.
func (c *command) reader(dir string) (r reader, ok bool) {
	r.language = languageOf(c.head[:1])
	var path string
	path, r.script = c.script(dir)
	isTool := tool().MatchString(cmp.Or(r.script, path))
	if !isTool && path != "" && r.script == "" {
		dir, r.script = filepath.Dir(path), filepath.Base(path)
	}
	switch r.dir = dir; {
	case foreign().MatchString(c.head[0]), inline().MatchString(c.all), prompt().MatchString(c.text), isTool && languageOf(c.head[1:]) == nil:
		return r, false
	case isTool:
		r.script = ""
	case r.language == nil && !anyLanguage.kinds.include(filepath.Base(r.script)):
		return r, false
	case r.language == nil:
		r.language = anyLanguage
	case r.language == java && r.script == "":
		r.script = c.classes(dir)
	}
	if built().MatchString(r.script) || archive().MatchString(r.script) {
		r.language = compiled
		r.dir, r.script, r.built = filepath.Join(dir, filepath.Dir(r.script)), filepath.Base(r.script), true
	}
	return r, true
}

// script returns the path of the first argument that names a file, and that relative to dir, or "" if the file is not below
// dir. Both are "" if there is none.
func (c *command) script(dir string) (path, rel string) {
	for _, word := range c.words[1:min(len(c.words), maxScriptWords)] {
		if strings.HasPrefix(word, "-") {
			continue
		}
		path := absolute(dir, word)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			rel, _ := below(dir, path)
			return path, rel
		}
	}
	return "", ""
}

// classes returns a file in the first directory of the class path that is below dir, or "".
func (c *command) classes(dir string) string {
	for i, word := range c.words[:len(c.words)-1] {
		if word != "-cp" && word != "-classpath" && word != "--class-path" {
			continue
		}
		for _, part := range filepath.SplitList(c.words[i+1]) {
			info, err := os.Stat(absolute(dir, part))
			if rel, ok := below(dir, part); ok && err == nil && info.IsDir() {
				return filepath.Join(rel, "Main.class")
			}
		}
	}
	return ""
}

// below returns a path relative to dir. ok is false if it is not below dir.
func below(dir, path string) (rel string, ok bool) {
	rel, err := filepath.Rel(dir, absolute(dir, path))
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return rel, true
}

func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// maxScriptWords is how many words of a command line are looked at for its script.
const maxScriptWords = 12

// look is Look for one run that does not read its files again by itself.
func look(ctx context.Context, git Git, run *Run, all []reader, found map[string]*listing) Changed {
	if len(all) == 0 {
		return lookAtBinary(run)
	}
	var changes []change
	complete := true
	for i := range all {
		r := &all[i]
		l := found[r.dir]
		newer := l.newer(r)
		if len(newer) > 0 && l.looked && !r.built {
			newer = l.differing(ctx, git, r, run.Commit, l.confirm(ctx, git, r, newer))
		}
		for _, c := range newer {
			path := filepath.Join(r.dir, c.path)
			rel, _ := below(run.Programs[0].Dir, path)
			changes = append(changes, change{cmp.Or(rel, path), c.at})
		}
		complete = complete && l.looked && l.complete
	}
	slices.SortStableFunc(changes, func(a, b change) int { return b.at.Compare(a.at) })
	changes = slices.CompactFunc(changes, func(a, b change) bool { return a == b })
	if len(changes) == 0 {
		return Changed{Current: complete}
	}
	if run.Reloads != nil && run.Reloads(changes[len(changes)-1].at) {
		return Changed{Current: true}
	}
	c := Changed{Count: min(len(changes), MaxCount)}
	for _, one := range changes[:min(len(changes), maxNamed)] {
		c.Files = append(c.Files, one.path)
	}
	return c
}

// lookAtBinary is look for a run of a program that reads no sources. One from elsewhere has none here.
func lookAtBinary(run *Run) Changed {
	first := run.Programs[0]
	c := newCommand(first.Command)
	name, isHere := below(first.Dir, run.Executable)
	at, newer := changedAt(run.Executable, first.Started)
	if c.isRunner() || !newer || run.Reloads != nil && run.Reloads(at) {
		return Changed{Current: !isHere && !c.isRunner()}
	}
	return Changed{Files: []string{cmp.Or(name, run.Executable)}, Count: 1}
}
