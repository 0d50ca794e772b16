package server

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// A positionModel is what a client knows about a run of the process tests: the kind of
// each line that the run printed, and the number of the last line that an answer has shown.
// Lines are numbered from 1.
type positionModel struct {
	s     *surface
	run   int64
	rand  *rand.Rand
	kinds []int
	shown int
}

const lineKinds = 30

// print prints lines of random kinds.
func (m *positionModel) print() {
	for range 1 + m.rand.IntN(60) {
		m.kinds = append(m.kinds, m.rand.IntN(lineKinds))
		m.s.print(m.run, fmt.Sprintf("line %d. kind %d.", len(m.kinds), m.kinds[len(m.kinds)-1]))
	}
}

var numberedLine = regexp.MustCompile(`line (\d+)\. kind`)

// see records the lines that an answer shows, and returns the number of the first.
func (m *positionModel) see(data map[string]any) (first int) {
	for _, found := range numberedLine.FindAllStringSubmatch(fmt.Sprint(data["lines"], data["matches"]), -1) {
		n, _ := strconv.Atoi(found[1])
		if first == 0 {
			first = n
		}
		m.shown = max(m.shown, n)
	}
	return first
}

// look makes a call whose answer may show lines.
func (m *positionModel) look() {
	tool, arguments := "tail_logs", map[string]any{"process": "tests", "lines": 1 + m.rand.IntN(10)}
	switch m.rand.IntN(8) {
	case 0:
		arguments["stream"] = "out"
	case 1:
		arguments["after"] = afterShown
	case 2:
		tool = "get_logs"
	case 3:
		tool, arguments["after"] = "get_logs", "start"
	case 4:
		tool = "search_logs"
		arguments = map[string]any{
			"query": fmt.Sprintf("kind %d.", m.rand.IntN(lineKinds)), "limit": 1 + m.rand.IntN(4),
			"context": m.rand.IntN(3), "count_only": m.rand.IntN(4) == 0, "order": []string{"newest", "oldest"}[m.rand.IntN(2)],
		}
	case 5:
		tool, arguments["until"], arguments["timeout_ms"] = "wait_for_process", "exit", 0
	case 6:
		tool, arguments["until"], arguments["idle_ms"], arguments["timeout_ms"] = "wait_for_process", "idle", 100, 300
	}
	data, _ := m.s.do(tool, arguments)
	m.see(data)
}

// find returns the numbers of the first and of the last line of a kind between two
// numbers, or 0.
func (m *positionModel) find(kind, from, to int) (first, last int) {
	for n := from; n <= to; n++ {
		if m.kinds[n-1] != kind {
			continue
		}
		if last = n; first == 0 {
			first = n
		}
	}
	return first, last
}

// wait waits for a line of a random kind, maybe while lines are printed, and checks that
// the answer is the first such line after the position. Only if 10 s pass in silence, it is
// the last one before the position, marked as older.
func (m *positionModel) wait(t *testing.T) {
	kind, shown, before := m.rand.IntN(lineKinds+3), m.shown, len(m.kinds)
	lines := 1 + m.rand.IntN(30)
	delay := []time.Duration{0, time.Second, 9 * time.Second, 11 * time.Second}[m.rand.IntN(4)]
	printed := make(chan struct{})
	time.AfterFunc(delay, func() {
		defer close(printed)
		if delay > 0 {
			m.print()
		}
	})
	began := time.Now()
	data, text := m.s.waitFor("tests", "log", "pattern", fmt.Sprintf(`kind %d\.`, kind), "timeout_ms", 20_000, "lines", lines)
	took := time.Since(began)
	<-printed
	match, _ := m.find(kind, shown+1, before)
	_, older := m.find(kind, 1, shown)
	if match == 0 && (older == 0 || delay < olderSilence) {
		match, _ = m.find(kind, before+1, len(m.kinds))
	}
	isOlder := match == 0 && older > 0
	want, least := "<nil>", 20*time.Second
	switch {
	case match > 0:
		want, least = fmt.Sprintf("line %d. kind %d.", match, kind), 0
	case isOlder:
		want, least = fmt.Sprintf("line %d. kind %d.", older, kind), olderSilence
	}
	if got := fmt.Sprint(data["match"]); got != want || (data["older"] == true) != isOlder || (data["timed_out"] == true) != (want == "<nil>") || took < least {
		t.Errorf("kind %d, %d lines shown of %d, more after %v: took %v, got\n%s\nwant %s, older %v", kind, shown, before, delay, took, text, want, isOlder)
	}
	if first := m.see(data); first != 0 && first <= shown {
		t.Errorf("%d lines shown: got\n%s\nwant no line before", shown, text)
	}
}

// olderSilence is how long a wait is silent before an older line answers it.
const olderSilence = 10 * time.Second

// TestWaitNeverMatchesLineBeforePosition checks with 500 waits, after random output and
// answers that show some of it, that no wait is answered with a line before the last one
// that was shown, unless that is marked as older, also if no answer has shown the line.
func TestWaitNeverMatchesLineBeforePosition(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			s := hello(t)
			m := &positionModel{s: s, run: s.ownRun(), rand: rand.New(rand.NewPCG(seed, 3))}
			for i := range 50 {
				for range m.rand.IntN(4) {
					if m.rand.IntN(2) == 0 {
						m.print()
					} else {
						m.look()
					}
				}
				if m.wait(t); t.Failed() {
					t.Fatalf("seed %d, wait %d", seed, i)
				}
			}
		})
	}
}
