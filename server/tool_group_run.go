package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pmcp/groups"
	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/project"
	"pmcp/server/stdio"
)

type startGroupArgs struct {
	Group          string           `json:"group" natural:"alias"`
	Members        []project.Member `json:"members,omitempty" schema:"flat"`
	project.Shared `schema:"brief"`
	TimeoutMS      *int  `json:"timeout_ms,omitempty" min:"0" max:"600000"`
	SkipRunning    *bool `json:"skip_running,omitempty"`
	Rerun          bool  `json:"rerun,omitempty" schema:"brief"`
	outputArgs     `schema:"brief"`
}

// groupRunResult is the outcome of a start or a stop of a group.
type groupRunResult struct {
	Name       string              `json:"name"`
	State      string              `json:"state"`
	TimedOut   bool                `json:"timed_out,omitempty"`
	NextCursor string              `json:"next_cursor,omitempty"` // cursor of all members, if the operation continues
	Members    []groupMemberReport `json:"members"`
	Changes    []string            `json:"changes,omitempty"`
	Others     map[string]int      `json:"others,omitempty"` // results of the members for which there is no room
	Hint       string              `json:"hint,omitempty"`
	Notice     string              `json:"notice,omitempty"`
}

// groupMemberReport is the outcome of a group operation for one member.
type groupMemberReport struct {
	Name       string            `json:"name"`
	Result     string            `json:"result"` // started, ready, done, stopped, skipped, failed, pending or in progress
	Why        string            `json:"why,omitempty"`
	State      string            `json:"state,omitempty"`
	Run        int               `json:"run,omitempty"`
	PID        int               `json:"pid,omitempty"`
	Ports      []int             `json:"ports,omitempty"`
	URLs       map[string]string `json:"urls,omitempty"`
	ExitCode   *int              `json:"exit_code,omitempty"`
	At         string            `json:"at,omitempty"`
	Lines      []string          `json:"lines,omitempty"` // of a member that failed, or is late and has errors
	Omitted    *omitted          `json:"omitted,omitempty"`
	Order      string            `json:"order,omitempty"`
	NextCursor string            `json:"next_cursor,omitempty"`
	Errors     []runError        `json:"errors,omitempty"` // the cause first

	stateText string
	failed    int64                // the id of the run of which the report shows the output, or 0
	log       logResult            // what Lines is from
	faults    bool                 // Errors has all errors of the run, or the answer reports that some are left out
	reported  map[string]time.Time // see runErrors
}

// otherState returns the state of the member, or "" if Result and Why imply it.
func (m *groupMemberReport) otherState() string {
	var implied []process.State
	switch groups.Result(m.Result) {
	case groups.WasStarted, groups.BecameReady, groups.InProgress:
		implied = []process.State{process.Running}
	case groups.IsDone:
		implied = []process.State{process.Exited}
	case groups.WasStopped:
		implied = []process.State{process.Stopped}
	case groups.HasFailed:
		implied = []process.State{process.Crashed, process.Failed, process.Exited, process.Stopped}
	case groups.Skipped:
		if !strings.HasPrefix(m.Why, "already ") {
			return ""
		}
		implied = []process.State{process.Running}
	}
	if slices.ContainsFunc(implied, func(s process.State) bool { return s.String() == m.State }) {
		return ""
	}
	return m.stateText
}

func (r groupRunResult) about() []reported {
	var all []reported
	for _, m := range r.Members {
		if m.Run == 0 {
			continue // the report of this member shows no run
		}
		ready := m.Result == string(groups.BecameReady)
		all = append(all, reported{name: m.Name, run: m.Run, stage: stageOf(isLive(m.State), &ready), errors: m.reported, faults: m.faults})
	}
	return all
}

func (r groupRunResult) showed() []project.ShownLines {
	var all []project.ShownLines
	for i := range r.Members {
		all = append(all, r.Members[i].log.showed()...)
	}
	return all
}

func (r groupRunResult) write(t *answerText) {
	t.line("group %s: %s", r.Name, r.State)
	for _, line := range r.Changes {
		t.line("%s", line)
	}
	if r.TimedOut {
		t.part("timed out; ")
	}
	if r.NextCursor != "" {
		t.line("the operation continues, and the same call joins it")
	}
	for _, m := range r.Members {
		t.part("%s: %s", m.Name, m.Result)
		t.optPart(" (%s)", m.Why)
		t.optPart(", %s", m.otherState())
		t.optPart(", run %d", m.Run)
		if m.Result != string(groups.Skipped) && !strings.Contains(m.Why, "exit code") {
			t.optPart(", exit code %d", m.ExitCode)
		}
		t.optPart(", pid %d", m.PID)
		t.optPart(", %s", joinURLs(m.URLs))
		t.optPart(", ports %s", prose.Ints(otherPorts(m.Ports, m.URLs)))
		t.line("")
		lines, errors := m.log.withErrors(m.Errors, true)
		t.output(append(errors, lines...), nil)
		m.log.writeOmitted(t)
	}
	if len(r.Others) > 0 {
		t.line("others: %s", formatCounts(r.Others))
	}
	t.hint(r.Hint)
}

func startGroupTool() tool {
	return define(tool{
		name: "start_group", title: "Start group", toolset: setGroups,
		description: "Starts a group in dependency order. With members it defines it first (cwd, env, env_files). skip_running: false restarts, rerun repeats one-shots.",
		hints:       hints{openWorld: true},
	}, startGroup)
}

