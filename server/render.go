package server

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/process/prose"
	"pmcp/server/project"
)

// Bounds of the texts of answers, in bytes.
const (
	defaultMaxBytes     = 8 << 10 // of a log tool's answer
	actionMaxBytes      = 4 << 10 // of another tool's answer, unless the call has max_bytes
	eventsMaxBytes      = 1 << 10 // of the events in an answer
	defaultMaxLineBytes = 2000
	// lineOverhead is about the size of what surrounds the text of a line and of
	// the separator above the line, without the process's name.
	lineOverhead = 80
	minLine      = 40 // bytes of a line that are shown in any case, if max_line_bytes allows it
)

// A logView holds the options for how log lines are shown.
type logView struct {
	// names makes the process name the prefix of each line.
	names bool
	// maxBytes bounds the text of all lines, and maxLineBytes the text of one line.
	// 0 means the default.
	maxBytes, maxLineBytes int
	// newest drops excess lines at the front instead of at the end.
	newest bool
	// times is how lines show their time: "none", "s" or "ms"; "" = "s".
	times string
	// actionRun is the id of the run that the answer of an action, such as start_process, is
	// about, or 0 in an answer of the log tools. The text of an action marks each line with
	// outputMark, so that the line needs little else: see lineHead.
	actionRun int64
	// skip is how many lines at the start of the page are not shown.
	skip int
	// order adds orderNote.
	order bool
}

// orderNote is what an answer says, once for each process in a session, if it shows lines of both streams of a run
// within orderDelay of each other: they are read from two pipes, in any order.
const (
	orderNote  = "order of out and err lines within 10 ms is not certain (two pipes); merge_output: true keeps it"
	orderDelay = 10 * time.Millisecond
)

// outputMark precedes each line of output in the text of an action's answer.
const outputMark = "| "

// logResult is the part of an answer that holds log lines.
type logResult struct {
	Lines      []string    `json:"lines,omitempty"`
	Gaps       []gapResult `json:"gaps,omitempty"`
	Omitted    *omitted    `json:"omitted,omitempty"`
	More       bool        `json:"more,omitempty"`
	NextCursor string      `json:"next_cursor,omitempty"`
	PrevCursor string      `json:"prev_cursor,omitempty"`
	Notice     string      `json:"notice,omitempty"`
	Order      string      `json:"order,omitempty" schema:"extra"` // orderNote, or ""
	// Screen says that Lines are the rows of a terminal, and where its cursor is.
	Screen string `json:"screen,omitempty" schema:"extra"`

	process string // the process of all lines; "" if there are several
	// unordered is the process of a run whose lines may be in another order; "" if there is none.
	unordered string
	shown     int // how many lines of the page Lines represents, including each folded repeat
	source    logSource

	refs []lineRef            // what each of Lines shows
	seen []project.ShownLines // what Lines shows of each run

	drawn time.Time // when the screen was last changed, if Lines are that
}

// A lineRef is what a line of an answer shows: these lines of a run. The zero value belongs to
// a line that is not output.
type lineRef struct{ run, first, last int64 }

// showed returns what the answer shows of each run, to move the positions of the
// connection.
func (r logResult) showed() []project.ShownLines { return r.seen }

// addSeen records that lines of a run are shown.
func (r *logResult) addSeen(lines []logstore.Line) {
	first, last := &lines[0], &lines[len(lines)-1]
	i := slices.IndexFunc(r.seen, func(s project.ShownLines) bool { return s.Run == last.Run })
	if i < 0 {
		i = len(r.seen)
		r.seen = append(r.seen, project.ShownLines{Run: last.Run, First: first.Number})
	}
	r.seen[i].Last, r.seen[i].At = last.Number, last.At
}

func (r *logResult) lastSeen() (at time.Time) {
	at = r.drawn
	for _, s := range r.seen {
		at = s.At
	}
	return at
}

// setFiltered records that the lines between those of the answer are not shown.
func (r *logResult) setFiltered() {
	for i := range r.seen {
		r.seen[i].First = r.seen[i].Last
	}
}

// A logSource is what a logResult was rendered from, and with which options.
type logSource struct {
	page *logstore.Page
	// screen is in place of page.
	screen *project.Screen
	view   logView
	left   int64  // lines between the start of an excerpt and its page; -1: unknown
	next   string // the cursor after an excerpt; "" = after its page
}

