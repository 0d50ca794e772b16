package fault

import (
	"slices"
	"strings"
)

const (
	// maxText is how much of a line is looked at; a longer one is cut.
	maxText = 16 << 10
	// recentLines of each stream, recentBytes of each, are remembered for shapes that begin before they can be told.
	recentLines = 32
	recentBytes = 256
	// watchLines is how many lines every line is looked at after a test runner announced its failures.
	watchLines = 4000
	// watchLogLines is the same after a test of go test -v logged something, of which there may be more.
	watchLogLines = 2 * maxLogBelow
)

// Recogniser finds the faults in the lines of one run. It is not safe for concurrent use.
//
// What it holds is bounded: MaxOpen unfinished errors a stream, each of at most MaxStack lines, 32
// lines that await confirmation, and the last recentLines lines of each stream.
type Recogniser struct {
	emit func(Fault)
	// certain and uncertain are the starts of shapes, in the order in which they are tried.
	certain, uncertain []starter
	streams            [2]stream
	notes              notes
	// at is the number of the last line.
	at int64
}

// stream is what is known of one of the run's streams.
type stream struct {
	open   []*unfinished // oldest first
	recent [recentLines]recent
	count  int
	// watch counts down the lines that are looked at although they hold no keyword.
	watch int
}

// unfinished is a shape that is open in a lane.
type unfinished struct {
	shape
	lane    string
	foreign int
	// at is the number of the last line that it took.
	at int64
	// tag is the lane of its first line, if the others are without a prefix.
	tag string
}

// recent is the start of a line.
type recent struct {
	number int64
	level  uint8
	size   int
	text   [recentBytes]byte
}

// New gives a Recogniser that calls emit, from within Line, Idle or End, for each fault once it is
// complete. What emit is given is the receiver's to keep.
func New(emit func(Fault)) *Recogniser {
	return &Recogniser{emit: emit, certain: certainStarters(), uncertain: uncertainStarters()}
}

// Line takes the next line of the run. number counts the run's lines; stream tells who printed it
// (0 standard output, 1 standard error; lines of other streams are protocol messages and ignored);
// level is what the line says of itself (0 none, 1 trace, 2 debug, 3 info, 4 warning, 5 error, 6
// fatal); text is the cleaned line without its newline, borrowed until Line returns.
func (r *Recogniser) Line(number int64, stream, level uint8, text []byte) {
	if int(stream) >= len(r.streams) {
		return
	}
	s := &r.streams[stream]
	text = text[:min(len(text), maxText)]
	hit := level >= levelError || level != levelInfo && level != levelDebug && !isObject(text) && keywords.in(text)
	if hit || len(s.open) > 0 || s.watch > 0 {
		r.look(s, number, stream, level, hit, string(text))
	}
	s.remember(number, level, text)
	r.at = number
}

// isObject tells whether a line is a JSON object: it is an error only if its level says so.
func isObject(text []byte) bool {
	return len(text) > 1 && (text[0] == '{' && text[1] == '"' || text[len(text)-1] == '}' && LanedObject(text) != nil)
}

// Quiet says that nothing came from a stream for a while (200 ms): what is open in it is taken as
// complete and emitted. Called in the middle of a stack, it cuts most stacks in two: what comes
// later is not recognised as a part of them.
func (r *Recogniser) Quiet(stream uint8) {
	if int(stream) < len(r.streams) {
		r.closeAll(&r.streams[stream], false)
	}
}

// Idle is Quiet for both streams.
func (r *Recogniser) Idle() {
	for i := range r.streams {
		r.Quiet(uint8(i))
	}
}

// Unfinished tells whether an error is open in a stream: only Quiet, Idle and End, or another line, complete it.
func (r *Recogniser) Unfinished(stream uint8) bool {
	return int(stream) < len(r.streams) && len(r.streams[stream].open) > 0
}

func (s *stream) remember(number int64, level uint8, text []byte) {
	e := &s.recent[s.count%recentLines]
	e.number, e.level = number, level
	e.size = copy(e.text[:], text)
	s.count++
}

// look is Line for a line that may matter.
func (r *Recogniser) look(s *stream, number int64, from, level uint8, hit bool, text string) {
	lane, rest := splitLane(text)
	l := line{number: number, stream: from, level: level, hit: hit, lane: lane, text: strings.TrimRight(rest, " \t")}
	if s.watch > 0 {
		s.watch--
		l.hit = true
	}
	if !r.adopt(s, l) {
		r.process(s, l)
	}
}

// process offers a line to what is open in its lane, newest first, and starts what starts with it.
func (r *Recogniser) process(s *stream, l line) {
	var holders []holder
	for i := len(s.open) - 1; i >= 0; i-- {
		if i >= len(s.open) { // closing one replayed lines that closed others
			continue
		}
		u := s.open[i]
		if u.tag != "" && u.tag == l.lane { // a new line of who printed it
			r.close(s, u)
			continue
		}
		if u.lane != l.lane {
			continue
		}
		switch u.next(l) {
		case mine:
			u.foreign, u.at = 0, l.number
			release(holders, l)
			return
		case last:
			release(holders, l)
			r.close(s, u)
			return
		case ended:
			r.close(s, u)
		case maybe:
			holders = append(holders, u.shape.(holder))
		case foreign:
			if u.foreign++; u.foreign > u.patience() {
				r.close(s, u)
			}
		}
	}
	if l.hit && r.start(s, l, len(holders) > 0) {
		release(holders, l)
	}
}

