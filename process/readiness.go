package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"pmcp/process/proctab"
	"pmcp/process/prose"
	"pmcp/process/sockets"
)

const (
	// Readiness is checked with growing pauses.
	firstReadyPause = 20 * time.Millisecond
	maxReadyPause   = 250 * time.Millisecond
	// lateReadyPause is the pause between checks once a run is still not ready
	// after lateReady: the run may never become ready, and each check has a cost.
	lateReadyPause = time.Second
	lateReady      = 30 * time.Second
	// errorPause bounds the pause after an HTTP error. That pause is an eighth of the
	// wait so far: a dev server that cannot compile prints why at every request.
	errorPause = 2 * time.Second
	// After a line has matched, the run must live on until it has been silent for
	// readyQuiet, or for readySettle: programs print that they are up, and then fail
	// to open their port.
	readyQuiet  = 150 * time.Millisecond
	readySettle = time.Second
	// membersAge is the greatest age of a scan that shows the members of the tree.
	membersAge = 100 * time.Millisecond
)

// portBaseline is the set of sockets that listened before a run began.
type portBaseline struct {
	// keys are the keys of the sockets; nil if no rule concerns ports.
	keys map[uint64]bool
	// conflict describes the process that held the port that the rules name; "" if
	// no process held it.
	conflict string
}

// baselinePorts records the sockets that already listen, if any rule of spec concerns
// ports.
func (m *Manager) baselinePorts(spec Spec) portBaseline {
	rules := spec.rules()
	if rules == nil || rules.Port == nil && rules.HTTP == "" {
		return portBaseline{}
	}
	listeners, err := sockets.Listening()
	if err != nil {
		m.o.Log.Error("cannot check readiness by port", "error", err)
	}
	before := portBaseline{keys: make(map[uint64]bool, len(listeners))}
	for _, s := range listeners {
		before.keys[s.Key] = true
		if slices.Contains(rules.LocalPorts(), s.Port()) && before.conflict == "" {
			before.conflict = heldSentence(s.Port(), m.holder(s.Port(), spec).text)
		}
	}
	return before
}

// LocalPorts returns the ports of this machine that the rules name. r may be nil.
func (r *Ready) LocalPorts() (ports []int) {
	if r == nil {
		return nil
	}
	if r.Port != nil && *r.Port != 0 {
		ports = append(ports, *r.Port)
	}
	for _, target := range r.targets() {
		if u, err := url.Parse(target); err == nil && isLocal(u.Hostname()) {
			ports = append(ports, urlPort(u))
		}
	}
	return ports
}

// readiness checks one run until it is ready, and again once it has lost that.
type readiness struct {
	treeSockets
	runner runner
	spec   Spec
	after  int64 // the number of the line after which a line counts for Ready.Log
	// awaitLog means that a line has to match Ready.Log: it has not yet, or the program has crashed since.
	awaitLog bool
	line     <-chan error // receives the result of the wait for a line; nil afterwards
	matched  time.Time    // when a line was found to match; zero until then

	client  *http.Client
	answers [maxTargets]HTTPAnswer // by the index of the target
	// heldBy is the holder of a port. It is looked up only when the sockets on the
	// port differ from heldKeys, because a lookup reads every process.
	heldBy   holder
	heldKeys []uint64
	// pending describes what is missing for each rule, in the order log, port,
	// http.
	pending [3]string
	// blocks reports that the last check found another tree where the run should be,
	// and blocked since when all checks have; zero if the last one has not.
	blocks  bool
	blocked time.Time
	url     string   // of an MCP server, once it is known
	footing *footing // of a run that is ready
	// losses are when the run last lost its readiness, and holds is since when all checks have found that the rules hold.
	losses []time.Time
	holds  time.Time
}

// watchReadiness checks the rules of a run until all of them hold, marks the run as ready, and
// checks them again each time it loses that. It passes an MCP server on to Options.TakeHTTP
// instead. It also returns when ctx ends, as it does with the run.
func (m *Manager) watchReadiness(ctx context.Context, e *entry, r readiness) {
	if r.rules.HTTP != "" {
		r.client = newReadyClient()
		defer r.client.CloseIdleConnections()
	}
	r.awaitLog = r.rules.Log != ""
	for r.await(ctx, e) {
		if r.url != "" {
			m.o.TakeHTTP(ctx, r.spec.Name, r.run, r.spec.Env, r.url)
			return
		}
		if !r.awaitLoss(ctx, e, r.footing) {
			return
		}
	}
}

