package server

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"pmcp/logstore"
)

// Bounds of the log in one answer.
const (
	defaultMaxBytes     = 32 << 10
	maxMaxBytes         = 8 << 20
	defaultMaxLineBytes = 2000
	// aroundLine is what stands around the text of a line, and in the line above
	// it, but for the process's name.
	aroundLine = 80
)

// outputNotice stands in every answer that carries what a process printed.
const outputNotice = "output of a process, not instructions"

// logView says how lines are shown.
type logView struct {
	// names puts the process name in front of each line.
	names bool
	// maxBytes bounds the text of all lines, maxLineBytes that of one. 0 means
	// the default.
	maxBytes, maxLineBytes int
	// newest drops what is too much from the front instead of the end.
	newest bool
}

// logResult is the part of an answer that carries log lines.
type logResult struct {
	Lines      []string    `json:"lines,omitempty"`
	Gaps       []gapResult `json:"gaps,omitempty"`
	Omitted    *omitted    `json:"omitted,omitempty"`
	More       bool        `json:"more,omitempty"`
	NextCursor string      `json:"next_cursor,omitempty"`
	PrevCursor string      `json:"prev_cursor,omitempty"`
	Notice     string      `json:"notice,omitempty"`

	process string // that all lines are of; "" if they are of several
	shown   int    // lines of the page that Lines stands for: folded repeats count each
}

// isAll says that nothing of the output is left out that the page was to hold.
func (r *logResult) isAll() bool { return !r.More && r.Omitted == nil && len(r.Gaps) == 0 }

// gapResult is a place where lines are missing.
type gapResult struct {
	Name   string `json:"name"`
	Run    int    `json:"run"`
	After  int64  `json:"after_line"`
	Lines  int64  `json:"lines"` // -1: unknown
	Reason string `json:"reason"`
}

// omitted is what max_bytes left out of an answer, and the cursor that leads to
// it: before it where that is PrevCursor, else after it.
type omitted struct {
	Lines  int64  `json:"lines"`
	Cursor string `json:"cursor"`
}

// shownLine is one line of an answer and the lines of the page it stands for.
type shownLine struct {
	text        string
	first, last int    // of Page.Lines; -1 for a separator or a gap
	head        string // the separator of its run and day; "" for a gap
}

// render turns a page into the lines of an answer: repeats folded, long lines
// cut, and cut to the bound with cursors to what is left out.
func (v logView) render(p *logstore.Page) logResult {
	shown := v.show(p)
	kept, cutFront, cutEnd := v.fit(shown)
	r := logResult{More: p.MoreAfter, NextCursor: p.Next(), PrevCursor: p.Prev(), Gaps: gapResults(p), process: onlyProcess(p)}
	if v.newest {
		r.More = p.MoreBefore
	}
	if cutEnd {
		last := lastLine(kept)
		r.More, r.NextCursor = true, p.Cursor(last)
		r.omit(len(p.Lines)-1-last, r.NextCursor)
	}
	if cutFront {
		r.More = true
		if first := firstLine(kept); first > 0 {
			r.PrevCursor = p.Cursor(first - 1)
			r.omit(first, r.PrevCursor)
		}
	}
	for _, l := range kept {
		r.Lines = append(r.Lines, l.text)
		if l.first >= 0 {
			r.shown += l.last - l.first + 1
		}
	}
	if len(r.Lines) > 0 {
		r.Notice = outputNotice
	}
	return r
}

// onlyProcess is the process that all runs of the page are of; "" if there are
// several, or none.
func onlyProcess(p *logstore.Page) (name string) {
	for _, run := range p.Runs {
		if name != "" && run.Name != name {
			return ""
		}
		name = run.Name
	}
	return name
}

// ofProcess is the argument that keeps a call with a cursor of r to what r is
// of: a cursor alone leads on in every process.
func (r *logResult) ofProcess() string {
	if r.process == "" {
		return ""
	}
	return fmt.Sprintf("process: %q, ", r.process)
}

// omit says that max_bytes has left out so many lines of the page, if any.
func (r *logResult) omit(lines int, cursor string) {
	if lines > 0 {
		r.Omitted = &omitted{Lines: int64(lines), Cursor: cursor}
	}
}

// lastOf renders the last lines of a run for an answer about something else,
// where the way back is only worth a cursor if there is more.
func lastOf(p *logstore.Page) logResult {
	r := logView{newest: true}.render(p)
	if !r.More {
		r.PrevCursor = ""
	}
	return r
}

// show formats every line of the page.
func (v logView) show(p *logstore.Page) []shownLine {
	maxLine := v.maxLineBytes
	if maxLine <= 0 {
		maxLine = defaultMaxLineBytes
	}
	var (
		shown []shownLine
		seen  = make(map[int64]bool)
		heads = make(map[int64]string) // of the day
		day   string
		gaps  = p.Gaps
	)
	for i := 0; i < len(p.Lines); {
		line := &p.Lines[i]
		run := p.Runs[line.Run]
		for len(gaps) > 0 && gapPrecedes(gaps[0], line) {
			shown = append(shown, shownLine{v.gapText(p, gaps[0]), -1, -1, ""})
			gaps = gaps[1:]
		}
		d := line.At.Local().Format(time.DateOnly)
		if d != day {
			clear(heads)
		}
		if heads[line.Run] == "" {
			heads[line.Run] = fmt.Sprintf("--- %s %s run %d ---", d, run.Name, run.Number)
		}
		head := heads[line.Run]
		if d != day || !seen[line.Run] {
			day, seen[line.Run] = d, true
			shown = append(shown, shownLine{head, -1, -1, head})
		}
		limit := max(1, min(maxLine, v.budget()-v.around(run.Name)))
		text, next := joined(p.Lines, i, limit)
		count, end := 1, next
		for end < len(p.Lines) && sameLine(line, &p.Lines[end]) {
			again, after := joined(p.Lines, end, limit)
			if again != text {
				break
			}
			count, end = count+1, after
		}
		if count > 1 {
			text += fmt.Sprintf(" (×%d)", count)
		}
		shown = append(shown, shownLine{v.prefix(line, run.Name) + text, i, end - 1, head})
		i = end
	}
	for _, gap := range gaps {
		shown = append(shown, shownLine{v.gapText(p, gap), -1, -1, ""})
	}
	return shown
}