func (r *logResult) isComplete() bool { return !r.More && r.Omitted == nil && len(r.Gaps) == 0 }

// has reports whether the answer has a line of a run, and those after it.
func (r *logResult) has(run, line int64) bool {
	return slices.ContainsFunc(r.seen, func(s project.ShownLines) bool { return s.Run == run && line >= s.First })
}

// A gapResult is a position where lines are missing.
type gapResult struct {
	Name   string `json:"name"`
	Run    int    `json:"run"`
	After  int64  `json:"after_line"`
	Lines  int64  `json:"lines"` // number of missing lines; -1: unknown
	Reason string `json:"reason"`
}

// omitted describes what max_bytes left out of an answer, with the cursor that
// leads to it. The omitted lines are before the cursor if the cursor is PrevCursor,
// else after the cursor.
type omitted struct {
	Lines  int64  `json:"lines"`
	Cursor string `json:"cursor"`
}

// A shownLine is one line of an answer, with the lines of the page that it
// represents.
type shownLine struct {
	text        string
	first, last int    // indexes into Page.Lines; -1 for a gap
	separator   string // the separator of the line's run and day; "" for a gap or if there is none
	head        bool   // the separator precedes this line; it also precedes the first line of an answer
	lead        string // text if the line is the first that the answer of an action shows
}

func (l *shownLine) size() int {
	if l.head {
		return sizeOfString(l.separator) + sizeOfString(l.text)
	}
	return sizeOfString(l.text)
}

func sizeOfString(s string) int {
	if s == "" {
		return 0
	}
	return len(s) + len(outputMark) + len("\n")
}

// render returns the lines of a page for an answer. It folds repeats, cuts long
// lines, and drops lines that exceed maxBytes; cursors lead to what was left out.
func (v logView) render(p *logstore.Page) logResult {
	kept, cut := v.fit(v.format(p))
	r := logResult{unordered: unordered(p, kept), More: p.MoreAfter || cut, NextCursor: p.Next(), PrevCursor: p.Prev(), process: onlyProcess(p), source: logSource{page: p, view: v}}
	if v.newest {
		r.More = p.MoreBefore || cut
	}
	for _, g := range p.Gaps {
		r.Gaps = append(r.Gaps, newGapResult(p, g))
	}
	first, last := -1, -1
	for _, l := range kept {
		if l.separator != "" && (l.head || first < 0) {
			r.Lines, r.refs = append(r.Lines, l.separator), append(r.refs, lineRef{})
		}
		if first < 0 && l.lead != "" {
			l.text = l.lead
		}
		r.Lines, r.refs = append(r.Lines, l.text), append(r.refs, lineRef{})
		if l.first >= 0 {
			r.refs[len(r.refs)-1] = lineRef{p.Lines[l.first].Run, p.Lines[l.first].Number, p.Lines[l.last].Number}
			r.shown += l.last - l.first + 1
			last = l.last
			r.addSeen(p.Lines[l.first : l.last+1])
			if first < 0 {
				first = l.first
			}
		}
	}
	switch {
	case cut && !v.newest:
		r.NextCursor = p.Cursor(last)
		r.setOmitted(len(p.Lines)-1-last, r.NextCursor)
	case cut && first > 0:
		r.PrevCursor = p.Cursor(first - 1)
		r.setOmitted(first-v.skip, r.PrevCursor)
	}
	if len(r.Lines) > 0 {
		r.Notice = outputNotice
	}
	if v.order {
		r.Order = orderNote
	}
	return r
}

// unordered returns the process of a run of which kept has lines of both streams within orderDelay, or "".
func unordered(p *logstore.Page, kept []shownLine) string {
	last := make(map[int64]*logstore.Line) // keyed by run
	for _, shown := range kept {
		if shown.first < 0 {
			continue
		}
		l := &p.Lines[shown.first]
		if l.Stream == logstore.Messages {
			continue
		}
		if before := last[l.Run]; before != nil && before.Stream != l.Stream && l.At.Sub(before.At) < orderDelay {
			return p.Runs[l.Run].Name
		}
		last[l.Run] = &p.Lines[shown.last]
	}
	return ""
}

