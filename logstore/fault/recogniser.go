package fault

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"
	"strings"
)

const (
	// maxText is the number of bytes of a line that are examined; a longer line is truncated.
	maxText = 16 << 10
	// recentLines lines of each stream, and recentBytes bytes of each line, are kept for rows
	// whose first lines can only be recognised in hindsight.
	recentLines = 32
	recentBytes = 256
	// watchLines is the number of lines that are examined without a keyword after a test runner
	// announced its failures.
	watchLines = 4000
	// watchLogLines is the number of lines that are examined without a keyword after a test under
	// go test -v logged something, since more of the log may follow.
	watchLogLines = 2 * maxLogBelow
)

// A Recogniser finds the faults in the lines of one run. It is not safe for concurrent use.
//
// Its memory is bounded. It holds at most MaxOpen unfinished errors per stream, each with at most
// MaxStack lines and maxHeld lines awaiting confirmation. It also holds the last recentLines lines
// of each stream.
type Recogniser struct {
	emit    func(Fault)
	streams [2]stream
	notes   notes
	// spare is an empty block for the next report.
	spare *block
	// lastLine is the number of the latest line.
	lastLine int64
	// stopping is set once the run is being stopped; stoppedAt is lastLine at that time.
	stopping  bool
	stoppedAt int64
}

// stream is the state of one of the run's streams.
type stream struct {
	open   []*openBlock // oldest first
	recent []recent     // a ring of recentLines, once there are as many: most runs print a few lines
	count  int
	// watch is the number of following lines that are examined even without a keyword.
	watch int
}

// openBlock is a block that is open in a lane.
type openBlock struct {
	*block
	// lane is the lane of the lines that the block is offered.
	lane         string
	foreignLines int
	// lastLine is the number of the last line that the block took.
	lastLine int64
	// tag is the lane of the block's first line, if its other lines have no prefix.
	tag string
}

// recent is the start of a recent line.
type recent struct {
	number int64
	level  uint8
	size   int
	text   [recentBytes]byte
}

// New returns a Recogniser that calls emit for each fault once the fault is complete. The calls
// happen within Line, Quiet, Idle and End. emit owns the Fault that it receives.
func New(emit func(Fault)) *Recogniser {
	return allRows().newRecogniser(emit)
}

// Line processes the next line of the run. number is the number of the line within the run. stream
// is 0 for standard output and 1 for standard error; lines of other streams are protocol messages
// and are ignored. level is the level that the line states (0 none, 1 trace, 2 debug, 3 info, 4
// warning, 5 error, 6 fatal). text is the cleaned line without its newline; Line does not retain
// it.
func (r *Recogniser) Line(number int64, stream, level uint8, text []byte) {
	if int(stream) >= len(r.streams) {
		return
	}
	s := &r.streams[stream]
	text = text[:min(len(text), maxText)]
	words := wordSet(0)
	switch {
	case level >= levelError:
		words = anyWord
	case level != levelInfo && level != levelDebug && !isObject(text):
		if words = keywords.find(text); words != 0 && len(text) > scanBytes {
			words = anyWord // the rest may have others
		}
	}
	if words != 0 || len(s.open) > 0 || s.watch > 0 {
		r.inspect(s, line{number: number, stream: stream, level: level, words: words}, text)
	}
	s.remember(number, level, text)
	r.lastLine = number
}

// isObject reports whether a line is a JSON object. Such a line is an error only if it has an error
// level.
func isObject(text []byte) bool {
	return len(text) > 1 && (text[0] == '{' && text[1] == '"' || text[len(text)-1] == '}' && LanedObject(text) != nil)
}

// Quiet reports to the Recogniser that a stream has been silent for a while (200 ms). The errors
// that are open in the stream are assumed complete and are emitted. If Quiet is called in the
// middle of a stack, most stacks are cut in two, because the later lines are not recognised as part
// of the stack.
func (r *Recogniser) Quiet(stream uint8) {
	if int(stream) < len(r.streams) {
		r.closeAll(&r.streams[stream], false)
	}
}

// Idle calls Quiet for both streams.
func (r *Recogniser) Idle() {
	for i := range r.streams {
		r.Quiet(uint8(i))
	}
}

// Unfinished reports whether an error is open in a stream. The error stays open until Quiet, Idle,
// End or another line completes it.
func (r *Recogniser) Unfinished(stream uint8) bool {
	return int(stream) < len(r.streams) && len(r.streams[stream].open) > 0
}

// OpenSince returns the number of the first line of the oldest error that is open in either stream,
// or 0 if none is open.
func (r *Recogniser) OpenSince() (first int64) {
	for i := range r.streams {
		for _, u := range r.streams[i].open {
			if n := u.f.FirstLine; first == 0 || n < first {
				first = n
			}
		}
	}
	return first
}

