package logstore

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
)

var kills = flag.Int("chaos.n", 8, "how many times the chaos test kills a server")

// TestSIGKILL kills a server under load at random moments, beside another that goes on: the file
// stays sound, what is stored is an exact prefix of what was written, and the next server records
// that the end may be missing.
func TestSIGKILL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	alive := make(map[string]bool)
	survivor := uuid.NewString()
	alive[survivor] = true
	other := startHelper(t, "write", path, survivor, "survivor", "0")
	other.await("open")
	var ages []time.Duration
	for i := range *kills {
		name := "victim" + strconv.Itoa(i)
		h := startHelper(t, "write", path, uuid.NewString(), name, "0", "tell")
		h.await("open")
		<-time.After(time.Duration(rand.IntN(200_000)) * time.Microsecond)
		killed := time.Now()
		if err := h.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		captured := h.captured()
		_ = h.cmd.Wait()
		checkFile(t, path)
		stored := checkVictim(t, path, name, alive)
		ages = append(ages, checkLoss(t, captured, stored, killed))
	}
	sortDurations(ages)
	t.Logf("the oldest line that a kill took was %v old in the middle, %v at most", ages[len(ages)/2], ages[len(ages)-1])
	_ = other.stdin.Close()
	other.await("done")
	s := openTest(t, Options{Path: path, MaxBytes: benchMax})
	lines := readAll(t, s, Query{Names: []string{"survivor"}, Limit: 10_000})
	wantNumbered(t, lines, 1, len(lines))
	if p, err := s.Read(t.Context(), Query{Names: []string{"survivor"}, Newest: true}); err != nil || len(p.Gaps) != 0 || len(lines) == 0 {
		t.Errorf("the survivor has %d lines and gaps %+v, %v", len(lines), p.Gaps, err)
	}
}

// progress is how many lines were captured at a time.
type progress struct {
	lines int
	at    time.Time
}

// captured reads what a killed helper has told.
func (h *helper) captured() (all []progress) {
	for h.out.Scan() {
		var n int
		var at int64
		if _, err := fmt.Sscan(h.out.Text(), &n, &at); err == nil { // the last line may be cut off
			all = append(all, progress{n, time.Unix(0, at)})
		}
	}
	return all
}

// checkLoss holds that a kill takes no more than a run may have pending, and tells how old the
// oldest line was that it took.
func checkLoss(t *testing.T, captured []progress, stored int, killed time.Time) (age time.Duration) {
	t.Helper()
	if len(captured) == 0 {
		return 0
	}
	const lineBytes = len("line 1000000 of the run\n")
	if lost := captured[len(captured)-1].lines - stored; lost*lineBytes > runBound {
		t.Errorf("%d lines are lost of %d", lost, stored+lost)
	}
	for _, p := range captured {
		if p.lines > stored {
			return max(0, killed.Sub(p.at))
		}
	}
	return 0
}

// checkVictim opens the file as the next server does, and gives the number of stored lines.
func checkVictim(t *testing.T, path, name string, alive map[string]bool) (stored int) {
	t.Helper()
	s, err := Open(t.Context(), Options{Path: path, MaxBytes: benchMax, Alive: func(_, id string) bool { return alive[id] }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if st := s.Status(); st.State != StateOK || st.Quarantined != "" {
		t.Fatalf("status %+v", st)
	}
	if err := s.markLost(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := readAll(t, s, Query{Names: []string{name}, Limit: 10_000})
	wantNumbered(t, lines, 1, len(lines))
	p, err := s.Read(t.Context(), Query{Names: []string{name}, Newest: true, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := s.Runs(t.Context(), RunFilter{Names: []string{name}})
	if err != nil || len(runs) > 1 || len(runs) == 1 && (!runs[0].Lost || len(p.Gaps) != 1 || p.Gaps[0].After != int64(len(lines))) {
		t.Fatalf("runs %+v, gaps %+v, %d lines, %v", runs, p.Gaps, len(lines), err)
	}
	return len(lines)
}

// TestManyShortRuns has a process that crashes again and again.
func TestManyShortRuns(t *testing.T) {
	t.Parallel()
	const n = 2000
	s := openTest(t, Options{})
	crashAgain(t, s, n)
	text := int64(n * 3 * len("line 1 of the run\n"))
	if lines := readAll(t, s, Query{Limit: 1000}); len(lines) != 3*n {
		t.Fatalf("%d lines", len(lines))
	}
	if lines := readBackwards(t, s, Query{Limit: 1000}); len(lines) != 3*n {
		t.Fatalf("%d lines backwards", len(lines))
	}
	used, err := usedBytes(t.Context(), s.file.read)
	if err != nil || (used-text)/n > 400 {
		t.Errorf("%d bytes a run beyond its text, %v", (used-text)/n, err)
	}
	t.Logf("%d bytes a run beyond its text", (used-text)/n)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.runs) != 0 {
		t.Errorf("%d runs are still in memory", len(s.runs))
	}
}
