package process

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// Readiness is looked at with growing pauses.
	firstReadyPause = 20 * time.Millisecond
	maxReadyPause   = 250 * time.Millisecond
	// lateReadyPause is the pause once a run is not ready after lateReady: it
	// may never be, and then goes on costing.
	lateReadyPause = time.Second
	lateReady      = 30 * time.Second
	// membersAge is how old a scan may be for the question who is of the tree.
	membersAge = 100 * time.Millisecond
)

// portsBefore is what listened before a run began.
type portsBefore struct {
	// keys are those of the sockets; nil if no rule asks about ports.
	keys map[uint64]bool
	// conflict says who held the port that the rules name; "" if nobody did.
	conflict string
}

// lookAtPorts notes what listens already, for rules that ask about ports.
func (m *Manager) lookAtPorts(rules *Ready) portsBefore {
	if rules == nil || rules.Port == nil && rules.HTTP == "" {
		return portsBefore{}
	}
	sockets, err := listening()
	if err != nil {
		m.o.Log.Error("cannot check readiness by port", "error", err)
	}
	before := portsBefore{keys: make(map[uint64]bool, len(sockets))}
	for _, s := range sockets {
		before.keys[s.key] = true
		if s.port() == rules.localPort() && before.conflict == "" {
			before.conflict = heldSentence(s.port(), m.holder(s.port()))
		}
	}
	return before
}

// localPort is the port of this machine that the rules name; 0 if none.
func (r *Ready) localPort() int {
	if r.Port != nil && *r.Port != 0 {
		return *r.Port
	}
	if u, err := url.Parse(r.HTTP); err == nil && isLocal(u.Hostname()) {
		return urlPort(u)
	}
	return 0
}

func heldSentence(port int, holder string) string {
	return fmt.Sprintf("port %d is held by %s", port, cmp.Or(holder, "a process that has just ended"))
}

// readiness is the check of one run. What was once seen to hold is not looked
// at again.
type readiness struct {
	m      *Manager
	run    int64
	rules  *Ready
	before portsBefore
	line   <-chan error // receives the end of the wait for a line; nil once it came

	client *http.Client
	// held is who holds a port, looked up when other sockets listen on it than
	// heldKeys: that takes a look at every process.
	held     string
	heldKeys []uint64
	// pending says what is not seen yet, by rule, in the order log, port, http.
	pending [3]string
}

// awaitReady checks the rules of a run until they all hold, and then marks it
// ready, or until ctx ends, which it does with the run.
func (m *Manager) awaitReady(ctx context.Context, e *entry, run runner, id int64, rules *Ready, before portsBefore) {
	r := &readiness{m: m, run: id, rules: rules, before: before}
	var lines tasks
	defer lines.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if rules.Log != "" {
		line := make(chan error, 1)
		r.line, r.pending[0] = line, fmt.Sprintf("no line has matched %q yet", rules.Log)
		pattern := regexp.MustCompile(rules.Log) // Ready.check has compiled it
		lines.Go(func() {
			_, err := m.o.AwaitLine(ctx, id, pattern.MatchString)
			line <- err
		})
	}
	if rules.HTTP != "" {
		r.client = newReadyClient()
		defer r.client.CloseIdleConnections()
	}
	began := time.Now()
	for pause := firstReadyPause; ; pause = nextPause(pause, time.Since(began)) {
		r.look(ctx)
		if ctx.Err() != nil {
			return
		}
		why := r.why()
		var ports []int
		if why == "" {
			ports = r.ports()
		}
		m.update(e, run, func(st *Status) bool {
			if why == "" {
				ready := true
				st.Ready, st.ReadyAt, st.NotReady, st.Ports = &ready, time.Now(), "", ports
				return true
			}
			changed := why != st.NotReady
			st.NotReady = why
			return changed
		})
		if why == "" || !r.sleep(ctx, pause) {
			return
		}
	}
}

// nextPause is the pause after one of pause, waited for so long already.
func nextPause(pause, waited time.Duration) time.Duration {
	if waited > lateReady {
		return lateReadyPause
	}
	return min(2*pause, maxReadyPause)
}