// LastOutput returns the last line of the recent lines of both streams that is not blank, at most
// its first 256 bytes, and its number. If there is none, the number is 0.
func (r *Recogniser) LastOutput() (text string, number int64) {
	for i := range r.streams {
		s := &r.streams[i]
		for n := s.count - 1; n >= 0 && n >= s.count-recentLines; n-- {
			e := &s.recent[n%recentLines]
			if words := bytes.TrimSpace(e.text[:e.size]); len(words) > 0 {
				if e.number > number {
					text, number = strings.ToValidUTF8(string(words), ""), e.number
				}
				break
			}
		}
	}
	return text, number
}

func (s *stream) remember(number int64, level uint8, text []byte) {
	if s.count < recentLines {
		s.recent = append(s.recent, recent{})
	}
	e := &s.recent[s.count%recentLines]
	e.number, e.level = number, level
	e.size = copy(e.text[:], text)
	s.count++
}

// inspect handles a line that may belong to an error.
func (r *Recogniser) inspect(s *stream, l line, text []byte) {
	if s.watch > 0 {
		s.watch--
		l.words = anyWord
	}
	if len(s.open) == 0 && !r.notes.rows.mayStart(l.words, lastByte(bytes.TrimRight(text, " \t"))) {
		return
	}
	lane, rest := splitLane(string(text))
	l.lane, l.text = lane, strings.TrimRight(rest, " \t")
	if !r.adopt(s, l) {
		r.dispatch(s, l)
	}
}

// dispatch offers a line to the open blocks of its lane, newest first, and starts a new block if no
// open block takes the line.
func (r *Recogniser) dispatch(s *stream, l line) {
	var holders []*block
	for i := len(s.open) - 1; i >= 0; i-- {
		if i >= len(s.open) { // closing a block dispatched the lines that it held, and these lines closed other blocks
			continue
		}
		u := s.open[i]
		if u.tag != "" && u.tag == l.lane { // the program that printed the tagged line has started a new message
			r.close(s, u)
			continue
		}
		if u.lane != l.lane {
			continue
		}
		switch u.offer(l) {
		case taken:
			u.foreignLines, u.lastLine = 0, l.number
			release(holders, l)
			return
		case takenLast:
			release(holders, l)
			r.close(s, u)
			return
		case ended:
			r.close(s, u)
		case provisional:
			holders = append(holders, u.block)
		case foreign:
			if u.foreignLines++; u.foreignLines > cmp.Or(u.row.maxForeign, defaultMaxForeign) {
				r.close(s, u)
			}
		}
	}
	if l.words != 0 && r.start(s, l, len(holders) > 0) {
		release(holders, l)
	}
}

// release makes the blocks that held l provisionally drop l, because another block took it.
func release(holders []*block, l line) {
	for _, h := range holders {
		if n := len(h.held); n > 0 && h.held[n-1].number == l.number {
			h.held = h.held[:n-1]
		}
	}
}

// start opens the block that starts with l and reports whether there is such a block. While another
// block holds l provisionally, only certain rows are tried.
func (r *Recogniser) start(s *stream, l line, held bool) bool {
	b, v := r.spare, foreign
	b.above = lookback{stream: s, lane: l.lane, before: l.number}
	b.begin(l)
	r.notes.isFatalOpen = slices.ContainsFunc(s.open, func(u *openBlock) bool { return u.fatal && u.lane == l.lane })
	for _, page := range r.notes.rows {
		rows := page.rowsFor(l.words, lastByte(l.text)) & page.byFirst[firstByte(l.trim())]
		if held {
			rows &= page.certain
		}
		for ; v == foreign && rows != 0; rows &= rows - 1 {
			if i := bits.TrailingZeros64(rows); page.mayStart(i, l) {
				b.row = page.all[i]
				v = b.row.begin(b, l)
			}
		}
	}
	s.watch, r.notes.watch = max(s.watch, r.notes.watch), 0
	if v == foreign {
		return false
	}
	if v == ignored {
		*b = block{notes: &r.notes}
		return false
	}
	r.spare = &block{notes: &r.notes}
	r.open(s, l, b, v)
	return true
}

func (r *Recogniser) open(s *stream, l line, b *block, v verdict) {
	b.become(b.row)
	if b.row.suite {
		r.notes.suiteFailures++
	}
	if v == shown || v == shownLast {
		b.add(l)
	}
	tag := ""
	switch b.row.announcement {
	case replaces:
		tag = r.absorb(s, l, &draft{})
	case joins:
		tag = r.absorb(s, l, &b.draft)
	}
	if v == takenLast || v == shownLast {
		r.emitDrafts(b.drafts())
		return
	}
	for len(s.open) >= MaxOpen {
		r.close(s, s.open[0])
	}
	s.open = append(s.open, &openBlock{block: b, lane: l.lane, lastLine: l.number, tag: tag})
}

