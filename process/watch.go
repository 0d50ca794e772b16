package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"pmcp/process/sockets"
)

// The ports of a watched run are looked up with growing pauses.
const (
	firstWatchPause = 20 * time.Millisecond
	maxWatchPause   = 160 * time.Millisecond
)

// watchLimits bound WatchStart and AwaitExit.
type watchLimits struct {
	// whole is how long a run is watched. Programs that cannot work end sooner: node
	// after 0.15 s, python after 0.3 s, npm after 0.5 s.
	whole time.Duration
	// quiet is the silence after output that ends a watch.
	quiet time.Duration
	// serve is how long a program that listens must be silent and idle to end AwaitExit.
	serve time.Duration
}

var defaultWatch = watchLimits{whole: time.Second, quiet: 250 * time.Millisecond, serve: 10 * time.Second}

// WatchStart watches a run of name until a second after its start. It returns earlier
// once the run has ended, its tree listens on a TCP port, or it has printed something
// and then been silent for 250 ms with its output still open: a run that has closed
// its output is about to end. What npm prints before it starts a script does not count,
// because the script may take longer to fail. It returns the status of the run then, with its
// ports, or ctx's error if ctx ends first. Calls for several runs, one after another,
// take no longer than the call for the run that was started last. Its error wraps
// ErrUnknown as that of AwaitRun does.
func (m *Manager) WatchStart(ctx context.Context, name string, run int64) (Status, error) {
	p := portWatch{of: treeSockets{m: m, run: run, rules: &Ready{}}}
	for pause := firstWatchPause; ; pause = min(2*pause, maxWatchPause) {
		st, err := m.statusOfRun(name, run)
		if err != nil || !st.EndedAt.IsZero() || st.State != Running {
			return st, err
		}
		if ports := p.ports(); len(ports) > 0 {
			st.Ports = ports
			m.setPorts(name, run, ports)
			return st, nil
		}
		left := time.Until(st.StartedAt.Add(m.watch.whole))
		if silent := m.silentSince(name, run); !silent.IsZero() {
			left = min(left, time.Until(silent.Add(m.watch.quiet)))
		}
		if left <= 0 {
			return st, nil
		}
		tick, cancel := context.WithTimeout(ctx, min(pause, left))
		_, err = m.AwaitRun(tick, name, run, func(Status) bool { return false })
		if cancel(); err != nil && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return st, cmp.Or(ctx.Err(), err)
		}
	}
}

// AwaitExit waits for the end of a run of name, like AwaitRun. It also returns once the run will hardly end by itself:
// its tree listens on a TCP port and has been silent and idle for 10 s of the wait. silent is then since when.
func (m *Manager) AwaitExit(ctx context.Context, name string, run int64) (st Status, silent time.Time, err error) {
	began := time.Now()
	for {
		tick, cancel := context.WithTimeout(ctx, samplePeriod)
		st, err = m.AwaitRun(tick, name, run, func(Status) bool { return false })
		if cancel(); ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return st, time.Time{}, err
		}
		silent = cmp.Or(m.silentSince(name, run), st.StartedAt)
		if st.CPUPercent >= idleShare {
			began = time.Now()
		}
		if len(st.Ports) > 0 && time.Since(silent) >= m.watch.serve && time.Since(began) >= m.watch.serve {
			return st, silent, nil
		}
	}
}

// setPorts records the ports of a run of name, if it is the current one: a later
// Status has them before the next measurement.
func (m *Manager) setPorts(name string, run int64, ports []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[name]; e != nil && e.status.RunID == run && e.status.State.Live() {
		e.status.Ports = ports
		m.meter.setPorts(run, ports)
	}
}

// silentSince returns when the current run of name last printed something, or zero if
// it has printed nothing, can print no more or is not current.
func (m *Manager) silentSince(name string, run int64) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[name]; e != nil && e.run != nil && e.status.RunID == run && !e.run.outputEnded() {
		return e.run.printedAt()
	}
	return time.Time{}
}

// isAnnouncement reports whether p, output, is only what npm and the like print before
// they start a script: "> web@1.0.0 dev" and "> vite", or "yarn run v1.22" and "$ vite".
func isAnnouncement(p []byte) bool {
	for l := range bytes.Lines(p) {
		text, whole := bytes.CutSuffix(l, []byte("\n"))
		text = bytes.TrimSuffix(text, []byte("\r")) // of a terminal
		begins := func(s string) bool { return bytes.HasPrefix(text, []byte(s)) }
		if !whole || len(text) > 0 && !begins("> ") && !begins("$ ") && !begins("yarn run ") {
			return false
		}
	}
	return true
}

// portWatch looks up the ports of a run again and again.
type portWatch struct {
	of   treeSockets
	seen []uint64 // the sockets of the last lookup, none of which were the run's
}

// ports returns the ports that the tree of the run listens on. It reads the process
// table only if the sockets of the machine have changed since the last call.
func (p *portWatch) ports() []int {
	listeners, err := sockets.Listening()
	if err != nil {
		return nil
	}
	keys := make([]uint64, len(listeners))
	for i := range listeners {
		keys[i] = listeners[i].Key
	}
	if slices.Sort(keys); slices.Equal(keys, p.seen) {
		return nil
	}
	p.seen = keys
	return sockets.Ports(p.of.own(listeners, time.Now()))
}
