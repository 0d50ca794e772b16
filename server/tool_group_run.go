package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"pmcp/groups"
	"pmcp/logstore"
	"pmcp/process"
)

type startGroupArgs struct {
	Group       string `json:"group"`
	TimeoutMS   int    `json:"timeout_ms,omitempty" min:"1" max:"600000"`
	SkipRunning *bool  `json:"skip_running,omitempty" jsonschema:"false restarts them"`
}

// groupRunResult is what a start or a stop of a group has come to.
type groupRunResult struct {
	Name       string              `json:"name"`
	State      string              `json:"state"`
	TimedOut   bool                `json:"timed_out,omitempty"`
	NextCursor string              `json:"next_cursor,omitempty"` // of all members, where it timed out
	Members    []groupMemberReport `json:"members"`
	Hint       string              `json:"hint,omitempty"`
	Notice     string              `json:"notice,omitempty"`
}

type groupMemberReport struct {
	Name       string        `json:"name"`
	Result     string        `json:"result"` // started, ready, stopped, skipped, failed, pending or in progress
	Why        string        `json:"why,omitempty"`
	State      string        `json:"state,omitempty"`
	Run        int           `json:"run,omitempty"`
	PID        int           `json:"pid,omitempty"`
	Ports      []int         `json:"ports,omitempty"`
	ExitCode   *int          `json:"exit_code,omitempty"`
	At         string        `json:"at,omitempty"`
	Lines      []string      `json:"lines,omitempty"` // of a member that has broken down
	NextCursor string        `json:"next_cursor,omitempty"`
	Errors     []errorResult `json:"errors,omitempty"`

	faults bool // Errors are those of the run, or the answer says that some are left out
}

func (r groupRunResult) about() []told {
	var all []told
	for _, m := range r.Members {
		if m.Run == 0 {
			continue // nothing of a run stands in it
		}
		ready := m.Result == string(groups.BecameReady)
		all = append(all, told{name: m.Name, run: m.Run, stage: stageOf(isLive(m.State), &ready), errors: idsOf(m.Errors), faults: m.faults})
	}
	return all
}

func (r groupRunResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "group %s: %s\n", r.Name, r.State)
	if r.TimedOut {
		fmt.Fprintf(&b, "timed out; it goes on, and the same call joins it\nnext_cursor: %s\n", r.NextCursor)
	}
	for _, m := range r.Members {
		fmt.Fprintf(&b, "%s: %s", m.Name, m.Result)
		if m.Why != "" {
			fmt.Fprintf(&b, " (%s)", m.Why)
		}
		if m.State != "" {
			fmt.Fprintf(&b, ", %s", m.State)
		}
		if m.ExitCode != nil {
			fmt.Fprintf(&b, ", exit code %d", *m.ExitCode)
		}
		if m.PID > 0 {
			fmt.Fprintf(&b, ", pid %d", m.PID)
		}
		if len(m.Ports) > 0 {
			fmt.Fprintf(&b, ", ports %s", joinInts(m.Ports))
		}
		b.WriteString("\n")
		if len(m.Lines) > 0 {
			fmt.Fprintf(&b, "[%s]\n%s\nnext_cursor: %s\n", outputNotice, strings.Join(m.Lines, "\n"), m.NextCursor)
		}
		b.WriteString(errorsText(m.Errors))
	}
	if r.Hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", r.Hint)
	}
	return b.String()
}

func startGroupTool() tool {
	return define(tool{
		name: "start_group", title: "Start group", toolset: setGroups,
		description: "Starts members in dependency order and says what became of each and why.",
		hints:       hints{idempotent: true, openWorld: true},
		waits:       func(json.RawMessage) bool { return true },
	}, startGroup)
}

func startGroup(ctx context.Context, s *Server, a startGroupArgs) (groupRunResult, error) {
	waiting, cancel := context.WithTimeout(ctx, waitTime(a.TimeoutMS))
	defer cancel()
	news := newLatestNews()
	defer news.report(ctx, s)()
	rep, err := s.o.Groups.Start(waiting, a.Group, s, groups.StartOptions{
		RestartRunning: a.SkipRunning != nil && !*a.SkipRunning, Progress: news.take,
	})
	if err != nil {
		return groupRunResult{}, err
	}
	return s.groupReport(ctx, rep)
}

// waitTime is a timeout argument as a duration.
func waitTime(ms int) time.Duration {
	if ms == 0 {
		ms = defaultWaitMS
	}
	return time.Duration(ms) * time.Millisecond
}