// fit returns as many of the shown lines as the budget allows, at least one, and
// reports whether it dropped others: at the front if v.newest is set, else at the
// end.
func (v logView) fit(shown []shownLine) (kept []shownLine, cut bool) {
	budget, used := v.budget(), 0
	var lead *shownLine // the log line that was last counted
	for n := range shown {
		i := n
		if v.newest {
			i = len(shown) - 1 - n
		}
		l := &shown[i]
		used += l.size()
		hasLine := lead != nil
		if l.first >= 0 {
			lead = l
		}
		extra := 0
		if v.newest && lead != nil && !lead.head { // lead would be the first line of the answer
			extra = sizeOfString(lead.separator)
		}
		if v.newest && lead != nil && lead.lead != "" {
			extra += sizeOfString(lead.lead) - sizeOfString(lead.text)
		}
		switch {
		case used+extra <= budget || !hasLine:
		case v.newest:
			return shown[i+1:], true
		default:
			return shown[:i], true
		}
	}
	return shown, false
}

func (v logView) budget() int { return cmp.Or(v.maxBytes, defaultMaxBytes) }

// onlyProcess returns the name of the process that all runs of the page belong to,
// or "" if there are several processes or none.
func onlyProcess(p *logstore.Page) (name string) {
	for _, run := range p.Runs {
		if name != "" && run.Name != name {
			return ""
		}
		name = run.Name
	}
	return name
}

// processArgument returns the argument that restricts a call with a cursor of r to
// the process of r: with a cursor alone, a call continues with every process.
func (r *logResult) processArgument() string {
	if r.process == "" {
		return ""
	}
	return fmt.Sprintf("process: %q, ", r.process)
}

func (r *logResult) setOmitted(lines int, cursor string) {
	if lines > 0 {
		r.Omitted = &omitted{Lines: int64(lines), Cursor: cursor}
	}
}

// format returns every line of the page in the form in which it is shown.
func (v logView) format(p *logstore.Page) []shownLine {
	f := formatter{logView: v, page: p, maxLine: cmp.Or(v.maxLineBytes, defaultMaxLineBytes), seen: make(map[int64]bool), separators: make(map[int64]string)}
	f.ownRun = v.actionRun != 0
	for i := v.skip; i < len(p.Lines); i++ {
		f.ownRun = f.ownRun && p.Lines[i].Run == v.actionRun
		f.streams |= 1 << p.Lines[i].Stream
	}
	gaps := p.Gaps
	for i := v.skip; i < len(p.Lines); {
		for len(gaps) > 0 && gapPrecedes(gaps[0], &p.Lines[i]) {
			f.addGap(gaps[0])
			gaps = gaps[1:]
		}
		if next := f.addLibraryFrames(i); next > i {
			i = next
			continue
		}
		i = f.addLine(i)
	}
	for _, gap := range gaps {
		f.addGap(gap)
	}
	return f.shown
}

// A formatter formats the lines of a page one after another.
type formatter struct {
	logView
	page       *logstore.Page
	maxLine    int
	ownRun     bool // all lines are of the run of the action
	streams    uint8
	shown      []shownLine
	seen       map[int64]bool
	separators map[int64]string // separators of the day, keyed by run
	day        string
	last       time.Time // of the line before, in the answer of an action
}

func (f *formatter) addGap(g logstore.Gap) {
	f.shown = append(f.shown, shownLine{text: newGapResult(f.page, g).line(), first: -1, last: -1})
}

// addLine adds the line that begins at Lines[i], with the pieces that continue it and
// equal lines that follow. It returns the index after them.
func (f *formatter) addLine(i int) int {
	p := f.page
	l := &p.Lines[i]
	run := p.Runs[l.Run]
	limit := max(1, min(f.maxLine, max(minLine, f.budget()-f.overhead(run.Name))))
	text, next := joinPieces(p.Lines, i, limit)
	count, end := 1, next
	for end < len(p.Lines) && sameLine(l, &p.Lines[end]) {
		again, after := joinPieces(p.Lines, end, limit)
		if again != text {
			break
		}
		count, end = count+1, after
	}
	head, mark := f.prefix(l, run.Name), ""
	if count > 1 && text != "" {
		mark = fmt.Sprintf(" (×%d)", count)
	}
	shown := f.newLine(i, end)
	if f.actionRun != 0 {
		head = f.lineHead(l, text, f.last)
		shown.lead = f.lineHead(l, text, time.Time{}) + text + mark
		f.last = p.Lines[end-1].At
	}
	shown.text = head + text + mark
	f.shown = append(f.shown, shown)
	return end
}

