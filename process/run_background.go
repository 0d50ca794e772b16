package process

import (
	"cmp"
	"slices"
	"syscall"
	"time"

	"pmcp/process/proctab"
	"pmcp/process/sockets"
)

const (
	// defaultHandOver is how long a server that replaces itself may take until its
	// successor listens.
	defaultHandOver = 2 * time.Second
	// The tree of a run in the background is looked at with this pause while its log
	// files grow, and with pauses that grow to the longest one while they do not. Once a
	// stop has begun they grow from the first one.
	backgroundPause    = 100 * time.Millisecond
	maxBackgroundPause = time.Second
	firstStoppedPause  = 5 * time.Millisecond
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
	main     proctab.ID    // the process that stands for the run; guarded by Run.mu
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
// else the end of the tree. The code is then that of the process that listened, else
// that of the one above it which was left to pmcp, else -1: not known. stoppedBy is what
// stopped the tree, or "".
func (r *Run) awaitBackground(exit Exit, at time.Time) (end Exit, endedAt time.Time, stoppedBy EndedBy) {
	main, members, ok := r.awaitListener()
	if !ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		exit.By = cmp.Or(r.stoppedBy, exit.By)
		return exit, at, r.stoppedBy
	}
	watch := r.follow(main, members)
	close(r.background.began)
	files := newLogFiles(r)
	defer files.close()
	stopping, pause := r.background.stopping, backgroundPause
	for since := time.Now(); ; {
		now := r.tree.scanSince(since)
		members := now.members[r.id]
		if !now.mayRemain(r.id) {
			break
		}
		if !slices.ContainsFunc(members, func(p proctab.Proc) bool { return p.ID == main }) && len(members) > 0 {
			p, found := listener(members)
			if main = p.ID; !found {
				main = members[0].ID
			}
			watch.status()
			watch = r.follow(main, members)
		}
		longest := maxBackgroundPause
		if files.read(main.PID, members) || stopping == nil {
			longest = backgroundPause
		}
		pause = min(2*pause, longest)
		select {
		case <-time.After(pause):
			since = time.Now()
			if stopping != nil {
				since = since.Add(-scanAge)
			}
		case <-watch.ended:
			watch.ended, since = nil, time.Now()
		case <-stopping:
			stopping, pause, since = nil, firstStoppedPause, time.Now()
		}
	}
	at = time.Now()
	status, known := watch.status()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case known:
		exit = r.exitOf(status, r.stoppedBy)
	case r.stoppedBy != "":
		exit.By = r.stoppedBy
	default:
		exit = Exit{Code: -1, By: ByOutside}
	}
	return exit, at, r.stoppedBy
}

// mainWatch is the watch of the process that stands for a run in the background.
type mainWatch struct {
	ended  chan struct{} // closed when the process has ended; nil if nothing tells
	status func() (syscall.WaitStatus, bool)
}

// follow makes main, one of members, the process that stands for the run.
func (r *Run) follow(main proctab.ID, members []proctab.Proc) mainWatch {
	r.mu.Lock()
	r.background.main = main
	r.mu.Unlock()
	parents := make(map[int]proctab.Proc, len(members))
	for _, p := range members {
		parents[p.PID] = p
	}
	top := parents[main.PID] // the process above main that is left to pmcp
	for range members {
		if above, ok := parents[top.PPID]; ok {
			top = above
		}
	}
	ofMain, ofTop := r.tree.awaitDeath(main), r.tree.awaitDeath(top.ID)
	w := mainWatch{ended: make(chan struct{}), status: func() (syscall.WaitStatus, bool) {
		status, known := ofMain()
		if above, knownAbove := ofTop(); !known {
			return above, knownAbove
		}
		return status, known
	}}
	if ended := w.ended; !r.owner.Go(func() { awaitExit(main.PID); close(ended) }) {
		w.ended = nil
	}
	return w
}

// awaitListener returns the first process of the tree that listens on a TCP port. A tree
// that has not listened yet has any time for it, one that has may take handOver. It
// returns false if none listens then, none is left or a stop begins. members are those
// of the tree.
func (r *Run) awaitListener() (id proctab.ID, members []proctab.Proc, ok bool) {
	began := time.Now()
	for pause := firstWatchPause; ; pause = nextPause(pause, time.Since(began)) {
		found := r.tree.scanSince(time.Now())
		if p, ok := listener(found.members[r.id]); ok {
			return p.ID, found.members[r.id], true
		}
		if !found.mayRemain(r.id) || r.listened(r.id) && time.Since(began) >= r.handOver {
			return id, nil, false
		}
		select {
		case <-time.After(pause):
		case <-r.background.stopping:
			return id, nil, false
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