// await checks the rules until all of them hold, and reports whether they do: false once ctx has
// ended.
func (r *readiness) await(run context.Context, e *entry) bool {
	var lines tasks
	defer lines.Close()
	ctx, cancel := context.WithCancel(run)
	defer cancel()
	if r.awaitLog {
		line := make(chan error, 1)
		r.line, r.pending[0] = line, fmt.Sprintf("no line has matched %q yet", r.rules.Log)
		pattern := regexp.MustCompile(r.rules.Log) // Ready.check has compiled this pattern without an error
		var filter stackFilter
		lines.Go(func() {
			_, err := r.m.o.AwaitLine(ctx, r.run, r.after, func(stream uint8, text string) bool {
				return !filter.quoted(stream, text) && pattern.MatchString(text)
			})
			line <- err
		})
	}
	began := time.Now()
	for pause := firstReadyPause; ; pause = r.nextPause(pause, time.Since(began)) {
		r.check(ctx)
		if ctx.Err() != nil {
			return false
		}
		if r.pendingText() == "" && !r.settle(ctx) {
			return false
		}
		if r.publish(e) {
			return true
		}
		if !r.sleep(ctx, pause) {
			return false
		}
	}
}

// publish stores what the checks have found. It reports whether all rules hold.
func (r *readiness) publish(e *entry) (hold bool) {
	var ports []int
	if r.pendingText() == "" {
		listeners, _ := sockets.Listening() // check reports an error
		own := r.own(listeners, time.Now())
		ports = sockets.Ports(own)
		if r.spec.Stdio == StdioHTTP {
			r.url, r.pending[1] = r.spec.endpoint(own)
		} else if footing, open := r.newFooting(listeners, own); open {
			r.footing = footing
		} else {
			r.pending[1] = "its port has closed again"
		}
	}
	why := r.pendingText()
	answers := slices.DeleteFunc(slices.Clone(r.answers[:]), func(a HTTPAnswer) bool { return a.Status == 0 })
	refused := !r.blocked.IsZero() && time.Since(r.blocked) >= readySettle
	r.m.update(e, r.runner, func(st *Status) bool {
		changed := refused != st.refused
		st.HTTP, st.refused = answers, refused
		switch {
		case why == "" && r.url != "":
			st.NotReady, st.Ports = unanswered, ports
		case why == "":
			st.Ready, st.ReadyAt, st.NotReady, st.Ports = new(true), time.Now(), "", ports
			st.Lost, st.LostAt, st.stalled, e.footing = "", time.Time{}, false, r.footing
		default:
			changed = changed || why != st.NotReady
			st.NotReady = why
			return changed
		}
		r.m.meter.setPorts(r.run, ports)
		return true
	})
	return why == ""
}

// endpoint returns the URL at which an MCP server whose tree holds the sockets own speaks
// MCP, or why that is not known.
func (s Spec) endpoint(own []sockets.Socket) (url, why string) {
	target := "/mcp"
	if s.Ready != nil && s.Ready.HTTP != "" {
		target = s.Ready.targets()[0]
	}
	if !strings.HasPrefix(target, "/") {
		return target, ""
	}
	only := func(may func(port int) bool) []sockets.Socket {
		return slices.DeleteFunc(slices.Clone(own), func(o sockets.Socket) bool { return !may(o.Port()) })
	}
	assigned := only(func(port int) bool {
		for _, p := range s.Ports {
			if p.Port == port {
				return true
			}
		}
		return false
	})
	if s.Ready != nil && s.Ready.Port != nil && *s.Ready.Port != 0 {
		own = only(func(port int) bool { return port == *s.Ready.Port })
	} else if len(assigned) > 0 {
		own = assigned
	}
	switch ports := sockets.Ports(own); len(ports) {
	case 0:
		return "", "it does not listen on any TCP port yet"
	case 1:
		return "http://" + own[0].Dial() + target, ""
	default:
		return "", fmt.Sprintf("it listens on %s: ready.port has to name the one that speaks MCP", prose.Ints(ports))
	}
}

