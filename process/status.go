package process

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/process/proctab"
	"pmcp/process/prose"
)

// Status is a snapshot of one entry. It shares the maps and slices of its Spec
// with the Manager: do not modify them.
type Status struct {
	// Spec is the Spec of the current or last run.
	Spec Spec
	// Executable is the absolute path of the executed file.
	Executable string
	// State is the entry's state.
	State State
	// PID is the first process of the current run, or 0 while there is none.
	PID int
	// RunID is the id of the current or last run in the Journal, failed attempts
	// included, or 0 if nothing was attempted. Run is its number, from 1.
	RunID int64
	Run   int
	// StartedAt is when that run began, EndedAt when it ended; EndedAt is zero
	// until then.
	StartedAt, EndedAt time.Time
	// Exit is how that run ended; nil until then.
	Exit *Exit
	// Asked is what a call has asked for last.
	Asked Ask
	// Restarts counts the runs that the restart policy started since the last
	// start by a caller.
	Restarts int
	// Stops counts the calls of Stop, also those that found nothing to stop.
	Stops int
	// NextRetry is when the policy will start the next run; zero unless State
	// is Backoff.
	NextRetry time.Time
	// Reason is a sentence on why State is Failed, or why pmcp itself restarts
	// the run, or "".
	Reason string
	// Ready reports whether the current run is ready; nil if readiness is not
	// checked and while no run is current.
	Ready *bool
	// NotReady is a sentence on what the current run still lacks, or what the last
	// run lacked when it ended: "port 3000 is held by pid 12 (node) in /shop,
	// started elsewhere at 15:04". It is "" once the run is ready.
	NotReady string
	// ReadyAt is when the current run last became ready.
	ReadyAt time.Time
	// Lost is what has ended the readiness of the current run, at LostAt: "port 3000 closed". It is
	// "" while the run is ready and if it has never been.
	Lost   string
	LostAt time.Time
	// Suspended is a sentence on a process of the run that a signal has suspended, as of the last two
	// samples: "pid 12 (node) is suspended; SIGCONT continues it". Such a run is not ready. It is "" if
	// there is none.
	Suspended string
	// Unhealthy is what is wrong with the health of the current run, since UnhealthyAt: "unhealthy:
	// status 500, want 200-399". It is "" if nothing is, or nothing checks that.
	Unhealthy   string
	UnhealthyAt time.Time
	// Commit is the commit of the sources of the current run when it started, "1a2b3c4 (dirty)", or "" if that is
	// not known.
	Commit string
	// HTTP holds the last answer to each request of Ready.HTTP that was answered.
	HTTP []HTTPAnswer
	// Ports are the TCP ports that the tree of a running process listened on at
	// the last check, in ascending order, without those of a debugger.
	Ports []int
	// Usage is the last sample of the tree. It is zero until the first sample and
	// once no process lives.
	Usage
	// LimitExceeded is a sentence on which limit is exceeded, since when and what
	// pmcp did. It is "" if no limit is exceeded.
	LimitExceeded string
	// Survivors are the processes of an ended run that outlive its first process.
	Survivors []proctab.Proc

	// refused means that the run will not become ready unless something changes: the owner
	// of its MCP connection has reported that, or all checks for readySettle have found a
	// process of another tree in its place. See GivenUp and Refuses.
	refused bool
	stalled bool // see Stalled
}

// Alive reports whether any process of the entry is alive: its first process or
// a survivor.
func (s *Status) Alive() bool { return s.State.Live() || len(s.Survivors) > 0 }

// GoesOn reports whether any process of the entry is alive, or will be restarted.
func (s *Status) GoesOn() bool { return s.State.Active() || len(s.Survivors) > 0 }

const (
	// unansweredPrefix begins NotReady of an MCP server that may still answer, whether this package or
	// package upstream reports it. Refuses depends on it.
	unansweredPrefix = "it has not answered"
	// unanswered is NotReady of an MCP server that has only just been started.
	unanswered = unansweredPrefix + " initialize yet"
)

// GivenUp reports whether the owner of the connection to an MCP server has stopped
// waiting for its readiness. The server may still become ready.
func (s *Status) GivenUp() bool { return s.refused && s.Ready != nil && !*s.Ready }

// Refuses reports whether the run has not ended, but will not become ready unless something changes: an
// MCP server over HTTP because of its answer (one that has not answered may still do so), and any run
// because a process of another tree listens or answers in its place, or because it is stalled.
func (s *Status) Refuses() bool {
	return s.Stalled() || s.GivenUp() && s.Spec.Stdio != StdioMCP && !strings.HasPrefix(s.NotReady, unansweredPrefix)
}

// Stalled reports whether the program of the run has failed and left only the watcher that is to start it
// again after a change.
func (s *Status) Stalled() bool { return s.stalled && s.Ready != nil && !*s.Ready }

// Condition returns what stands beside the state of a run wherever it is listed: "ready", "not ready: port 3000 closed
// 12s ago", "ready, unhealthy: status 500, for 40s", or "" if nothing is checked.
func (s *Status) Condition() string {
	return ConditionText(s.Ready, s.WhyNotReady(), s.HealthText())
}

// ConditionText is Status.Condition from its parts: Ready, WhyNotReady and HealthText.
func ConditionText(ready *bool, whyNot, health string) string {
	text := ""
	if ready != nil {
		text = map[bool]string{true: "ready", false: "not ready"}[*ready]
	}
	return prose.Join(", ", prose.Join(": ", text, whyNot), health)
}

