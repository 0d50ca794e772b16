package logstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Store is an open log. Its methods may be called from several goroutines.
type Store struct {
	opts         Options
	log          *slog.Logger
	file         *file  // nil: memory only
	memoryReason string // why there is no file

	pool    buffers
	pending atomic.Int64 // sum of the runs' pending
	lost    counters     // dropped because the storage did not keep up
	retired counters     // removed by age or size

	mu       sync.RWMutex // taken before a run's lock
	runs     map[int64]*runLog
	late     map[int64]lateRow        // rows saved after their run left memory
	latest   map[processKey]latestRun // the last number given
	unsaved  map[documentKey]document
	events   backlog[Event] // not stored yet
	samples  backlog[Sample]
	spans    map[int64]*span // by run
	version  int64           // counts what is put into late and unsaved
	watchers map[*watcher]struct{}
	sessions map[int64]owner // session ids seen
	session  int64           // the block of run ids in use
	counter  int64           // the last id given of it

	damage   atomic.Pointer[string] // that the file was found to be corrupt; nil: it was not
	turns    chan struct{}          // held while a run takes lines; see Store.turn
	dropping sync.Mutex             // held while runs lose lines because all together have too many

	dirtyMu sync.Mutex
	dirty   []*runLog

	faults   *faultLog
	silencer silencer

	kick        chan struct{} // something is dirty
	shared      chan struct{} // something that other servers look for is dirty
	urgent      chan struct{} // flush before the interval is over
	flushes     chan chan error
	reserve     chan *reservation
	closing     chan struct{}
	ending      atomic.Bool // Close was called; closed: everything is captured
	closed      atomic.Bool
	reserveWait time.Duration // the const but in tests
	// noReserve is until when the file is not asked for numbers of runs, in Unix nanoseconds.
	noReserve atomic.Int64
	wg        sync.WaitGroup
	flusher   flusher

	filterJobs    chan filterJob
	filterBacklog atomic.Bool // chunks were committed that did not fit into filterJobs
	builtMu       sync.Mutex
	built         []builtFilter // for the flusher to store
	maintain      chan struct{} // the size is worth a look
	checkpoint    chan struct{} // the write-ahead log is worth a checkpoint
	stopWorker    context.CancelFunc
	filters       filterCache

	closeOnce sync.Once
	closeErr  error
}

type counters struct{ lines, bytes atomic.Int64 }

// Open opens or makes the log. An error names the path and wraps ErrNewerSchema or ErrForeign when
// the file is not for this version to write. A corrupt file is moved aside; a file that cannot be
// used at all gives a Store that keeps the newest log in memory: Status tells either. ctx bounds
// Open only.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	if o.Session == "" {
		o.Session = uuid.NewString()
	}
	s := &Store{
		opts:       o,
		log:        o.Logger,
		runs:       make(map[int64]*runLog),
		late:       make(map[int64]lateRow),
		latest:     make(map[processKey]latestRun),
		unsaved:    make(map[documentKey]document),
		watchers:   make(map[*watcher]struct{}),
		sessions:   make(map[int64]owner),
		spans:      make(map[int64]*span),
		faults:     newFaultLog(o.Logger),
		silencer:   silencer{kick: make(chan struct{}, 1)},
		stopWorker: func() {},
		turns:      make(chan struct{}, runtime.GOMAXPROCS(0)),
		kick:       make(chan struct{}, 1),
		shared:     make(chan struct{}, 1),
		urgent:     make(chan struct{}, 1),
		flushes:    make(chan chan error),
		reserve:    make(chan *reservation, maxReservations),

		reserveWait: reserveWait,
		closing:     make(chan struct{}),

		filterJobs: make(chan filterJob, filterQueue),
		maintain:   make(chan struct{}, 1),
		checkpoint: make(chan struct{}, 1),
	}
	s.filters.limit = filterCacheBytes
	if err := s.openStorage(ctx); err != nil {
		return nil, err
	}
	s.flusher.store = s
	s.wg.Go(s.flusher.run)
	s.wg.Go(s.completeQuiet)
	if s.file != nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.stopWorker = cancel
		w := &worker{store: s}
		s.wg.Go(func() { w.run(ctx) })
		s.wg.Go(func() { s.checkpointer(ctx) })
	}
	return s, nil
}