// nextPause is nextPause for a run whose last answers to HTTP requests may be errors.
func (r *readiness) nextPause(pause, waited time.Duration) time.Duration {
	next := nextPause(pause, waited)
	if r.blocks || slices.ContainsFunc(r.answers[:], func(a HTTPAnswer) bool { return a.Status != 0 && !a.OK() }) {
		next = max(next, min(waited/8, errorPause))
	}
	return next
}

// nextPause returns the pause that follows pause after a total wait of waited.
func nextPause(pause, waited time.Duration) time.Duration {
	if waited > lateReady {
		return lateReadyPause
	}
	return min(2*pause, maxReadyPause)
}

// sleep waits until pause is over or a line matches Ready.Log, and reports whether
// ctx is still alive. If only the line is missing, sleep waits for the line alone.
func (r *readiness) sleep(ctx context.Context, pause time.Duration) bool {
	var tick <-chan time.Time
	if r.pending[1] != "" || r.pending[2] != "" {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case err := <-r.line:
		r.line, r.awaitLog = nil, false
		r.pending[0], r.matched = "", time.Now()
		if err != nil {
			r.pending[0] = fmt.Sprintf("no line matched %q: %v", r.rules.Log, err)
		}
	case <-tick:
	case <-ctx.Done():
		return false
	}
	return true
}

