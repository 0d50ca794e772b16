// Package watch reports changes of files in bursts: what follows within 300 ms of the change before
// belongs to one burst, such as the saves of an editor or a checkout.
//
// It guarantees that a burst has only files that were asked for and that git does not ignore, that
// it never enters an ignored directory, that a change during the handling of one burst is in a later one,
// and that Close leaves no goroutine and no descriptor. It polls nothing, and refuses to watch more
// than MaxDirs directories. Changes of attributes alone, such as by chmod, are no changes.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// MaxDirs is how many directories one Watcher watches.
const MaxDirs = 8192

const (
	// quietPeriod is Options.Quiet unless it is set.
	quietPeriod = 300 * time.Millisecond
	// maxPaths bounds Options.Paths.
	maxPaths = 32
	// maxFiles bounds the files of a burst. Beyond it, only the fact that there are more is kept.
	maxFiles = 1024
)

// Options say what to watch.
type Options struct {
	// Dir is the absolute path to which Paths are relative.
	Dir string
	// Paths are directories, which are watched with all below them; files; and patterns with *, **, ?,
	// [] or {}, which match the names of files below Dir at any depth, or their paths if they have a slash. All but
	// patterns must exist.
	Paths []string
	// Skip are beginnings of absolute paths that are ignored.
	Skip []string
	// Git runs git in a directory and returns its output and its exit code. Nil stands for no git.
	Git func(ctx context.Context, dir string, args ...string) (output []byte, code int, err error)
	// Quiet ends a burst; 0 means 300 ms.
	Quiet time.Duration

	maxDirs int // MaxDirs unless a test sets it
}

// A Burst is a set of changes, each within Options.Quiet of another.
type Burst struct {
	// Files were changed, created or removed, in the order of their first change: at most 1024 of them, relative to
	// Options.Dir if they are below it.
	Files []string
	// More means that there are others.
	More bool
	// Last is when the last change was seen.
	Last time.Time
}

// A Watcher watches files until Close.
type Watcher struct {
	o      Options
	scopes []scope
	fs     *fsnotify.Watcher
	bursts chan Burst // one slot
	done   sync.WaitGroup
	ctx    context.Context // ends with Close
	end    context.CancelFunc
	err    error // why the bursts have ended; written before bursts is closed

	// The goroutine of the loop uses what follows.
	dirs    map[string]string // what is watched, and the top of its repository; "" without one
	changes map[string]*change
	ignored map[string]bool // paths that git was found to ignore, at most maxFiles
	fresh   bool            // one of changes is not checked
	missed  bool            // changes were seen for which there was no room
	last    time.Time       // when such a change was last seen
	seq     int             // of the latest change
}

// A change is what was seen of a path since the last burst.
type change struct {
	seq     int // orders the changes by their first event
	at      time.Time
	created bool // its first event was its creation
	wanted  bool // it matches the scopes; else only a directory matters
	named   bool // whether git ignores it does not matter
	checked bool // it counts
}

// Open begins to watch. An error says what is wrong with Options.Paths, or which limit is reached;
// then nothing is left behind.
func Open(ctx context.Context, o Options) (_ *Watcher, err error) {
	o.Quiet, o.maxDirs = cmp.Or(o.Quiet, quietPeriod), cmp.Or(o.maxDirs, MaxDirs)
	w := &Watcher{o: o, bursts: make(chan Burst, 1), dirs: make(map[string]string), changes: make(map[string]*change), ignored: make(map[string]bool)}
	w.o.Dir = real(o.Dir)
	w.o.Skip = nil
	for _, path := range o.Skip {
		w.o.Skip = append(w.o.Skip, real(path))
	}
	if len(o.Paths) > maxPaths {
		return nil, fmt.Errorf("%d paths, at most %d are allowed", len(o.Paths), maxPaths)
	}
	for _, path := range o.Paths {
		s, err := newScope(w.o.Dir, path)
		if err != nil {
			return nil, err
		}
		w.scopes = append(w.scopes, s)
	}
	if w.fs, err = fsnotify.NewWatcher(); err != nil {
		return nil, limitError(err)
	}
	defer func() {
		if err != nil {
			_ = w.fs.Close()
		}
	}()
	if _, err := w.addScopes(ctx); err != nil {
		return nil, err
	}
	w.ctx, w.end = context.WithCancel(context.Background())
	w.done.Go(w.run)
	return w, nil
}

