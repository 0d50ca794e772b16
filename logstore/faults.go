package logstore

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"pmcp/logstore/fault"
)

const (
	// maxUnsavedFaults bounds the kinds of faults in memory; beyond it the one seen longest ago
	// goes. It is only reached while the file does not take them.
	maxUnsavedFaults = 2000
	// maxFaultNews bounds the news that nobody has taken; older news goes.
	maxFaultNews = 64
)

// Fault is one kind of error of one process: all occurrences with the same fingerprint.
type Fault struct {
	// ID addresses it: 12 hexadecimal digits, the same for ever.
	ID string
	// Project and Name are the process.
	Project, Name string
	// Fingerprint is what makes two errors the same, whatever process prints them.
	Fingerprint string
	// Category, Type, Message, File, Line, Column and Stack are of the latest occurrence; see fault.Fault.
	Category, Type, Message, File string
	Line, Column                  int
	Stack                         []string
	// Count is how often it was seen, in Runs runs.
	Count, Runs int64
	// FirstSeen and LastSeen are when.
	FirstSeen, LastSeen time.Time
	// FirstRun and LastRun are the ids of the first and the latest run that showed it, RunNumber is
	// the latter's number.
	FirstRun, LastRun int64
	RunNumber         int
	// FirstLine and LastLine are the log lines of the latest occurrence in LastRun; 0 if it printed nothing.
	FirstLine, LastLine int64
	// Resolved is when it was marked so, with Note; zero if it is not. Regressed: it was, and has
	// been seen again since.
	Resolved  time.Time
	Note      string
	Regressed bool
	// PerHour counts the occurrences of the last 24 hours, the current hour first.
	PerHour [24]int64
}

// Cursor is right behind the latest occurrence: for Query.Before it ends with it.
func (f *Fault) Cursor() string { return cursor{f.LastRun: f.LastLine}.String() }

// FaultNews is a kind of error that was never seen before, or was marked resolved.
type FaultNews struct {
	Fault
	// Again says that it had been resolved.
	Again bool
}

// faultKey is what faults are told apart by.
type faultKey struct {
	processKey
	fingerprint string
}

func (k faultKey) id() string {
	sum := sha256.Sum256([]byte(k.project + "\x00" + k.name + "\x00" + k.fingerprint))
	return hex.EncodeToString(sum[:6])
}

// faultGain is what was seen of one kind of fault since the last commit.
type faultGain struct {
	Fault
	firstRun int64           // of these occurrences
	hours    map[int64]int64 // hour since 1970 to occurrences in it
	inRuns   []int64         // the runs that showed them, the latest last
	told     bool            // as news; only without a file, whose transaction tells else
}

// faultLog holds what is not stored of faults.
type faultLog struct {
	mu     sync.Mutex
	gains  map[faultKey]*faultGain
	flying map[faultKey]*faultGain // in a transaction at the moment
	takes  int64                   // how often there was something for a transaction
	seen   map[processKey]int64    // occurrences, stored or not
	news   chan FaultNews
	log    *slog.Logger
}

func newFaultLog(log *slog.Logger) *faultLog {
	return &faultLog{
		log: log, gains: make(map[faultKey]*faultGain), seen: make(map[processKey]int64), news: make(chan FaultNews, maxFaultNews),
	}
}

// note takes one occurrence.
func (l *faultLog) note(key processKey, run int64, number int, at time.Time, f fault.Fault) {
	k := faultKey{key, f.Fingerprint}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[key]++
	g := l.gains[k]
	if g == nil {
		g = &faultGain{firstRun: run, hours: make(map[int64]int64)}
		g.ID, g.Project, g.Name, g.Fingerprint = k.id(), key.project, key.name, f.Fingerprint
		g.FirstSeen, g.FirstRun = at, run
		l.gains[k] = g
		l.bound()
	}
	if g.LastRun != run {
		g.Runs++
	}
	if !g.Resolved.IsZero() { // only without a file
		g.Resolved, g.Regressed, g.told = time.Time{}, true, false
	}
	g.Category, g.Type, g.Message, g.File, g.Line, g.Column, g.Stack = f.Category, f.Type, f.Message, f.File, f.Line, f.Column, f.Stack
	g.Count++
	g.LastSeen, g.LastRun, g.RunNumber, g.FirstLine, g.LastLine = at, run, number, f.FirstLine, f.LastLine
	g.hours[hourOf(at)]++
	g.noteRun(run)
}

// bound drops the kind seen longest ago when there are too many. Called with l.mu held.
func (l *faultLog) bound() {
	if len(l.gains) <= maxUnsavedFaults {
		return
	}
	var oldest faultKey
	var seen time.Time
	for k, g := range l.gains {
		if seen.IsZero() || g.LastSeen.Before(seen) && !g.LastSeen.IsZero() {
			oldest, seen = k, g.LastSeen
		}
	}
	delete(l.gains, oldest)
}

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