// openStorage opens the file, or settles for memory.
func (s *Store) openStorage(ctx context.Context) error {
	if s.opts.Path == "" {
		s.memoryReason = "no database file was asked for"
		s.session = 1
		s.sessions[s.session] = s.opts.owner()
		return nil
	}
	f, err := openFile(ctx, s.opts.Path, s.anyDead, func(f *file) (err error) {
		s.session, err = reserveSession(ctx, f.write, s.opts.owner(), time.Now())
		return err
	})
	switch {
	case errors.Is(err, ErrNewerSchema) || errors.Is(err, ErrForeign):
		return fmt.Errorf("%s: %w", s.opts.Path, err)
	case ctx.Err() != nil:
		return err
	case err != nil:
		s.log.Error("cannot use the log database; the log is kept in memory", "path", s.opts.Path, "error", err)
		s.memoryReason = err.Error()
		s.session = 1
	default:
		if f.quarantined != "" {
			s.log.Warn("the log database was unusable and has been moved aside", "to", f.quarantined)
		}
		s.file = f
	}
	s.sessions[s.session] = s.opts.owner()
	return nil
}

// anyDead tells whether one of the sessions ended without a word.
func (s *Store) anyDead(owners []owner) bool {
	return slices.ContainsFunc(owners, func(o owner) bool { return !s.lives(o) })
}

// lives tells whether the server is this one, or another that lives.
func (s *Store) lives(o owner) bool {
	return o.uuid == s.opts.Session || o.uuid != "" && s.opts.Alive(o.registry, o.uuid)
}

// nextRunID gives the next id of the session's block. s.mu is held.
func (s *Store) nextRunID() int64 {
	s.counter++
	if s.counter >= 1<<runBits {
		s.session, s.counter = s.reserveBlock(), 1
	}
	return s.session<<runBits | s.counter
}

// reserveBlock takes another block of run ids: once in 65,535 runs, the one time that a start may wait for SQLite.
func (s *Store) reserveBlock() int64 {
	next := s.session + 1
	if s.file != nil {
		ctx, cancel := context.WithTimeout(context.Background(), newRunRead)
		defer cancel()
		id, err := reserveSession(ctx, s.file.write, s.opts.owner(), time.Now())
		if err != nil {
			// Far above what AUTOINCREMENT will ever reach, so that it meets no other server's block.
			s.log.Error("cannot reserve run ids", "error", err)
			id = 1<<20 + s.session
		}
		next = id
	}
	s.sessions[next] = s.opts.owner()
	return next
}

// Close stores what was captured, and closes the file. It must not return before the Store's
// goroutines have ended. Safe to call twice.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.ending.Store(true)
		s.endAll()
		s.endAllSpans()
		s.closed.Store(true)
		close(s.closing)
		s.stopWorker()
		s.wg.Wait()
		s.closeErr = s.flusher.lastErr
		if s.file != nil {
			s.closeErr = errors.Join(s.closeErr, s.closeFile())
		}
	})
	return s.closeErr
}

// closeFile notes that the session has ended. One that met damage does not, so that the next server
// looks at the file; nor does one whose last lines could not be stored, so that the next server seals
// its runs and tells of the gap.
func (s *Store) closeFile() error {
	if s.damage.Load() != nil {
		s.file.leave()
		return nil
	}
	var err error
	if s.flusher.lastErr == nil {
		err = endSession(context.Background(), s.file.write, s.opts.Session, time.Now())
	}
	return errors.Join(err, s.file.close())
}

// endAll ends the captures that their owner has not ended, so that nothing stays in a stream's unfinished line.
func (s *Store) endAll() {
	s.mu.RLock()
	ids := slices.Collect(maps.Keys(s.runs))
	s.mu.RUnlock()
	for _, id := range ids {
		s.EndCapture(id)
	}
}

// markDirty lists a run for the flusher. s.mu or the run's lock may be held.
func (s *Store) markDirty(r *runLog) {
	if r.listed.Load() || !r.listed.CompareAndSwap(false, true) {
		return
	}
	s.dirtyMu.Lock()
	s.dirty = append(s.dirty, r)
	s.dirtyMu.Unlock()
	notify(s.kick)
}

// takeDirty empties the list.
func (s *Store) takeDirty() []*runLog {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	list := s.dirty
	s.dirty = nil
	return list
}