// sleep waits for pause or for the line, and answers false if ctx ends. Where
// only the line is missing there is nothing else to wait for.
func (r *readiness) sleep(ctx context.Context, pause time.Duration) bool {
	var tick <-chan time.Time
	if r.pending[1] != "" || r.pending[2] != "" {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case err := <-r.line:
		r.line = nil
		r.pending[0] = ""
		if err != nil {
			r.pending[0] = fmt.Sprintf("no line matched %q: %v", r.rules.Log, err)
		}
	case <-tick:
	case <-ctx.Done():
		return false
	}
	return true
}

// why says what is still waited for.
func (r *readiness) why() string {
	missing := slices.DeleteFunc(slices.Clone(r.pending[:]), func(s string) bool { return s == "" })
	return strings.Join(missing, "; ")
}

// look checks the rules about ports and HTTP.
func (r *readiness) look(ctx context.Context) {
	if r.before.keys == nil {
		return
	}
	sockets, err := listening()
	if err != nil {
		r.pending[1] = err.Error()
		return
	}
	own := r.own(sockets, time.Now().Add(-membersAge))
	if r.rules.Port != nil {
		r.pending[1] = r.checkPort(*r.rules.Port, sockets, own)
	}
	if r.rules.HTTP != "" {
		r.pending[2] = r.checkHTTP(ctx, sockets, own)
	}
}

// ports answers what the run's tree listens on now: whoever waited for readiness
// asks next where, and the sampler may not have looked yet.
func (r *readiness) ports() []int {
	sockets, err := listening()
	if err != nil {
		return nil // look has said so
	}
	return portsOf(r.own(sockets, time.Now()))
}

// own returns those of sockets that the run's tree listens on, a debugger's
// left out. Sockets from before the run are not, so that nothing is looked up
// while nothing new listens. Who is of the tree is known as of since or later.
func (r *readiness) own(sockets []socket, since time.Time) []socket {
	sockets = slices.DeleteFunc(slices.Clone(sockets), func(s socket) bool { return r.before.keys[s.key] })
	if len(sockets) == 0 {
		return nil
	}
	var pids []int
	for _, p := range r.m.deps.tree.look(since).members[r.run] {
		pids = append(pids, p.PID)
	}
	addHolders(sockets, pids)
	return slices.DeleteFunc(sockets, func(s socket) bool {
		i := slices.IndexFunc(s.holders, func(pid int) bool { return slices.Contains(pids, pid) })
		return i < 0 || isDebugger(s.port(), commandLine(s.holders[i])) && !r.names(s.port())
	})
}

// names says whether the rules ask for exactly this port, debugger or not.
func (r *readiness) names(port int) bool { return r.rules.Port != nil && *r.rules.Port == port }

// checkPort answers "" if one of own is on port (0: any), else why not.
func (r *readiness) checkPort(port int, sockets, own []socket) string {
	ports := portsOf(own)
	switch {
	case port == 0 && len(ports) > 0, slices.Contains(ports, port):
		return ""
	case port == 0:
		return "it does not listen on any TCP port yet"
	}
	why := fmt.Sprintf("it does not listen on port %d yet", port)
	if holder := r.holder(port, sockets); holder != "" {
		why = heldSentence(port, holder)
		if !strings.HasSuffix(holder, inThisSession) && r.isYounger(port, sockets) {
			why += ", since after the start: if it is a container's, ready.log or ready.http with a whole URL can tell"
		}
	}
	if len(ports) > 0 {
		why += fmt.Sprintf("; it listens on %s", joinPorts(ports))
	}
	return why
}

// isYounger says whether all sockets on port came after the run had begun.
func (r *readiness) isYounger(port int, sockets []socket) bool {
	for _, s := range sockets {
		if s.port() == port && r.before.keys[s.key] {
			return false
		}
	}
	return true
}

// holder names who of sockets is on port; "" if nobody is.
func (r *readiness) holder(port int, sockets []socket) string {
	var keys []uint64
	for _, s := range sockets {
		if s.port() == port {
			keys = append(keys, s.key)
		}
	}
	if len(keys) == 0 {
		return ""
	}
	if !slices.Equal(keys, r.heldKeys) {
		r.held, r.heldKeys = r.m.holder(port), keys
		if strings.HasSuffix(r.held, unnamed) { // it may be about to be known
			r.heldKeys = nil
		}
	}
	return r.held
}

// joinPorts reads "3001" or "3001, 9000".
func joinPorts(ports []int) string {
	var words []string
	for _, p := range ports {
		words = append(words, strconv.Itoa(p))
	}
	return strings.Join(words, ", ")
}
