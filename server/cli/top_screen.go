package cli

import (
	"bufio"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/project"
)

const (
	sparkWidth = 10
	sparkFrom  = 140 // columns of the terminal from which the table has histories
	urlsFrom   = 100 // and addresses
	topStrip   = 3   // kinds of errors above the log
)

func (m *topModel) View() tea.View {
	var b strings.Builder
	t := &terminal{w: bufio.NewWriter(&b), colour: true, width: max(1, m.width)} // bubbletea obeys NO_COLOR
	m.write(t)
	_ = t.flush() // a strings.Builder takes everything
	view := tea.NewView(strings.TrimSuffix(b.String(), "\n"))
	view.AltScreen = true
	return view
}

// write writes the screen: at most m.height lines of m.width columns. The last one is the footer.
func (m *topModel) write(t *terminal) {
	rows := m.rows()
	m.print(t, m.head(t))
	left := m.height - 2
	switch {
	case m.helping:
		left -= m.fill(t, left, strings.Split(topKeys, "\n"))
	case len(rows) == 0:
		left -= m.fill(t, left, []string{map[bool]string{true: "no processes; start one with pmcp start NAME, or let an agent do it", false: "no process has " + m.filter + " in its name; Esc ends the filter"}[m.filter == ""]})
	default:
		left -= m.table(t, rows, left)
		left -= m.details(t, rows[m.place()], left)
		left -= m.pane(t, rows[m.place()], left)
	}
	for range left {
		_ = t.println("")
	}
	if m.height > 1 {
		m.print(t, m.footer(t))
	}
}

// rule returns a line across the screen with a title.
func (t *terminal) rule(title string) string {
	return t.paint(dim, ansi.Truncate("─── "+title+" "+strings.Repeat("─", t.width), t.width, ""))
}

// print prints one line, cut to the width.
func (m *topModel) print(t *terminal, text string) { _ = t.println(cut(text, t.width)) }

// fill prints the first lines that fit into room, as text, and returns their number.
func (m *topModel) fill(t *terminal, room int, lines []string) (n int) {
	for _, l := range lines[:max(0, min(room, len(lines)))] {
		m.print(t, line.Visible(l))
		n++
	}
	return n
}

func (m *topModel) head(t *terminal) string {
	live, wrong, where := 0, 0, m.r.dir
	if where == "" {
		where = "all projects"
	}
	for i := range m.shown.runs {
		run := &m.shown.runs[i]
		if run.State.Live() {
			live++
		}
		if m.shown.ranks[identityOf(run)] == isWrong {
			wrong++
		}
	}
	text := t.paint(bold, fmt.Sprintf("%d of %d live", live, len(m.shown.runs)))
	if wrong > 0 {
		text += "  " + t.paint(red, fmt.Sprintf("%d wrong", wrong))
	}
	if m.filter != "" {
		text += "  " + t.paint(yellow, "only "+line.Visible(m.filter))
	}
	return text + "  " + t.paint(dim, line.Visible(where))
}

// footer returns what is asked, done or wrong, else the keys.
func (m *topModel) footer(t *terminal) string {
	switch {
	case m.prompt != nil && m.prompt.yes != nil:
		return t.paint(invert, m.prompt.text)
	case m.prompt != nil:
		text := m.prompt.text + line.Visible(m.prompt.typed)
		if over := ansi.StringWidth(text) + 1 - t.width; over > 0 {
			text = ansi.TruncateLeft(text, over, "")
		}
		return text + t.paint(invert, " ")
	case m.acting != "":
		return t.paint(yellow, m.acting)
	case m.note != "":
		return t.paint(yellow, line.Visible(m.note))
	case m.shown.err != nil:
		return t.paint(red, line.Visible(m.shown.err.Error()))
	case m.log.err != nil:
		return t.paint(red, line.Visible(m.log.err.Error()))
	}
	if m.helping {
		return t.paint(dim, "any key: back")
	}
	return t.paint(dim, "? help  / search  e error  s stop  r restart  q quit")
}

