package logstore

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pmcp/logstore/db"
	"pmcp/process/proctest"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(helperEnv); name != "" {
		os.Exit(runHelper(name))
	}
	proctest.Overlap()
	goleak.VerifyTestMain(m)
}

// openTest opens a Store on a file of the test, and checks the file for damage when the test ends.
func openTest(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "pmcp.db")
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: got %v, want no error", err)
		}
		checkFile(t, o.Path)
	})
	if st := s.Status(); st.State != StateOK {
		t.Fatalf("got state %s: %s; want OK", st.State, st.Reason)
	}
	return s
}

// checkFile fails the test unless SQLite's integrity check of the whole file passes.
func checkFile(t testing.TB, path string) {
	t.Helper()
	db := db.PollPool.Open(path)
	defer db.Close()
	var verdict string
	if err := db.QueryRow(`PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity_check: got %q, %v; want ok", verdict, err)
	}
}

// raw opens the database file of a Store with a connection of its own.
func raw(t testing.TB, s *Store) *sql.DB {
	t.Helper()
	db := db.PollPool.Open(s.file.Path)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func flush(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// put captures lines numbered from first to last.
func put(s *Store, run int64, first, last int) {
	var b strings.Builder
	for i := first; i <= last; i++ {
		fmt.Fprintf(&b, "line %d of the run\n", i)
		if b.Len() > 32<<10 || i == last {
			s.Capture(run, Stdout, time.Now(), []byte(b.String()))
			b.Reset()
		}
	}
}

// putAll captures lines numbered from first to last and loses none: it flushes before the run
// reaches the limit beyond which lines are dropped.
func putAll(s *Store, run int64, first, last int) error {
	const step = 1000
	for ; first <= last; first += step {
		put(s, run, first, min(first+step-1, last))
		if s.Status().PendingBytes > runBound/2 {
			if err := s.Flush(context.Background()); err != nil {
				return err
			}
		}
	}
	return nil
}

// startRun starts a run, whose row is stored at once, and returns its id.
func startRun(s *Store, project, name string) int64 { //nolint:unparam // callers name their project
	id, _, _ := s.NewRun(project, name)
	s.SaveRun(id, time.Now(), time.Time{}, []byte(`{"state":"running"}`))
	return id
}

// endRun ends a run that startRun started. A run whose end is already stored stays as it is.
func endRun(s *Store, id int64) {
	r := s.ownRun(id)
	if r == nil {
		return
	}
	r.mu.Lock()
	started := timeFromNanos(r.row.started)
	r.mu.Unlock()
	s.EndCapture(id)
	s.SaveRun(id, started, time.Now(), []byte(`{"state":"exited"}`))
}

// storeShortRuns stores the given number of runs of three lines each.
func storeShortRuns(t testing.TB, s *Store, runs int) {
	t.Helper()
	for i := range runs {
		run := startRun(s, "/p", "crashing")
		put(s, run, 1, 3)
		endRun(s, run)
		if i%500 == 0 {
			flush(t, s)
		}
	}
	flush(t, s)
}

// readAll reads all pages of a query by cursor and fails the test unless each page starts where the
// one before ended.
func readAll(t testing.TB, s *Store, q Query) []Line {
	t.Helper()
	if q.After == "" {
		q.After = CursorStart
	}
	var all []Line
	for {
		p, err := s.Read(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p.Lines...)
		if !p.MoreAfter {
			return all
		}
		if len(p.Lines) == 0 {
			t.Fatal("got an empty page with MoreAfter, want lines or the end")
		}
		q.After = p.Next()
	}
}

// wantNumbered fails the test unless the lines are those that put captured from first to last.
func wantNumbered(t testing.TB, lines []Line, first, last int) {
	t.Helper()
	if len(lines) != last-first+1 {
		t.Fatalf("got %d lines, want %d", len(lines), last-first+1)
	}
	for i, l := range lines {
		if want := fmt.Sprintf("line %d of the run", first+i); l.Text != want || l.Number != int64(first+i) {
			t.Fatalf("line %d: got number %d %q, want %q", i, l.Number, l.Text, want)
		}
	}
}

func texts(lines []Line) []string {
	all := make([]string, len(lines))
	for i, l := range lines {
		all[i] = l.Text
	}
	return all
}