// latestNews is what a group's operation last told, for progress messages.
type latestNews struct {
	told chan struct{} // there is news that nobody has read
	mu   sync.Mutex
	last groups.Progress
}

func newLatestNews() *latestNews { return &latestNews{told: make(chan struct{}, 1)} }

func (n *latestNews) take(p groups.Progress) {
	n.mu.Lock()
	n.last = p
	n.mu.Unlock()
	select {
	case n.told <- struct{}{}:
	default: // the one that was not read will be of this
	}
}

// report is report for an operation that tells n: what becomes of a member is
// told at once.
func (n *latestNews) report(ctx context.Context, s *Server) (stop func()) {
	return reportEvery(ctx, progressPeriod, n.told, func() string { return s.o.Mask.Text(n.text()) })
}

func (n *latestNews) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	o := n.last.Outcome
	return strings.TrimSpace(fmt.Sprintf("%d of %d done; %s %s %s", n.last.Done, n.last.Total, o.Process, o.Result, withoutInvalid(o.Why)))
}

// groupReport is the answer to what became of a group, with the last lines of
// members that have broken down.
func (s *Server) groupReport(ctx context.Context, rep groups.Report) (groupRunResult, error) {
	st, err := s.o.Groups.Status(ctx, rep.Group)
	r := groupRunResult{Name: rep.Group, State: string(st.State), TimedOut: rep.TimedOut, Members: []groupMemberReport{}}
	switch {
	case errors.Is(err, groups.ErrUnknown):
		r.State, r.Hint = "forgotten", "the group was forgotten meanwhile; its processes are stopped by their names"
	case err != nil:
		return groupRunResult{}, err
	}
	statuses := s.statusesOf(rep.Members)
	room := sharedRoom{left: defaultMaxBytes}
	for _, o := range rep.Members {
		if hasBroken(o, statuses[o.Process]) {
			room.members++
		}
	}
	for _, o := range rep.Members {
		m := groupMemberReport{Name: o.Process, Result: string(o.Result), Why: withoutInvalid(o.Why), Run: o.Run, At: formatTime(o.At)}
		if status := statuses[o.Process]; status != nil {
			p := ofStatus(status)
			m.State, m.PID, m.Ports, m.ExitCode = p.State, p.PID, p.Ports, p.ExitCode
			if hasBroken(o, status) {
				m.Run = status.Run // the policy may have made another since
				cut, err := s.addFailure(ctx, &m, status.RunID, room.share())
				if err != nil {
					return r, err
				}
				if cut {
					r.Hint = "not all of the last lines and errors fit into one answer: get_logs and get_errors with process show them"
				}
				room.left -= m.size()
				r.Notice = outputNotice
			}
		}
		if o.Result == groups.Skipped {
			m.takeElsewhere(&st)
		}
		if o.Result == groups.Skipped || o.Result == groups.InProgress {
			m.Why = joinHints(m.Why, withoutInvalid(stillWaitsFor(&st, o.Process)))
		}
		r.Members = append(r.Members, m)
	}
	if !rep.TimedOut {
		return r, nil
	}
	r.NextCursor, err = s.endOfMembers(ctx, rep)
	return r, err
}

// statusesOf are those of the members that belong to what became of them: where
// one could not be started, what ran before and has ended is not the reason.
func (s *Server) statusesOf(members []groups.Outcome) map[string]*process.Status {
	all := make(map[string]*process.Status)
	for _, o := range members {
		st, err := s.o.Manager.Status(o.Process)
		if err == nil && (o.Result != groups.HasFailed || o.Run != 0 || goesOn(&st)) {
			all[o.Process] = &st
		}
	}
	return all
}

// hasBroken says whether a member, whose status is st, has failed in the operation
// or crashed in it or since; st is nil if it has none.
func hasBroken(o groups.Outcome, st *process.Status) bool {
	switch {
	case st == nil || st.RunID == 0 || o.Run == 0:
		return false
	case o.Result == groups.WasStarted || o.Result == groups.BecameReady || o.Result == groups.InProgress:
		return st.State == process.Crashed || st.State == process.Failed || st.State == process.Backoff
	}
	return o.Result == groups.HasFailed
}

// endOfMembers is the cursor behind all that the members have printed.
func (s *Server) endOfMembers(ctx context.Context, rep groups.Report) (string, error) {
	var names []string
	for _, o := range rep.Members {
		names = append(names, o.Process)
	}
	cursor, err := s.o.Store.End(ctx, s.o.Manager.Project(), names)
	if err != nil {
		return "", fmt.Errorf("cannot find the end of the log: %w", err)
	}
	return cursor, nil
}

