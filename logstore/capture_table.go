package logstore

import (
	"sync"
	"sync/atomic"
	"time"

	"pmcp/logstore/fault"
)

// A captureTable holds the runs that this Store captures, and captures their output.
type captureTable struct {
	*storage
	*flushQueue
	ids    *runIDs
	faults *faultLog
	pool   buffers
	quiet  quietTracker
	// slots is a semaphore for GOMAXPROCS captures. Without it, fifty processes that print as fast as they can would
	// all be runnable at once, and a goroutine that wakes another one, or waits for a run's lock, would queue behind
	// them: a request that visits each run took 0.6 s on two processors.
	slots  chan struct{}
	budget budget
	pauses chan int64 // see Pauses
	// newRunInfo is the info of a run until SaveRun is called for the run.
	newRunInfo atomic.Pointer[[]byte]

	mu       sync.RWMutex // guards the fields below; acquired before a run's lock
	runs     map[int64]*runLog
	late     map[int64]*runRow        // rows that were saved after their run left memory
	latest   map[processKey]latestRun // the latest run known
	watchers map[*watcher]struct{}
	reasons  []endReason // of the last maxReasons runs that left memory
}

// A latestRun is the latest run of a process. The next run gets a later start time, even if the clock has been
// set back, because runs are ordered by their recorded start times.
type latestRun struct {
	number  int
	started int64
}

func (t *captureTable) latestRun(key processKey) latestRun {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.latest[key]
}

// ownRun returns the run with the given id if it is in memory, or nil.
func (t *captureTable) ownRun(id int64) *runLog {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.runs[id]
}

// A budget counts the bytes of all runs that wait for the flusher, and what was dropped to bound them.
type budget struct {
	pending  atomic.Int64 // sum of the runs' pending
	lost     counters     // dropped because the storage was too slow
	dropping sync.Mutex   // held while runs drop lines because their total exceeds the limit
	roomWait time.Duration
}

type counters struct{ lines, bytes atomic.Int64 }

func (n *counters) add(lines, bytes int64) {
	n.lines.Add(lines)
	n.bytes.Add(bytes)
}

// quietTracker lists the runs in which an error is open, which means that its next line may follow. Nothing may
// ever follow a stack trace, so silence of its stream completes it, even if the run's other stream continues. It also
// lists the runs of which lines are held because they are being redrawn.
type quietTracker struct {
	kick chan struct{} // signals that the list is no longer empty
	wg   sync.WaitGroup

	mu   sync.Mutex // guards runs; acquired after a run's lock
	runs []*runLog
}

// An endReason is what is known of the end of a run without its lines.
type endReason struct {
	run        int64
	key        processKey
	cause      fault.Fault // without a fingerprint: there was none
	stopped    int64       // the last line before StopBegan
	last       int64       // the last line if StopBegan was called, else 0
	output     string      // see LastOutput
	outputLine int64
}

// A flushQueue holds what the flusher is asked to do: the runs that have something new, and signals.
type flushQueue struct {
	kick   chan struct{} // something is dirty
	shared chan struct{} // something that other servers wait for is dirty
	urgent chan struct{} // flush before the interval has passed

	mu    sync.Mutex // guards dirty; acquired last
	dirty []*runLog
}

func newFlushQueue() *flushQueue {
	return &flushQueue{kick: make(chan struct{}, 1), shared: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

// markDirty adds a run to the flusher's list. The caller may hold any lock.
func (q *flushQueue) markDirty(r *runLog) {
	if r.listed.Load() || !r.listed.CompareAndSwap(false, true) {
		return
	}
	q.mu.Lock()
	q.dirty = append(q.dirty, r)
	q.mu.Unlock()
	notify(q.kick)
}

// drainDirty empties the flusher's list and returns it.
func (q *flushQueue) drainDirty() []*runLog {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.dirty
	q.dirty = nil
	return list
}

// urgentChunks is how many full chunks of one run trigger a flush at once.
const urgentChunks = 8