// table prints as many rows as fit into a third of the screen, the selected one among them, and
// returns the number of lines.
func (m *topModel) table(t *terminal, rows []*project.Run, room int) int {
	n, at := min(len(rows), max(1, room/3)), m.place()
	m.first = max(0, min(m.first, at, len(rows)-n), at-n+1)
	var cells [][]cell
	restarts := "" // a column only where there are any
	for i, run := range rows[m.first : m.first+n] {
		cells = append(cells, m.row(run, m.first+i == at))
		if run.Restarts > 0 {
			restarts = "RESTARTS"
		}
	}
	_ = t.table([]column{
		{title: ""}, {title: "NAME"}, {title: "STATE"}, {title: "PORTS", rank: 1}, {title: "CPU", rank: 3, right: true}, {title: "", rank: 8}, // histories have no title
		{title: "MEMORY", rank: 4, right: true}, {title: "", rank: 9}, {title: "TIME", rank: 5, right: true}, {title: restarts, rank: 6, right: true}, {title: "ERRORS", rank: 2, right: true}, {title: "LATEST ERROR OR COMMAND", rank: 7},
	}, cells)
	return n + 1
}

// name returns what a process is called, safe to print.
func (m *topModel) name(run *project.Run) string {
	return m.r.name(m.ctx, run.Project, run.Spec.Name)
}

// row returns the row of a run.
func (m *topModel) row(run *project.Run, selected bool) []cell {
	cells := m.s.cells(run, m.name(run), m.shown.at)
	mark := " "
	if selected {
		mark = "▶"
	}
	if m.width < urlsFrom {
		cells[4].text = prose.Ints(run.Ports)
	}
	var cpu, memory []float64
	for _, u := range m.history[run.RunID] {
		if m.width < sparkFrom {
			break
		}
		cpu, memory = append(cpu, u.CPUPercent), append(memory, float64(u.MemoryBytes))
	}
	var restarts, kinds cell
	if run.Restarts > 0 {
		restarts = cell{strconv.Itoa(run.Restarts), yellow}
	}
	if recent := m.shown.faults[identityOf(run)]; recent.kinds > 0 {
		kinds, cells[8] = cell{strconv.Itoa(recent.kinds), red}, cell{line.Visible(recent.latest.Title()), red}
	}
	return []cell{
		{mark, bold}, cells[0], cells[1], cells[4], cells[5], {spark(cpu, 100), cyan}, cells[6], {spark(memory, 0), cyan}, cells[7], restarts, kinds, cells[8],
	}
}

// details prints the facts of the selected process, also those for which the table has no room, in
// up to three lines, and returns their number.
func (m *topModel) details(t *terminal, run *project.Run, room int) int {
	if room < 3 {
		return 0
	}
	cells := m.s.cells(run, m.name(run), m.shown.at)
	facts := []string{cells[1].text, prose.Cut(run.Condition(), maxCondition), listens(run)}
	if run.Condition() != "" && strings.Contains(cells[1].text, run.Condition()) {
		facts[1] = ""
	}
	add := func(text, format string) {
		if text != "" {
			facts = append(facts, fmt.Sprintf(format, text))
		}
	}
	add(cells[5].text, "%s of a core")
	add(cells[6].text, "%s")
	add(cells[7].text, map[bool]string{true: "for %s", false: "%s ago"}[run.EndedAt.IsZero()])
	add(cells[2].text, "run %s")
	add(cells[3].text, "pid %s")
	if run.Restarts > 0 {
		add(strconv.Itoa(run.Restarts), "restarts %s")
	}
	if run.Owner != nil && !run.IsKept() {
		add(run.Owner.Client, "of %s")
	}
	add(cells[8].text, "%s")
	_ = t.println(t.rule(m.name(run)))
	wrapped := strings.Split(ansi.Wrap(line.Visible(prose.Join(" · ", facts...)), t.width, ""), "\n")
	n := min(len(wrapped), max(1, min(3, room/4)))
	for i, l := range wrapped[:n] {
		if i == n-1 && len(wrapped) > n {
			l += "…"
		}
		m.print(t, t.paint(cells[1].c, l))
	}
	return n + 1
}

// pane prints the errors of the selected process and its log, or with Tab the errors alone, and
// returns the number of lines.
func (m *topModel) pane(t *terminal, run *project.Run, room int) (n int) {
	faults, strip := m.log.faults, min(topStrip, max(0, (room-1)/3))
	if m.errors {
		strip = room - 1
	}
	if shown := min(len(faults), strip); shown > 0 || m.errors {
		title := fmt.Sprintf("errors of this run: %d", len(faults))
		if recent := m.shown.faults[identityOf(run)]; recent.kinds > 0 {
			title += fmt.Sprintf(", in the last 10 min: %d", recent.kinds)
		}
		_ = t.println(t.rule(title))
		for i := range faults[:max(0, shown)] {
			m.print(t, m.fault(t, &faults[i]))
		}
		n += 1 + max(0, shown)
	}
	if m.errors || n >= room {
		return n
	}
	title := "log, its end"
	if m.log.anchor != "" {
		title = "log, End follows it"
		if len(m.log.lines) > 0 {
			title = "log from " + m.log.lines[0].At.Local().Format(time.DateTime) + ", End follows it"
		}
	}
	if m.found != "" {
		title += ", n N: " + line.Visible(m.found)
	}
	_ = t.println(t.rule(title))
	n++
	lines := m.logLines(t, room-n)
	for _, l := range lines {
		_ = t.println(l)
	}
	return n + len(lines)
}

