package process

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"pmcp/process/proctab"
	"pmcp/process/sockets"
)

const (
	defaultListenWithin = 2 * time.Second
	// The tree of a run in the background is looked at with this pause, and with
	// growing pauses, from the first one on, once a stop has begun.
	backgroundPause   = 100 * time.Millisecond
	firstStoppedPause = 5 * time.Millisecond
	// scanAge is the greatest age of the scan that shows whether a tree in the
	// background has ended.
	scanAge = time.Second
)

// background is the part of a Run that concerns services which put themselves into
// the background, as dev servers do when an agent starts them.
type background struct {
	spawned  time.Time     // no process of the run is older
	began    chan struct{} // closed when the run goes on without its first process
	decided  chan struct{} // closed when nothing but pipes is read any more
	stopping chan struct{} // closed when the first stop begins
	main     proctab.ID    // the process that listened first; guarded by Run.mu
}

func newBackground(spawned time.Time) background {
	return background{spawned: spawned, began: make(chan struct{}), decided: make(chan struct{}), stopping: make(chan struct{})}
}

// Background returns a channel that is closed when the run goes on in the
// background: its first process has ended with code 0, Spec.Service is set, and
// another process of its tree listens on a TCP port. The run then ends with its tree.
func (r *Run) Background() <-chan struct{} { return r.background.began }

// awaitBackground follows a run whose first process has ended with code 0. It returns
// exit and at, the end of that process, unless the run goes on in the background,
// else the end of the tree. The code is then that of the process that listened
// first, or 0 if it is not known. stoppedBy is what stopped the tree, or "".
func (r *Run) awaitBackground(exit Exit, at time.Time) (end Exit, endedAt time.Time, stoppedBy EndedBy) {
	main, ok := r.awaitListener()
	if !ok {
		return exit, at, ""
	}
	death := r.tree.awaitDeath(main)
	r.mu.Lock()
	r.background.main = main
	r.mu.Unlock()
	close(r.background.began)
	files := newLogFiles(r)
	defer files.close()
	stopping, pause, alive := r.background.stopping, backgroundPause, true
	for since := time.Now(); r.tree.scanSince(since).mayRemain(r.id); {
		files.read(r.tree.lastMembers(r.id))
		select {
		case <-time.After(pause):
		case <-stopping:
			stopping, pause = nil, firstStoppedPause
		}
		pause = min(2*pause, backgroundPause)
		since = time.Now()
		was := alive
		if alive = alive && !isDead(main); alive == was && stopping != nil {
			since = since.Add(-scanAge)
		}
	}
	at = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if status, known := death(); known {
		exit = r.exitOf(status, r.stoppedBy)
	} else if r.stoppedBy != "" {
		exit.By = r.stoppedBy
	}
	return exit, at, r.stoppedBy
}

// awaitListener returns the first process of the tree that listens on a TCP port. It
// returns false if none does within listenWithin, none is left or a stop begins.
func (r *Run) awaitListener() (id proctab.ID, ok bool) {
	deadline := time.Now().Add(r.listenWithin)
	for pause := firstWatchPause; ; pause = min(2*pause, maxWatchPause) {
		found := r.tree.scanSince(time.Now())
		if p, ok := listener(found.members[r.id]); ok {
			return p.ID, true
		}
		if !found.mayRemain(r.id) || !time.Now().Before(deadline) {
			return id, false
		}
		select {
		case <-time.After(pause):
		case <-r.background.stopping:
			return id, false
		}
	}
}

// listener returns the first of members that listens on a TCP port which is not a
// debugger's.
func listener(members []proctab.Proc) (proctab.Proc, bool) {
	listeners, err := sockets.Listening()
	if err != nil || len(members) == 0 {
		return proctab.Proc{}, false
	}
	sockets.AddHolders(listeners, members)
	for _, p := range members {
		if slices.ContainsFunc(listeners, func(s sockets.Socket) bool {
			return slices.Contains(s.Holders, p.PID) && !sockets.IsDebugger(s.Port(), commandLine(p.PID))
		}) {
			return p, true
		}
	}
	return proctab.Proc{}, false
}

// isDead reports whether the process id has ended.
func isDead(id proctab.ID) bool {
	p, err := proctab.Read(id.PID)
	return errors.Is(err, proctab.ErrGone) || err == nil && (p.Zombie || p.ID != id)
}

// awaitDeath registers interest in the end of id, an orphan that this process has
// adopted. The returned function, which ends the interest, returns the status with
// which id was reaped. It returns false if another process has reaped it.
func (t *tree) awaitDeath(id proctab.ID) func() (syscall.WaitStatus, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deaths == nil {
		t.deaths = make(map[proctab.ID]*syscall.WaitStatus)
	}
	t.deaths[id] = nil
	return func() (status syscall.WaitStatus, known bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if s := t.deaths[id]; s != nil {
			status, known = *s, true
		}
		delete(t.deaths, id)
		return status, known
	}
}

// addDeathLocked keeps the status of p if awaitDeath has asked for it.
func (t *tree) addDeathLocked(p proctab.Proc, status syscall.WaitStatus) {
	if _, awaited := t.deaths[p.ID]; awaited {
		t.deaths[p.ID] = &status
	}
}