// limitError adds to an error of the kernel which limit it is about.
func limitError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("no more directories can be watched: the limit fs.inotify.max_user_watches of this user is reached; watch fewer, or raise it: %w", err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("nothing more can be watched: the limit fs.inotify.max_user_instances of this user, or that of open files, is reached: %w", err)
	}
	return fmt.Errorf("cannot watch: %w", err)
}

// Bursts returns the channel of bursts. While one is waiting there, later ones are added to it. It is
// closed by Close, and when watching has ended; Err then returns why.
func (w *Watcher) Bursts() <-chan Burst { return w.bursts }

// Err returns why watching has ended, or nil if Close has ended it. It must be called after Bursts is closed.
func (w *Watcher) Err() error { return w.err }

// Close ends watching and waits for it.
func (w *Watcher) Close() {
	w.end()
	w.done.Wait()
}

// run follows the events until Close or an error.
func (w *Watcher) run() {
	defer close(w.bursts)
	defer func() { _ = w.fs.Close() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	waiting := false
	for {
		select {
		case <-w.ctx.Done():
			return
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if err := w.add(e, time.Now()); err != nil {
				w.fail(err)
				return
			}
		case err, ok := <-w.fs.Errors:
			switch {
			case !ok:
				return
			case errors.Is(err, fsnotify.ErrEventOverflow):
				w.missed, w.last = true, time.Now()
			default:
				w.fail(limitError(err))
				return
			}
		case <-timer.C:
			waiting = false
			again, err := w.settle()
			if err != nil {
				w.fail(err)
				return
			}
			if again > 0 {
				timer.Reset(again)
				waiting = true
			}
		}
		if !waiting && (len(w.changes) > 0 || w.missed) {
			timer.Reset(w.o.Quiet)
			waiting = true
		}
	}
}

// fail sets the error that ends the bursts, unless Close has ended them.
func (w *Watcher) fail(err error) {
	if w.ctx.Err() == nil {
		w.err = err
	}
}

// add records an event.
func (w *Watcher) add(e fsnotify.Event, now time.Time) error {
	if e.Op == fsnotify.Chmod {
		return nil
	}
	gone := e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)
	if _, isDir := w.dirs[e.Name]; isDir && gone {
		w.dropDir(e.Name, e.Has(fsnotify.Rename))
	}
	wanted, named, below := w.match(e.Name)
	if !below || !wanted && !e.Has(fsnotify.Create) || w.ignored[e.Name] {
		return nil
	}
	if c := w.changes[e.Name]; c != nil {
		c.at = now
		return nil
	}
	if len(w.changes) >= maxFiles && w.fresh { // make room
		if err := w.check(); err != nil {
			return err
		}
	}
	w.addChange(e.Name, change{at: now, created: e.Has(fsnotify.Create), wanted: wanted, named: named})
	return nil
}

// addChange records a path that has changed, if there is room for it.
func (w *Watcher) addChange(path string, c change) {
	if len(w.changes) >= maxFiles {
		w.missed, w.last = true, c.at
		return
	}
	w.seq++
	c.seq = w.seq
	w.changes[path], w.fresh = &c, true
}

// dropDir forgets a directory that is gone and, if it was renamed, those in it.
func (w *Watcher) dropDir(dir string, renamed bool) {
	delete(w.dirs, dir)
	_ = w.fs.Remove(dir) // the kernel has done it already, unless it was renamed
	if !renamed {
		return
	}
	for path := range w.dirs {
		if strings.HasPrefix(path, dir+"/") {
			delete(w.dirs, path)
			_ = w.fs.Remove(path)
		}
	}
}

