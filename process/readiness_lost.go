package process

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"pmcp/process/proctab"
	"pmcp/process/prose"
	"pmcp/process/sockets"
)

const (
	// A socket that has gone is looked for again after lossPause: a program that ends takes its
	// first process along, and a program that reloads listens again.
	lossPause = 250 * time.Millisecond
	// stallSilence is how long a failed program must have been silent before its watcher counts as
	// waiting for a change.
	stallSilence = 2 * time.Second
	// A run that has lost its readiness flapLosses times within flapWindow must keep its rules for flapSteady to be
	// ready again: else a port that closes all the time is an event at every look.
	flapLosses = 5
	flapWindow = time.Minute
	flapSteady = 2 * time.Second
	// idleShare is the share of a processor, in percent, below which a tree is idle.
	idleShare = 5
)

// A footing is what the readiness of a run rests on: sockets that its tree, or a container beside it,
// listens on. It is never changed. Without ports it cannot be lost but by a crash.
type footing struct {
	treeSockets
	lost chan loss     // receives what may have ended the readiness, as long as gone is open
	gone chan struct{} // closed once the readiness or the run has ended

	anyPorts  []int // the ports of the tree at the time, if any port will do; else nil
	ports     []int // the tree must listen on each
	elsewhere []int // something must listen on each
	keys      []uint64
	// members are the processes of the tree at the time, and holders those of them that held a socket.
	members, holders map[proctab.ID]bool
}

// A loss is a reason why a run may not be ready any more.
type loss struct {
	// crashed means that the program has failed behind its watcher; last is the number of the last
	// line by then. Otherwise a socket has gone.
	crashed bool
	last    int64
	// handled is closed once the status shows whether the run is still ready.
	handled chan struct{}
}

// newFooting returns what the readiness of the run rests on, now that its rules hold. open is false if a port has closed
// since the check.
func (r *readiness) newFooting(listeners, own []sockets.Socket) (f *footing, open bool) {
	f = &footing{treeSockets: r.treeSockets, lost: make(chan loss), gone: make(chan struct{})}
	ports := sockets.Ports(own)
	if r.rules.Port != nil && *r.rules.Port != 0 {
		f.ports = append(f.ports, *r.rules.Port)
	} else if r.rules.Port != nil {
		f.anyPorts = ports
	}
	for _, a := range r.answers {
		if u, err := url.Parse(strings.TrimPrefix(a.Request, "GET ")); a.OK() && err == nil {
			switch port := urlPort(u); {
			case slices.Contains(ports, port):
				f.ports = append(f.ports, port)
			case isLocal(u.Hostname()):
				f.elsewhere = append(f.elsewhere, port)
			}
		}
	}
	var closed []int
	f.keys, closed = f.find(listeners, own)
	f.setMembers(own)
	return f, len(closed) == 0 && (r.rules.Port == nil || len(f.keys) > 0)
}

// setMembers sets f.members and f.holders. own are the sockets of the tree, found with the last scan.
func (f *footing) setMembers(own []sockets.Socket) {
	f.members, f.holders = make(map[proctab.ID]bool), make(map[proctab.ID]bool)
	for _, p := range f.m.deps.tree.lastMembers(f.run) {
		f.members[p.ID] = true
		if slices.ContainsFunc(own, func(s sockets.Socket) bool { return slices.Contains(s.Holders, p.PID) }) {
			f.holders[p.ID] = true
		}
	}
}

// hasLost reports whether of the tree that f was found with only some are left, as members, and one that held a socket
// has ended, or any one if none held a socket.
func (f *footing) hasLost(members []proctab.Proc) bool {
	var left, leftHolders int
	for _, p := range members {
		if !f.members[p.ID] {
			return false
		}
		left++
		if f.holders[p.ID] {
			leftHolders++
		}
	}
	if len(f.keys) > 0 {
		return leftHolders < len(f.holders)
	}
	return left < len(f.members)
}

