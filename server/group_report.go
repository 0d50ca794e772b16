package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pmcp/groups"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/project"
)

// groupReport returns the answer to an operation on a group, before which the call has
// made changes. It includes the last lines of members that have failed or crashed, and of
// those that were not ready in time and have printed errors.
func groupReport(ctx context.Context, p *project.Project, rep groups.Report, changes []string, output outputArgs) (groupRunResult, error) {
	all, err := p.ListGroups(ctx, rep.Group)
	st := &all[0]
	r := groupRunResult{Name: rep.Group, State: string(st.State), TimedOut: rep.TimedOut, Members: []groupMemberReport{}}
	r.setChanges(changes, output.limit()/4)
	switch {
	case errors.Is(err, groups.ErrUnknown):
		r.State, r.Hint = "forgotten", "the group has been forgotten since the call began; stop its processes by name"
	case err != nil:
		return groupRunResult{}, err
	}
	runs := make([]*project.Run, len(rep.Members))
	var names []string
	for i, o := range rep.Members {
		names = append(names, o.Process)
		// An earlier run that has ended does not show why a member could not be started, nor what another server runs.
		if runs[i] = p.Here(o.Process); runs[i] != nil && (o.Owner != "" || o.Result == groups.HasFailed && o.Run == 0 && !runs[i].GoesOn()) {
			runs[i] = nil
		}
		m := memberReport(o, runs[i], st)
		if runs[i] != nil && (o.Result == groups.WasStarted || o.Result == groups.BecameReady) {
			m.Why = prose.Join("; ", m.Why, strings.Join(p.PortNotes(runs[i], o.Result == groups.BecameReady), "; "))
		}
		if rep.TimedOut && m.failed == 0 && runs[i] != nil && runs[i].IsUnready() {
			if faults, err := p.RunFaults(ctx, runs[i].RunID, ""); err == nil && len(faults) > 0 { // they explain what the group waits for
				m.failed = runs[i].RunID
			}
		}
		if m.failed != 0 {
			m.Why = prose.Join("; ", m.Why, p.TakenPort(ctx, runs[i]))
		}
		r.Members = append(r.Members, m)
	}
	if rep.TimedOut {
		if r.NextCursor, err = p.End(ctx, names); err != nil {
			return r, fmt.Errorf("cannot find the end of the log: %w", err)
		}
	}
	r.dropMembers(output.limit() * 2 / 3)
	return r, r.addFailures(ctx, p, output)
}

// setChanges sets the first of changes, as many as fit into limit bytes, but at least
// one, and counts the others.
func (r *groupRunResult) setChanges(changes []string, limit int) {
	for i, text := range changes {
		if limit -= sizeOfString(text); limit < 0 && i > 0 {
			r.Changes = append(r.Changes[:i:i], countNoun(int64(len(changes)-i), "more change", "more changes"))
			return
		}
		r.Changes = append(r.Changes, text)
	}
}

// memberReport returns the report on one member, without its output.
func memberReport(o groups.Outcome, run *project.Run, st *groups.Status) groupMemberReport {
	m := groupMemberReport{Name: o.Process, Result: string(o.Result), Why: withoutInvalid(o.Why), Run: o.Run}
	if run != nil {
		shown := resultOf(run)
		m.State, m.PID, m.Ports, m.URLs, m.ExitCode = shown.State, shown.PID, shown.Ports, shown.URLs, shown.ExitCode
		m.stateText = shown.stateText()
		if o.Result == groups.BecameReady { // perhaps in a later run, by its restart policy
			m.Run = run.Run
		}
	}
	if hasBrokenDown(o, run) {
		m.Run, m.failed = run.Run, run.RunID // the restart policy may have started another run since
	}
	if o.Result == groups.Skipped || o.Result == groups.InProgress || o.Owner != "" {
		m.addCurrent(st)
	}
	return m
}

// dropMembers drops members until the report is at most limit bytes: first those that
// did not fail, the last ones first. Their results are counted.
func (r *groupRunResult) dropMembers(limit int) {
	for _, failed := range []bool{false, true} {
		for i := len(r.Members) - 1; i > 0 && answerSize(r) > limit; i-- {
			if m := &r.Members[i]; (m.failed != 0 || m.Result == string(groups.HasFailed)) == failed {
				if r.Others == nil {
					r.Others = make(map[string]int)
				}
				r.Others[m.Result]++
				r.Members = slices.Delete(r.Members, i, i+1)
			}
		}
	}
	if len(r.Others) > 0 {
		r.Hint = prose.Join("; ", r.Hint, "list_groups shows all members")
	}
}