// newLine returns a line that represents Lines[i:end], without its text.
func (f *formatter) newLine(i, end int) shownLine {
	l := &f.page.Lines[i]
	run := f.page.Runs[l.Run]
	d := l.At.Local().Format(time.DateOnly)
	if d != f.day {
		clear(f.separators)
	}
	if f.separators[l.Run] == "" && !f.ownRun {
		f.separators[l.Run] = fmt.Sprintf("--- %s %s run %d ---", d, run.Name, run.Number)
	}
	isHead := d != f.day || !f.seen[l.Run]
	f.day, f.seen[l.Run] = d, true
	return shownLine{first: i, last: end - 1, separator: f.separators[l.Run], head: isHead}
}

// lineHead returns what precedes the text of a line in the answer of an action: the time
// of the first line, the seconds since the line before if it is more than one, and the
// stream if the answer has both. last is the time of the line before, or zero. A text that
// begins with the time itself has no other in front. The stream also precedes a text that
// begins like one of these or like a separator, so that each line is read in one way only.
func (f *formatter) lineHead(l *logstore.Line, text string, last time.Time) string {
	head := ""
	switch since := l.At.Sub(last); {
	case beginsWithTime(text, l.At.Local()):
	case last.IsZero() && l.At.Local().Format(time.DateOnly) != time.Now().Format(time.DateOnly):
		head = l.At.Local().Format(time.DateTime) + " "
	case last.IsZero() || since < -time.Second:
		head = l.At.Local().Format(time.TimeOnly) + " "
	case since > time.Second:
		head = fmt.Sprintf("+%ds ", int(since.Seconds()))
	}
	if l.Stream == logstore.Stderr && f.streams&(1<<logstore.Stdout) != 0 || l.Stream == logstore.Messages || ownHead.MatchString(text) {
		head += logstore.StreamNames[l.Stream] + " "
	}
	return head
}

// clockInFront matches a text that begins with a time of day, which may follow a date.
var clockInFront = regexp.MustCompile(`^[\[(]?(?:(\d{4}-\d\d-\d\d)[T ])?(\d\d?:\d\d:\d\d)(?:[.,]\d+)?(?:Z| ?([AP]M))?\b`)

// beginsWithTime reports whether text begins with the time at, within a few seconds. A time
// without a date is not that of another day.
func beginsWithTime(text string, at time.Time) bool {
	const lag = 3 * time.Second // of a program that prints late
	m := clockInFront.FindStringSubmatch(text)
	if m == nil || m[1] == "" && at.Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
		return false
	}
	layout := time.DateTime
	if m[3] != "" {
		layout = time.DateOnly + " 3:04:05PM"
	}
	own, err := time.ParseInLocation(layout, cmp.Or(m[1], at.Format(time.DateOnly))+" "+m[2]+m[3], at.Location())
	return err == nil && at.Sub(own).Abs() <= lag
}

// ownLine matches the lines of an action that are not output: separators, gaps and the marks of
// library frames.
var ownLine = regexp.MustCompile(`^(?:--- (?:\d{4}-\d\d-\d\d |gap in )|… \d+ (?:library )?frames? )`)

// ownHead matches a text that begins like such a line, or like what pmcp puts in front of a line of
// an action.
var ownHead = regexp.MustCompile(ownLine.String() + `|^(?:out|err|mcp|\+\d+s|(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d) `)

func (r *logResult) texts() []string {
	if r.source.view.actionRun == 0 {
		return r.Lines
	}
	lines, _ := r.withErrors(nil, false)
	return lines
}

// overhead returns the size of everything that accompanies a line of a process if
// no other process is shown.
func (v logView) overhead(name string) int {
	if v.names {
		return lineOverhead + 2*len(name)
	}
	return lineOverhead + len(name)
}

// sameLine reports whether a and b have the same run, stream and day. Such lines
// may be folded if their shown texts are equal.
func sameLine(a, b *logstore.Line) bool {
	return a.Run == b.Run && a.Stream == b.Stream && a.At.YearDay() == b.At.YearDay()
}