// find returns the keys of the sockets that f rests on, and the ports that have closed.
func (f *footing) find(listeners, own []sockets.Socket) (keys []uint64, closed []int) {
	search := func(ports []int, among []sockets.Socket) {
		for _, port := range ports {
			found := false
			for _, s := range among {
				if s.Port() == port {
					keys, found = append(keys, s.Key), true
				}
			}
			if !found && !slices.Contains(closed, port) {
				closed = append(closed, port)
			}
		}
	}
	if f.anyPorts != nil {
		search(sockets.Ports(own), own)
		if len(own) == 0 {
			closed = slices.Clone(f.anyPorts)
		}
	}
	search(f.ports, own)
	search(f.elsewhere, listeners)
	return keys, closed
}

// checkSockets checks that the sockets that ready runs rest on are still open. It returns once the status of each
// run that has lost one shows whether the run is still ready, about lossPause later.
func (m *Manager) checkSockets() {
	standing := m.standing()
	if len(standing) == 0 {
		return
	}
	listeners, err := sockets.Listening()
	if err != nil {
		return
	}
	open := make(map[uint64]bool, len(listeners))
	for _, s := range listeners {
		open[s.Key] = true
	}
	checkOpen(standing, open)
}

// standing returns what the readiness of the ready runs rests on, without those that rest on no socket.
func (m *Manager) standing() (standing []*footing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		if e.footing != nil && len(e.footing.keys) > 0 {
			standing = append(standing, e.footing)
		}
	}
	return standing
}

// checkOpen is checkSockets with the keys of all sockets that are open.
func checkOpen(standing []*footing, open map[uint64]bool) {
	var checks sync.WaitGroup
	for _, f := range standing {
		if slices.ContainsFunc(f.keys, func(key uint64) bool { return !open[key] }) {
			checks.Go(func() { f.report(loss{}) })
		}
	}
	checks.Wait()
}

// report passes l on to the goroutine of the run, and waits until it is handled.
func (f *footing) report(l loss) {
	l.handled = make(chan struct{})
	select {
	case f.lost <- l:
		<-l.handled
	case <-f.gone:
	}
}