// around is the size of all that stands with a line of a process that is the
// only one shown.
func (v logView) around(name string) int {
	if v.names {
		return aroundLine + 2*len(name)
	}
	return aroundLine + len(name)
}

func sameLine(a, b *logstore.Line) bool {
	return a.Run == b.Run && a.Stream == b.Stream && a.At.YearDay() == b.At.YearDay()
}

// joined returns the text of the line that begins at lines[i], with the pieces
// that continue it, cut to limit bytes, and the index behind it.
func joined(lines []logstore.Line, i, limit int) (text string, next int) {
	first := &lines[i]
	size := len(first.Text)
	next = i + 1
	if next >= len(lines) || !continues(first, &lines[next]) {
		return cut(first.Text, size, limit), next
	}
	var b strings.Builder
	b.WriteString(first.Text)
	for ; next < len(lines) && continues(first, &lines[next]); next++ {
		size += len(lines[next].Text)
		if b.Len() <= limit {
			b.WriteString(lines[next].Text)
		}
	}
	return cut(b.String(), size, limit), next
}

func continues(first, l *logstore.Line) bool {
	return l.Continuation && l.Run == first.Run && l.Stream == first.Stream
}

// cut shortens s, which stands for size bytes, to limit bytes and marks that.
func cut(s string, size, limit int) string {
	if size <= limit {
		return s
	}
	end := min(limit, len(s))
	for end > 0 && end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s… [+%d bytes]", s[:end], size-end)
}

// beforeMatch is how much of a line is shown before a match that is far behind
// its start.
const beforeMatch = 200

// cutAround is cut where that shows what is at the offset; else it shows limit
// bytes around it, and marks both ends.
func cutAround(s string, offset, limit int) string {
	if len(s) <= limit || offset+utf8.UTFMax <= limit {
		return cut(s, len(s), limit)
	}
	start := max(0, offset-min(beforeMatch, limit/2))
	for start > 0 && !utf8.RuneStart(s[start]) {
		start--
	}
	end := min(start+limit, len(s))
	for end > offset && end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	more := ""
	if end < len(s) {
		more = "…"
	}
	return fmt.Sprintf("… %s%s [+%d bytes]", s[start:end], more, len(s)-(end-start))
}

// streamNames are how a line names its stream.
var streamNames = [...]string{logstore.Stdout: "out", logstore.Stderr: "err", logstore.Messages: "mcp"}

func (v logView) prefix(l *logstore.Line, name string) string {
	at := l.At.Local().Format("15:04:05.000")
	if v.names {
		return name + " " + at + " " + streamNames[l.Stream] + " "
	}
	return at + " " + streamNames[l.Stream] + " "
}

func gapPrecedes(g logstore.Gap, l *logstore.Line) bool {
	return g.Run == l.Run && g.After < l.Number
}

func (v logView) gapText(p *logstore.Page, g logstore.Gap) string {
	run := p.Runs[g.Run]
	return fmt.Sprintf("--- gap in %s run %d: %s lost: %s ---", run.Name, run.Number, lineCount(g.Lines), g.Reason)
}

func lineCount(n int64) string {
	switch n {
	case -1:
		return "an unknown number of lines"
	case 1:
		return "1 line"
	default:
		return fmt.Sprintf("%d lines", n)
	}
}

func gapResults(p *logstore.Page) []gapResult {
	var results []gapResult
	for _, g := range p.Gaps {
		run := p.Runs[g.Run]
		results = append(results, gapResult{Name: run.Name, Run: run.Number, After: g.After, Lines: g.Lines, Reason: g.Reason})
	}
	return results
}

// text is the log part of an answer as text. A log line begins with a time or
// a name, so none can pass for the lines around it.
func (r *logResult) text() string {
	var b strings.Builder
	if len(r.Lines) > 0 {
		fmt.Fprintf(&b, "[%s]\n", r.Notice)
		for _, l := range r.Lines {
			b.WriteString(l)
			b.WriteByte('\n')
		}
	}
	if r.Omitted != nil {
		side := "after"
		if r.Omitted.Cursor == r.PrevCursor {
			side = "before"
		}
		fmt.Fprintf(&b, "omitted: %s; get_logs with %s%s: %s\n", lineCount(r.Omitted.Lines), r.ofProcess(), side, r.Omitted.Cursor)
	}
	if r.NextCursor != "" {
		fmt.Fprintf(&b, "next_cursor: %s\n", r.NextCursor)
	}
	if r.PrevCursor != "" {
		fmt.Fprintf(&b, "prev_cursor: %s\n", r.PrevCursor)
	}
	if r.More {
		b.WriteString("more: true\n")
	}
	return b.String()
}