// release has who held a line as maybe its own forget it: it has found its place.
func release(holders []holder, l line) {
	for _, h := range holders {
		h.release(l)
	}
}

// start opens the shape that the line starts, and tells whether it starts one. While a shape holds
// the line as maybe its own only certain starts count.
func (r *Recogniser) start(s *stream, l line, held bool) bool {
	b := &back{stream: s, lane: l.lane, before: l.number}
	n := &r.notes
	sh := first(r.certain, l, b, n)
	if sh == nil && !held {
		sh = first(r.uncertain, l, b, n)
	}
	s.watch, n.watch = max(s.watch, n.watch), 0
	switch sh := sh.(type) {
	case nil:
		return false
	case ignored:
		return false
	default:
		r.open(s, l, sh)
		return true
	}
}

// first gives the shape that the first of the starters that knows the line starts.
func first(starters []starter, l line, b *back, n *notes) shape {
	for _, begin := range starters {
		if sh := begin(l, b, n); sh != nil {
			return sh
		}
	}
	return nil
}

func (r *Recogniser) open(s *stream, l line, sh shape) {
	tag := ""
	if a, ok := sh.(absorber); ok {
		tag = r.absorb(s, l, a.absorbInto())
	}
	if d, ok := sh.(*done); ok {
		r.send(d.drafts())
		return
	}
	for len(s.open) >= MaxOpen {
		r.close(s, s.open[0])
	}
	s.open = append(s.open, &unfinished{shape: sh, lane: l.lane, at: l.number, tag: tag})
}

// absorb has the newest open shape of the lane give itself up to a trace that starts, if it announced
// it. It gives the tag of the line above, if that announced the trace and the trace has none.
func (r *Recogniser) absorb(s *stream, l line, to *draft) (tag string) {
	if u := s.tagged(l); u != nil && s.yield(u, to) {
		return u.lane
	}
	for i := len(s.open) - 1; i >= 0; i-- {
		if u := s.open[i]; u.lane == l.lane {
			s.yield(u, to)
			break
		}
	}
	return ""
}

// yield has a shape give itself up, and tells whether it did.
func (s *stream) yield(u *unfinished, to *draft) bool {
	y, ok := u.shape.(yielder)
	if ok = ok && y.yield(to); ok {
		i := slices.Index(s.open, u)
		s.open = slices.Delete(s.open, i, i+1)
	}
	return ok
}

// close emits what a shape has seen, and looks again at the lines that it held but nothing confirmed.
func (r *Recogniser) close(s *stream, u *unfinished) {
	i := slices.Index(s.open, u)
	if i < 0 {
		return
	}
	s.open = slices.Delete(s.open, i, i+1)
	r.send(u.drafts())
	if h, ok := u.shape.(holder); ok {
		for _, l := range h.unclaimed() {
			r.process(s, l)
		}
	}
}

// closeAll closes what is open: at the end everything, else what can be complete.
func (r *Recogniser) closeAll(s *stream, end bool) {
	for i := 0; i < len(s.open); {
		if w, ok := s.open[i].shape.(waiter); ok && !end && w.waits() {
			i++
			continue
		}
		r.close(s, s.open[i])
		i = 0 // lines that were looked at again may have opened others
	}
}

func (r *Recogniser) send(drafts []*draft) {
	for _, d := range drafts {
		if d == nil {
			continue
		}
		f := d.done()
		r.notes.seen.note(&f, d.lane, d.fatal)
		r.emit(f)
	}
}

// back lets a shape look at the lines before the one that starts it.
type back struct {
	stream *stream
	lane   string
	// all takes the lines of every lane.
	all    bool
	before int64
	lines  []line
	read   bool
}

// line gives the i-th line before the current one in its lane, 0 being the nearest; ok is false
// when it is not remembered.
func (b *back) line(i int) (l line, ok bool) {
	if !b.read {
		b.load()
	}
	if i < 0 || i >= len(b.lines) {
		return line{}, false
	}
	return b.lines[i], true
}

func (b *back) load() {
	b.read = true
	s := b.stream
	for n := s.count - 1; n >= 0 && n >= s.count-recentLines; n-- {
		e := &s.recent[n%recentLines]
		if e.number >= b.before {
			continue // a line that is looked at again: those after it do not count
		}
		if lane, rest := splitLane(string(e.text[:e.size])); lane == b.lane || b.all {
			b.lines = append(b.lines, line{number: e.number, level: e.level, lane: lane, text: strings.TrimRight(rest, " \t")})
		}
	}
}
