package sources

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pmcp/server/worktree"
)

// A change is a file that was changed.
type change struct {
	path string // relative to the directory of its listing
	at   time.Time
}

// A listing is what has changed below a directory since a time.
type listing struct {
	changes  []change
	tags     map[string]string // what git has called files, by path: see confirm
	tops     []string          // the work trees of submodules below the directory, relative to it
	looked   bool              // it is in a work tree, or holds what was built
	complete bool              // nothing was left out
}

// A walk makes a listing.
type walk struct {
	ctx   context.Context
	since time.Time
	now   time.Time
	slots chan struct{} // a goroutine for each
	wg    sync.WaitGroup

	mu    sync.Mutex // guards what follows
	left  int        // files that may still be read
	found listing
}

// list returns what has changed below dir since then, in at most that many files. Outside of a work tree it looks at no file:
// what there is may belong to other programs.
func list(ctx context.Context, dir string, since time.Time, most int) *listing {
	w := &walk{ctx: ctx, since: since, now: time.Now(), slots: make(chan struct{}, runtime.NumCPU()-1), left: most}
	w.found.tags = make(map[string]string)
	_, gitDir := worktree.Around(dir)
	w.found.looked, w.found.complete = built().MatchString(dir+"/") || gitDir != "", true
	if w.found.looked {
		w.dir(dir, "")
		w.wg.Wait()
	}
	return &w.found
}

// dir adds what has changed below top/rel.
func (w *walk) dir(top, rel string) {
	f, err := os.Open(filepath.Join(top, rel))
	if err != nil {
		return // it is gone, or not this user's
	}
	defer func() { _ = f.Close() }()
	entries, _ := f.ReadDir(maxFiles + 1)
	if rel != "" {
		for _, e := range entries {
			switch {
			case e.Name() == "pyvenv.cfg": // packages of Python
				return
			case e.Name() != ".git":
			case !isSubmodule(filepath.Join(top, rel)): // another repository or work tree
				return
			default: // a submodule
				w.mu.Lock()
				w.found.tops = append(w.found.tops, rel)
				w.mu.Unlock()
			}
		}
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case !w.take():
			return
		case e.IsDir() && !unreadDirs().MatchString(name):
			w.below(top, filepath.Join(rel, name))
		case e.Type().IsRegular() && (anyLanguage.kinds.include(name) || compiled.kinds.include(name)):
			if at, ok := changedBetween(int(f.Fd()), name, unix.AT_SYMLINK_NOFOLLOW, w.since, w.now); ok {
				w.add(filepath.Join(rel, name), at)
			}
		}
	}
}

func isSubmodule(dir string) bool {
	gitDir, isFile, err := worktree.ReadFile(dir)
	return err == nil && isFile && worktree.IsModule(gitDir)
}

// add adds a file that was changed, if a running program reads it.
func (w *walk) add(path string, at time.Time) {
	if unread().MatchString(path) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.changes = append(w.found.changes, change{path, at})
}

// below is dir in a goroutine of its own, if there is a processor for it.
func (w *walk) below(top, rel string) {
	select {
	case w.slots <- struct{}{}:
		w.wg.Go(func() {
			w.dir(top, rel)
			<-w.slots
		})
	default:
		w.dir(top, rel)
	}
}

// take reports whether one more file may be looked at.
func (w *walk) take() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left--; w.left < 0 || w.ctx.Err() != nil {
		w.found.complete = false
	}
	return w.found.complete
}

// changedAt returns when the file was changed, and whether that was after since.
func changedAt(path string, since time.Time) (at time.Time, ok bool) {
	return changedBetween(unix.AT_FDCWD, path, 0, since, time.Now())
}

