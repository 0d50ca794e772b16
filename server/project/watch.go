package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"pmcp/process"
	"pmcp/server/watch"
)

// watches are the files that are watched for processes of this session, by address.
type watches struct {
	mu  sync.Mutex
	all map[string]*watched // guarded by mu
	// done counts the goroutines that restart processes.
	done sync.WaitGroup
}

// A watched process is restarted when its files change, until it is stopped.
type watched struct {
	files *watch.Watcher
	dir   string
	paths []string
	own   ownChanges
	stops int  // Status.Stops when it was started
	set   bool // see setWatch
}

// discard ends w unless it is nil or was set.
func (w *watched) discard() {
	if w != nil && !w.set {
		w.files.Close()
	}
}

// ownChanges finds files that a process changes itself, each time it is started: it would be restarted for ever.
type ownChanges struct {
	starts int      // in a row that a change followed soon
	files  []string // that were among the changes each time
}

const (
	// maxOwnChanges is how many starts in a row a change of one file may follow soon. Somebody who saves a file needs longer.
	maxOwnChanges = 200
	// soonAfter is how soon after the start.
	soonAfter = 2 * time.Second
)

// add takes in the changes of a burst, and when the run of that time was started. It returns an error once the process seems to
// change one of the files itself.
func (o *ownChanges) add(b watch.Burst, started time.Time) error {
	both := slices.DeleteFunc(slices.Clone(o.files), func(file string) bool { return !slices.Contains(b.Files, file) })
	switch soon := b.Last.Sub(started) < soonAfter; {
	case !soon:
		*o = ownChanges{}
	case len(both) == 0:
		*o = ownChanges{starts: 1, files: b.Files}
	default:
		*o = ownChanges{starts: o.starts + 1, files: both}
	}
	if o.starts < maxOwnChanges {
		return nil
	}
	return fmt.Errorf("%q has changed soon after each of the last %d starts, so the process seems to change it itself; have git ignore it, or watch other paths", o.files[0], o.starts)
}

// A WatchEvent is what a change of watched files has done.
type WatchEvent struct {
	Run   Run         // that the change has started; that of the process if Err is set
	Burst watch.Burst // the changes; empty if watching has ended
	Err   error       // why nothing was started, or watching has ended
}

// openWatch begins to watch the files of a process that is about to be started with spec. It returns nil if there are none,
// and if they are watched already.
func (p *Project) openWatch(ctx context.Context, spec *process.Spec, o launchOptions) (*watched, error) {
	if len(spec.Watch) == 0 || o.changed {
		return nil, nil
	}
	w := &watched{dir: Definition{Cwd: spec.Dir}.dir(p.name), paths: spec.Watch}
	if err := process.CheckDir(w.dir, p.name); err != nil {
		return nil, err
	}
	files := watch.Options{Dir: w.dir, Paths: w.paths, Git: func(ctx context.Context, dir string, arguments ...string) ([]byte, int, error) {
		exit, output, err := runGit(ctx, p.o.Manager, dir, arguments)
		return output, exit.Code, err
	}}
	for _, own := range []string{p.o.Store.Status().Path, p.o.Store.dir} {
		if own != "" {
			files.Skip = append(files.Skip, own)
		}
	}
	var err error
	if w.files, err = watch.Open(ctx, files); err != nil {
		return nil, fmt.Errorf("argument watch: %w", err)
	}
	return w, nil
}

// setWatch makes w, unless it is nil, the watch of the process st, which was started with it. A process that went on with
// the same paths keeps its watch, which may have seen a change.
func (p *Project) setWatch(w *watched, st *process.Status, already bool) {
	name := st.Spec.Name
	p.watches.mu.Lock()
	defer p.watches.mu.Unlock()
	old := p.watches.all[name]
	if already && old != nil && w != nil && old.dir == w.dir && slices.Equal(old.paths, w.paths) {
		return
	}
	if old != nil {
		old.files.Close()
		delete(p.watches.all, name)
	}
	if w == nil {
		return
	}
	w.stops, w.set = st.Stops, true
	if p.watches.all == nil {
		p.watches.all = make(map[string]*watched)
	}
	p.watches.all[name] = w
	p.watches.done.Go(func() { p.followWatch(name, w) })
}