// stillWaitsFor says what a member that runs here lacks to be up; "" if nothing.
func stillWaitsFor(st *groups.Status, name string) string {
	for i := range st.Members {
		if ms := &st.Members[i]; ms.Process == name && ms.Phase == groups.MemberStarting && ms.Owner == "" {
			return ms.Why
		}
	}
	return ""
}

// takeElsewhere describes the run of a member that another server runs.
func (m *groupMemberReport) takeElsewhere(st *groups.Status) {
	for i := range st.Members {
		if ms := &st.Members[i]; ms.Process == m.Name && ms.Owner != "" {
			m.State, m.PID, m.Run, m.ExitCode = ms.Status.State.String(), ms.Status.PID, ms.Status.Run, nil
		}
	}
}

// sharedRoom is what several processes may take of one answer, in bytes.
type sharedRoom struct {
	left    int
	members int // that have not taken theirs
}

// share is how much the next one may take: what the others have left over, too.
func (r *sharedRoom) share() int {
	share := r.left / max(r.members, 1)
	r.members--
	return max(share, minShare)
}

const (
	// minShare is the least that one process gets of an answer, so that its last
	// line is told.
	minShare = 200
	// leftOutBytes is about what the line takes that says what was left out.
	leftOutBytes = 120
)

// size is about what the output of a member takes.
func (m *groupMemberReport) size() int {
	size := len(errorsText(m.Errors))
	for _, l := range m.Lines {
		size += len(l) + 1
	}
	return size
}

// addFailure adds the last lines and the errors of a member's run, in so many
// bytes; cut says that some did not fit.
func (s *Server) addFailure(ctx context.Context, m *groupMemberReport, run int64, room int) (cut bool, err error) {
	all, err := s.runErrors(ctx, run)
	if err != nil {
		return false, err
	}
	size := 0
	cut = all.total > len(all.shown)
	for i := range all.shown {
		if size += len(all.shown[i].text()); size > room/2 {
			cut = true
			break
		}
		m.Errors = append(m.Errors, all.shown[i])
	}
	lines, omitted, cursor, err := s.failedLines(ctx, run, room-len(errorsText(m.Errors)))
	m.Lines, m.NextCursor, m.faults = lines, cursor, err == nil
	return cut || omitted, err
}

// failedLines are the last lines of a run, in so many bytes, and the cursor
// behind them. The first says what was left out.
func (s *Server) failedLines(ctx context.Context, run int64, room int) (lines []string, omitted bool, cursor string, err error) {
	page, err := s.o.Store.Read(ctx, logstore.Query{Runs: []int64{run}, Limit: lastLines, Newest: true})
	if err != nil {
		return nil, false, "", fmt.Errorf("cannot read the last lines: %w", err)
	}
	shown := logView{newest: true, maxBytes: max(room-leftOutBytes, minShare)}.render(page)
	lines = shown.Lines
	if left := len(page.Lines) - shown.shown; left > 0 {
		lines = append([]string{fmt.Sprintf("--- %s before these left out; get_logs with before: %s ---", lineCount(int64(left)), shown.PrevCursor)}, lines...)
	}
	return lines, len(page.Lines) > shown.shown, shown.NextCursor, nil
}

type stopGroupArgs struct {
	Group    string `json:"group"`
	Strategy string `json:"strategy,omitempty" enum:"reverse|parallel|sequential"`
	Force    bool   `json:"force,omitempty"`
}

func stopGroupTool() tool {
	return define(tool{
		name: "stop_group", title: "Stop group", toolset: setGroups,
		description: "Stops the members of a group with all they started.",
		hints:       hints{destructive: true, idempotent: true},
		waits:       func(json.RawMessage) bool { return true },
	}, stopGroup)
}

func stopGroup(ctx context.Context, s *Server, a stopGroupArgs) (groupRunResult, error) {
	news := newLatestNews()
	o := groups.StopOptions{Force: a.Force, Progress: news.take}
	if a.Strategy != "" {
		strategy, err := groups.ParseStrategy(a.Strategy)
		if err != nil {
			return groupRunResult{}, err
		}
		o.Strategy = &strategy
	}
	defer news.report(ctx, s)()
	waiting, cancel := context.WithTimeout(ctx, waitTime(0))
	defer cancel()
	rep, err := s.o.Groups.Stop(waiting, a.Group, o)
	if err != nil {
		return groupRunResult{}, err
	}
	return s.groupReport(ctx, rep)
}
