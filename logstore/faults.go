package logstore

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pmcp/logstore/fault"
)

const (
	// maxUnsavedFaults is the maximum number of faults in memory. Beyond it the least recently seen fault is
	// evicted. The maximum is reached only while the file cannot be written.
	maxUnsavedFaults = 2000
	// maxFaultNews is the maximum number of news items that the receiver has not read yet. Beyond it the oldest
	// item is dropped.
	maxFaultNews = 64
)

// A Fault is one kind of error of one process: all occurrences with the same fingerprint.
type Fault struct {
	// Fault is the latest occurrence. Its line numbers are those in the run LastRun. Stream is not stored.
	fault.Fault
	// ID identifies the fault: 12 hexadecimal digits that never change.
	ID string
	// Project and Name identify the process.
	Project, Name string
	// Count is the number of occurrences, and Runs is the number of runs in which they occurred.
	Count, Runs int64
	// FirstSeen and LastSeen are the times of the first and the latest occurrence.
	FirstSeen, LastSeen time.Time
	// FirstRun and LastRun are the ids of the first and the latest run in which the fault occurred. RunNumber is
	// the number of LastRun.
	FirstRun, LastRun int64
	RunNumber         int
	// Resolved is when the fault was marked as resolved, with Note; zero if the fault is open. Regressed means
	// that the fault was resolved and has occurred again since.
	Resolved  time.Time
	Note      string
	Regressed bool
	// PerHour counts the occurrences of the last 24 hours, the current hour first.
	PerHour [24]int64
}

// Cursor returns the position right after the latest occurrence. A Query with this cursor as Before ends with
// that occurrence.
func (f *Fault) Cursor() string { return cursor{f.LastRun: f.LastLine}.String() }

// Title returns the message, preceded by the type unless the message contains it.
func (f *Fault) Title() string {
	if f.Type == "" || strings.HasPrefix(f.Message, f.Type) || f.IsEnd() {
		return f.Message
	}
	return f.Type + ": " + f.Message
}

// IsEnd reports whether the fault is a bad exit, which is in no line of the output.
func (f *Fault) IsEnd() bool { return fault.AtEnd(f.Type, f.Message) }

// IsUnrecognised reports whether the fault is a bad exit for which the last output serves as the reason.
func (f *Fault) IsUnrecognised() bool { return f.IsEnd() && strings.Contains(f.Message, ": ") }

// FaultNews reports a kind of error that is new, or that occurred again after it was marked as resolved.
type FaultNews struct {
	Fault
	// Again means that the fault had been resolved before it occurred again.
	Again bool
}

// A faultKey identifies a fault.
type faultKey struct {
	processKey
	fingerprint string
}

func (k faultKey) id() string {
	sum := sha256.Sum256([]byte(k.project + "\x00" + k.name + "\x00" + k.fingerprint))
	return hex.EncodeToString(sum[:6])
}

// A faultDelta holds the occurrences of one fault since the last commit.
type faultDelta struct {
	Fault
	hours    map[int64]int64 // maps an hour since 1970 to the number of occurrences in it
	inRuns   []int64         // runs of these occurrences, latest last
	reported bool            // published as news; used only without a file, since the transaction finds the news if there is a file
}

// A faultLog holds the occurrences of faults that are not stored yet.
type faultLog struct {
	*storage

	mu       sync.Mutex // guards deltas, inFlight, flushes and seen
	deltas   map[faultKey]*faultDelta
	inFlight map[faultKey]*faultDelta // in a transaction at the moment
	flushes  int64                    // how often begin returned occurrences for a transaction
	seen     map[processKey]int64     // number of occurrences, stored or not
	news     chan FaultNews
}

func newFaultLog(st *storage) *faultLog {
	return &faultLog{
		storage: st, deltas: make(map[faultKey]*faultDelta), seen: make(map[processKey]int64), news: make(chan FaultNews, maxFaultNews),
	}
}

// record adds one occurrence.
func (l *faultLog) record(key processKey, run int64, number int, at time.Time, f fault.Fault) {
	k := faultKey{key, f.Fingerprint}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[key]++
	g := l.deltas[k]
	if g == nil {
		g = &faultDelta{hours: make(map[int64]int64)}
		g.ID, g.Project, g.Name = k.id(), key.project, key.name
		g.FirstSeen, g.FirstRun = at, run
		l.deltas[k] = g
		l.evictOldestLocked()
	}
	if g.LastRun != run {
		g.Runs++
	}
	if !g.Resolved.IsZero() { // happens only without a file
		g.Resolved, g.Regressed, g.reported = time.Time{}, true, false
	}
	g.Fault.Fault = f
	g.Count++
	g.LastSeen, g.LastRun, g.RunNumber = at, run, number
	g.hours[hourOf(at)]++
	g.addRun(run)
}

// evictOldestLocked evicts the least recently seen fault if there are too many.
func (l *faultLog) evictOldestLocked() {
	if len(l.deltas) <= maxUnsavedFaults {
		return
	}
	var oldest faultKey
	var seen time.Time
	for k, g := range l.deltas {
		if seen.IsZero() || g.LastSeen.Before(seen) && !g.LastSeen.IsZero() {
			oldest, seen = k, g.LastSeen
		}
	}
	delete(l.deltas, oldest)
}

