package fault

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"sync"
)

// A row recognises the reports of one tool or language. To recognise another tool's reports, write
// a row in the file of its kind of tool, and enter it in certainRows or uncertainRows.
type row struct {
	// opens lists the patterns of a report's first line, in which % stands for any text; nil means
	// that start examines each line. indented is set if the first line may be indented.
	opens    []string
	indented bool
	// fields says what each % of opens is if start is nil: t the type, m the message, f the file, l the
	// line in it, and - none of them. "*" makes the whole line the message.
	fields string
	// follows is set if the report only follows from errors that were reported before it, if there are any.
	follows bool
	// words lists the keywords of which the first line has one, unless it is at error level; nil
	// means that any will do, and noWord that none will. The rowTable derives words from opens, if
	// each pattern has a keyword.
	words []string
	// first lists the bytes with which the text of the first line can begin, below its indentation;
	// "" means any. The rowTable derives it from opens, and with which bytes the line can end.
	first string
	// start examines a line that may be the first line of a report. It returns foreign, and leaves
	// b as it is, if the line is not such a line. Otherwise it stores in b what the line states.
	start func(b *block, l line) verdict
	// next reads a line below the first line; t is the line without indentation. If start and next are nil,
	// the report is one line.
	next func(b *block, l line, t string) verdict
	// finish, if set, completes the fault when the report is closed.
	finish func(b *block)
	// waits, if set, reports whether the report still lacks a line, so that silence does not
	// complete it.
	waits func(b *block) bool
	// yield, if set, reports whether the report b only announced the report to, which starts now.
	// If so, yield first adds b's data to that report.
	yield func(b *block, to *draft) bool

	// kind is the fault's type, fallback and category its categories, and fatal its fatal flag,
	// unless start sets others.
	kind, fallback, category string
	fatal                    bool
	// suite is set if the report is a failed test of a test runner.
	suite bool
	// announcement is what becomes of an open block that announced the report.
	announcement announcement
	// adopts is set if frames without a prefix may follow a first line with a prefix in brackets.
	adopts bool
	// endsBelowError is set if a line that states a level below error ends the report.
	endsBelowError bool
	// maxLines is the maximum number of lines below the first line, maxBlank that of consecutive
	// blank lines among them, and maxForeign that of consecutive foreign lines; 0 means that the
	// report has no limit on lines, that next reads the blank lines, and defaultMaxForeign.
	maxLines, maxBlank, maxForeign int
}

const defaultMaxForeign = 8

// begin starts a report if l is the first line of one. Otherwise it returns foreign.
func (r *row) begin(b *block, l line) verdict {
	if r.opens == nil {
		return r.start(b, l)
	}
	t := l.text
	if r.indented {
		t = l.trim()
	}
	for _, pattern := range r.opens {
		texts, ok := match(t, pattern)
		if !ok {
			continue
		}
		b.texts = texts
		switch {
		case r.follows && b.isExplained(l):
			return ignored
		case r.start != nil:
			return r.start(b, l)
		}
		if r.fields == "*" {
			b.appendMessage(l.trim())
		} else {
			b.fill(cmp.Or(r.fields, "m"))
		}
		if r.next == nil {
			return takenLast
		}
		return taken
	}
	return foreign
}

// isExplained reports whether an error that ends a program is open in l's lane, or was reported in it shortly before l.
func (b *block) isExplained(l line) bool {
	return b.notes.isFatalOpen || b.notes.emitted.fatalSince(l, l.number-explainLines)
}

// fill stores the texts of the pattern in the fields that they are.
func (b *block) fill(fields string) {
	var p position
	for i, field := range fields {
		switch text := b.texts[i]; field {
		case 't':
			b.f.Type = text
		case 'm':
			b.appendMessage(strings.TrimSpace(text))
		case 'f':
			p.file = text
		case 'l':
			p.line, _, _ = parseNumber(text)
		}
	}
	b.setPosition(p)
}

// announcement is what becomes of an open block whose row yields to a new report.
type announcement uint8

const (
	stays    announcement = iota // the block is a fault of its own
	replaces                     // the new report takes the place of the block
	joins                        // the block's lines and text become part of the new report
)

// noWord is the words of a row that examines lines at error level only.
var noWord = []string{}

