package logstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"pmcp/logstore/fault"
)

// throw prints what node prints for an error with a changing id.
func throw(s *Store, run int64, id int) {
	s.Capture(run, Stderr, time.Now(), fmt.Appendf(nil, `/app/server.js:12
    throw new TypeError("cannot read user %d");
    ^

TypeError: cannot read user %d
    at handle (/app/server.js:12:11)
    at Server.emit (node:events:519:28)

Node.js v20.20.2
`, id, id))
}

func onlyFault(t *testing.T, s *Store, q FaultQuery) Fault {
	t.Helper()
	all, total, err := s.Faults(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || total != 1 {
		t.Fatalf("%d of %d faults: %+v", len(all), total, all)
	}
	return all[0]
}

func TestFaultsAreOneKindAcrossSessions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	open := func() *Store {
		s, err := Open(t.Context(), Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	run, _ := s.NewRun("/p", "web")
	for id := range 5 {
		throw(s, run, 4711+id)
	}
	s.RunEnded(run, 1, "")
	s.EndCapture(run)
	first := onlyFault(t, s, FaultQuery{Project: "/p"})
	if first.Type != "TypeError" || first.Count != 5 || first.Runs != 1 || first.PerHour[0]+first.PerHour[1] != 5 || first.File != "/app/server.js" || first.Line != 12 {
		t.Errorf("after five throws: %+v", first)
	}
	if news := <-s.NewFaults(); news.ID != first.ID || news.Again {
		t.Errorf("news %+v", news)
	}
	if page, err := s.Read(t.Context(), Query{Project: "/p", Names: []string{"web"}, Before: first.Cursor(), Limit: 1}); err != nil || len(page.Lines) != 1 || page.Lines[0].Number != first.LastLine {
		t.Errorf("the cursor leads to %+v, %v; want line %d", page, err, first.LastLine)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open()
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if f, err := s.ResolveFault(t.Context(), first.ID, "mended"); err != nil || f.Resolved.IsZero() || f.Note != "mended" {
		t.Fatalf("resolved: %+v, %v", f, err)
	}
	unresolved, resolved := false, true
	if all, _, err := s.Faults(t.Context(), FaultQuery{Project: "/p", Resolved: &unresolved}); err != nil || len(all) != 0 {
		t.Errorf("open faults %+v, %v", all, err)
	}
	onlyFault(t, s, FaultQuery{Project: "/p", Resolved: &resolved})
	again, _ := s.NewRun("/p", "web")
	throw(s, again, 9)
	s.EndCapture(again)
	f := onlyFault(t, s, FaultQuery{Project: "/p"})
	if f.Count != 6 || f.Runs != 2 || !f.Regressed || !f.Resolved.IsZero() || f.ID != first.ID || !f.FirstSeen.Equal(first.FirstSeen) {
		t.Errorf("seen again: %+v", f)
	}
	if news := <-s.NewFaults(); !news.Again {
		t.Errorf("news %+v", news)
	}
	if _, err := s.ResolveFault(t.Context(), "nonsense", ""); !errors.Is(err, ErrUnknownFault) {
		t.Errorf("resolving nothing: %v", err)
	}
}

// TestSilenceCompletesAnError: nothing comes after the stack, or only on the other stream.
func TestSilenceCompletesAnError(t *testing.T) {
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	run, _ := s.NewRun("/p", "web")
	for n := range int64(2) {
		s.Capture(run, Stderr, time.Now(), []byte("TypeError: no price\n    at price (/app/price.js:3:7)\n"))
		chatter := time.NewTicker(10 * time.Millisecond)
		defer chatter.Stop()
		deadline := time.After(10 * time.Second)
		for told := false; !told; {
			select {
			case <-chatter.C:
				if n == 1 {
					s.Capture(run, Stdout, time.Now(), []byte("GET / 200\n"))
				}
			case <-deadline:
				t.Fatal("the error never came")
			}
			all, _, err := s.Faults(t.Context(), FaultQuery{Project: "/p"})
			if err != nil {
				t.Fatal(err)
			}
			told = len(all) == 1 && all[0].Count == n+1
		}
	}
	if f := onlyFault(t, s, FaultQuery{}); f.File != "/app/price.js" || f.Line != 3 {
		t.Errorf("%+v", f)
	}
}

func TestFaultQueryNarrows(t *testing.T) {
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	web, _ := s.NewRun("/p", "web")
	api, _ := s.NewRun("/p", "api")
	throw(s, web, 1)
	s.Capture(web, Stderr, time.Now(), nil)
	s.RunEnded(api, 3, "")
	seen := onlyFault(t, s, FaultQuery{Project: "/p", Names: []string{"web"}})
	before := seen.Cursor()
	if f := onlyFault(t, s, FaultQuery{Runs: []int64{api}}); f.Category != "crash" || f.Name != "api" {
		t.Errorf("a bad end: %+v", f)
	}
	if all, total, err := s.Faults(t.Context(), FaultQuery{Limit: 1, Offset: 1}); err != nil || len(all) != 1 || total != 2 {
		t.Errorf("second page: %+v of %d, %v", all, total, err)
	}
	if all, _, err := s.Faults(t.Context(), FaultQuery{Names: []string{"web"}, After: before}); err != nil || len(all) != 0 {
		t.Errorf("behind the last: %+v, %v", all, err)
	}
	throw(s, web, 2)
	s.Capture(web, Stderr, time.Now(), nil)
	onlyFault(t, s, FaultQuery{Names: []string{"web"}, After: before})
	if _, _, err := s.Faults(t.Context(), FaultQuery{After: "?"}); !errors.Is(err, ErrCursor) {
		t.Errorf("a bad cursor: %v", err)
	}
	if f, err := s.ResolveFault(t.Context(), onlyFault(t, s, FaultQuery{Names: []string{"web"}}).ID, ""); err != nil || f.Count != 2 {
		t.Errorf("resolved in memory: %+v, %v", f, err)
	}
}

// TestFaultGainsMerge gives back what a failed transaction had taken.
func TestFaultGainsMerge(t *testing.T) {
	l := newFaultLog(slog.New(slog.DiscardHandler))
	s := &Store{faults: l}
	r := newRunLog(7, processKey{"/p", "web"}, 1, time.Now(), &s.pool, l, nil)
	see := func() { r.mu.Lock(); r.faults.End(3, ""); r.mu.Unlock() }
	seen := func() []Fault {
		unsaved := l.unsaved()
		return withGains(withGains(nil, unsaved.flying), unsaved.waiting)
	}
	see()
	l.take()
	r.faults = newRunLog(7, r.key, 1, time.Now(), &s.pool, l, nil).faults
	see()
	if all := seen(); len(all) != 1 || all[0].Count != 2 || all[0].Runs != 1 {
		t.Errorf("while one is under way: %+v", all)
	}
	l.giveBack()
	if all := seen(); len(all) != 1 || all[0].Count != 2 || all[0].Runs != 1 {
		t.Errorf("given back: %+v", all[0])
	}
}

// TestFaultStoredBeforeTheRead is counted once: what waited when a query looked at memory may be in
// the file when it reads that.
func TestFaultStoredBeforeTheRead(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	flush(t, s)
	s.file.read.SetMaxOpenConns(1)
	held, err := s.file.read.Conn(t.Context()) // the only one: the query waits for it
	checkError(t, err)
	before := s.file.read.Stats().WaitCount
	throw(s, run, 1)
	s.EndCapture(run)
	counted := make(chan int64, 1)
	go func() {
		var count int64
		all, _, err := s.Faults(context.Background(), FaultQuery{Settled: true})
		if err != nil {
			t.Error(err)
		}
		for _, f := range all {
			count += f.Count
		}
		counted <- count
	}()
	for late := time.Now().Add(20 * time.Second); s.file.read.Stats().WaitCount == before; runtime.Gosched() {
		if time.Now().After(late) {
			t.Error("the query reads nothing")
			break
		}
	}
	flush(t, s)
	checkError(t, held.Close())
	if n := <-counted; n != 1 {
		t.Errorf("counted %d times", n)
	}
}

func TestEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	for session := range 2 {
		s, err := Open(t.Context(), Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		s.SaveEvent("/p", "web", 1, time.Now(), fmt.Sprintf("web crashed %d", session))
		s.SaveEvent("/p", "api", 2, time.Now(), "api became ready")
		all, err := s.Events(context.Background(), "/p", []string{"web"}, 10)
		if err != nil || len(all) != session+1 || all[session].Text != fmt.Sprintf("web crashed %d", session) {
			t.Errorf("session %d: %+v, %v", session, all, err)
		}
		if all, err := s.Events(context.Background(), "", nil, 1); err != nil || len(all) != 1 || all[0].Name != "api" {
			t.Errorf("the latest: %+v, %v", all, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEventsCommittedMeanwhile: an event that was in memory and is in the file by now is not taken
// for one that comes after all of the file.
func TestEventsCommittedMeanwhile(t *testing.T) {
	s := openTest(t, Options{})
	s.SaveEvent("/p", "web", 1, time.Now(), "web crashed")
	s.SaveEvent("/p", "api", 2, time.Now(), "api became ready")
	unsaved := s.unsavedEvents()
	flush(t, s)
	all, err := s.eventsBeside(t.Context(), unsaved, "/p", nil, 1)
	if checkError(t, err); len(unsaved) != 2 || len(all) != 1 || all[0].Name != "api" {
		t.Errorf("of %d the latest: %+v", len(unsaved), all)
	}
}

// TestReadableDuringTheTransaction reads what waits for a commit that another server holds up, and
// what that commit has in hand.
func TestReadableDuringTheTransaction(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	at := time.Now()
	note := func(i int) {
		s.SaveEvent("/p", "web", run, at.Add(time.Duration(i)*time.Minute), fmt.Sprint("event ", i))
		for _, second := range []int{0, 11} { // each ends the span before it
			s.SaveSample(run, at.Add(time.Duration(i)*time.Minute+time.Duration(second)*time.Second), float64(i), 0, 1)
		}
		throw(s, run, i)
		s.Capture(run, Stderr, time.Now(), nil)
	}
	want := func(when string, n int) {
		t.Helper()
		events, err := s.Events(t.Context(), "/p", nil, 0)
		if err != nil || len(events) != n || n > 0 && events[n-1].Text != fmt.Sprint("event ", n) {
			t.Errorf("%s: events %+v, %v", when, events, err)
		}
		samples, err := s.Samples(t.Context(), run, time.Time{})
		if err != nil || len(samples) != 2*n-1 || samples[2*n-2].CPUPercent != float64(n) {
			t.Errorf("%s: samples %+v, %v", when, samples, err)
		}
		if f := onlyFault(t, s, FaultQuery{}); f.Count != int64(n) || f.PerHour[0]+f.PerHour[1] != int64(n) || f.Runs != 1 {
			t.Errorf("%s: fault %+v", when, f)
		}
	}
	note(1)
	want("stored", 1)

	other := writePool.open(s.file.path) // not one of the store's: it waits for the flusher, and the flusher for it, with what it took
	defer other.Close()
	block, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := block.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	note(2)
	want("in the transaction", 2)
	note(3)
	want("in the transaction and waiting", 3)
	if _, err := block.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if err := block.Close(); err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	want("stored later", 3)
}

// TestRecogniserPanicEndsOnlyItself: the run's log goes on.
func TestRecogniserPanicEndsOnlyItself(t *testing.T) {
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	run, _ := s.NewRun("/p", "web")
	r := s.ownRun(run)
	r.mu.Lock()
	r.recognise(func(*fault.Recogniser) { panic("a shape nobody thought of") })
	r.mu.Unlock()
	throw(s, run, 1)
	s.RunEnded(run, 1, "")
	s.EndCapture(run)
	if page, err := s.Read(t.Context(), Query{Runs: []int64{run}}); err != nil || len(page.Lines) != 9 {
		t.Errorf("after the panic: %+v, %v", page, err)
	} else if own := page.Runs[run]; !own.Own || !own.Live || own.Lost {
		t.Errorf("a run in memory only: %+v", own)
	}
}