// addFailures adds the output and the errors of the members that failed, as far as the
// answer has room for them.
func (r *groupRunResult) addFailures(ctx context.Context, p *project.Project, output outputArgs) error {
	room := sharedRoom{left: output.limit() - answerSize(r) - leftOutBytes}
	for i := range r.Members {
		if r.Members[i].failed != 0 {
			room.members++
		}
	}
	for i := range r.Members {
		m := &r.Members[i]
		if m.failed == 0 {
			continue
		}
		cut := room.left < minShare
		if !cut {
			before := answerSize(r)
			short, err := m.addFailure(ctx, p, output, room.share(), func() int { return answerSize(r) - before })
			if err != nil {
				return err
			}
			cut = short
			room.left -= answerSize(r) - before
			r.Notice = outputNotice
		}
		if cut {
			r.Hint = prose.Join("; ", strings.TrimSuffix(r.Hint, memberCut), memberCut)
		}
	}
	return nil
}

// memberCut is the hint of a report from which output or errors of members are missing.
const memberCut = "get_logs and get_errors with process show the rest"

// hasBrokenDown reports whether a member has failed in the operation or crashed
// during or after it. run is the run of the member, or nil.
func hasBrokenDown(o groups.Outcome, run *project.Run) bool {
	switch {
	case run == nil || run.RunID == 0 || o.Run == 0:
		return false
	case o.Result == groups.WasStarted || o.Result == groups.BecameReady || o.Result == groups.InProgress:
		return run.State == process.Crashed || run.State == process.Failed || run.State == process.Backoff
	}
	return o.Result == groups.HasFailed
}

// addCurrent adds the current state of a member: for a member that was skipped
// because another server runs it, or that it has started, that server's run; for a member
// that runs here, what it still waits for.
func (m *groupMemberReport) addCurrent(st *groups.Status) {
	for i := range st.Members {
		switch ms := &st.Members[i]; {
		case ms.Process != m.Name:
		case ms.Owner == "" && ms.Phase == groups.MemberStarting:
			m.Why = prose.Join("; ", m.Why, withoutInvalid(ms.Why))
		case ms.Owner != "" && m.Result != string(groups.InProgress):
			m.State, m.PID, m.Run, m.ExitCode = ms.Status.State.String(), ms.Status.PID, ms.Status.Run, nil
			m.stateText = ms.Status.StateText()
		}
	}
}

// sharedRoom is how many bytes of an answer several processes may still use.
type sharedRoom struct {
	left    int
	members int // number of processes that have not used their share
}

// share returns how many bytes the next process may use, including bytes that
// earlier processes left over.
func (r *sharedRoom) share() int {
	share := r.left / max(r.members, 1)
	r.members--
	return max(share, minShare)
}

const (
	// minShare is the fewest bytes that one process gets of an answer, so that its
	// last line is shown.
	minShare = 300
	// leftOutBytes is about the size of the line that reports what was left out.
	leftOutBytes = 100
)

// addFailure adds the last lines and the errors of a member's run, in about room bytes of
// what size returns. cut reports whether some of them did not fit.
func (m *groupMemberReport) addFailure(ctx context.Context, p *project.Project, output outputArgs, room int, size func() int) (cut bool, err error) {
	log, err := excerpt{outputArgs: output, name: m.Name, run: m.failed, room: room}.read(ctx, p)
	if err != nil {
		return false, fmt.Errorf("cannot read the last lines: %w", err)
	}
	found, err := findRunErrors(ctx, p, m.failed, "", &log, true)
	if err != nil {
		return false, err
	}
	m.setOutput(&log, found.shown)
	log.fit(room, func() int { m.setOutput(&log, m.Errors); return size() })
	for m.setOutput(&log, m.Errors); len(m.Errors) > 1 && size() > room; {
		m.Errors = m.Errors[:len(m.Errors)-1]
	}
	m.reported, m.faults = found.reported, true
	return found.total > len(m.Errors), nil
}

// setOutput sets what the report has of the output of the member's run.
func (m *groupMemberReport) setOutput(log *logResult, errors []runError) {
	m.Lines, m.Omitted, m.Order, m.NextCursor, m.Errors, m.log = log.Lines, log.Omitted, log.Order, log.NextCursor, errors, *log
	for i := range errors {
		errors[i].place(log)
	}
}
