package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/logstore"
	"pmcp/process/proctest"
	"pmcp/server/project"
	"pmcp/server/stdio/stdiotest"
)

// TestGetErrorsWaitsForLastLines checks that get_errors has an error whose last line was
// just printed.
func TestGetErrorsWaitsForLastLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hello(t)
		s.print(s.ownRun(), "Traceback (most recent call last):", `  File "/srv/shop.py", line 9, in total`, "KeyError: 'price'")
		if _, text := s.do("get_errors", map[string]any{"process": "tests"}); !strings.Contains(text, "1 kind of errors\n") || !strings.Contains(text, "KeyError") {
			t.Errorf("got %s, want the error", text)
		}
	})
}

// TestManyErrorsArePaged checks that get_errors returns many kinds of errors in
// several answers, none twice and none left out.
func TestManyErrorsArePaged(t *testing.T) {
	t.Parallel()
	s := hello(t)
	if _, text := s.do("get_errors", nil); text != "0 kinds of errors\n" {
		t.Errorf("without errors: got %q, want that alone", text)
	}
	run, _, _ := s.store.NewRun(s.manager.Project(), "app")
	const kinds = 60
	for i := range kinds {
		word := strings.Repeat(string(rune('a'+i%26)), 3+i/26)
		trace := "Traceback (most recent call last):\n"
		for frame := range 10 {
			trace += fmt.Sprintf("  File \"/srv/%s_%s.py\", line %d, in %s\n    %s\n", word, strings.Repeat("x", 60), frame+1, word, strings.Repeat("y", 60))
		}
		s.store.Capture(run, logstore.Stderr, time.Now(), []byte(trace+word+"Error: "+word+"\n"))
	}
	s.store.RunEnded(run, 0, "")
	s.store.EndCapture(run)
	stdiotest.NoErr(t, s.store.Flush(t.Context()))

	seen := make(map[string]bool)
	for answers := 0; ; answers++ {
		r := s.ask("tools/call", map[string]any{"name": "get_errors", "arguments": map[string]any{"offset": len(seen), "limit": 1000}})
		raw, err := json.Marshal(r.Result["structuredContent"])
		stdiotest.NoErr(t, err)
		var page getErrorsResult
		stdiotest.NoErr(t, json.Unmarshal(raw, &page))
		if size := len(r.Text()); size > defaultMaxBytes+500 {
			t.Errorf("got an answer of %d bytes, want at most %d", size, defaultMaxBytes+500)
		}
		if page.Total != kinds || len(page.Errors) == 0 {
			t.Fatalf("got %d of %d errors, want some of %d: %s", len(page.Errors), page.Total, kinds, raw)
		}
		for _, e := range page.Errors {
			if seen[e.ErrorID] {
				t.Errorf("got %s twice, want it once", e.ErrorID)
			}
			seen[e.ErrorID] = true
		}
		if !page.More {
			if len(seen) != kinds || answers == 0 {
				t.Errorf("got %d errors in %d answers, want %d in several", len(seen), answers+1, kinds)
			}
			return
		}
		if !strings.Contains(page.Hint, fmt.Sprintf("offset: %d", len(seen))) {
			t.Errorf("after %d errors: got hint %q, want the next offset", len(seen), page.Hint)
		}
	}
}

// TestGetErrorsFindsErrorsOfEarlierRun checks that get_errors for a run returns an error of the
// run although later runs had the same error.
func TestGetErrorsFindsErrorsOfEarlierRun(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for range 3 {
		s.crash()
	}
	for run := 1; run <= 3; run++ {
		data, text := s.do("get_errors", map[string]any{"process": "job", "run": run})
		hinted := strings.Contains(text, "from the latest run that had it")
		if errors, _ := data["errors"].([]any); len(errors) != 1 || hinted != (run < 3) {
			t.Errorf("run %d: got\n%s\nwant 1 error", run, text)
		}
	}
}

// TestWaitReturnsErrorsOfItsRun checks that wait_for_process without a cursor
// returns the errors of the lines that were not shown before, also while the run continues,
// and none of the run before.
func TestWaitReturnsErrorsOfItsRun(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "echo 'ValueError: of the run before' >&2; exit 3", "wait", "exit")
	s.script("web", "echo '2026-01-05 12:00:00 ERROR db: connection refused'; echo '2026-01-05 12:00:00 INFO up'; exec sleep 100", "merge_output", true, "ready", map[string]any{"log": "INFO up$"})
	for until, more := range map[string][]any{"ready": nil, "idle": {"idle_ms", 1}, "log": {"pattern", "INFO up$"}} {
		s.server.shown = project.Shown{} // nothing was shown
		data, text := s.waitFor("web", until, more...)
		errors, _ := data["errors"].([]any)
		if data["state"] != "running" || len(errors) != 1 || strings.Count(text, "connection refused") != 1 {
			t.Errorf("%s: got %v and %s, want 1 error of the running run, in its line alone", until, errors, text)
		}
	}
	if data, text := s.waitFor("web", "ready"); data["errors"] != nil || data["lines"] != nil {
		t.Errorf("again: got %s, want nothing that was shown before", text)
	}
}

