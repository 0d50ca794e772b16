package logstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/fault"
	"pmcp/process/proctest"
)

// throw captures what node prints for an error with a changing id.
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
		t.Fatalf("got %d of %d errors %+v, want 1", len(all), total, all)
	}
	return all[0]
}

func TestSameFaultIsCountedAcrossSessions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	open := func() *Store {
		s, err := Open(t.Context(), Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	run, _, _ := s.NewRun("/p", "web")
	for id := range 5 {
		throw(s, run, 4711+id)
	}
	s.RunEnded(run, 1, "")
	s.EndCapture(run)
	first := onlyFault(t, s, FaultQuery{Project: "/p"})
	if first.Type != "TypeError" || first.Count != 5 || first.Runs != 1 || first.PerHour[0]+first.PerHour[1] != 5 || first.File != "/app/server.js" || first.Line != 12 {
		t.Errorf("after five throws: got %+v, want one TypeError with count 5 at /app/server.js:12", first)
	}
	if news := <-s.NewFaults(); news.ID != first.ID || news.Again {
		t.Errorf("got news %+v, want the first of %s", news, first.ID)
	}
	if page, err := s.Read(t.Context(), Query{Project: "/p", Names: []string{"web"}, Before: first.Cursor(), Limit: 1}); err != nil || len(page.Lines) != 1 || page.Lines[0].Number != first.LastLine {
		t.Errorf("before the cursor: got %+v, %v; want line %d", page, err, first.LastLine)
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
	if f, changed, err := s.MarkFault(t.Context(), first.ID, true, "by mistake"); err != nil || !changed || f.Resolved.IsZero() {
		t.Fatalf("MarkFault: got %+v, %v; want it resolved", f, err)
	}
	if f, changed, err := s.MarkFault(t.Context(), first.ID, true, "again"); err != nil || changed || f.Note != "by mistake" {
		t.Fatalf("a resolved error, marked as resolved: got %+v, changed %v, %v; want it unchanged", f, changed, err)
	}
	if f, changed, err := s.MarkFault(t.Context(), first.ID, false, ""); err != nil || !changed || !f.Resolved.IsZero() || f.Note != "" || f.Regressed {
		t.Fatalf("MarkFault: got %+v, %v; want it as before", f, err)
	}
	if f, _, err := s.MarkFault(t.Context(), first.ID, true, "mended"); err != nil || f.Resolved.IsZero() || f.Note != "mended" {
		t.Fatalf("MarkFault: got %+v, %v; want it resolved with the note", f, err)
	}
	unresolved, resolved := false, true
	if all, _, err := s.Faults(t.Context(), FaultQuery{Project: "/p", Resolved: &unresolved}); err != nil || len(all) != 0 {
		t.Errorf("unresolved: got %+v, %v; want none", all, err)
	}
	onlyFault(t, s, FaultQuery{Project: "/p", Resolved: &resolved})
	again, _, _ := s.NewRun("/p", "web")
	throw(s, again, 9)
	s.EndCapture(again)
	f := onlyFault(t, s, FaultQuery{Project: "/p"})
	if f.Count != 6 || f.Runs != 2 || !f.Regressed || !f.Resolved.IsZero() || f.ID != first.ID || !f.FirstSeen.Equal(first.FirstSeen) {
		t.Errorf("seen again: got %+v, want a regression with count 6 in 2 runs", f)
	}
	if news := <-s.NewFaults(); !news.Again {
		t.Errorf("got news %+v, want it again", news)
	}
	if f, changed, err := s.MarkFault(t.Context(), first.ID, false, ""); err != nil || changed || !f.Regressed || f.Note != "mended" {
		t.Errorf("an open error, marked as open: got %+v, %v; want it unchanged", f, err)
	}
	if _, _, err := s.MarkFault(t.Context(), "nonsense", true, ""); !errors.Is(err, ErrUnknownFault) {
		t.Errorf("resolving an unknown error: got %v, want ErrUnknownFault", err)
	}
}

// TestSilenceCompletesError checks that an error is recorded when the run is silent after the
// error's stack, or prints only on the other stream.
func TestSilenceCompletesError(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	run, _, _ := s.NewRun("/p", "web")
	for n := range int64(2) {
		s.Capture(run, Stderr, time.Now(), []byte("TypeError: no price\n    at price (/app/price.js:3:7)\n"))
		proctest.Await(t, fmt.Sprintf("the error, %d times", n+1), func() bool {
			if n == 1 { // the program goes on printing
				s.Capture(run, Stdout, time.Now(), []byte("GET / 200\n"))
			}
			all, _, err := s.Faults(t.Context(), FaultQuery{Project: "/p"})
			if err != nil {
				t.Fatal(err)
			}
			return len(all) == 1 && all[0].Count == n+1
		})
	}
	if f := onlyFault(t, s, FaultQuery{}); f.File != "/app/price.js" || f.Line != 3 {
		t.Errorf("got %+v, want /app/price.js:3", f)
	}
}

func TestFaultQueryFilters(t *testing.T) {
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	web, _, _ := s.NewRun("/p", "web")
	api, _, _ := s.NewRun("/p", "api")
	throw(s, web, 1)
	s.Capture(web, Stderr, time.Now(), nil)
	s.RunEnded(api, 3, "")
	seen := onlyFault(t, s, FaultQuery{Project: "/p", Names: []string{"web"}})
	before := seen.Cursor()
	if f := onlyFault(t, s, FaultQuery{Runs: []int64{api}}); f.Category != "crash" || f.Name != "api" {
		t.Errorf("a bad end: got %+v, want a crash of api", f)
	}
	if all, total, err := s.Faults(t.Context(), FaultQuery{Limit: 1, Offset: 1}); err != nil || len(all) != 1 || total != 2 {
		t.Errorf("second page: got %+v of %d, %v; want 1 of 2", all, total, err)
	}
	if all, _, err := s.Faults(t.Context(), FaultQuery{Names: []string{"web"}, After: before}); err != nil || len(all) != 0 {
		t.Errorf("after the last: got %+v, %v; want none", all, err)
	}
	throw(s, web, 2)
	s.Capture(web, Stderr, time.Now(), nil)
	onlyFault(t, s, FaultQuery{Names: []string{"web"}, After: before})
	if _, _, err := s.Faults(t.Context(), FaultQuery{After: "?"}); !errors.Is(err, ErrCursor) {
		t.Errorf("an invalid cursor: got %v, want ErrCursor", err)
	}
	if f, changed, err := s.MarkFault(t.Context(), onlyFault(t, s, FaultQuery{Names: []string{"web"}}).ID, true, ""); err != nil || !changed || f.Count != 2 {
		t.Errorf("resolved in memory: got %+v, %v; want count 2", f, err)
	} else if f, changed, err := s.MarkFault(t.Context(), f.ID, false, ""); err != nil || !changed || !f.Resolved.IsZero() || f.Count != 2 {
		t.Errorf("reopened in memory: got %+v, %v; want it open with count 2", f, err)
	}
}

// TestFaultCountsSurviveFailedTransaction checks that the occurrences of an error that a failed
// transaction did not store are added to the occurrences since then.
func TestFaultCountsSurviveFailedTransaction(t *testing.T) {
	l := newFaultLog(&storage{log: slog.New(slog.DiscardHandler)})
	var pool buffers
	r := newRunLog(7, processKey{"/p", "web"}, 1, time.Now(), &pool, l, nil)
	see := func() { r.mu.Lock(); r.faults.End(3, ""); r.mu.Unlock() }
	seen := func() []Fault {
		unsaved := l.unsaved()
		return addDeltas(addDeltas(nil, unsaved.inFlight), unsaved.waiting)
	}
	see()
	l.begin()
	r.faults = newRunLog(7, r.key, 1, time.Now(), &pool, l, nil).faults
	see()
	if all := seen(); len(all) != 1 || all[0].Count != 2 || all[0].Runs != 1 {
		t.Errorf("during the transaction: got %+v, want one with count 2", all)
	}
	l.rollback()
	if all := seen(); len(all) != 1 || all[0].Count != 2 || all[0].Runs != 1 {
		t.Errorf("after its failure: got %+v, want one with count 2", all)
	}
}

// TestFaultStoredDuringQueryCountsOnce stores an error after a query has read memory and before the
// query reads the file, and checks that the error counts once.
func TestFaultStoredDuringQueryCountsOnce(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	flush(t, s)
	s.file.ReadDB.SetMaxOpenConns(1)
	held, err := s.file.ReadDB.Conn(t.Context()) // the only connection: the query waits for it
	checkError(t, err)
	before := s.file.ReadDB.Stats().WaitCount
	throw(s, run, 1)
	s.EndCapture(run)
	counted := make(chan int64, 1)
	go func() {
		var count int64
		all, _, err := s.Faults(context.Background(), FaultQuery{SkipFlush: true})
		if err != nil {
			t.Error(err)
		}
		for _, f := range all {
			count += f.Count
		}
		counted <- count
	}()
	proctest.Await(t, "a query that waits for a connection", func() bool { return s.file.ReadDB.Stats().WaitCount > before })
	flush(t, s)
	checkError(t, held.Close())
	if n := <-counted; n != 1 {
		t.Errorf("got count %d, want 1", n)
	}
}

func TestEventsAreKeptAcrossSessions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	for session := range 2 {
		s, err := Open(t.Context(), Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		s.SaveEvent(Event{At: time.Now(), Project: "/p", Name: "web", Run: 1, Kind: EventCrashed, By: "someone", Text: fmt.Sprintf("web crashed %d", session)})
		s.SaveEvent(Event{At: time.Now(), Project: "/p", Name: "api", Run: 2, Text: "api became ready"})
		all, err := s.Events(context.Background(), "/p", []string{"web"}, 10)
		if err != nil || len(all) != session+1 || all[0].Kind != EventCrashed || all[0].By != "someone" || all[session].Text != fmt.Sprintf("web crashed %d", session) {
			t.Errorf("session %d: got %+v, %v; want %d events", session, all, err, session+1)
		}
		if all, err := s.Events(context.Background(), "", nil, 1); err != nil || len(all) != 1 || all[0].Name != "api" {
			t.Errorf("latest: got %+v, %v; want that of api", all, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEventsCommittedDuringQueryKeepOrder commits events after a query has read memory and before
// the query reads the file, and checks that these events are not returned as newer than all events
// in the file.
func TestEventsCommittedDuringQueryKeepOrder(t *testing.T) {
	s := openTest(t, Options{})
	s.SaveEvent(Event{At: time.Now(), Project: "/p", Name: "web", Run: 1, Text: "web crashed"})
	s.SaveEvent(Event{At: time.Now(), Project: "/p", Name: "api", Run: 2, Text: "api became ready"})
	unsaved := s.unsavedEvents()
	flush(t, s)
	all, err := s.mergeEvents(t.Context(), unsaved, "/p", nil, 1)
	if checkError(t, err); len(unsaved) != 2 || len(all) != 1 || all[0].Name != "api" {
		t.Errorf("latest of %d: got %+v, want 2 and that of api", len(unsaved), all)
	}
}

// TestRecordsAreReadableDuringTransaction checks that samples, events and other records can be read
// while the commit that stores them is blocked by another server, and while they wait for the next
// commit.
func TestRecordsAreReadableDuringTransaction(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	at := time.Now()
	note := func(i int) {
		s.SaveEvent(Event{At: at.Add(time.Duration(i) * time.Minute), Project: "/p", Name: "web", Run: run, Text: fmt.Sprint("event ", i)})
		for _, second := range []int{0, 11} { // each sample ends the previous span
			s.SaveSample(run, at.Add(time.Duration(i)*time.Minute+time.Duration(second)*time.Second), float64(i), 0, 1)
		}
		throw(s, run, i)
		s.Capture(run, Stderr, time.Now(), nil)
	}
	want := func(when string, n int) {
		t.Helper()
		events, err := s.Events(t.Context(), "/p", nil, 0)
		if err != nil || len(events) != n || n > 0 && events[n-1].Text != fmt.Sprint("event ", n) {
			t.Errorf("%s: got events %+v, %v; want %d", when, events, err, n)
		}
		samples, err := s.Samples(t.Context(), run, time.Time{})
		if err != nil || len(samples) != 2*n-1 || samples[2*n-2].CPUPercent != float64(n) {
			t.Errorf("%s: got samples %+v, %v; want %d", when, samples, err, 2*n-1)
		}
		if f := onlyFault(t, s, FaultQuery{}); f.Count != int64(n) || f.PerHour[0]+f.PerHour[1] != int64(n) || f.Runs != 1 {
			t.Errorf("%s: got error %+v, want count %d", when, f, n)
		}
	}
	note(1)
	want("stored", 1)

	other := db.WritePool.Open(s.file.Path) // another server's connection: the flusher waits for this connection's lock, with the records of the commit
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

// TestRecogniserPanicKeepsLog checks that the lines of a run are stored and returned although its
// recogniser panicked.
func TestRecogniserPanicKeepsLog(t *testing.T) {
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	run, _, _ := s.NewRun("/p", "web")
	r := s.ownRun(run)
	r.mu.Lock()
	r.recogniseLocked(func(*fault.Recogniser) { panic("an unexpected shape") })
	r.mu.Unlock()
	throw(s, run, 1)
	s.RunEnded(run, 1, "")
	s.EndCapture(run)
	if page, err := s.Read(t.Context(), Query{Runs: []int64{run}}); err != nil || len(page.Lines) != 9 {
		t.Errorf("after the panic: got %+v, %v; want 9 lines", page, err)
	} else if own := page.Runs[run]; !own.Own || !own.Live || own.Lost {
		t.Errorf("a run in memory: got %+v, want it own and live", own)
	}
}
