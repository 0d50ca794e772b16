package logstore

import (
	"cmp"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/fault"
	"pmcp/logstore/line"
	"pmcp/logstore/mask"
)

// A processKey identifies a process.
type processKey struct{ project, name string }

// A runLog is what this Store holds in memory of a run that it captures: the lines that are not committed,
// and the run's row until it is stored as well.
type runLog struct {
	id     int64
	key    processKey
	number int

	// pending counts the bytes of text and metadata that are not committed. It is written under mu.
	pending atomic.Int64
	listed  atomic.Bool // in the flusher's list

	mu      sync.Mutex // guards the fields below
	streams [streamCount]stream
	readAt  int64     // time of the current read
	fedAt   time.Time // when bytes last came; zero if none did
	ended   bool      // EndCapture was called
	runLines
	runFaults
	runState

	dirtySince time.Time // since when there are uncommitted lines
	// roomUntil is the deadline of captures that wait for room; zero if no capture has waited since the last commit.
	roomUntil time.Time
	room      chan struct{}

	watchers map[*watcher]struct{}
	waiters  map[*lineWaiter]struct{}
}

// A runLines holds the lines of a run that are in memory, and counts all of the run's lines.
type runLines struct {
	sealed    []*chunk // full chunks that are not stored, oldest first
	open      *chunk   // nil: none
	chunkN    int64    // index of the next chunk
	tailN     int64    // index of the next tail row
	fillsFast bool     // the last chunk was full within busyChunk
	last      int64    // number of the last line
	lastAt    int64    // time of the last line
	gap       Gap      // the latest gap; it grows while further lines are dropped right after it
	gaps      []Gap    // gaps that are new or have changed since they were stored
}

// A runFaults recognises the errors in the lines of a run.
type runFaults struct {
	faults       *fault.Recogniser // nil: it panicked
	cause        fault.Fault       // see WhyEnded; without its stack
	causeAt      int64             // when it was read
	faultLog     *faultLog
	quietTracked bool   // in the quietTracker's list
	stopping     bool   // StopBegan was called
	stopped      int64  // the last line before StopBegan
	output       string // see LastOutput
	outputLine   int64
	// changed is closed at the next change of what is recognised; nil: nobody waits for it.
	changed chan struct{}
}

// A runState is the run's row, and how it differs from the file.
type runState struct {
	prevStarted int64 // when the previous run of the process started
	row         runRow
	rowDirty    bool // row differs from the file
	rowStored   bool // the file has a row
	saved       bool // SaveRun was called
}

// A runRow is the state of a run that the caller saves.
type runRow struct {
	started, ended int64 // Unix nanoseconds; 0 = not given
	info           []byte
}

// A stream is one stream of a run. It is the Sink of its own Cleaner.
type stream struct {
	line.Cleaner
	secrets mask.Lines
	id      uint8
	run     *runLog
	pool    *buffers
	level   line.Level // of the previous line
	paused  bool       // the previous part was the start of a line that paused
	quiet   int        // ticks of the quietTracker since it was fed, while an error is open in it
}

func newRunLog(id int64, key processKey, number int, now time.Time, pool *buffers, faults *faultLog, masker *mask.Masker) *runLog {
	r := &runLog{
		id: id, key: key, number: number, room: make(chan struct{}), watchers: make(map[*watcher]struct{}),
		runFaults: runFaults{faultLog: faults}, runState: runState{row: runRow{started: now.UnixNano()}, rowDirty: true},
	}
	for i := range r.streams {
		st := &r.streams[i]
		st.id, st.run, st.pool = uint8(i), r, pool
		if masker != nil {
			st.secrets = masker.Lines()
			st.SafePrefix = st.secrets.SafePrefix
		}
	}
	r.faults = fault.New(r.recordFaultLocked)
	return r
}

// recogniseLocked calls work with the recogniser. The many patterns of the recogniser meet arbitrary output; if a
// pattern panics, the run continues without recognition instead of the whole server failing.
func (r *runLog) recogniseLocked(work func(*fault.Recogniser)) {
	if r.faults == nil {
		return
	}
	defer func() {
		if cause := recover(); cause != nil {
			r.faults = nil
			r.faultLog.log.Error("errors of a run are no longer recognised", "process", r.key.name, "panic", cause, "stack", string(debug.Stack()))
		}
	}()
	work(r.faults)
}

// cascade is the time within which an error may follow from another one of the run. An error that was long before
// another is not its cause.
const cascade = 10 * time.Second

// recordFaultLocked records a fault that the recogniser found.
func (r *runLog) recordFaultLocked(f fault.Fault) {
	if r.causeAt == 0 || r.readAt-r.causeAt > int64(cascade) || f.Fingerprint == r.cause.Fingerprint || r.cause.IsConsequence() && !f.IsConsequence() || f.FirstLine < r.cause.FirstLine && !f.IsConsequence() {
		r.cause, r.causeAt = f, r.readAt
		r.cause.Stack = nil
	}
	r.faultLog.record(r.key, r.id, r.number, timeFromNanos(r.readAt), f)
}