// absorb closes the newest open block of the lane in favour of the starting draft, if that block
// announced the draft. If the line above l announced the draft and has a tag in brackets that l
// lacks, absorb returns the tag.
func (r *Recogniser) absorb(s *stream, l line, to *draft) (tag string) {
	if u := s.taggedAbove(l); u != nil && s.giveWay(u, to) {
		return u.lane
	}
	for i := len(s.open) - 1; i >= 0; i-- {
		if u := s.open[i]; u.lane == l.lane {
			s.giveWay(u, to)
			break
		}
	}
	return ""
}

// giveWay asks a block to give way to another, and reports whether it did.
func (s *stream) giveWay(u *openBlock, to *draft) bool {
	ok := u.row.yield != nil && u.row.yield(u.block, to)
	if ok {
		i := slices.Index(s.open, u)
		s.open = slices.Delete(s.open, i, i+1)
	}
	return ok
}

// close emits the faults of a block, and dispatches the lines that the block held but that were
// never confirmed.
func (r *Recogniser) close(s *stream, u *openBlock) {
	i := slices.Index(s.open, u)
	if i < 0 {
		return
	}
	s.open = slices.Delete(s.open, i, i+1)
	r.emitDrafts(u.drafts())
	for _, l := range u.held {
		r.dispatch(s, l)
	}
}

// closeAll closes all open blocks at the end of the run. Before the end it closes only the blocks
// that may be complete.
func (r *Recogniser) closeAll(s *stream, end bool) {
	for i := 0; i < len(s.open); {
		if u := s.open[i]; !end && u.row.waits != nil && u.row.waits(u.block) {
			i++
			continue
		}
		r.close(s, s.open[i])
		i = 0 // dispatching the held lines may have opened other blocks
	}
}

func (r *Recogniser) emitDrafts(drafts []*draft) {
	for _, d := range drafts {
		f := d.fault()
		r.notes.emitted.record(&f, d)
		if !r.stopping || f.FirstLine <= r.stoppedAt || !f.isInterrupt() {
			r.emit(f)
		}
	}
}

// lookback gives a row access to the lines before the current one.
type lookback struct {
	stream *stream
	lane   string
	// all is set if the lines of every lane are included.
	all    bool
	before int64
	lines  []line
	read   bool
}

// line returns the i-th line before the current line in the same lane; 0 is the nearest. ok is
// false if that line is no longer stored.
func (b *lookback) line(i int) (l line, ok bool) {
	if !b.read {
		b.load()
	}
	if i < 0 || i >= len(b.lines) {
		return line{}, false
	}
	return b.lines[i], true
}

func (b *lookback) load() {
	b.read = true
	s := b.stream
	for n := s.count - 1; n >= 0 && n >= s.count-recentLines; n-- {
		e := &s.recent[n%recentLines]
		if e.number >= b.before {
			continue // the current line was held and is dispatched again: skip it and later lines
		}
		if lane, rest := splitLane(string(e.text[:e.size])); lane == b.lane || b.all {
			b.lines = append(b.lines, line{number: e.number, level: e.level, lane: lane, text: strings.TrimRight(rest, " \t")})
		}
	}
}

// maxLane is the maximum length of a lane's prefix, in bytes.
const maxLane = 48

// splitLane splits off the prefix with which a tool marks the program that printed a line, so that
// several programs on one stream can be separated: "web-1  | text" (docker compose, foreman),
// "[web] text" (concurrently), "web:dev: text" (turbo), "#12 1.234 text" (docker build).
func splitLane(s string) (lane, rest string) {
	if len(s) < 4 {
		return "", s
	}
	switch {
	case s[0] == '[':
		return cutBracketLane(s)
	case s[0] == '#':
		return cutStepLane(s)
	case isAlpha(s[0]):
		return cutNameLane(s)
	case len(s) > 10 && isDigit(s[0]) && s[2] == ':' && s[5] == ':' && s[8] == ' ' && isAlpha(s[9]): // foreman: 12:00:01 web.1  | text
		if lane, rest := cutBarLane(s[9:]); lane != "" {
			return lane, rest
		}
	}
	return "", s
}

// taggedAbove returns the block that took the line just before l in l's stream, if that line had a
// prefix in brackets and l has no prefix. Loggers put such a prefix only on the first line of a
// message; tools that merge the output of programs put it on every line.
func (s *stream) taggedAbove(l line) *openBlock {
	if l.lane != "" || s.count == 0 {
		return nil
	}
	before := s.recent[(s.count-1)%recentLines].number
	for i := len(s.open) - 1; i >= 0 && before < l.number; i-- {
		if u := s.open[i]; u.lastLine == before && strings.HasPrefix(u.lane, "[") {
			return u
		}
	}
	return nil
}