func startGroup(ctx context.Context, s *call, a startGroupArgs) (groupRunResult, error) {
	var changes []string
	switch {
	case len(a.Members) > 0:
		var err error
		if changes, err = s.project.ChangeGroup(ctx, a.Group, a.Members, a.Shared); err != nil {
			return groupRunResult{}, err
		}
	case !a.Shared.IsEmpty():
		return groupRunResult{}, errors.New("missing argument: members (cwd, env and env_files apply to the members that the call names)")
	default:
		var err error
		if changes, err = s.project.TakeOfferedGroup(ctx, a.Group); err != nil {
			return groupRunResult{}, err
		}
	}
	timeout := startTimeout(a.TimeoutMS)
	waitCtx, cancel := context.WithTimeout(ctx, cmp.Or(timeout, waitTimeout(0)))
	defer cancel()
	progress := newGroupProgress()
	defer progress.report(ctx, s.Server)()
	defer s.events.wake.hold()()
	rep, err := s.project.StartGroup(waitCtx, a.Group, groups.StartOptions{
		RestartRunning: a.SkipRunning != nil && !*a.SkipRunning, Rerun: a.Rerun, NoWait: timeout == 0, Progress: progress.set,
	})
	if err != nil {
		return groupRunResult{}, withMembersHint(err)
	}
	r, err := groupReport(ctx, s.project, rep, changes, a.outputArgs)
	r.TimedOut = r.TimedOut && timeout > 0
	return r, err
}

func withMembersHint(err error) error {
	if !errors.Is(err, groups.ErrUnknown) {
		return err
	}
	return &composedError{text: errorText(err) + "; with members, start_group creates it"}
}

// groupProgress keeps the latest progress of an operation on a group, for progress
// messages.
type groupProgress struct {
	updated chan struct{} // has an element while last is unread
	mu      sync.Mutex
	last    groups.Progress // guarded by mu
}

func newGroupProgress() *groupProgress { return &groupProgress{updated: make(chan struct{}, 1)} }

func (g *groupProgress) set(p groups.Progress) {
	g.mu.Lock()
	g.last = p
	g.mu.Unlock()
	wake(g.updated) // a pending wake-up will report p as well
}

// report sends progress messages until stop is called: one message in every period,
// and one at once when a member is done.
func (g *groupProgress) report(ctx context.Context, s *Server) (stop func()) {
	return stdio.ReportProgressEvery(ctx, stdio.ProgressInterval, g.updated, func() string { return line.Visible(s.o.Mask.Text(g.text())) })
}

func (g *groupProgress) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.last.Outcome
	return strings.TrimSpace(fmt.Sprintf("%d of %d done; %s %s %s", g.last.Done, g.last.Total, o.Process, o.Result, withoutInvalid(o.Why)))
}

type stopGroupArgs struct {
	Group    string `json:"group" natural:"alias"`
	Strategy string `json:"strategy,omitempty" schema:"brief" enum:"reverse|parallel|sequential"`
	Force    bool   `json:"force,omitempty"`
}

func stopGroupTool() tool {
	return define(tool{
		name: "stop_group", title: "Stop group", toolset: setGroups,
		description: "Stops the members of a group, by its stop_strategy or strategy.",
		hints:       hints{destructive: true},
	}, stopGroup)
}

func stopGroup(ctx context.Context, s *call, a stopGroupArgs) (groupRunResult, error) {
	progress := newGroupProgress()
	o := groups.StopOptions{Force: a.Force, Progress: progress.set}
	if a.Strategy != "" {
		strategy, err := groups.ParseStrategy(a.Strategy)
		if err != nil {
			return groupRunResult{}, err
		}
		o.Strategy = &strategy
	}
	defer progress.report(ctx, s.Server)()
	defer s.events.wake.hold()()
	waitCtx, cancel := context.WithTimeout(ctx, waitTimeout(0))
	defer cancel()
	rep, err := s.project.StopGroup(waitCtx, a.Group, o)
	if err != nil {
		return groupRunResult{}, err
	}
	r, err := groupReport(ctx, s.project, rep, nil, outputArgs{})
	if err != nil {
		return r, err
	}
	return r, r.addStopLines(ctx, s)
}

// addStopLines adds what the stopped members have printed since the signal, as far as the answer has room for it.
func (r *groupRunResult) addStopLines(ctx context.Context, s *call) error {
	room := sharedRoom{left: outputArgs{}.limit() - answerSize(r) - leftOutBytes, members: len(r.Members)}
	for i := range r.Members {
		m := &r.Members[i]
		run := s.project.Here(m.Name)
		if m.Result != string(groups.WasStopped) || run == nil || room.left < minShare {
			continue
		}
		log, err := sinceStop(ctx, s.project, &s.shown, m.Name, run.RunID, 0, room.share())
		unread, err := unreadHint(err)
		if err != nil {
			return err
		}
		m.setOutput(&log, m.Errors)
		if r.Hint = prose.Join(" ", r.Hint, unread); len(m.Lines) > 0 {
			r.Notice = outputNotice
			room.left = outputArgs{}.limit() - answerSize(r) - leftOutBytes
		}
	}
	return nil
}
