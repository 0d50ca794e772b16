package server

import (
	"context"
	"errors"
	"fmt"

	"pmcp/groups"
	"pmcp/logstore"
	"pmcp/process"
)

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
		if o.Result == groups.Skipped || o.Result == groups.InProgress {
			m.takeNow(&st)
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
		if err == nil && (o.Result != groups.HasFailed || o.Run != 0 || st.GoesOn()) {
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

// takeNow adds how a member is at this moment: the run of one that another server
// runs and that was skipped for it, and what one that runs here lacks to be up.
func (m *groupMemberReport) takeNow(st *groups.Status) {
	for i := range st.Members {
		switch ms := &st.Members[i]; {
		case ms.Process != m.Name:
		case ms.Owner == "" && ms.Phase == groups.MemberStarting:
			m.Why = joinHints(m.Why, withoutInvalid(ms.Why))
		case ms.Owner != "" && m.Result == string(groups.Skipped):
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
	leftOutBytes = 200
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
		lines = append([]string{fmt.Sprintf("--- %s before these left out; get_logs with %sbefore: %s ---", lineCount(int64(left)), shown.ofProcess(), shown.PrevCursor)}, lines...)
	}
	return lines, len(page.Lines) > shown.shown, shown.NextCursor, nil
}
