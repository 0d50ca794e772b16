package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pmcp/logstore"
)

// TestErrorsFitIntoOneAnswer: many kinds come in several answers, none twice
// and none left out.
func TestErrorsFitIntoOneAnswer(t *testing.T) {
	s := hello(t)
	run, _ := s.store.NewRun(s.manager.Project(), "app")
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
	noErr(t, s.store.Flush(t.Context()))

	seen := make(map[string]bool)
	for answers := 0; ; answers++ {
		r := s.ask("tools/call", map[string]any{"name": "get_errors", "arguments": map[string]any{"offset": len(seen), "limit": 1000}})
		raw, err := json.Marshal(r.Result["structuredContent"])
		noErr(t, err)
		var page getErrorsResult
		noErr(t, json.Unmarshal(raw, &page))
		if size := len(r.text()); size > defaultMaxBytes+500 {
			t.Errorf("answer of %d bytes", size)
		}
		if page.Total != kinds || len(page.Errors) == 0 {
			t.Fatalf("%d of %d errors: %s", len(page.Errors), page.Total, raw)
		}
		for _, e := range page.Errors {
			if seen[e.ErrorID] {
				t.Errorf("%s comes twice", e.ErrorID)
			}
			seen[e.ErrorID] = true
		}
		if !page.More {
			if len(seen) != kinds || answers == 0 {
				t.Errorf("%d errors in %d answers, want %d in several", len(seen), answers+1, kinds)
			}
			return
		}
		if !strings.Contains(page.Hint, fmt.Sprintf("offset: %d", len(seen))) {
			t.Errorf("hint %q after %d errors", page.Hint, len(seen))
		}
	}
}

// TestErrorsOfAnEarlierRun: an error that later runs show as well is one of the
// run that is asked for.
func TestErrorsOfAnEarlierRun(t *testing.T) {
	s := hello(t)
	for range 3 {
		s.crash()
	}
	for run := 1; run <= 3; run++ {
		data, text := s.do("get_errors", map[string]any{"process": "job", "run": run})
		hinted := strings.Contains(text, "of the latest run that showed it")
		if errors, _ := data["errors"].([]any); len(errors) != 1 || hinted != (run < 3) {
			t.Errorf("run %d:\n%s", run, text)
		}
	}
}

// TestWaitGivesTheErrorsOfTheRun: without a cursor those from its start on, also
// while it goes on, and none of the run before.
func TestWaitGivesTheErrorsOfTheRun(t *testing.T) {
	s := hello(t)
	s.script("web", "echo 'ValueError: of the run before' >&2; exit 3", "wait", "exit")
	s.script("web", "echo '2026-01-05 12:00:00 ERROR db: connection refused'; echo '2026-01-05 12:00:00 INFO up'; exec sleep 100", "merge_output", true, "ready", map[string]any{"log": "INFO up$"})
	for until, more := range map[string][]any{"ready": nil, "idle": {"idle_ms", 1}, "log": {"pattern", "INFO up$"}} {
		data, text := s.waitFor("web", until, more...)
		errors, _ := data["errors"].([]any)
		if data["state"] != "running" || len(errors) != 1 || !strings.Contains(text, "\n  db: connection refused\n") {
			t.Errorf("%s: %s", until, text)
		}
	}
}

// TestHourly: an error that occurs once a minute does so at every minute of the
// hour, and what grows or ends is told soon.
func TestHourly(t *testing.T) {
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
		if inHour, trend := hourly(c.perHour, now); inHour != c.inHour || trend != c.trend {
			t.Errorf("minute %d, %v: %d, %s; want %d, %s", c.minute, c.perHour, inHour, trend, c.inHour, c.trend)
		}
	}
}

// TestErrorText says how often, since when and how it goes on, for who is shown
// the text alone; of one that was seen once there is no more to say.
func TestErrorText(t *testing.T) {
	once := errorResult{ErrorID: "e1", Category: "other", Name: "web", Run: 2, Count: 1, FirstSeen: "F", LastSeen: "L", PerHour: 1, Trend: "steady", Cursor: "C", Message: "it broke"}
	again := once
	again.Count, again.PerHour, again.Trend = 7, 3, "rising"
	for want, r := range map[string]errorResult{
		"error e1: other in web run 2, 1 times, last at L, cursor C\n  it broke\n":                            once,
		"error e1: other in web run 2, 7 times since F, 3 an hour, rising, last at L, cursor C\n  it broke\n": again,
	} {
		if got := r.text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