// A rowTable lists rows in the order in which they are tried, in pages.
type rowTable []*rowPage

// pageRows is the number of rows of a rowPage, one for each bit of a set.
const pageRows = 64

// A rowPage lists consecutive rows. Bit i of its sets is all[i].
type rowPage struct {
	all []*row
	// certain are the rows that do not mistake other lines for errors. byFirst and byLast are the
	// rows whose first line can begin and end with a byte; 0 stands for an empty line. byWord are
	// the rows whose first line can have a keyword.
	certain         uint64
	byFirst, byLast [256]uint64
	byWord          [64]uint64
	// literals holds, for each row with patterns, the longest text without % of each pattern; the
	// first line contains one of them.
	literals [][]string
}

// newRowTable returns a table of the certain rows, which are tried first, and the others.
func newRowTable(certain, others []*row) (t rowTable) {
	left := len(certain)
	for rows := range slices.Chunk(slices.Concat(certain, others), pageRows) {
		t = append(t, newRowPage(rows, min(max(left, 0), pageRows)))
		left -= len(rows)
	}
	return t
}

// newRowPage returns a page of rows, of which the first are certain.
func newRowPage(rows []*row, certain int) *rowPage {
	t := &rowPage{all: rows, certain: 1<<certain - 1}
	for i, r := range t.all {
		t.literals = append(t.literals, r.literals())
		words := r.keywords()
		for bit := range t.byWord {
			if words>>bit&1 != 0 {
				t.byWord[bit] |= 1 << i
			}
		}
		first, last := r.ends()
		for b := range 256 {
			if first == "" || strings.IndexByte(first, byte(b)) >= 0 {
				t.byFirst[b] |= 1 << i
			}
			if last == "" || strings.IndexByte(last, byte(b)) >= 0 {
				t.byLast[b] |= 1 << i
			}
		}
	}
	return t
}

// ends returns the bytes with which the first line can begin and end; "" means any.
func (r *row) ends() (first, last string) {
	if r.opens == nil {
		return r.first, ""
	}
	for _, pattern := range r.opens {
		begin := strings.TrimLeft(pattern, " \t")
		first, last = first+begin[:1], last+pattern[len(pattern)-1:]
	}
	if strings.Contains(first, "%") {
		first = ""
	}
	if strings.Contains(last, "%") {
		last = ""
	}
	return first, last
}

// literals returns the longest text without % of each pattern of the row.
func (r *row) literals() (all []string) {
	for _, pattern := range r.opens {
		longest := ""
		for text := range strings.SplitSeq(pattern, "%") {
			if len(text) > len(longest) {
				longest = text
			}
		}
		all = append(all, longest)
	}
	return all
}

// keywords returns the keywords of which the first line has one.
func (r *row) keywords() (set wordSet) {
	if r.words != nil {
		return keywords.set(r.words)
	}
	for _, text := range r.literals() {
		found := keywords.find([]byte(text))
		if found == 0 {
			return anyWord
		}
		set |= found & -found // one of them is enough
	}
	if set == 0 {
		return anyWord
	}
	return set
}

func (t *rowPage) mayStart(row int, l line) bool {
	return t.literals[row] == nil || containsAny(l.text, t.literals[row]...)
}

// rowsFor returns the set of rows whose first line can have these words and end with the byte last.
func (t *rowPage) rowsFor(words wordSet, last byte) (rows uint64) {
	if words == anyWord {
		return t.byLast[last]
	}
	for ; words != 0; words &= words - 1 {
		rows |= t.byWord[bits.TrailingZeros64(uint64(words))]
	}
	return rows & t.byLast[last]
}

// mayStart reports whether there is a row whose first line can have these words and end with the byte last.
func (t rowTable) mayStart(words wordSet, last byte) bool {
	for _, page := range t {
		if page.rowsFor(words, last) != 0 {
			return true
		}
	}
	return false
}

func firstByte(text string) byte {
	if text == "" {
		return 0
	}
	return text[0]
}

func lastByte[T string | []byte](text T) byte {
	if len(text) == 0 {
		return 0
	}
	return text[len(text)-1]
}