// changedBetween returns the earlier time of a file of an open directory, and whether both lie between since and now: that
// of its content may have been set to any, as from an archive, and the other one also changes with its links.
func changedBetween(dir int, name string, flags int, since, now time.Time) (at time.Time, ok bool) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, flags); err != nil {
		return at, false
	}
	content, status := time.Unix(st.Mtim.Unix()), time.Unix(st.Ctim.Unix())
	earlier, later := content, status
	if status.Before(content) {
		earlier, later = status, content
	}
	return earlier, earlier.After(since) && !later.After(now)
}

// newer returns what of the listing was changed since the reader has read it.
func (l *listing) newer(r *reader) (newer []change) {
	if at, ok := changedAt(filepath.Join(r.dir, r.script), r.since); ok && r.script != "" {
		newer = append(newer, change{r.script, at})
	}
	if archive().MatchString(r.script) {
		return newer
	}
	for _, c := range l.changes {
		if c.path != r.script && c.at.After(r.since) && r.kinds.include(filepath.Base(c.path)) {
			newer = append(newer, c)
		}
	}
	return newer
}

// confirm returns those of newer that git tracks, or that are new and not ignored. JSON files count only if they are
// tracked: programs write many. If the script of the reader is ignored, the reader does not read the sources.
func (l *listing) confirm(ctx context.Context, git Git, r *reader, newer []change) (confirmed []change) {
	slices.SortStableFunc(newer, func(a, b change) int { return b.at.Compare(a.at) })
	newer = newer[:min(len(newer), MaxCount)]
	paths := make(map[string][]string) // that git was not asked about yet, by the top of their work tree
	for _, path := range append(pathsOf(newer), r.script) {
		if _, known := l.tags[path]; known || path == "" {
			continue
		}
		top := l.top(path)
		l.tags[path] = ""
		paths[top] = append(paths[top], strings.TrimPrefix(path, top))
	}
	for top, names := range paths {
		out, err := git(ctx, filepath.Join(r.dir, top), append(strings.Fields("ls-files -z -t --cached --others --exclude-standard --"), names...)...)
		if err != nil {
			l.complete = false
			continue
		}
		for entry := range strings.SplitSeq(out, "\x00") {
			if tag, path, ok := strings.Cut(entry, " "); ok {
				l.tags[top+path] = tag
			}
		}
	}
	isScript := r.script != "" && l.tags[r.script] == ""
	for _, c := range newer {
		tag := l.tags[c.path]
		switch {
		case isScript && c.path != r.script, !isScript && tag == "", tag == untracked && filepath.Ext(c.path) == ".json":
		default:
			confirmed = append(confirmed, c)
		}
	}
	return confirmed
}

// differing returns changes without the files whose content is still that of commit: a rebase writes them, and so does going
// to another branch and back. It returns all if the work tree was dirty at that commit, or it is not known.
func (l *listing) differing(ctx context.Context, git Git, r *reader, commit string, changes []change) []change {
	var tracked []string
	for _, c := range changes {
		if l.tags[c.path] != untracked && l.top(c.path) == "" {
			tracked = append(tracked, c.path)
		}
	}
	if !commitName().MatchString(commit) || len(tracked) == 0 {
		return changes
	}
	out, err := git(ctx, r.dir, append([]string{"diff", "--name-only", "-z", "--relative", "--no-renames", "--no-ext-diff", commit, "--"}, tracked...)...)
	if err != nil {
		return changes
	}
	differ := strings.Split(out, "\x00")
	return slices.DeleteFunc(changes, func(c change) bool { return slices.Contains(tracked, c.path) && !slices.Contains(differ, c.path) })
}

func pathsOf(changes []change) (paths []string) {
	for _, c := range changes {
		paths = append(paths, c.path)
	}
	return paths
}

// untracked is the tag of a file that is new.
const untracked = "?"

// top returns the top of the work tree of a file, with a slash at its end, or "" for that of the directory.
func (l *listing) top(path string) (top string) {
	for _, t := range l.tops {
		if strings.HasPrefix(path, t+"/") && len(t)+1 > len(top) {
			top = t + "/"
		}
	}
	return top
}
