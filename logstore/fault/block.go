package fault

import (
	"cmp"
	"strconv"
	"strings"
)

// line is a line in the form in which rows examine it.
type line struct {
	number int64
	stream uint8
	level  uint8
	// words are the keywords in the line, or anyWord. A line without any starts no report.
	words wordSet
	// lane is the prefix that was cut off ("web-1  | "), or "".
	lane string
	// text is the line without its lane and without trailing blanks.
	text string
}

// The levels that rows distinguish.
const (
	levelTrace = 1
	levelDebug = 2
	levelInfo  = 3
	levelWarn  = 4
	levelError = 5
	levelFatal = 6
)

func (l line) trim() string { return l.text[l.indent():] }

// indent returns the number of blanks before the text; a TAB counts as one.
func (l line) indent() (n int) {
	for n < len(l.text) && (l.text[n] == ' ' || l.text[n] == '\t') {
		n++
	}
	return n
}

// belowError reports whether the line states a level below error. For lines of a stack it is false.
func (l line) belowError() bool {
	return l.level >= levelTrace && l.level <= levelWarn && l.indent() == 0 && !strings.HasPrefix(l.text, "Stack trace")
}

// verdict is the result of offering a line to a row or to a block.
type verdict uint8

const (
	foreign     verdict = iota // the line does not belong to the report; an open report stays open
	ended                      // the line does not belong to the report, which is complete
	ignored                    // the line is not an error and starts no report
	taken                      // the line belongs to the report
	takenLast                  // the line belongs to the report, which is now complete
	shown                      // as taken, and the fault's stack shows the line
	shownLast                  // as takenLast, and the fault's stack shows the line
	provisional                // the line belongs to the report if a later line confirms it; the block holds a copy
)

// A block is a report of which more lines may follow. It is offered the lines of its lane until a
// verdict completes it, until it has seen too many foreign lines in a row, or until silence or the
// end of the run closes it.
type block struct {
	draft
	row *row
	// next, if set, reads the next line in place of the row's next.
	next func(b *block, l line, t string) verdict
	// texts are the texts for which each % of the row's pattern stands.
	texts [3]string
	// parts are the faults of a report that describes several errors.
	parts []*block
	// void is set if the block itself is not a fault, but its parts are.
	void bool
	held []line // the provisional lines

	above lookback
	notes *notes

	// lines is the number of lines that were offered, blank the number of consecutive blank lines
	// before the current line, indent the indentation of the first line.
	lines, blank, indent int
	// titled is set once the message has been read. frames counts the frames. name is the name that
	// an earlier line gave to what follows, such as the function of the next position. step is the
	// state of a row that reads its report in steps; each row defines its steps.
	titled bool
	frames int
	name   string
	step   int
	stack  stack // the state of rows that read the frames below an error
}

// offer reads l if l belongs to the block. The result is never shown or shownLast.
func (b *block) offer(l line) verdict {
	t := l.trim()
	if l.number < b.f.FirstLine {
		return foreign // another block held the line before the report started
	}
	if b.lines++; b.row.maxLines > 0 && b.lines > b.row.maxLines || b.row.endsBelowError && l.belowError() {
		return ended
	}
	if t == "" && b.row.maxBlank > 0 {
		if b.blank++; b.blank > b.row.maxBlank {
			return ended
		}
		return taken
	}
	next := b.next
	if next == nil {
		next = b.row.next
	}
	v := next(b, l, t)
	if v != ended {
		b.blank = 0
	}
	switch v {
	case provisional:
		b.held = append(b.held, l)
	case taken, takenLast:
		if t != "" {
			b.extendTo(l)
		}
	case shown:
		b.add(l)
		return taken
	case shownLast:
		b.add(l)
		return takenLast
	}
	return v
}

func (b *block) claimHeld() {
	for _, l := range b.held {
		b.appendMessage(l.trim())
		b.add(l)
	}
	b.held = nil
}

// addFrame reports whether l is a frame, and offers the frame to the site.
func (b *block) addFrame(l line) bool {
	p, function, ok := b.frame(l)
	if ok {
		b.site.offer(p, function)
	}
	return ok
}

func (b *block) begin(l line) {
	b.start(l)
	b.indent = l.indent()
}

// become makes the block a report of a row.
func (b *block) become(r *row) {
	b.row = r
	b.f.Type, b.fallback, b.category = cmp.Or(b.f.Type, r.kind), cmp.Or(b.fallback, r.fallback), cmp.Or(b.category, r.category)
	b.fatal = b.fatal || r.fatal
}

