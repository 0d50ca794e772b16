package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"pmcp/groups"
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
		b.WriteString(markedErrors(m.Errors, m.Lines))
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