// certainRows are the rows that do not mistake other lines for errors. uncertainRows are tried after
// them.
var (
	certainRows = slices.Concat([]*row{
		&nodeEnd, &rolldown, &turbopack, &goTestOutput, &phpunit, &noise, &jsonObject, &python, &pythonGroup, &goPanic, &ginPanic, &chiPanic, &goTest, &rustPanic, &rustTest, &rustc,
		&sanitizer, &pytest, &doctest, &jest, &vitest, &mocha, &rspec, &gradle, &tap, &eslint,
		&esbuild, &viteBuild, &viteProxy, &viteBrowser, &viteServer, &webpack, &nextBuild, &nextServer, &npm, &makeError, &tcl, &ruby,
		&php, &diagnostic, &linker, &importCycle, &cAssertion, &cxxException, &v8Fatal, &killed, &unittest,
	}, toolRows)
	uncertainRows = []*row{&errorTrace, &pythonBare, &rails, &perl, &shell, &logfmt, &dotnetLog, &plain}
	allRows       = sync.OnceValue(func() rowTable { return newRowTable(certainRows, uncertainRows) })
)

func (t rowTable) newRecogniser(emit func(Fault)) *Recogniser {
	r := &Recogniser{emit: emit, notes: notes{rows: t}}
	r.spare = &block{notes: &r.notes}
	return r
}

// notes is the state that the rows of a run keep between lines while no block is open. Its size
// is bounded.
type notes struct {
	// rows are the rows that the run tries.
	rows rowTable
	// emitted records the emitted faults that may explain later lines.
	emitted emittedFaults
	// isFatalOpen is set if a report of an error that ends a program is open, which may explain the line.
	isFatalOpen bool
	// lint is the file to which the next diagnostics belong, lintLine the line number of the latest
	// diagnostic.
	lint     string
	lintLine int64
	// test is the name of the test whose output follows under go test -v or cargo test. logs holds
	// the lines that tests logged.
	test string
	logs testLogs
	// suiteFailures counts the failures that test runners reported. A runner's summary repeats its
	// failures.
	suiteFailures int
	// repeating is set while a test runner repeats failures that it has printed before.
	repeating bool
	// inline is set if Node's test runner, since its last summary, printed an error below the
	// failed test. hasPositions is set if the current summary states the positions of the tests.
	inline, hasPositions bool
	// inMochaList is set after mocha started its list of failures.
	inMochaList bool
	// inPHPUnitList is set while PHPUnit lists its failures.
	inPHPUnitList bool
	// watch is the number of following lines to examine even without a keyword.
	watch int
}

// readSummary detects where a test runner starts to repeat its failures, and where jest's
// repetition ends. Since 2025 Node prints an error only in the summary; older versions print it
// below its test as well.
func (n *notes) readSummary(t string) {
	switch {
	case strings.HasPrefix(t, "Summary of all failing tests"):
		n.repeating = true
	case strings.HasPrefix(t, "Test Suites:"):
		n.repeating = false
	case t == "\u2716 failing tests:":
		n.repeating, n.inline, n.hasPositions = n.inline, false, false
	}
}

// isRepeated reports whether an error with this indentation repeats an error printed before. If the
// summary states positions, an error below a test that has no position above it belongs to the next
// round of tests.
func (n *notes) isRepeated(indent int, b *lookback) bool {
	if indent == 0 {
		return false
	}
	above, _ := b.line(0)
	if strings.HasPrefix(above.trim(), "\u2716 ") && above.indent()+2 == indent {
		before, _ := b.line(1)
		switch {
		case strings.HasPrefix(before.text, "test at "):
			n.hasPositions = true
		case !n.repeating || n.hasPositions:
			n.repeating, n.inline = false, true
		}
	}
	return n.repeating
}

// keywords lists words of at least keywordBlock bytes each, which are matched without case. Only a
// line that contains one of these words or is at error level can start a report. The words that a
// line contains choose the rows that examine it: see row.words.
var keywords = newMatcher(
	"error", "excep", "traceback", "panic", "fatal", "fail", "abort", "assert", "terminate called", "undefined reference", "multiple definition", "node.js v", "import cycle not", "go.mod:",
	"killed", "segmentation", "bus error", "core dumped", "denied", "no such file", "not found", "no rule to make", "unhandled", "uncaught",
	"sanitizer", "data race", "while executing", "not ok ", ".go:", " line ", ":in `", ":in '", "=== run", "=== cont", "=== name", "____",
	"\u25cf ", "e: file:", "out of memory", "smashing detected", "stdout ----", "stderr ----", "\u2a2f ./", "curl: (", "getaddrinfo e",
	"** (", "what went wrong", "err_pnpm", "no solution", "npm err!", ".py:", ".exs:", "--> ", "\u2501\u2501",
)