// hourOf returns the number of hours from 1970 to t.
func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

// begin returns the occurrences that are not stored, for a transaction. commit or rollback must follow.
func (l *faultLog) begin() map[faultKey]*faultDelta {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.deltas) > 0 {
		l.flushes++
	}
	l.inFlight = l.deltas
	l.deltas = make(map[faultKey]*faultDelta)
	return l.inFlight
}

// commit removes the occurrences that begin returned, because they are stored now, and publishes the news.
func (l *faultLog) commit(news []FaultNews) {
	l.mu.Lock()
	l.inFlight = nil
	l.mu.Unlock()
	l.publish(news)
}

// publish sends the news to the receiver of NewFaults. If the channel is full it drops the oldest.
func (l *faultLog) publish(news []FaultNews) {
	for _, n := range news {
		for sent := false; !sent; {
			select {
			case l.news <- n:
				sent = true
			default:
				select {
				case <-l.news: // drops the oldest
				default:
				}
			}
		}
	}
}

// publishUnstored publishes the news of a Store without a file.
func (l *faultLog) publishUnstored() {
	var news []FaultNews
	l.mu.Lock()
	for _, g := range l.deltas {
		if !g.reported {
			g.reported = true
			news = append(news, FaultNews{Fault: g.Fault, Again: g.Regressed})
		}
	}
	l.mu.Unlock()
	l.publish(news)
}

// rollback returns the occurrences that begin returned to those that wait, because they could not be stored.
func (l *faultLog) rollback() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, old := range l.inFlight {
		if newer := l.deltas[k]; newer != nil {
			old.merge(newer)
		}
		l.deltas[k] = old
	}
	l.inFlight = nil
}

// merge adds the later occurrences of newer to g.
func (g *faultDelta) merge(newer *faultDelta) {
	g.addDelta(newer)
	for hour, n := range newer.hours {
		g.hours[hour] += n
	}
	for _, run := range newer.inRuns {
		g.addRun(run)
	}
}

// An unsavedFaults holds copies of the occurrences that are not known to be stored.
type unsavedFaults struct {
	inFlight []*faultDelta // in a transaction: by the time the file is read, it may contain these too
	waiting  []*faultDelta // not in the file unless flushes changes
	flushes  int64         // faultLog.flushes at the time of the copy
}

// unsaved returns copies of the occurrences that are not known to be stored. The caller must read the file
// after this call. If flushCount has changed by then, the file may contain the occurrences that were waiting.
func (l *faultLog) unsaved() unsavedFaults {
	l.mu.Lock()
	defer l.mu.Unlock()
	return unsavedFaults{copyDeltas(l.inFlight), copyDeltas(l.deltas), l.flushes}
}

// flushCount returns how often occurrences were handed to a transaction.
func (l *faultLog) flushCount() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flushes
}

func copyDeltas(deltas map[faultKey]*faultDelta) []*faultDelta {
	all := make([]*faultDelta, 0, len(deltas))
	for _, g := range deltas {
		c := *g
		c.hours, c.inRuns = maps.Clone(g.hours), slices.Clone(g.inRuns)
		all = append(all, &c)
	}
	return all
}

// NewFaults returns a channel that reports each fault when it first occurs, or occurs again after it was
// resolved. It supports one receiver, buffers 64 reports, drops the oldest report beyond that, and is never
// closed.
func (l *faultLog) NewFaults() <-chan FaultNews { return l.news }

// FaultsSeen returns how many occurrences of errors of a process this Store has seen since it was opened.
// An empty name means all processes of the project. FaultsSeen does not wait.
func (l *faultLog) FaultsSeen(project, name string) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name != "" {
		return l.seen[processKey{project, name}]
	}
	for key, seen := range l.seen {
		if key.project == project {
			n += seen
		}
	}
	return n
}

// maxFaultRuns is the maximum number of runs that are recorded for a fault in addition to the first run. The
// latest runs are kept.
const maxFaultRuns = 100

// addRun records that the fault occurred in the run.
func (g *faultDelta) addRun(run int64) {
	if slices.Contains(g.inRuns, run) {
		return
	}
	g.inRuns = append(g.inRuns, run)
	if len(g.inRuns) > maxFaultRuns {
		g.inRuns = slices.Delete(g.inRuns, 0, 1)
	}
}

// addDelta adds later occurrences to f, except to PerHour. If f was resolved, it is reopened.
func (f *Fault) addDelta(g *faultDelta) {
	old := *f
	*f = g.Fault
	f.FirstSeen, f.FirstRun, f.Note, f.PerHour = old.FirstSeen, old.FirstRun, old.Note, old.PerHour
	f.Regressed = old.Regressed || !old.Resolved.IsZero()
	f.Count += old.Count
	f.Runs += old.Runs
	if old.LastRun == g.FirstRun {
		f.Runs--
	}
}