// joinPieces returns the text of the line that begins at lines[i], with the pieces that
// continue it, cut in its middle to limit bytes. next is the index after the last piece.
func joinPieces(lines []logstore.Line, i, limit int) (text string, next int) {
	first := &lines[i]
	size := len(first.Text)
	for next = i + 1; next < len(lines) && continues(first, &lines[next]); next++ {
		size += len(lines[next].Text)
	}
	if next == i+1 {
		return cutLine(first.Text, limit), next
	}
	head, tail := "", ""
	for k := i; k < next && (len(head) <= limit || size <= limit); k++ {
		head += lines[k].Text
	}
	if size <= limit {
		return cutLine(head, limit), next
	}
	for k := next - 1; k > i && len(tail) <= limit; k-- {
		tail = lines[k].Text + tail
	}
	return cutMiddle(head, tail, size, limit), next
}

func continues(first, l *logstore.Line) bool {
	return l.Continuation && l.Run == first.Run && l.Stream == first.Stream
}

// cutMark is the beginning of the mark that shows that text was cut.
const cutMark = "… [+"

// cut returns s cut to limit bytes, with a mark if something was cut.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	head := prose.Head(s, limit)
	return fmt.Sprintf("%s"+cutMark+"%d bytes]", head, len(s)-len(head))
}

// ownRepeat matches the end of a line that looks like pmcp's mark of a repeated line.
var ownRepeat = regexp.MustCompile(`\(×\d+\)$`)

// cutLine returns a line of output cut in its middle to limit bytes. If the line itself
// ends like pmcp's mark of a repeated line, cutLine appends the neutral mark (×1), so
// that the last mark of a line is always pmcp's.
func cutLine(s string, limit int) string {
	s = cutMiddle(s, s, len(s), limit)
	if strings.HasSuffix(s, ")") && ownRepeat.MatchString(s) {
		return s + " (×1)"
	}
	return s
}

// cutMiddle returns a text of size bytes that begins with head and ends with tail. If it
// is longer than limit bytes, the text has a mark in place of its middle.
func cutMiddle(head, tail string, size, limit int) string {
	if size <= limit {
		return withoutMarks(head)
	}
	tail = tail[max(0, len(tail)-limit/2):]
	head = prose.Head(head, limit-len(tail))
	tail = strings.ToValidUTF8(tail, "")
	return fmt.Sprintf("%s"+cutMark+"%d bytes] …%s", withoutMarks(head), size-len(head)-len(tail), withoutMarks(tail))
}

// withoutMarks returns a text of a process in which every character is visible, and
// nothing looks like the mark of a cut.
func withoutMarks(s string) string {
	return strings.ReplaceAll(line.Visible(s), cutMark, `\u2026 [+`)
}

// beforeMatch is how many bytes of a line are shown before a match that is far from
// the start of the line.
const beforeMatch = 200

// cutAround is cutLine if cutLine would show the text at offset. Otherwise it
// returns limit bytes around offset, with a mark at each end where something is missing.
func cutAround(s string, offset, limit int) string {
	if len(s) <= limit || offset+utf8.UTFMax <= limit/2 || offset >= len(s)-limit/2 {
		return cutLine(s, limit)
	}
	start := len(strings.ToValidUTF8(s[:max(0, offset-min(beforeMatch, limit/2))], ""))
	end := min(start+limit, len(s))
	shown, before, after := strings.ToValidUTF8(s[start:end], ""), "", ""
	if start > 0 {
		before = fmt.Sprintf(cutMark+"%d bytes] …", start)
	}
	if left := len(s) - start - len(shown); left > 0 {
		after = fmt.Sprintf(cutMark+"%d bytes]", left)
	}
	return before + withoutMarks(shown) + after
}

// prefix returns what precedes the text of a line in an answer of the log tools: the
// process name if it is shown, the time and the stream.
func (v logView) prefix(l *logstore.Line, name string) string {
	prefix := ""
	if v.names {
		prefix = name + " "
	}
	switch v.times {
	case "none":
		return prefix + logstore.StreamNames[l.Stream] + " " + outputMark // so that the text follows no word of pmcp
	case "ms":
		prefix += l.At.Local().Format("15:04:05.000 ")
	default:
		prefix += l.At.Local().Format("15:04:05 ")
	}
	return prefix + logstore.StreamNames[l.Stream] + " "
}