// WhyNotReady returns why the run is not ready any more, or does not become ready. It is "" for a run that may become
// ready yet.
func (s *Status) WhyNotReady() string {
	switch {
	case s.Suspended != "":
		return s.Suspended
	case s.Refuses():
		return s.NotReady
	case s.Lost != "" && s.Ready != nil && !*s.Ready:
		return fmt.Sprintf("%s %s ago", s.Lost, time.Since(s.LostAt).Round(time.Second))
	default:
		return ""
	}
}

// HealthText returns what is wrong with a run although it goes on, or "": what its health checks find, and for how
// long, and that its working directory was removed, as of now.
func (s *Status) HealthText() string {
	health, dir := "", ""
	if s.Unhealthy != "" {
		health = fmt.Sprintf("%s, for %s", s.Unhealthy, time.Since(s.UnhealthyAt).Round(time.Second))
	}
	if s.State.Live() && s.PID != 0 && isDirRemoved(s.PID, s.Spec.Dir) {
		dir = "its directory was removed: " + prose.Cut(proctab.Printable(s.Spec.Dir), maxHolderDir)
	}
	return prose.Join(", ", health, dir)
}

// stalledText says what Stalled reports.
const stalledText = "it failed, and its watcher waits for a change"

// SetRefused makes Refuses report true of a Status that another server has stored; why is its
// NotReady.
func (s *Status) SetRefused(why string) { s.Ready, s.NotReady, s.refused = new(bool), why, true }

// BetweenRuns reports whether the next run is being spawned: the status already
// has the definition of that run, but still the number of the run before.
func (s *Status) BetweenRuns() bool {
	return s.State == Starting || s.State == Stopping && !s.EndedAt.IsZero()
}

// Status returns the status of the entry called name. It first checks the sockets of
// all ready runs. If one has closed, Status waits for about 250 ms to see whether it
// opens again. Its error wraps ErrUnknown.
func (m *Manager) Status(name string) (Status, error) {
	m.checkSockets()
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.lookupLocked(name)
	if err != nil {
		return Status{}, err
	}
	return m.snapshotLocked(e), nil
}

// snapshotLocked returns the current status of e, including the results of the
// last scan and sample.
func (m *Manager) snapshotLocked(e *entry) Status {
	st := e.status
	st.Stops = e.stopCalls
	if st.RunID == 0 {
		return st
	}
	if st.Suspended != "" && st.Ready != nil {
		st.Ready, st.NotReady = new(bool), st.Suspended
	} else if st.Stalled() {
		st.NotReady = stalledText
	}
	if !st.State.Live() {
		st.Survivors = m.deps.tree.lastMembers(st.RunID)
	}
	if u, ports, live := m.meter.last(st.RunID); live && st.Alive() {
		st.Usage = u
		if st.Ports == nil || u.At.After(st.ReadyAt) { // otherwise the readiness check is more recent
			st.Ports = ports
		}
	}
	return st
}

// List returns the status of every entry: active entries first, then the others
// sorted by their end, latest first. Ties are sorted by name. It first checks the
// sockets of ready runs, as Status does.
func (m *Manager) List() []Status {
	m.checkSockets()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listLocked()
}

// listLocked implements List.
func (m *Manager) listLocked() []Status {
	list := make([]Status, 0, len(m.entries))
	for _, e := range m.entries {
		list = append(list, m.snapshotLocked(e))
	}
	slices.SortFunc(list, func(a, b Status) int {
		switch active := a.State.Active(); {
		case active != b.State.Active():
			if active {
				return -1
			}
			return 1
		case !active && !a.EndedAt.Equal(b.EndedAt):
			return b.EndedAt.Compare(a.EndedAt)
		}
		return strings.Compare(a.Spec.Name, b.Spec.Name)
	})
	return list
}

// Watch returns a Feed of every change from now on.
func (m *Manager) Watch() *Feed {
	return &Feed{reader: m.changes.Reader(), manager: m}
}

// Await returns the status of name as soon as until returns true for it. If ctx
// ends first, it returns the status at that moment and ctx's error.
func (m *Manager) Await(ctx context.Context, name string, until func(Status) bool) (Status, error) {
	return m.await(ctx, func() (Status, error) { return m.Status(name) }, until)
}

// await returns what status returns, as soon as until returns true for it, status
// returns an error or ctx ends.
func (m *Manager) await(ctx context.Context, status func() (Status, error), until func(Status) bool) (Status, error) {
	feed := m.Watch()
	for {
		st, err := status()
		if err != nil || until(st) {
			return st, err
		}
		if _, err := feed.Next(ctx); err != nil {
			return st, err
		}
	}
}

// AwaitRun is Await for one run of name. It also returns when that run ends, with
// the status at that end, even if name has a later run or was removed since. Its
// error wraps ErrUnknown for a run that is not of this session or ended more than
// 1024 ends ago.
func (m *Manager) AwaitRun(ctx context.Context, name string, run int64, until func(Status) bool) (Status, error) {
	return m.await(ctx,
		func() (Status, error) { return m.statusOfRun(name, run) },
		func(st Status) bool { return !st.EndedAt.IsZero() || until(st) })
}

// statusOfRun returns the status of one run: the entry's while the run is its
// current one, else the status at the end of the run.
func (m *Manager) statusOfRun(name string, run int64) (Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[name]; e != nil && e.status.RunID == run && !e.status.BetweenRuns() {
		return m.snapshotLocked(e), nil
	}
	if st := m.ends.find(run); st != nil {
		return *st, nil
	}
	return Status{}, fmt.Errorf("%w: a run of %q that is not among the last %d", ErrUnknown, name, endsKept)
}
