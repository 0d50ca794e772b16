package logstore

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"pmcp/logstore/fault"
	"pmcp/logstore/mask"
)

// processKey addresses a process.
type processKey struct{ project, name string }

// runLog is what this Store holds in memory of a run that it captures: the lines that no commit
// covers, and the run's row until it is stored as well.
type runLog struct {
	id     int64
	key    processKey
	number int

	// pending counts the bytes of text and metadata that no commit covers. Written under mu.
	pending atomic.Int64
	listed  atomic.Bool // among those that the flusher has to look at

	mu      sync.Mutex
	streams [streamCount]stream
	now     int64    // time of the read at hand
	sealed  []*chunk // full chunks that are not stored, oldest first
	open    *chunk   // nil: none
	chunkN  int64    // place of the next chunk
	tailN   int64    // place of the next tail row
	busy    bool     // the last chunk was full in no time
	last    int64    // number of the last line
	lastAt  int64    // its time
	gap     Gap      // the latest; grows while what is dropped follows it
	gaps    []Gap    // those that are not stored as they are now
	ended   bool     // EndCapture was called

	faults   *fault.Recogniser
	latest   fault.Fault // of them, without its stack
	faultLog *faultLog
	awaited  bool // among those whose silence completes an error

	after     int64 // when the run before started
	row       runRow
	fresh     bool // row differs from the file
	rowStored bool // the file has a row

	dirtySince time.Time // since when there are lines that no commit covers
	// roomUntil is until when captures wait for room since the last commit of this run; zero: none has.
	roomUntil time.Time
	room      chan struct{}

	watchers map[*watcher]struct{}
	waiters  map[*lineWaiter]struct{}
}

// runRow is a run as the caller knows it.
type runRow struct {
	started, ended int64 // Unix nanoseconds; 0 = not given
	info           []byte
}

// stream is one stream of a run. It is the sink of its cleaner.
type stream struct {
	cleaner
	secrets mask.Lines
	id      uint8
	run     *runLog
	pool    *buffers
	level   Level // of the line before
	paused  bool  // the piece before was the begin of a line that had paused
	quiet   int   // ticks of the silencer since it was fed, while an error is open in it
}

func newRunLog(id int64, key processKey, number int, now time.Time, pool *buffers, faults *faultLog, masker *mask.Masker) *runLog {
	r := &runLog{faultLog: faults, id: id, key: key, number: number, fresh: true, row: runRow{started: now.UnixNano()}, room: make(chan struct{})}
	for i := range r.streams {
		st := &r.streams[i]
		st.id, st.run, st.pool = uint8(i), r, pool
		if masker != nil {
			st.secrets = masker.Lines()
			st.whole = st.secrets.Whole
		}
	}
	r.faults = fault.New(r.noteFault)
	return r
}

// recognise lets the recogniser work. Its many shapes meet any output there is: should one of them
// panic, the run goes on without, rather than the server not at all. The run's lock is held.
func (r *runLog) recognise(work func(*fault.Recogniser)) {
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

// noteFault takes what the recogniser found. The run's lock is held.
func (r *runLog) noteFault(f fault.Fault) {
	r.latest = f
	r.latest.Stack = nil
	r.faultLog.note(r.key, r.id, r.number, moment(r.now), f)
}

// line takes a line from the cleaner. Its secrets are masked here, before anybody sees it; its
// level is that of what was printed. What follows a line that paused without its end, as an error
// follows "Applying migration...", is looked at like a line of its own; what is cut off a line for
// its length is not. The run's lock is held.
func (s *stream) line(text []byte, continuation, partial bool) {
	begins, level := !continuation || s.paused, LevelNone
	s.paused = begins && partial
	if begins {
		level = s.lineLevel(text)
	}
	if !continuation || level != LevelNone {
		s.level = level
	}
	text = s.secrets.Line(text)
	s.run.add(text, lineFlags(s.id, s.level, continuation, partial), s.pool)
	if begins {
		s.run.recognise(func(r *fault.Recogniser) { r.Line(s.run.last, s.id, uint8(level), text) })
	}
}

// lineLevel guesses a line's level. An indented line belongs to the one before it, as the frames of a stack trace do.
func (s *stream) lineLevel(text []byte) Level {
	l := guessLevel(text, s.id == Stderr)
	if l == LevelNone && s.level >= LevelWarn && len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
		return s.level
	}
	return l
}

// add appends a line to the open chunk.
func (r *runLog) add(text []byte, flags uint8, pool *buffers) {
	if r.open == nil {
		r.open = newChunk(r.chunkN, r.last+1, r.now)
		r.chunkN++
		if r.tailN > lastOfRun/2 { // ten rows a second are that many in ten days
			r.tailN = 0 // a chunk has at most 29,128 lines, and as many tail rows: those of the one before are elsewhere
		}
		if r.busy {
			r.open.growFull(pool)
		}
	}
	r.last++
	r.lastAt = r.now
	r.open.append(text, r.now, flags, pool)
	if len(r.waiters) > 0 {
		r.offer(r.open.lines()-1, text)
	}
	if r.open.size() >= chunkBytes {
		r.busy = r.now-r.open.base < int64(busyChunk)
		r.seal()
	}
}

// seal closes the open chunk.
func (r *runLog) seal() {
	if r.open != nil {
		r.sealed = append(r.sealed, r.open)
		r.open = nil
	}
}

// snapshot gives the lines in memory, oldest first, and the number of the first line that the file
// is not needed for. release must be called when the blocks are no longer used.
func (r *runLog) snapshot(pool *buffers) (v memView) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v = memView{run: r, last: r.last, lastAt: r.lastAt, ended: r.ended, from: r.last + 1, row: r.row, pool: pool}
	for _, c := range r.chunks() {
		if c.lines() == 0 {
			continue
		}
		if len(v.blocks) == 0 {
			v.from = c.first
		}
		v.blocks = append(v.blocks, c.snapshot())
		v.cards = append(v.cards, c.card())
		v.chunks = append(v.chunks, c)
	}
	v.gaps = append(v.gaps, r.gaps...)
	return v
}

// chunks gives the sealed chunks and the open one.
func (r *runLog) chunks() []*chunk {
	if r.open == nil {
		return r.sealed
	}
	return append(r.sealed[:len(r.sealed):len(r.sealed)], r.open)
}

// memView is what a reader sees of a run in memory.
type memView struct {
	run          *runLog
	pool         *buffers
	blocks       []block
	cards        []card
	chunks       []*chunk
	from         int64 // first line that memory holds; one past last when it holds none
	last, lastAt int64
	ended        bool
	gaps         []Gap
	row          runRow
}

func (v *memView) release() {
	for _, c := range v.chunks {
		c.release(v.pool)
	}
	v.chunks = nil
}