// gapPrecedes reports whether g is before l in the same run.
func gapPrecedes(g logstore.Gap, l *logstore.Line) bool {
	return g.Run == l.Run && g.After < l.Number
}

func newGapResult(p *logstore.Page, g logstore.Gap) gapResult {
	run := p.Runs[g.Run]
	return gapResult{Name: run.Name, Run: run.Number, After: g.After, Lines: g.Lines, Reason: g.Reason}
}

func (g gapResult) line() string {
	return fmt.Sprintf("--- gap in %s run %d: %s lost: %s ---", g.Name, g.Run, lineCount(g.Lines), g.Reason)
}

// lineCount returns a number of lines in words; -1 stands for an unknown number.
func lineCount(n int64) string {
	if n == -1 {
		return "an unknown number of lines"
	}
	return countNoun(n, "line", "lines")
}

// writeTo writes the log part of an answer: the log lines, then more lines of
// output and the errors that belong to them, then the cursors. A log line begins
// with a time, a name or a mark, so it cannot be mistaken for the lines around it.
// The answer of an action has no cursor to what follows: waits keep their place.
func (r *logResult) writeTo(t *answerText, errors []errorResult, more ...string) {
	t.optLine("%s", r.Screen)
	t.output(slices.Concat(r.texts(), more), errors)
	r.writeOmitted(t)
	if r.source.view.actionRun == 0 {
		t.optLine("next_cursor: %s", r.NextCursor)
		t.optLine("prev_cursor: %s", r.PrevCursor)
		t.more(r.More)
	}
}

// writeOmitted writes what is not certain about the lines and what was left out, with the cursor
// to it.
func (r *logResult) writeOmitted(t *answerText) {
	if !t.ordered {
		t.optLine("%s", r.Order)
		t.ordered = r.Order != ""
	}
	if r.Omitted != nil {
		side := "after"
		if r.Omitted.Cursor != r.NextCursor {
			side = "before"
		}
		t.line("omitted: %s; get_logs with %s%s: %s", lineCount(r.Omitted.Lines), r.processArgument(), side, r.Omitted.Cursor)
	}
}

// fit renders the lines again, with less room, until size, which counts the whole answer,
// is at most limit bytes, or only one line is left.
func (r *logResult) fit(limit int, size func() int) {
	for range 8 {
		over := size() - limit
		if over <= 0 || len(r.Lines) == 0 {
			return
		}
		v := r.source.view
		used := 0
		for _, l := range r.Lines {
			used += sizeOfString(l)
		}
		v.maxBytes = max(1, min(v.budget(), used)-over)
		r.rerender(v)
	}
}

func (r *logResult) rerender(v logView) {
	src := r.source
	src.view = v
	*r = src.render()
}

// render renders the page of s. In the answer of an action one line says what was left
// out.
func (s logSource) render() logResult {
	if s.screen != nil {
		return s.renderScreen()
	}
	r := s.view.render(s.page)
	if s.view.actionRun == 0 {
		return r
	}
	r.source.left, r.source.next, r.NextCursor = s.left, s.next, cmp.Or(s.next, r.NextCursor)
	left := s.left
	if cut := int64(len(s.page.Lines) - s.view.skip - r.shown); left >= 0 {
		left += cut
	}
	cursor := r.PrevCursor
	r.Omitted, r.More, r.PrevCursor = nil, false, ""
	if left != 0 {
		r.Omitted = &omitted{Lines: left, Cursor: cursor}
	}
	return r
}

// renderNoting renders s with orderNote if that holds and no answer of the session has noted it about the process.
func (s logSource) renderNoting(p *project.Project) logResult {
	r := s.render()
	if r.unordered != "" && p.FirstUnordered(r.unordered) {
		r.source.view.order, r.Order = true, orderNote // also if it is rendered again
	}
	return r
}

// dropLast drops elements at the end of list, as few as needed, until size, which counts
// the whole answer, is at most limit bytes. It returns how many it dropped.
func dropLast[T any](list *[]T, limit int, size func() int) (dropped int) {
	all := *list
	kept := sort.Search(len(all), func(i int) bool { *list = all[:i+1]; return size() > limit })
	*list = all[:kept]
	return len(all) - kept
}

func answerSize(a writer) int { return len(textOf(a)) }
