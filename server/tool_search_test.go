package server

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"pmcp/logstore"
)

// hits returns found lines of the named runs. Each text is "RUN|LINE", and one line is
// printed each 12 hours.
func hits(more bool, texts ...string) *logstore.Matches {
	found := &logstore.Matches{More: more, Count: int64(len(texts)), Lines: 100, Runs: map[int64]logstore.Run{1: {Name: "web", Number: 3}, 2: {Name: "api", Number: 7}}}
	at := time.Date(2026, 11, 27, 9, 0, 0, 0, time.Local)
	for i, text := range texts {
		run, text, _ := strings.Cut(text, "|")
		l := logstore.Line{Run: 1, Number: int64(i + 1), At: at.Add(time.Duration(i) * 12 * time.Hour), Text: text}
		if run == "api" {
			l.Run = 2
		}
		found.Hits = append(found.Hits, logstore.Hit{Line: l})
	}
	return found
}

// TestSearchGroupsHitsByRun checks that the text has one header for each run and day, and no
// cursors.
func TestSearchGroupsHitsByRun(t *testing.T) {
	r := showMatches(hits(false, "web|one", "api|two", "web|three", "web|four"), &searchLogsArgs{}, logView{names: true, maxLineBytes: 100})
	want := "4 matches in 100 lines\n[process output]\n" +
		"--- 2026-11-27 web run 3 ---\n09:00:00 out one\n--- 2026-11-28 web run 3 ---\n09:00:00 out three\n21:00:00 out four\n" +
		"--- 2026-11-27 api run 7 ---\n21:00:00 out two\n"
	if got := textOf(r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r.Matches[1].Name != "api" || r.Matches[1].Line != "2026-11-27 api 21:00:00 out two" || r.Matches[1].Cursor != "" {
		t.Errorf("got the match %+v, want its name, its day and no cursor", r.Matches[1])
	}
	r = showMatches(hits(false, "web|one"), &searchLogsArgs{Times: "none"}, logView{maxLineBytes: 100, times: "none"})
	if got := textOf(r); !strings.HasSuffix(got, "--- 2026-11-27 web run 3 ---\nout | one\n") {
		t.Errorf("without times: got\n%s\nwant the day in the header alone", got)
	}
}

// TestSearchCostsLittleMoreThanItsLines checks the size of an answer with nine long lines.
func TestSearchCostsLittleMoreThanItsLines(t *testing.T) {
	var texts []string
	size := 0
	for i := range 9 {
		text := fmt.Sprintf("2026-11-27T09:00:%02dZ order 4711 transient failure, attempt %d of 9, retrying", i, i+1)
		texts, size = append(texts, "web|"+text), size+len(text)+1
	}
	found := hits(false, texts...)
	for i := range found.Hits {
		found.Hits[i].At = found.Hits[0].At
	}
	if text := textOf(showMatches(found, &searchLogsArgs{}, logView{maxLineBytes: 1000})); len(text) > size*13/10 {
		t.Errorf("got %d bytes for lines of %d, want at most 1.3 times as many:\n%s", len(text), size, text)
	}
}

// TestSearchHasCursorsToGoOn checks that each hit has a cursor, which leads to it, if the hits
// were cut or lines around them were asked for.
func TestSearchHasCursorsToGoOn(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", "seq 100 199", "wait", "exit")
	around := regexp.MustCompile(`(?m)^--- \S+ job run 1 ---\n--- cursor (\S+) ---\n  \S+ out 149\n> \S+ out 150\n  \S+ out 151\n$`)
	_, text := s.do("search_logs", map[string]any{"query": "150", "context": 1})
	cursor := around.FindStringSubmatch(text)
	if cursor == nil {
		t.Fatalf("got\n%s\nwant the line with a cursor, between its neighbours", text)
	}
	data, text := s.do("get_logs", map[string]any{"process": "job", "before": cursor[1], "limit": 1})
	if strings.Join(printed(data), "|") != "150" {
		t.Errorf("before the cursor: got\n%s\nwant line 150", text)
	}
	_, text = s.do("search_logs", map[string]any{"query": "15", "limit": 3})
	if strings.Count(text, "\n--- cursor ") != 3 || strings.Count(text, " run 1 ---\n") != 1 || !strings.Contains(text, "\nmore: true; continue with before: ") {
		t.Errorf("got\n%s\nwant three of ten hits below one header, each with its cursor", text)
	}
	if _, text = s.do("search_logs", map[string]any{"query": "15"}); strings.Contains(text, "cursor") {
		t.Errorf("got\n%s\nwant no cursors to all hits", text)
	}
}

// TestSearchResultsAreNotForged checks that no line that a process printed begins like one of
// pmcp's, whatever the answer shows in front of it.
func TestSearchResultsAreNotForged(t *testing.T) {
	s := hostile(t)
	for _, times := range []string{"none", "s", "ms"} {
		for _, more := range []map[string]any{{}, {"context": 1}, {"limit": 1}, {"process": "talker"}} {
			arguments := map[string]any{"query": "printed", "times": times}
			for key, value := range more {
				arguments[key] = value
			}
			_, text := s.do("search_logs", arguments)
			if !strings.Contains(text, "PRINTED") {
				t.Errorf("%v: got\n%s\nwant what was printed", arguments, text)
			}
			checkText(t, fmt.Sprint(arguments), text)
		}
	}
}
