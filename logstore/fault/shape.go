package fault

import "strings"

// line is a line as the shapes see it.
type line struct {
	number int64
	stream uint8
	level  uint8
	// hit tells that the line holds a keyword or is of error level: only such lines start a shape.
	hit bool
	// lane is the prefix that was cut off ("web-1  | "); "" for none.
	lane string
	// text is the line without its lane and without trailing blanks.
	text string
}

// The levels that the shapes ask for.
const (
	levelTrace = 1
	levelDebug = 2
	levelInfo  = 3
	levelWarn  = 4
	levelError = 5
)

// trim is the text without its indentation.
func (l line) trim() string { return strings.TrimLeft(l.text, " \t") }

// indent counts the blanks before the text; a TAB counts as one.
func (l line) indent() int { return len(l.text) - len(l.trim()) }

// stated tells that the line names a level below error of itself: no part of a stack does that.
func (l line) stated() bool {
	return l.level >= levelTrace && l.level <= levelWarn && l.indent() == 0 && !strings.HasPrefix(l.text, "Stack trace")
}

// verdict is what a shape says of a line that it is offered.
type verdict uint8

const (
	foreign verdict = iota // not mine; I stay open
	mine                   // belongs to me
	last                   // belongs to me, and I am complete
	ended                  // not mine, and I am complete
	maybe                  // mine if a later line confirms it; I keep a copy
)

// shape is an error of which more lines may come. A shape is offered the lines of its lane until it
// says that it is complete, until too many foreign ones came in a row, or until silence or the end
// of the run closes it.
type shape interface {
	next(l line) verdict
	// drafts gives what was seen; it is called once, when the shape is closed.
	drafts() []*draft
	// patience is the number of foreign lines in a row that the shape stays open for.
	patience() int
}

// without removes a line from those held.
func without(held []line, l line) []line {
	if n := len(held); n > 0 && held[n-1].number == l.number {
		return held[:n-1]
	}
	return held
}

// yielder is a shape that may turn out to be the announcement of a trace that follows it.
type yielder interface {
	// yield tells whether the shape gives itself up to the trace that starts now, after adding to it what it knows.
	yield(to *draft) bool
}

// absorber is a shape that takes over what announced it.
type absorber interface {
	absorbInto() *draft
}

// waiter is a shape that cannot be complete before a certain line has come.
type waiter interface {
	waits() bool
}

// holder is a shape that answered maybe.
type holder interface {
	// unclaimed gives, at the close, the lines that no later line confirmed.
	unclaimed() []line
	// release says that a line which was held belongs to another shape.
	release(l line)
}

// one is what the shapes of a single fault have in common.
type one struct{ draft }

func (o *one) drafts() []*draft { return []*draft{&o.draft} }
func (o *one) patience() int    { return 8 }

// draft is a fault that is being put together.
type draft struct {
	f Fault
	// function is where it happened, for the fingerprint.
	function string
	// fallback is the category if neither type nor message says a better one.
	fallback string
	// category is the category, if the shape knows it.
	category string
	// hint is more text to classify by: a code, a cause.
	hint string
	// test names the failed test, which stands in front of the message.
	test string
	// fatal tells that the program ends by it, or fails by it: it explains a bad exit.
	fatal bool

	lane string
	// opening is the first line, which is the message if no other comes.
	opening    string
	head, tail []string
	dropped    int
}

// start makes l the first line of the draft.
func (d *draft) start(l line) {
	d.f.FirstLine, d.f.LastLine, d.f.Stream = l.number, l.number, l.stream
	d.lane = l.lane
	d.opening = cut(l.trim(), MaxStackLine)
}

// begin moves the first line back to an earlier one.
func (d *draft) begin(number int64) {
	if number > 0 && number < d.f.FirstLine {
		d.f.FirstLine = number
	}
}

// reach says that l belongs to the draft, but not to its stack.
func (d *draft) reach(l line) { d.f.LastLine = max(d.f.LastLine, l.number) }

// add appends l to the stack.
func (d *draft) add(l line) {
	d.reach(l)
	d.push(l.text)
}

func (d *draft) push(text string) {
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

// say appends a line to the message.
func (d *draft) say(text string) {
	if len(d.f.Message) >= MaxMessage {
		return
	}
	if d.f.Message != "" {
		text = "\n" + text
	}
	d.f.Message = cut(d.f.Message+text, MaxMessage)
}

// at sets the place, if none is set.
func (d *draft) at(p place) {
	if d.f.File == "" && p.file != "" {
		d.f.File, d.f.Line, d.f.Column = p.file, p.line, p.column
	}
}

// done gives the fault.
func (d *draft) done() Fault {
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
		f.Stack = append(f.Stack, omitted(d.dropped))
	}
	f.Stack = append(f.Stack, d.tail...)
	f.Fingerprint = fingerprint(&f, d.function)
	return f
}