const (
	// keywordBlock is the length of the shortest keyword.
	keywordBlock = 4
	// scanBytes is the number of bytes of a line that are scanned for keywords.
	scanBytes = 2048
	// gramBits sets the size of the gram table: 8 KiB, which leaves room for other data in a
	// processor's L1 cache.
	gramBits = 13
)

// matcher finds the words, at most 64, that a text contains, ignoring case. It looks up the three
// bytes (the gram) at every second offset: the first or the second gram of a word of at least four
// bytes is at such an offset, wherever the word starts. The look-ups are independent of each other
// and few of them succeed, so a text without a word is scanned at a few bytes a nanosecond.
type matcher struct {
	// grams maps a gram to the index of the list of words that contain the gram; list 0 is empty.
	// The uint8 index limits the number of words to 127.
	grams [1 << gramBits]uint8
	lists [][]gramWord
	words []string
}

// gramWord is a word, its bit in a wordSet, and the offset in it of one of its grams: 0 or 1.
type gramWord struct {
	word   string
	bit    wordSet
	offset int
}

// A wordSet is a set of a matcher's words: bit i is words[i].
type wordSet uint64

// anyWord is the set of a line at error level, which each row may examine.
const anyWord = ^wordSet(0)

func newMatcher(words ...string) *matcher {
	m := &matcher{lists: make([][]gramWord, 1), words: words}
	for i, w := range words {
		for at := range 2 {
			h := gramIndex(uint64(w[at]) | uint64(w[at+1])<<8 | uint64(w[at+2])<<16)
			if m.grams[h] == 0 {
				m.grams[h] = uint8(len(m.lists))
				m.lists = append(m.lists, nil)
			}
			m.lists[m.grams[h]] = append(m.lists[m.grams[h]], gramWord{w, 1 << i, at})
		}
	}
	return m
}

// gramIndex returns the table index of the first three bytes of b, ignoring case.
func gramIndex(b uint64) uint32 {
	const multiplier = 2654435761 // 2^32 over the golden ratio: spreads grams that differ in few bits
	return uint32(b&0xffffff|0x202020) * multiplier >> (32 - gramBits)
}

// find returns the words in the first scanBytes bytes of text.
func (m *matcher) find(text []byte) (found wordSet) {
	text = text[:min(len(text), scanBytes)]
	if len(text) < keywordBlock {
		return 0
	}
	i := 0
	for ; i+8 <= len(text); i += 6 {
		b := binary.LittleEndian.Uint64(text[i:])
		x, y, z := m.grams[gramIndex(b)], m.grams[gramIndex(b>>16)], m.grams[gramIndex(b>>32)]
		if x|y|z != 0 {
			found |= m.findAt(text, i, x) | m.findAt(text, i+2, y) | m.findAt(text, i+4, z)
		}
	}
	for ; i+3 <= len(text); i++ { // every offset: a word of four bytes at the end may have no second gram left to look up
		b := uint64(text[i]) | uint64(text[i+1])<<8 | uint64(text[i+2])<<16
		found |= m.findAt(text, i, m.grams[gramIndex(b)])
	}
	return found
}

// findAt returns the words of the list that text contains with their gram at text[i].
func (m *matcher) findAt(text []byte, i int, list uint8) (found wordSet) {
	for _, w := range m.lists[list] {
		if i >= w.offset && hasFoldedPrefix(text[i-w.offset:], w.word) {
			found |= w.bit
		}
	}
	return found
}

// set returns the set of some of the words.
func (m *matcher) set(words []string) (set wordSet) {
	for _, w := range words {
		i := slices.Index(m.words, w)
		if i < 0 {
			panic("not a keyword: " + w)
		}
		set |= 1 << i
	}
	return set
}

func hasFoldedPrefix(text []byte, word string) bool {
	if len(text) < len(word) {
		return false
	}
	for i := range len(word) {
		if text[i]|0x20 != word[i]|0x20 {
			return false
		}
	}
	return true
}
