package logstore

import (
	"encoding/base64"
	"errors"
	"flag"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pmcp/logstore/line"
)

var flips = flag.Int("flips.n", 3, "in how many copies of a database a bit is flipped")

// TestFlippedBits flips a bit in copies of a database, one at a random place of each, and reads it: no line may be
// wrong, and the lines that are missing must be those of the gaps, unless the file as a whole is refused or moved
// aside.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	want := storeRealLogs(t, path)
	whole, err := os.ReadFile(path)
	checkError(t, err)
	random := rand.New(rand.NewPCG(22, 1))
	outcomes := make(map[string]int)
	for range *flips {
		at := random.Int64N(int64(len(whole)))
		damaged := append([]byte(nil), whole...)
		damaged[at] ^= 1 << random.IntN(8)
		checkError(t, os.WriteFile(path, damaged, 0o600))
		outcome := readFlipped(t, path, want)
		if testing.Verbose() && outcome != "same" && outcome != reasonDamaged {
			t.Logf("page %d at %d: %s", at/16384+1, at%16384, outcome)
		}
		outcomes[outcome]++
		if t.Failed() {
			t.Fatalf("bit at %d of %d, page %d at %d: %s", at, len(whole), at/16384+1, at%16384, outcome)
		}
		all, err := filepath.Glob(path + "*")
		checkError(t, err)
		for _, file := range all {
			checkError(t, os.Remove(file))
		}
	}
	t.Logf("%d bytes: %v", len(whole), outcomes)
}

// A flippedLine identifies a line.
type flippedLine struct{ run, number int64 }

// storeRealLogs stores the real logs, each several times, and returns the lines.
func storeRealLogs(t *testing.T, path string) map[flippedLine]string {
	t.Helper()
	s, err := Open(t.Context(), Options{Path: path})
	checkError(t, err)
	for name, text := range realLogs(t) {
		run := startRun(s, "/p", name)
		s.Capture(run, Stdout, time.Now(), text)
		endRun(s, run)
	}
	run := startRun(s, "/p", "noise")
	random := rand.NewChaCha8([32]byte{22})
	var raw [96]byte
	for range 10_000 { // they fill most of the file
		_, _ = random.Read(raw[:])
		s.Capture(run, Stdout, time.Now(), append(base64.StdEncoding.AppendEncode(nil, raw[:]), '\n'))
	}
	endRun(s, run)
	flush(t, s)
	awaitFilters(t, s)
	want := make(map[flippedLine]string)
	for _, l := range readAll(t, s, Query{Limit: 10_000}) {
		want[flippedLine{l.Run, l.Number}] = l.Text
	}
	checkError(t, s.Close())
	return want
}

// wantFiltered reads with filters, and fails the test unless it gets those of the lines that pass.
func wantFiltered(t *testing.T, s *Store, lines []Line) {
	t.Helper()
	middle := lines[len(lines)/2].At
	for _, q := range []Query{{Streams: 1 << Stdout}, {MinLevel: line.LevelWarn}, {Since: middle}, {Until: middle}} {
		f := q.filter()
		q.After, q.Limit = CursorStart, 5000
		got, _ := readPages(t, s, q)
		have := make(map[flippedLine]bool)
		for _, l := range got {
			have[flippedLine{l.Run, l.Number}] = true
		}
		for _, l := range lines {
			at := l.At.UnixNano()
			pass := at >= f.since && at < f.until && l.Level >= f.minLevel && (f.streams == 0 || f.streams>>l.Stream&1 != 0)
			if pass != have[flippedLine{l.Run, l.Number}] {
				t.Errorf("line %d of run %d: got %v with the filter %+v, want %v", l.Number, l.Run, !pass, f, pass)
				return
			}
		}
	}
}

// wantFound searches for a text of few lines, so that filters exclude chunks, and fails the test unless it finds those
// of the lines that could be read.
func wantFound(t *testing.T, s *Store, want map[flippedLine]string, readable map[flippedLine]bool) {
	t.Helper()
	const text = "error"
	m, err := s.Search(t.Context(), SearchQuery{Text: text, Query: Query{Limit: 1 << 20, MaxBytes: 1 << 30}, MaxTime: time.Hour})
	checkError(t, err)
	found := make(map[flippedLine]bool)
	for _, h := range m.Hits {
		found[flippedLine{h.Run, h.Number}] = true
	}
	for id, line := range want {
		if contains := strings.Contains(strings.ToLower(line), text); found[id] != (contains && readable[id]) {
			t.Errorf("line %d of run %d %q: got it found %v, want %v", id.number, id.run, line, found[id], !found[id])
			return
		}
	}
}

// readFlipped opens and reads the database with a flipped bit, and returns what became of it.
func readFlipped(t *testing.T, path string, want map[flippedLine]string) string {
	t.Helper()
	s, err := Open(t.Context(), Options{Path: path, Logger: slog.New(slog.DiscardHandler)})
	if errors.Is(err, ErrNewerSchema) || errors.Is(err, ErrForeign) {
		return "refused"
	}
	checkError(t, err)
	defer func() { _ = s.Close() }()
	if st := s.Status(); st.State != StateOK || st.Quarantined != "" {
		return "moved aside"
	}
	result := "same"
	for _, q := range []Query{{After: CursorStart, Limit: 5000}, {Newest: true, Limit: 5000}} {
		lines, gaps := readPages(t, s, q)
		if st := s.Status(); st.State != StateOK {
			return "given up: " + st.Reason
		}
		wantFiltered(t, s, lines)
		have := make(map[flippedLine]bool)
		for _, l := range lines {
			id := flippedLine{l.Run, l.Number}
			if text, ok := want[id]; !ok || text != l.Text || have[id] {
				t.Errorf("got line %d of run %d %q, want %q", l.Number, l.Run, l.Text, text)
				return "wrong"
			}
			have[id] = true
		}
		told := make(map[flippedLine]bool)
		for _, g := range gaps {
			for n := range g.Lines {
				told[flippedLine{g.Run, g.After + 1 + n}] = true
			}
			result = g.Reason
		}
		for id := range want {
			if have[id] == told[id] {
				t.Errorf("line %d of run %d: got it read %v, in a gap %v; gaps %+v", id.number, id.run, have[id], told[id], gaps)
				return "missing"
			}
			delete(told, id)
		}
		wantFound(t, s, want, have)
		if len(told) > 0 {
			t.Errorf("got gaps %+v, %d lines too large", gaps, len(told))
			return "too large"
		}
	}
	return result
}
