package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"pmcp/server/project"
)

// screenOf returns what the terminal of a run shows if its program has taken the whole screen: what it
// draws is then no output. ok is false for every other run.
func screenOf(ctx context.Context, p *project.Project, run *project.Run) (screen project.Screen, ok bool) {
	if !run.Spec.PTY || run.Over() || run.Stored || run.Owner != nil {
		return screen, false
	}
	screen, err := p.Screen(ctx, run.Spec.Name)
	return screen, err == nil && screen.Full
}

// screenLogs returns the answer of tail_logs with screen.
func screenLogs(ctx context.Context, s *call, a tailLogsArgs) (r logsResult, err error) {
	if a.Stream != "" || a.Level != "" || a.After != "" || a.WaitMS > 0 || a.Lines > 0 || a.MaxLineBytes > 0 || a.Times != "" {
		return r, errors.New("argument screen: only process and max_bytes go with it; the screen is as it is now")
	}
	name, err := s.project.ResolveOne(ctx, a.Process, s.reads)
	if err != nil {
		return r, err
	}
	screen, err := s.project.Screen(ctx, name)
	if err != nil {
		return r, err
	}
	r.logResult = logSource{screen: &screen, view: logView{maxBytes: a.MaxBytes}}.render()
	if run := s.project.Here(name); run != nil && run.Over() {
		r.Hint = "the last screen; " + lineOf(run)
	}
	r.fit(logLimit(a.MaxBytes), func() int { return answerSize(r) })
	return r, nil
}

// renderScreen renders the screen of s: the rows around the cursor, if not all have room.
func (s logSource) renderScreen() logResult {
	shown, at := s.screenRows()
	from, to, room := at, at, s.view.budget()
	for grew := true; grew; {
		grew = false
		if to < len(shown) && (to == from || sizeOfString(shown[to].text) <= room) {
			room -= sizeOfString(shown[to].text)
			to, grew = to+1, true
		}
		if from > 0 && sizeOfString(shown[from-1].text) <= room {
			room -= sizeOfString(shown[from-1].text)
			from, grew = from-1, true
		}
	}
	r := logResult{NextCursor: s.next, source: s, drawn: s.screen.Changed}
	rows := 0
	for _, l := range shown[from:to] {
		rows += l.last - l.first + 1
		r.Lines, r.refs = append(r.Lines, l.text), append(r.refs, lineRef{})
	}
	r.Screen = fmt.Sprintf("screen: %d rows, %d columns", s.screen.Height, s.screen.Width)
	if !s.screen.Hidden {
		r.Screen += fmt.Sprintf(", cursor in row %d, column %d", s.screen.Row, s.screen.Col)
	}
	switch left := len(s.screen.Rows) - rows; {
	case len(s.screen.Rows) == 0:
		r.Screen += ", blank"
	case left > 0:
		r.Screen += fmt.Sprintf(", %s left out; tail_logs with screen: true and max_bytes shows all", countNoun(int64(left), "row", "rows"))
	}
	if len(r.Lines) > 0 {
		r.Notice = outputNotice
	}
	return r
}

// foldedRows is how many equal rows are shown as one.
const foldedRows = 3

// screenRows returns the rows of the screen as they are shown, with the index of the one with the cursor.
func (s logSource) screenRows() (shown []shownLine, at int) {
	rows := s.screen.Rows
	for i := 0; i < len(rows); {
		end := i + 1
		for rows[i] != "" && end < len(rows) && rows[end] == rows[i] {
			end++
		}
		mark := ""
		if end-i < foldedRows {
			end = i + 1
		} else {
			mark = fmt.Sprintf(" (×%d)", end-i)
		}
		text := cutLine(rows[i], cmp.Or(s.view.maxLineBytes, defaultMaxLineBytes)) + mark
		switch {
		case s.view.actionRun == 0:
			text = outputMark + text
		case ownHead.MatchString(text):
			text = "out " + text
		}
		if s.screen.At >= i {
			at = len(shown)
		}
		shown = append(shown, shownLine{text: text, first: i, last: end - 1})
		i = end
	}
	return shown, at
}