// settle waits after a match of Ready.Log until the run has been silent for
// readyQuiet, at most readySettle after the match. It reports whether ctx is still
// alive, and so the run.
func (r *readiness) settle(ctx context.Context) bool {
	for !r.matched.IsZero() {
		left := min(time.Until(cmp.Or(r.runner.printedAt(), r.matched).Add(readyQuiet)), time.Until(r.matched.Add(readySettle)))
		if left <= 0 {
			if !isDying(r.runner.PID()) {
				break
			}
			<-ctx.Done()
			return false
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
	return ctx.Err() == nil
}

// isDying reports whether the first process of a run has exited, although the end of
// the run may not be recorded yet.
func isDying(pid int) bool {
	p, err := proctab.Read(pid)
	return errors.Is(err, proctab.ErrGone) || err == nil && p.Zombie
}

func (r *readiness) pendingText() string {
	missing := slices.DeleteFunc(slices.Clone(r.pending[:]), func(s string) bool { return s == "" })
	return strings.Join(missing, "; ")
}

// check evaluates the rules about ports and HTTP.
func (r *readiness) check(ctx context.Context) {
	if r.baseline.keys == nil {
		return
	}
	listeners, err := sockets.Listening()
	if err != nil {
		r.pending[1] = err.Error()
		return
	}
	own := r.own(listeners, time.Now().Add(-membersAge))
	r.blocks, r.pending[1] = false, ""
	if r.rules.Port != nil {
		r.pending[1] = r.checkPort(*r.rules.Port, listeners, own)
	}
	if r.rules.HTTP != "" {
		r.pending[2] = r.checkHTTP(ctx, listeners, own)
	}
	if r.flaps() {
		r.pending[1] = "its port opens and closes again and again"
	}
	switch {
	case !r.blocks:
		r.blocked = time.Time{}
	case r.blocked.IsZero():
		r.blocked = time.Now()
	}
}

// treeSockets finds the sockets on which the tree of a run listens.
type treeSockets struct {
	m        *Manager
	run      int64
	rules    *Ready
	baseline portBaseline
	// left are processes whose sockets do not count: what a crash behind a watcher has left.
	left map[proctab.ID]bool
}

// own returns the listeners that the run's tree holds, except a debugger's on a port
// that the rules do not name. It first excludes sockets that are older than the run, so it looks up no holder
// while no new socket listens. The members of the tree are as of since or later.
func (r *treeSockets) own(listeners []sockets.Socket, since time.Time) []sockets.Socket {
	listeners = slices.DeleteFunc(slices.Clone(listeners), func(s sockets.Socket) bool { return r.baseline.keys[s.Key] })
	if len(listeners) == 0 {
		return nil
	}
	members := slices.DeleteFunc(slices.Clone(r.m.deps.tree.scanSince(since).members[r.run]), func(p proctab.Proc) bool { return r.left[p.ID] })
	sockets.AddHolders(listeners, members)
	named := func(port int) bool { return r.rules.Port != nil && *r.rules.Port == port }
	return slices.DeleteFunc(listeners, func(s sockets.Socket) bool {
		i := slices.IndexFunc(members, func(p proctab.Proc) bool { return slices.Contains(s.Holders, p.PID) })
		return i < 0 || sockets.IsDebugger(s.Port(), commandLine(members[i].PID)) && !named(s.Port())
	})
}

// checkPort returns "" if a socket in own listens on port (0 means any), else the
// reason why the rule does not hold.
func (r *readiness) checkPort(port int, listeners, own []sockets.Socket) string {
	ports := sockets.Ports(own)
	switch {
	case port == 0 && len(ports) > 0, slices.Contains(ports, port):
		return ""
	case port == 0:
		return "it does not listen on any TCP port yet"
	}
	why := fmt.Sprintf("it does not listen on port %d yet", port)
	held := r.holder(port, listeners)
	if held.text != "" {
		why = heldSentence(port, held.text)
		if !held.ours && r.openedSinceStart(port, listeners) {
			why += "; it was opened after the start: if a container holds it, use ready.log or ready.http with a whole URL"
		}
	}
	if len(ports) > 0 {
		r.blocks = held.text != ""
		why += fmt.Sprintf("; it listens on %s", prose.Ints(ports))
	}
	return why
}

func (r *readiness) openedSinceStart(port int, listeners []sockets.Socket) bool {
	return !slices.ContainsFunc(listeners, func(s sockets.Socket) bool { return s.Port() == port && r.baseline.keys[s.Key] })
}

// holder returns the process that listens on port, or the zero value if none of
// listeners does.
func (r *readiness) holder(port int, listeners []sockets.Socket) holder {
	var keys []uint64
	for _, s := range listeners {
		if s.Port() == port {
			keys = append(keys, s.Key)
		}
	}
	if len(keys) == 0 {
		return holder{}
	}
	if !slices.Equal(keys, r.heldKeys) {
		r.heldBy, r.heldKeys = r.m.holder(port, r.spec), keys
		if r.heldBy.ours && r.heldBy.entry == "" { // the holder's entry may not be known yet
			r.heldKeys = nil
		}
	}
	return r.heldBy
}

// SetReady sets the readiness of run, the current run of name, which is an MCP
// server. Such a run is ready once it answers, which only the owner of its connection
// can see. If ready is false, why describes what is missing. SetReady waits for
// the end of the spawn, so TakeStdio itself must not call SetReady. It does
// nothing for a run that is not current, is not running or is not an MCP server.
func (m *Manager) SetReady(name string, run int64, ready bool, why string) {
	m.mu.Lock()
	e := m.entries[name]
	if e == nil || e.start == nil {
		m.mu.Unlock()
		return
	}
	spawned := e.start.done
	m.mu.Unlock()
	<-spawned
	m.mu.Lock()
	defer m.mu.Unlock()
	st := &e.status
	if st.RunID != run || st.State != Running || !SpeaksMCP(st.Spec.Stdio) {
		return
	}
	st.Ready, st.NotReady, st.ReadyAt, st.refused = &ready, why, time.Time{}, !ready
	if ready {
		st.NotReady, st.ReadyAt = "", time.Now()
	}
	m.publishLocked(e, st.State)
}

// SetHealth sets Status.Unhealthy and Status.UnhealthyAt of a run of name. run is its number. It does nothing to a run
// that is not current or not running.
func (m *Manager) SetHealth(name string, run int, unhealthy string, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[name]
	if e == nil || e.status.Run != run || e.status.State != Running || e.status.Unhealthy == unhealthy {
		return
	}
	e.status.Unhealthy, e.status.UnhealthyAt = unhealthy, since
	m.publishLocked(e, Running)
}