// take hands what is not stored to a transaction.
func (l *faultLog) take() map[faultKey]*faultGain {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.gains) > 0 {
		l.takes++
	}
	l.flying = l.gains
	l.gains = make(map[faultKey]*faultGain)
	return l.flying
}

// stored says that what was taken is committed, and tells the news.
func (l *faultLog) stored(news []FaultNews) {
	l.mu.Lock()
	l.flying = nil
	l.mu.Unlock()
	l.tell(news)
}

func (l *faultLog) tell(news []FaultNews) {
	for _, n := range news {
		for told := false; !told; {
			select {
			case l.news <- n:
				told = true
			default:
				select {
				case <-l.news: // the oldest goes
				default:
				}
			}
		}
	}
}

// tellUnstored tells the news where there is no file.
func (l *faultLog) tellUnstored() {
	var news []FaultNews
	l.mu.Lock()
	for _, g := range l.gains {
		if !g.told {
			g.told = true
			news = append(news, FaultNews{Fault: g.Fault, Again: g.Regressed})
		}
	}
	l.mu.Unlock()
	l.tell(news)
}

// giveBack says that what was taken is not stored.
func (l *faultLog) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, old := range l.flying {
		if newer := l.gains[k]; newer != nil {
			old.merge(newer)
		}
		l.gains[k] = old
	}
	l.flying = nil
}

// merge adds the later occurrences of newer to g.
func (g *faultGain) merge(newer *faultGain) {
	runs := g.Runs + newer.Runs
	if g.LastRun == newer.firstRun {
		runs--
	}
	count, first, firstRun, begin := g.Count+newer.Count, g.FirstSeen, g.FirstRun, g.firstRun
	hours, inRuns := g.hours, g.inRuns
	for hour, n := range newer.hours {
		hours[hour] += n
	}
	newerRuns := newer.inRuns
	*g = *newer
	g.Runs, g.Count, g.FirstSeen, g.FirstRun, g.firstRun, g.hours, g.inRuns = runs, count, first, firstRun, begin, hours, inRuns
	for _, run := range newerRuns {
		g.noteRun(run)
	}
}

// unsavedFaults are copies of what is not known to be stored.
type unsavedFaults struct {
	flying  []*faultGain // in a transaction: by the time that the file is read it may have them as well
	waiting []*faultGain // not in the file as long as nothing is taken
	taken   int64        // how often something was by then
}

// unsaved gives what the file does not have, which must be read after this. Where taken has moved
// by then it may have what waited.
func (l *faultLog) unsaved() unsavedFaults {
	l.mu.Lock()
	defer l.mu.Unlock()
	return unsavedFaults{copyGains(l.flying), copyGains(l.gains), l.takes}
}

// taken counts how often something was handed to a transaction.
func (l *faultLog) taken() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.takes
}

func copyGains(gains map[faultKey]*faultGain) []*faultGain {
	all := make([]*faultGain, 0, len(gains))
	for _, g := range gains {
		c := *g
		c.hours, c.inRuns = maps.Clone(g.hours), slices.Clone(g.inRuns)
		all = append(all, &c)
	}
	return all
}

// NewFaults gives each kind of error when it is first seen, or seen again after it was resolved.
// One receiver; up to 64 wait for it, older ones are dropped. It is never closed.
func (s *Store) NewFaults() <-chan FaultNews { return s.faults.news }

// FaultsSeen counts the occurrences of errors of a process ("" = of all of the project) that this
// Store has seen since it was opened. It does not wait.
func (s *Store) FaultsSeen(project, name string) (n int64) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	if name != "" {
		return s.faults.seen[processKey{project, name}]
	}
	for key, seen := range s.faults.seen {
		if key.project == project {
			n += seen
		}
	}
	return n
}

// RunEnded says how the first process of a run has ended, once its output is captured: a bad end is
// an error too, if the output does not explain it already. A run that somebody stopped on purpose
// has ended with code 0. signal is "SIGSEGV" or so, "" if it exited.
func (s *Store) RunEnded(run int64, exitCode int, signal string) {
	r := s.ownRun(run)
	if r == nil {
		return
	}
	r.mu.Lock()
	r.now = max(time.Now().UnixNano(), r.lastAt)
	r.recognise(func(f *fault.Recogniser) {
		f.End(exitCode, signal)
		r.faults = fault.New(r.noteFault) // for what outlives the process
	})
	r.mu.Unlock()
	notify(s.kick)
}