// TestHourlyRateAndTrendOfErrorsAreReported checks that an error that occurs once a minute has a rate
// of 60 per hour at any time, and that the trend of an error that becomes frequent
// or stops is reported soon.
func TestHourlyRateAndTrendOfErrorsAreReported(t *testing.T) {
	const rising, steady, falling = "rising", "steady", "falling"
	hour := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		minute  int
		perHour []int64
		inHour  int64
		trend   string
	}{
		{0, []int64{0, 60, 60, 60, 60, 60}, 60, steady},
		{1, []int64{1, 60, 60, 60, 60, 60}, 60, steady},
		{29, []int64{29, 60, 60, 60, 60, 60}, 60, steady},
		{59, []int64{59, 60, 60, 60, 60, 60}, 60, steady},
		{15, []int64{60, 60, 60, 60, 60, 60}, 105, rising},
		{45, []int64{0, 60, 60, 60, 60, 60}, 15, falling},
		{5, []int64{1, 0, 0, 0, 0, 0}, 1, steady},
		{5, []int64{0, 1, 0, 0, 0, 0}, 1, steady},
		{5, []int64{9, 0, 0, 0, 0, 0}, 9, rising},
		{5, []int64{0, 0, 0, 0, 0, 0}, 0, steady},
		{5, []int64{0, 0, 0, 0, 0, 9}, 0, falling},
	} {
		now := hour.Add(time.Duration(c.minute) * time.Minute)
		if got := hourlyRate(c.perHour, now); got.PerHour != c.inHour || got.Trend != c.trend {
			t.Errorf("minute %d, %v: got %d, %s; want %d, %s", c.minute, c.perHour, got.PerHour, got.Trend, c.inHour, c.trend)
		}
	}
}

// TestErrorTextCountsRepeats checks that the text alone reports how often, since
// when and at which rate an error occurs, and leaves this out for an error that
// occurred once.
func TestErrorTextCountsRepeats(t *testing.T) {
	once := errorResult{ErrorID: "e1", Category: "other", Name: "web", Run: 2, Count: 1, FirstSeen: "F", LastSeen: "L", Cursor: "C", Message: "it broke"}
	again := once
	again.Count, again.rateResult = 7, rateOf(7, []int64{7, 0, 0, 0, 0, 0})
	end := once
	end.Unrecognised = true
	often := again
	often.Count, often.rateResult = 12, rateResult{3, "rising"}
	for want, r := range map[string]errorResult{
		"error e1: other in web run 2, last at L, cursor C\n  it broke\n":                                      once,
		"error e1: other in web run 2, unrecognised, last at L, cursor C\n  it broke\n":                        end,
		"error e1: other in web run 2, 7 times since F, last at L, cursor C\n  it broke\n":                     again,
		"error e1: other in web run 2, 12 times since F, 3 an hour, rising, last at L, cursor C\n  it broke\n": often,
	} {
		if got := textOf(&r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for count, want := range map[int64]bool{9: false, 10: true} {
		all := []logstore.Fault{{Count: count, PerHour: [24]int64{count}}}
		r := getErrorsResult{Total: 1, Summary: summarizeErrors(all)}
		if text := textOf(&r); strings.Contains(text, "an hour") != want || (r.Summary.Trend != "") != want {
			t.Errorf("%d occurrences: got %q, want a rate: %v", count, text, want)
		}
	}
}

// TestErrorsWithoutFileAreSimilarByCategory checks that two errors of one type that
// name no file are not reported as errors in the same file.
func TestErrorsWithoutFileAreSimilarByCategory(t *testing.T) {
	e := &errorResult{ErrorID: "a", Type: "Error", Category: "network"}
	for _, c := range []struct {
		file, otherFile, category string
		want                      bool
	}{
		{"", "", "not_found", false},
		{"", "", "network", true},
		{"a.js", "a.js", "not_found", true},
		{"a.js", "b.js", "not_found", false},
		{"a.js", "b.js", "network", true},
	} {
		e.File = c.file
		other := &logstore.Fault{ID: "b"}
		other.Type, other.File, other.Category = "Error", c.otherFile, c.category
		if got := isSimilar(e, other); got != c.want {
			t.Errorf("%+v: got %v, want %v", c, got, c.want)
		}
	}
}

// TestLongStackShowsBothEnds checks that a long stack is cut in its middle: Python prints
// the frame that failed last, other languages print it first.
func TestLongStackShowsBothEnds(t *testing.T) {
	f := logstore.Fault{}
	for i := range 30 {
		f.Stack = append(f.Stack, fmt.Sprintf("frame %d", i))
	}
	got := errorResultOf(&f).Stack
	if len(got) != stackLines || got[0] != "frame 0" || got[stackLines-1] != "frame 29" || got[6] != "… 19 more lines: get_errors with error_id" || got[7] != "frame 25" {
		t.Errorf("got %q, want both ends and the count of the rest", got)
	}
	f.Stack = f.Stack[:stackLines]
	if got := errorResultOf(&f).Stack; !slices.Equal(got, f.Stack) {
		t.Errorf("got %q, want the whole stack", got)
	}
}

// TestErrorsShowTheirLatestLine checks that get_errors and the event of a new error show the whole
// line of the latest occurrence, which may say more than the message.
func TestErrorsShowTheirLatestLine(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("hunt", awaitGo+`for n in 4711 4712 4713; do echo "{\"level\":\"error\",\"msg\":\"transient failure\",\"order\":$n}"; done; exec sleep 1000`, "timeout_ms", 0)
	s.touch("go")
	proctest.Await(t, "the event", func() bool {
		return strings.Contains(strings.Join(s.server.events.peek(), "\n"), `hunt (run 1): new error: "{\"level\":\"error\",\"msg\":\"transient failure\",\"order\":471`)
	})
	proctest.Await(t, "the latest line", func() bool {
		data, text := s.do("get_errors", map[string]any{"process": "hunt"})
		found := data["errors"].([]any)[0].(map[string]any)
		return found["count"] == 3.0 && strings.Contains(text, "\n  "+`{"level":"error","msg":"transient failure","order":4713}`+"\n") && strings.Contains(fmt.Sprint(found["latest_line"]), "4713")
	})
}