// fault returns the line of a kind of error.
func (m *topModel) fault(t *terminal, f *logstore.Fault) string {
	text := args.FormatAge(max(0, m.shown.at.Sub(f.LastSeen))) + " ago"
	if f.Count > 1 {
		text += fmt.Sprintf(", %d times", f.Count)
	}
	if f.File != "" {
		text += ", " + f.File
		if f.Line > 0 {
			text += ":" + strconv.Itoa(f.Line)
		}
	}
	return t.paint(red, cut(line.Visible(f.Title()), max(t.width-ansi.StringWidth(text)-3, t.width/2))) + t.paint(dim, " ("+line.Visible(text)+")")
}

// logLines returns the lines of the log that fit into room, each as one line of the screen or, with
// wrap, as several. It notes how many lines that are.
func (m *topModel) logLines(t *terminal, room int) []string {
	var found *regexp.Regexp
	if text := m.highlighted(); text != "" {
		found = regexp.MustCompile("(?i)" + regexp.QuoteMeta(line.Visible(text)))
	}
	var blocks [][]string
	last, today := int64(0), m.shown.at.Format(time.DateOnly)
	for i := range m.log.lines {
		l := &m.log.lines[i]
		var block []string
		if last != 0 && l.Run != last {
			block = []string{t.paint(dim, cut(fmt.Sprintf("─── run %d", m.log.runs[l.Run].Number), t.width))}
		}
		last = l.Run
		blocks = append(blocks, append(block, m.logLine(t, l, today, found)...))
	}
	var shown []string
	m.fits = 0
	for i := range blocks {
		block := blocks[i]
		if m.log.anchor == "" {
			block = blocks[len(blocks)-1-i]
		}
		if over := len(shown) + len(block) - room; over > 0 { // a part of a line
			if m.log.anchor == "" {
				return append(block[over:len(block):len(block)], shown...)
			}
			return append(shown, block[:len(block)-over]...)
		}
		m.fits++
		if m.log.anchor == "" {
			shown = append(block[:len(block):len(block)], shown...)
		} else {
			shown = append(shown, block...)
		}
	}
	if m.fits == len(blocks) { // there is room for more
		m.fits = room
	}
	return shown
}

// highlighted returns the text that is searched, or is being typed.
func (m *topModel) highlighted() string {
	if m.prompt != nil && m.prompt.text == "/" {
		return m.prompt.typed
	}
	return m.found
}

// logLine returns one line of the log as lines of the screen.
func (m *topModel) logLine(t *terminal, l *logstore.Line, today string, found *regexp.Regexp) []string {
	at := l.At.Local()
	layout := time.TimeOnly
	if at.Format(time.DateOnly) != today {
		layout = time.DateTime
	}
	c, mark := levelColour(l.Level), " "
	if (lineRef{l.Run, l.Number}) == m.log.hit {
		mark = "▶"
	}
	text := strings.ReplaceAll(line.Visible(l.Text), "\t", "    ")
	room := max(1, t.width-len(layout)-1)
	parts := []string{cut(text, room)}
	if m.wrap {
		parts = strings.Split(ansi.Hardwrap(text, room, true), "\n")
	}
	for i, part := range parts {
		if found != nil {
			part = found.ReplaceAllStringFunc(part, func(s string) string { return "\x1b[7m" + s + "\x1b[27m" })
		}
		head := t.paint(dim, at.Format(layout)) + t.paint(bold, mark)
		if i > 0 {
			head = strings.Repeat(" ", len(layout)+1)
		}
		parts[i] = cut(head+t.paint(c, part), t.width)
	}
	return parts
}

// spark draws the latest values as a line of blocks; the highest value, or most if that
// is higher, is a full block.
func spark(values []float64, most float64) string {
	const blocks = "▁▂▃▄▅▆▇█"
	values = values[max(0, len(values)-sparkWidth):]
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		i := 0
		if most > 0 {
			i = min(7, int(v/most*8))
		}
		b.WriteString(string([]rune(blocks)[i]))
	}
	return b.String()
}
