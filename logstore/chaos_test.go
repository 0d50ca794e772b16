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

var kills = flag.Int("chaos.n", 3, "how many times the chaos test kills a server")

// TestKilledServerLosesOnlyLastLines kills a server under load at random moments while another
// server writes to the same file, and checks that the file stays sound, that the stored lines are
// an exact prefix of the written ones, and that the next server records that the end may be
// missing.
func TestKilledServerLosesOnlyLastLines(t *testing.T) {
	t.Parallel()
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
	t.Logf("age of the oldest line lost by a kill: median %v, max %v", ages[len(ages)/2], ages[len(ages)-1])
	_ = other.stdin.Close()
	other.await("done")
	s := openTest(t, Options{Path: path, MaxBytes: benchMax})
	lines := readAll(t, s, Query{Names: []string{"survivor"}, Limit: 10_000})
	wantNumbered(t, lines, 1, len(lines))
	if p, err := s.Read(t.Context(), Query{Names: []string{"survivor"}, Newest: true}); err != nil || len(p.Gaps) != 0 || len(lines) == 0 {
		t.Errorf("survivor: got %d lines, gaps %+v, %v; want lines and no gap", len(lines), p.Gaps, err)
	}
}

// progress is the number of lines that a helper program had captured at a time.
type progress struct {
	lines int
	at    time.Time
}

// captured returns the progress that a killed helper program printed.
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

// checkLoss fails the test if the kill lost more lines than a run may have pending, and returns the
// age of the oldest lost line.
func checkLoss(t *testing.T, captured []progress, stored int, killed time.Time) (age time.Duration) {
	t.Helper()
	if len(captured) == 0 {
		return 0
	}
	const lineBytes = len("line 1000000 of the run\n")
	if lost := captured[len(captured)-1].lines - stored; lost*lineBytes > runBound {
		t.Errorf("got %d of %d lines lost, want at most %d bytes", lost, stored+lost, runBound)
	}
	for _, p := range captured {
		if p.lines > stored {
			return max(0, killed.Sub(p.at))
		}
	}
	return 0
}

// checkVictim opens the file as the next server does and returns the number of lines that the
// killed server stored.
func checkVictim(t *testing.T, path, name string, alive map[string]bool) (stored int) {
	t.Helper()
	s, err := Open(t.Context(), Options{Path: path, MaxBytes: benchMax, Alive: func(_, id string) bool { return alive[id] }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if st := s.Status(); st.State != StateOK || st.Quarantined != "" {
		t.Fatalf("got status %+v, want OK and nothing quarantined", st)
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
		t.Fatalf("got runs %+v, gaps %+v, %v; want one lost run with a gap after line %d", runs, p.Gaps, err, len(lines))
	}
	return len(lines)
}

// TestShortRunsTakeFewBytes stores the runs of a process that crashes again and again, and checks
// that each run takes few bytes.
func TestShortRunsTakeFewBytes(t *testing.T) {
	t.Parallel()
	const n = 2000
	s := openTest(t, Options{})
	empty, err := usedBytes(t.Context(), s.file.ReadDB)
	checkError(t, err)
	storeShortRuns(t, s, n)
	text := empty + int64(n*3*len("line 1 of the run\n"))
	if lines := readAll(t, s, Query{Limit: 1000}); len(lines) != 3*n {
		t.Fatalf("got %d lines, want %d", len(lines), 3*n)
	}
	if lines := readBackwards(t, s, Query{Limit: 1000}); len(lines) != 3*n {
		t.Fatalf("backwards: got %d lines, want %d", len(lines), 3*n)
	}
	used, err := usedBytes(t.Context(), s.file.ReadDB)
	if err != nil || (used-text)/n > 220 {
		t.Errorf("got %d bytes a run beyond its text, %v; want at most 220", (used-text)/n, err)
	}
	t.Logf("%d bytes a run beyond its text", (used-text)/n)
	s.captureTable.mu.RLock()
	defer s.captureTable.mu.RUnlock()
	if len(s.runs) != 0 {
		t.Errorf("got %d runs in memory, want none", len(s.runs))
	}
}