// settle sends the changes that count as a burst if the last of them is old enough. Otherwise it returns when to call
// it again.
func (w *Watcher) settle() (again time.Duration, err error) {
	if err := w.check(); err != nil || len(w.changes) == 0 && !w.missed {
		return 0, err
	}
	last := w.last
	for _, c := range w.changes {
		if c.at.After(last) {
			last = c.at
		}
	}
	if left := w.o.Quiet - time.Since(last); left > 0 {
		return left, nil
	}
	if w.missed { // there may be new directories
		if _, err := w.addScopes(w.ctx); err != nil {
			return 0, err
		}
	}
	w.send(last)
	return 0, nil
}

// check watches new directories, with the files in them as changes, and drops the changes that do not count.
func (w *Watcher) check() error {
	var dirs []dirIn
	var ask []pathIn
	again := false
	for path, c := range w.changes {
		repo := w.dirs[filepath.Dir(path)]
		info, err := os.Lstat(path)
		switch isDir := err == nil && info.IsDir(); {
		case c.checked:
		case isDir && w.isTop(path):
			again = true
			delete(w.changes, path)
		case isDir:
			if _, known := w.dirs[path]; !known {
				dirs = append(dirs, dirIn{path: path, repo: repo, at: c.at})
			}
			delete(w.changes, path)
		case !c.wanted || err == nil && !info.Mode().IsRegular() && info.Mode()&os.ModeSymlink == 0: // a socket
			delete(w.changes, path)
		case c.named:
			c.checked = true
		default:
			ask = append(ask, pathIn{path: path, repo: repo, gone: err != nil})
		}
	}
	found, err := w.addDirs(w.ctx, dirs)
	if err == nil && again {
		var more []dirIn
		more, err = w.addScopes(w.ctx)
		found = append(found, more...)
	}
	if err != nil {
		return err
	}
	for _, f := range found {
		if w.changes[f.path] == nil { // else its own event was seen, too
			_, named, _ := w.match(f.path)
			w.addChange(f.path, change{at: f.at, created: true, wanted: true, named: named})
			ask = append(ask, pathIn{path: f.path, repo: f.repo})
		}
	}
	ignored := w.askIgnored(w.ctx, ask)
	if len(w.ignored)+len(ignored) > maxFiles {
		clear(w.ignored)
	}
	for _, p := range ask {
		c := w.changes[p.path]
		switch {
		case c == nil: // there was no room
		case ignored[p.path] && !c.named:
			delete(w.changes, p.path)
			if !p.gone {
				w.ignored[p.path] = true
			}
		default:
			c.checked = true
		}
	}
	w.fresh = false
	return nil
}

// send sends the burst of all changes, unless it is empty.
func (w *Watcher) send(last time.Time) {
	b := Burst{More: w.missed, Last: last}
	for _, path := range slices.SortedFunc(maps.Keys(w.changes), func(a, b string) int { return cmp.Compare(w.changes[a].seq, w.changes[b].seq) }) {
		if _, err := os.Lstat(path); err != nil && w.changes[path].created {
			continue // a temporary file
		}
		if filepath.Base(path) == ".gitignore" {
			clear(w.ignored)
		}
		b.Files = append(b.Files, w.shown(path))
	}
	clear(w.changes)
	w.missed = false
	if len(b.Files) == 0 && !b.More {
		return
	}
	select {
	case waiting := <-w.bursts:
		b = waiting.with(b)
	default:
	}
	w.bursts <- b // no other goroutine sends
}

// with returns b with the changes of a later burst.
func (b Burst) with(later Burst) Burst {
	for _, file := range later.Files {
		if !slices.Contains(b.Files, file) {
			b.Files = append(b.Files, file)
		}
	}
	if len(b.Files) > maxFiles {
		b.Files, b.More = b.Files[:maxFiles], true
	}
	b.More, b.Last = b.More || later.More, later.Last
	return b
}

// shown returns a path relative to the directory if it is below it.
func (w *Watcher) shown(path string) string {
	if rel, ok := strings.CutPrefix(path, w.o.Dir+"/"); ok {
		return rel
	}
	return path
}