// awaitLoss waits until the run, which is ready because of f, is not ready any more, and stores that. It returns
// false once ctx has ended.
func (r *readiness) awaitLoss(ctx context.Context, e *entry, f *footing) bool {
	defer close(f.gone)
	for {
		select {
		case l := <-f.lost:
			lost := r.handleLoss(ctx, e, l)
			close(l.handled)
			if lost {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// handleLoss reports whether l has ended the readiness of the run. If so, it stores that and prepares the next check.
func (r *readiness) handleLoss(ctx context.Context, e *entry, l loss) bool {
	if l.crashed {
		r.after, r.awaitLog, r.matched = l.last, r.rules.Log != "", time.Time{}
		r.left = make(map[proctab.ID]bool)
		for _, p := range r.m.deps.tree.lastMembers(r.run) {
			r.left[p.ID] = true
		}
		r.storeLoss(e, "")
		return true
	}
	closed := r.renew(e)
	if len(closed) == 0 {
		return false
	}
	select {
	case <-time.After(lossPause):
	case <-ctx.Done():
		return false
	}
	if closed = r.renew(e); len(closed) == 0 || isDying(r.runner.PID()) {
		return false
	}
	noun := "port"
	if len(closed) > 1 {
		noun = "ports"
	}
	r.storeLoss(e, fmt.Sprintf("%s %s closed", noun, prose.Ints(closed)))
	return true
}

// renew replaces the footing of the run by one on the sockets of now, unless ports have closed, which it
// returns.
func (r *readiness) renew(e *entry) (closed []int) {
	r.m.mu.Lock()
	f := e.footing
	r.m.mu.Unlock()
	if f == nil {
		return nil
	}
	listeners, err := sockets.Listening()
	if err != nil {
		return nil
	}
	renewed, own := *f, f.own(listeners, time.Now())
	if renewed.keys, closed = f.find(listeners, own); len(closed) == 0 {
		renewed.setMembers(own)
		r.m.update(e, r.runner, func(*Status) bool {
			e.footing = &renewed
			return false
		})
	}
	return closed
}

// storeLoss stores that the run is not ready any more: because of what text says or, if that is "", because its
// program has failed behind its watcher.
func (r *readiness) storeLoss(e *entry, text string) {
	r.answers = [maxTargets]HTTPAnswer{}
	r.losses = append(r.losses[max(0, len(r.losses)-flapLosses+1):], time.Now())
	r.m.update(e, r.runner, func(st *Status) bool {
		e.footing = nil
		st.Ready, st.HTTP, st.NotReady, st.Lost, st.LostAt = new(bool), nil, text, text, time.Now()
		st.stalled = text == ""
		return true
	})
}

// flaps reports whether the rules have to hold for longer than they do, because the run keeps losing its readiness.
func (r *readiness) flaps() bool {
	if r.pendingText() != "" {
		r.holds = time.Time{}
		return false
	}
	if r.holds.IsZero() {
		r.holds = time.Now()
	}
	return len(r.losses) == flapLosses && r.losses[flapLosses-1].Sub(r.losses[0]) < flapWindow && time.Since(r.holds) < flapSteady
}

// activity is what the samples have shown of the tree of a run.
type activity struct {
	at    time.Time                   // of the last sample
	procs map[proctab.ID]procActivity // at the last sample
	// zombies are those of the last sample.
	zombies map[proctab.ID]bool
	forked  time.Time // the sample that last found a new process
	exited  time.Time // the sample that last found that a process had ended
	busy    bool      // the tree used the processor before the last sample
}

// A procActivity is the processor time of a process, and its proctab.Proc.Buried.
type procActivity struct{ ticks, buried uint64 }

// add adds the sample of a tree. Some watchers wait for the program that has ended only when they start it again: it
// is a zombie until then.
func (a *activity) add(members, zombies []proctab.Proc, at time.Time) {
	procs, used := make(map[proctab.ID]procActivity, len(members)), uint64(0)
	var born []proctab.Proc
	// buriers are the processes of which a child has ended, with the oldest such child; the zero ID is one that was reaped.
	buriers := make(map[int]proctab.ID)
	for _, p := range members {
		now := procActivity{cpuTicks(p), p.Buried}
		was, known := a.procs[p.ID]
		if !known && a.procs != nil {
			born = append(born, p)
		}
		if now.buried != was.buried {
			a.exited, buriers[p.PID] = at, proctab.ID{}
		}
		used += now.ticks - was.ticks
		procs[p.ID] = now
		delete(a.procs, p.ID)
	}
	if len(a.procs) > 0 {
		a.exited = at
	}
	seen := a.zombies
	a.zombies = make(map[proctab.ID]bool, len(zombies))
	for _, z := range zombies {
		if a.zombies[z.ID] = true; !seen[z.ID] {
			a.exited = at
			if oldest, ok := buriers[z.PPID]; !ok || isOlder(z.ID, oldest) {
				buriers[z.PPID] = z.ID
			}
		}
	}
	// Of what came and went between two samples the order is unknown: only a younger child of one that has lost a child may
	// replace that. A watcher that was started then has lost a child, too.
	if slices.ContainsFunc(born, func(p proctab.Proc) bool {
		lost, ok := buriers[p.PPID]
		return !a.exited.Equal(at) || len(buriers) == 0 || ok && isOlder(lost, p.ID)
	}) {
		a.forked = at
	}
	a.busy = share(used, at.Sub(a.at)) >= idleShare
	a.at, a.procs = at, procs
}

// isOlder reports whether a was started before b. Of those that were started in the same unit of time the pids tell.
func isOlder(a, b proctab.ID) bool {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID)) < 0
}

// idleSinceExit reports whether the tree is idle and has started no process since one of it exited, about when it
// printed last, at printed: a sample finds an exit after up to calmPeriod.
func (a *activity) idleSinceExit(printed time.Time) bool {
	return !a.busy && !a.exited.Before(printed.Add(-samplePeriod)) && !a.exited.After(printed.Add(calmPeriod+samplePeriod)) && a.forked.Before(a.exited)
}

// watchSuspensions finds the runs that have a suspended process. before is what it returned for the last sample: the
// processes that were suspended then, with their context switches. What is suspended for moments, to slow it down, as
// cpulimit does, is not called suspended.
func (m *Manager) watchSuspensions(found *scan, before map[proctab.ID]string) (suspended map[proctab.ID]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	suspended = make(map[proctab.ID]string)
	for _, e := range m.entries {
		if e.status.State != Running {
			continue
		}
		text := ""
		for _, p := range found.members[e.status.RunID] {
			if !p.Stopped {
				continue
			}
			suspended[p.ID] = contextSwitches(p.PID)
			if was, ok := before[p.ID]; ok && was == suspended[p.ID] && text == "" {
				text = fmt.Sprintf("pid %d (%s) is suspended; SIGCONT continues it", p.PID, p.Comm)
			}
		}
		if text != e.status.Suspended {
			e.status.Suspended = text
			m.publishLocked(e, Running)
		}
	}
	return suspended
}

// watchStalls finds the runs that wait for their watcher. found is a scan of the time at. printing reports whether one of
// the runs whose readiness is checked has printed within calmPeriod.
func (m *Manager) watchStalls(found *scan, at time.Time) (printing bool) {
	type failed struct {
		f *footing
		l loss
	}
	var ready []failed
	m.mu.Lock()
	for _, e := range m.entries {
		st := &e.status
		if st.State != Running || !st.Spec.ChecksReady() || st.Spec.mcp() {
			continue
		}
		e.activity.add(found.members[st.RunID], found.zombies[st.RunID], at)
		printing = printing || at.Sub(e.run.printedAt()) < calmPeriod
		stalled, last := m.isStalledLocked(e, found.members[st.RunID], at)
		switch {
		case stalled && e.footing != nil:
			ready = append(ready, failed{e.footing, loss{crashed: true, last: last}})
		case st.Ready != nil && !*st.Ready && stalled != st.stalled:
			st.stalled = stalled
			m.publishLocked(e, st.State)
		}
	}
	m.mu.Unlock()
	for _, r := range ready {
		r.f.report(r.l)
	}
	return printing
}

// isStalledLocked reports whether the program of e has failed and left only its watcher, which are members. last is the
// number of the last line of its output. A supervisor that starts the program again after a pause is no watcher, and
// neither is a program that has caught its error while a tool that it has run ended.
func (m *Manager) isStalledLocked(e *entry, members []proctab.Proc, at time.Time) (stalled bool, last int64) {
	printed, f := e.run.printedAt(), e.footing
	if printed.IsZero() || at.Sub(printed) < stallSilence || !e.activity.idleSinceExit(printed) {
		return false, 0
	}
	if f != nil && (printed.Before(e.status.ReadyAt) || !f.hasLost(members)) {
		return false, 0
	}
	if stalled, last = m.o.Journal.Failing(e.status.RunID); stalled && !e.status.stalled {
		stalled = slices.ContainsFunc(members, func(p proctab.Proc) bool { return watchesFiles(p.PID) })
	}
	return stalled, last
}

// watchOption matches a command line by which a program watches files, perhaps by reading their times again and again.
var watchOption = regexp.MustCompile(`(?i) (-\S*(watch|reload)\S*|watch)( |$)|\bnodemon\b`)

// watchesFiles reports whether a process waits for changes of files.
func watchesFiles(pid int) bool { return watchOption.MatchString(commandLine(pid)) || hasInotify(pid) }