// endWatch ends w, and reports whether it was still the watch of the process.
func (p *Project) endWatch(name string, w *watched) bool {
	p.watches.mu.Lock()
	defer p.watches.mu.Unlock()
	w.files.Close()
	if p.watches.all[name] != w {
		return false
	}
	delete(p.watches.all, name)
	return true
}

// isWatched reports whether w is the watch of the process, and no stop has ended that.
func (p *Project) isWatched(name string, w *watched) bool {
	st, err := p.o.Manager.Status(name)
	p.watches.mu.Lock()
	defer p.watches.mu.Unlock()
	return err == nil && st.Stops == w.stops && p.watches.all[name] == w
}

// endStoppedWatches ends the watches of processes that were stopped or removed.
func (p *Project) endStoppedWatches() {
	for name, w := range p.currentWatches() {
		if !p.isWatched(name, w) {
			p.endWatch(name, w)
		}
	}
}

func (p *Project) currentWatches() map[string]*watched {
	p.watches.mu.Lock()
	defer p.watches.mu.Unlock()
	return maps.Clone(p.watches.all)
}

// CloseWatches ends all watches and waits for the restarts under way. The Manager must be closed first.
func (p *Project) CloseWatches() {
	for name, w := range p.currentWatches() {
		p.endWatch(name, w)
	}
	p.watches.done.Wait()
}

// followWatch restarts a process after each burst of changes, until its watch ends.
func (p *Project) followWatch(name string, w *watched) {
	var err error
	for burst := range w.files.Bursts() {
		again := false
		if p.isWatched(name, w) {
			again, err = p.restartChanged(name, w, burst)
		}
		if !again {
			break
		}
	}
	if !p.endWatch(name, w) {
		return
	}
	if err = cmp.Or(err, w.files.Err()); err != nil {
		if run := p.Here(name); run != nil {
			p.o.Watched(WatchEvent{Run: *run, Err: err})
		}
	}
}

// restartChanged restarts a process whose files have changed, or starts it if it has ended on its own: the change may be what it
// needed. It returns false if the process is not to be restarted any more, with an error if nobody has asked for that.
func (p *Project) restartChanged(name string, w *watched, burst watch.Burst) (again bool, err error) {
	st, err := p.o.Manager.Status(name)
	if err != nil {
		return false, nil
	}
	if !st.BetweenRuns() && burst.Last.Before(st.StartedAt) {
		return true, nil // the run has found the change
	}
	if err := w.own.add(burst, st.StartedAt); err != nil {
		return false, err
	}
	started, err := p.For(ActorWatch).relaunch(context.Background(), &st) // the end of the Manager ends it
	var away *WindowError
	switch {
	case errors.Is(err, process.ErrCalledOff), errors.Is(err, process.ErrClosed), errors.As(err, &away):
		return false, nil
	case err != nil:
		started.Run = p.here(&st)
	}
	p.o.Watched(WatchEvent{Run: started.Run, Burst: burst, Err: err})
	return true, nil
}

// relaunch starts a process of this session again as its definition is now, unless it was stopped.
func (p *Project) relaunch(ctx context.Context, st *process.Status) (Started, error) {
	name := st.Spec.Name
	def, ok := p.unnamedDefinition(name)
	if !ok {
		var err error
		if def, ok, err = p.of(name).Definition(ctx, name); err != nil {
			return Started{}, err
		}
	}
	if !ok { // another session has removed it
		return Started{}, process.ErrCalledOff
	}
	return p.launch(ctx, name, def, launchOptions{
		exits: !st.Spec.Stdin && !st.Spec.Service, ready: st.Spec.Ready != nil, ifRunning: process.RestartRunning, changed: true,
	})
}