// Line adds a line from the cleaner. It masks secrets before anything else can see the line; the level is that
// of the original text. If a line pauses without a newline, the text after the pause is treated as a line of
// its own, because it may be, for example, an error after "Applying migration...". The rest of a line that was
// cut because of its length is not treated so. The caller must hold the run's lock.
func (s *stream) Line(text []byte, continuation, partial bool) {
	begins, level := !continuation || s.paused, line.LevelNone
	s.paused = begins && partial
	if begins {
		level = s.lineLevel(text)
	}
	if !continuation || level != line.LevelNone {
		s.level = level
	}
	text = s.secrets.Line(text)
	s.run.addLocked(text, lineFlags(s.id, s.level, continuation, partial), s.pool)
	if begins {
		s.run.recogniseLocked(func(r *fault.Recogniser) { r.Line(s.run.last, s.id, uint8(level), text) })
	}
}

// lineLevel returns a guess of the line's level. An indented line belongs to the line before it, like the
// frames of a stack trace.
func (s *stream) lineLevel(text []byte) line.Level {
	l := line.GuessLevel(text, s.id == Stderr)
	if l == line.LevelNone && s.level >= line.LevelWarn && len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
		return s.level
	}
	return l
}

// addLocked appends a line to the open chunk.
func (r *runLog) addLocked(text []byte, flags uint8, pool *buffers) {
	if r.open == nil {
		r.open = newChunk(r.chunkN, r.last+1, r.readAt)
		r.chunkN++
		if r.tailN > db.MaxRowIndex/2 { // reached after ten days of ten rows a second
			r.tailN = 0 // the indexes do not overlap: a chunk has at most 29,128 lines, and as many tail rows
		}
		if r.fillsFast {
			r.open.growFull(pool)
		}
	}
	r.last++
	r.lastAt = r.readAt
	r.open.append(text, r.readAt, flags, pool)
	if len(r.waiters) > 0 {
		r.offerLocked(r.open.lines()-1, text)
	}
	if r.open.size() >= cmp.Or(pool.chunk, chunkBytes) {
		r.fillsFast = r.readAt-r.open.base < int64(busyChunk)
		r.sealLocked()
	}
}

// sealLocked seals the open chunk.
func (r *runLog) sealLocked() {
	if r.open != nil {
		r.sealed = append(r.sealed, r.open)
		r.open = nil
	}
}

// snapshot returns the lines in memory, oldest first. v.from is the number of the first line for which the file
// is not needed. The caller must call release when it no longer uses the blocks.
func (r *runLog) snapshot(pool *buffers) (v memView) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v = memView{run: r, last: r.last, lastAt: r.lastAt, ended: r.ended, from: r.last + 1, row: r.row, pool: pool}
	for _, c := range r.chunksLocked() {
		if c.lines() == 0 {
			continue
		}
		if len(v.blocks) == 0 {
			v.from = c.first
		}
		v.blocks = append(v.blocks, c.snapshot())
		v.chunks = append(v.chunks, c)
	}
	v.gaps = append(v.gaps, r.gaps...)
	v.whole = v.from == 1 && r.gap == Gap{}
	return v
}

// chunksLocked returns the sealed chunks and the open one.
func (r *runLog) chunksLocked() []*chunk {
	if r.open == nil {
		return r.sealed
	}
	return append(r.sealed[:len(r.sealed):len(r.sealed)], r.open)
}

// A memView is what a reader sees of a run in memory.
type memView struct {
	run          *runLog
	pool         *buffers
	blocks       []block
	chunks       []*chunk
	from         int64 // first line in memory; last+1 if there is none
	last, lastAt int64
	ended        bool
	gaps         []Gap
	row          runRow
	whole        bool // the file has nothing of the run's log that memory has not
}

func (v *memView) release() {
	for _, c := range v.chunks {
		c.release(v.pool)
	}
	v.chunks = nil
}

// A watcher is woken when a matching run has new lines or has ended.
type watcher struct {
	signal  chan struct{} // buffers one
	matches func(*runLog) bool
}

func (w *watcher) wake() { notify(w.signal) }

// A lineWaiter is offered each line of a run when the line is captured.
type lineWaiter struct {
	after int64
	match func(Line) bool
	found chan Line     // buffers one
	ended chan struct{} // closed when the capture ends
}

// offerLocked offers the line at index i of the open chunk to the waiters.
func (r *runLog) offerLocked(i int64, text []byte) {
	l := r.open.line(r.id, i, text)
	for w := range r.waiters {
		if l.Number > w.after && w.match(l) {
			w.found <- l
			delete(r.waiters, w)
		}
	}
}

// endWaitersLocked ends the waiters, because no more lines will come.
func (r *runLog) endWaitersLocked() {
	for w := range r.waiters {
		close(w.ended)
	}
	r.waiters = nil
}

// notify wakes the receiver of a channel with room for one signal.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