// part returns a part of the report that starts at l.
func (b *block) part(r *row, l line) *block {
	p := &block{notes: b.notes}
	p.begin(l)
	p.become(r)
	return p
}

// drafts finishes the report and returns its faults.
func (b *block) drafts() []*draft {
	if b.row.finish != nil {
		b.row.finish(b)
	}
	var list []*draft
	for _, p := range b.parts {
		list = append(list, p.drafts()...)
	}
	if b.void {
		return list
	}
	if b.row.suite && b.f.Type == "" {
		b.f.Type = "FAIL"
	}
	return append(list, &b.draft)
}

func (b *block) setTitle(t string) {
	b.titled = true
	b.setMessage(t)
}

// draft is a fault under construction.
type draft struct {
	f Fault
	// site is the frame where the error happened, if the report has frames.
	site site
	// function is the function where the error happened; it is part of the fingerprint.
	function string
	// fallback is the category that applies if neither the type nor the message indicates another.
	fallback string
	// category is the category if the row itself determines it, else "".
	category string
	// hint is further text that helps to classify the fault, such as a code or a cause.
	hint string
	// test is the name of the failed test. It is put before the message.
	test string
	// fatal is set if the error ends the program or makes it fail. Such an error explains a bad
	// exit.
	fatal bool

	// from is the lane of the first line.
	from string
	// opening is the first line, which becomes the message if there is no other message.
	opening    string
	head, tail []string
	dropped    int
}

func (d *draft) start(l line) {
	d.f.FirstLine, d.f.LastLine, d.f.Stream = l.number, l.number, l.stream
	d.from = l.lane
	d.opening = cut(l.trim(), MaxStackLine)
}

func (d *draft) moveStart(number int64) {
	if number > 0 && number < d.f.FirstLine {
		d.f.FirstLine = number
	}
}

func (d *draft) extendTo(l line) { d.f.LastLine = max(d.f.LastLine, l.number) }

func (d *draft) add(l line) {
	d.extendTo(l)
	d.pushStack(l.text)
}

func (d *draft) pushStack(text string) {
	const half = MaxStack / 2
	if strings.TrimSpace(text) == "" {
		return
	}
	text = cut(text, MaxStackLine)
	if len(d.head) < half {
		d.head = append(d.head, text)
		return
	}
	if len(d.tail) == half-1 {
		copy(d.tail, d.tail[1:])
		d.tail = d.tail[:half-2]
		d.dropped++
	}
	d.tail = append(d.tail, text)
}

// appendMessage appends a line to the message.
func (d *draft) appendMessage(text string) {
	if len(d.f.Message) >= MaxMessage {
		return
	}
	if d.f.Message != "" {
		text = "\n" + text
	}
	d.f.Message = cut(d.f.Message+text, MaxMessage)
}

// setMessage appends a line to the message. If the line names the type of an error, setMessage sets
// the type and appends only the rest.
func (d *draft) setMessage(t string) {
	if kind, message, at, ok := parseErrorHeader(t); ok && at == 0 {
		d.f.Type, t = kind, message
	}
	d.appendMessage(t)
}

// setPositionIn sets the position to the one at the start of s, if none is set yet.
func (d *draft) setPositionIn(s string) {
	p, _, _ := parsePosition(s)
	d.setPosition(p)
}

// setPosition sets the position, if none is set yet.
func (d *draft) setPosition(p position) {
	if d.f.File == "" && p.file != "" {
		d.f.File, d.f.Line, d.f.Column = p.file, p.line, p.column
	}
}

// fault returns the finished fault.
func (d *draft) fault() Fault {
	d.site.applyTo(d)
	f := d.f
	f.Message = strings.TrimSpace(f.Message)
	f.Category = d.category
	if f.Category == "" {
		f.Category = classify(f.Type, f.Message, d.hint, d.test != "", d.fallback)
	}
	if d.test != "" && !strings.HasPrefix(f.Message, d.test+": ") {
		f.Message = strings.TrimSuffix(d.test+": "+f.Message, ": ")
	}
	if f.Message == "" {
		f.Message = f.Type
	}
	if f.Message == "" {
		f.Message = d.opening
	}
	f.Type, f.File, f.Message = cut(f.Type, maxField), cut(f.File, maxField), cut(f.Message, MaxMessage)
	f.Stack = d.head
	if d.dropped > 0 {
		f.Stack = append(f.Stack, "... "+strconv.Itoa(d.dropped)+" lines left out ...")
	}
	f.Stack = append(f.Stack, d.tail...)
	f.Fingerprint = fingerprint(&f, d.function)
	return f
}