// adopt adds a frame without a prefix to an error of which only the first line has a prefix, and
// reports whether it did. Later lines of the error must have no prefix either.
func (r *Recogniser) adopt(s *stream, l line) bool {
	u := s.taggedAbove(l)
	if u == nil || l.indent() == 0 || !u.row.adopts {
		return false
	}
	if _, _, ok := parseFrame(l); !ok {
		if _, _, ok = parsePythonFrame(l.trim()); !ok {
			return false
		}
	}
	if u.offer(l) != taken {
		return false
	}
	u.lane, u.tag, u.foreignLines, u.lastLine = "", u.lane, 0, l.number
	return true
}

// cutStepLane splits off the number and the seconds that BuildKit prints before the output of a step: "#12 1.234 text".
func cutStepLane(s string) (lane, rest string) {
	_, rest, ok := parseNumber(s[1:])
	text, found := strings.CutPrefix(rest, " ")
	if lane = s[:len(s)-len(rest)]; !ok || !found {
		return "", s
	}
	if after, ok := cutSeconds(text); ok {
		return lane, after
	}
	if strings.HasPrefix(text, "ERROR: process ") {
		return lane, text
	}
	return "", s
}

// cutSeconds cuts a number with three decimals off the start of s.
func cutSeconds(s string) (rest string, ok bool) {
	_, rest, ok = parseNumber(s)
	if !ok || len(rest) < len(".000") || rest[0] != '.' || !isDigit(rest[1]) || !isDigit(rest[2]) || !isDigit(rest[3]) {
		return s, false
	}
	if rest = rest[len(".000"):]; rest != "" && rest[0] != ' ' {
		return s, false
	}
	return strings.TrimPrefix(rest, " "), true
}

func cutBracketLane(s string) (lane, rest string) {
	end := strings.IndexByte(s[:min(len(s), maxLane)], ']')
	if end < 2 || end+1 < len(s) && s[end+1] != ' ' {
		return "", s
	}
	name := s[1:end]
	if isLevelName(name) || strings.HasPrefix(name, "vite") || strings.HasPrefix(name, "webpack") || isErrorName(name) || isRolldownCode(name) {
		return "", s
	}
	for i := range len(name) {
		if !isWord(name[i]) && strings.IndexByte("-.@/", name[i]) < 0 {
			return "", s
		}
	}
	return s[:end+1], s[min(len(s), end+2):]
}

// isLevelName reports whether the word in a prefix is a level rather than the name of a program.
func isLevelName(name string) bool { return LevelOf([]byte(name)) > 0 || isErrorWord(name) }

// LanedObject returns the JSON object after a tool's prefix in a line such as
// `api-1  | {"level":"error"}`. The result is a subslice of text, or nil if the line has another
// form.
func LanedObject(text []byte) []byte {
	if len(text) == 0 || text[len(text)-1] != '}' {
		return nil
	}
	at := bytes.Index(text[:min(len(text), maxLane+16)], []byte(`{"`))
	if at < 4 || text[at-1] != ' ' {
		return nil
	}
	lane, rest := splitLane(string(text[:at+2]))
	if lane == "" || rest != `{"` || isLevelName(lane) {
		return nil
	}
	return text[at:]
}

func cutNameLane(s string) (lane, rest string) {
	if lane, rest = cutBarLane(s); lane != "" {
		return lane, rest
	}
	// turbo: package:task: text
	i, colons := 0, 0
	for i < len(s) && i < maxLane && (isWord(s[i]) || strings.IndexByte("-@/.", s[i]) >= 0 || s[i] == ':' && i+1 < len(s) && isAlpha(s[i+1])) {
		if s[i] == ':' {
			colons++
		}
		if isUpper(s[i]) {
			return "", s
		}
		i++
	}
	if colons == 1 && i+1 < len(s) && s[i] == ':' && s[i+1] == ' ' && !strings.HasPrefix(s, "error") && !strings.HasPrefix(s, "node:") {
		return s[:i+1], s[i+2:]
	}
	return "", s
}

// cutBarLane splits "name  | text" into name and text.
func cutBarLane(s string) (lane, rest string) {
	i := 0
	for i < len(s) && i < maxLane && (isWord(s[i]) || s[i] == '-' || s[i] == '.') {
		i++
	}
	end := i
	for end < len(s) && end < maxLane && s[end] == ' ' {
		end++
	}
	if i == 0 || end == i || end >= len(s) || s[end] != '|' || end+1 < len(s) && s[end+1] != ' ' {
		return "", s
	}
	return s[:i], s[min(len(s), end+2):]
}
