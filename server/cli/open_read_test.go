package cli

import (
	"slices"
	"testing"
	"time"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/project"
)

// TestRiseBeginsWhereMemoryLeavesItsLevel checks since when the page says that memory rises.
func TestRiseBeginsWhereMemoryLeavesItsLevel(t *testing.T) {
	start := time.Date(2026, 11, 29, 13, 0, 0, 0, time.UTC)
	usage := func(run int, mib ...uint64) (all []pageUsage) {
		for i, m := range mib {
			all = append(all, pageUsage{At: start.Add(time.Duration(i) * time.Minute), Run: run, MemoryBytes: m << 20})
		}
		return all
	}
	for _, c := range []struct {
		name  string
		usage []pageUsage
		want  int // the minute; -1: there is no rise
	}{
		{"nothing was measured", nil, -1},
		{"one sample", usage(1, 60), -1},
		{"level", usage(1, 60, 61, 60, 62, 60, 61, 60), -1},
		{"a start, then level", usage(1, 10, 60, 60, 61, 60, 60, 60, 60), -1},
		{"one step", usage(1, 60, 60, 60, 60, 400, 400, 400, 400), -1},
		{"a rise from the start", usage(1, 10, 20, 30, 40, 50, 60), 0},
		{"a level, then a rise", usage(1, 60, 60, 61, 60, 130, 200, 270, 340, 410), 3},
		{"a start, a level, then a rise", usage(1, 10, 60, 60, 60, 60, 130, 200, 270, 340, 410), 4},
		{"a rise of the run before", append(usage(1, 10, 100, 200, 300, 400), usage(2, 60, 60, 60, 60, 60, 60)...), -1},
		{"a fall", usage(1, 400, 300, 200, 100, 60), -1},
	} {
		got := -1
		if u := riseOf(c.usage); u != nil {
			got = int(u.At.Sub(start) / time.Minute)
		}
		if got != c.want {
			t.Errorf("%s: got a rise from minute %d, want %d", c.name, got, c.want)
		}
	}
}

// TestSpansKeepTimesOfTheirMost checks that the page names the time of the sample itself, however long ago the first was.
func TestSpansKeepTimesOfTheirMost(t *testing.T) {
	start := time.Date(2026, 11, 29, 13, 0, 0, 0, time.UTC)
	var usage []pageUsage
	for i, s := range []logstore.Sample{{CPUPercent: 1, MemoryBytes: 30}, {CPUPercent: 9, MemoryBytes: 40}, {CPUPercent: 2, MemoryBytes: 20}, {CPUPercent: 3, MemoryBytes: 10}} {
		s.At = start.Add(time.Duration(i) * 10 * time.Second)
		usage = addSample(usage, 1+i/3, &s, time.Minute)
	}
	want := []pageUsage{{start.Add(10 * time.Second), 1, 9, start.Add(10 * time.Second), 40}, {start.Add(30 * time.Second), 2, 3, start.Add(30 * time.Second), 10}}
	if !slices.Equal(usage, want) {
		t.Errorf("got %+v, want %+v", usage, want)
	}
	for _, late := range []time.Duration{time.Millisecond, 300 * time.Millisecond, 2 * time.Second} {
		if got := spanOf(time.Hour + late); got != 15*time.Second {
			t.Errorf("%v after it was asked: got spans of %v, want 15s", late, got)
		}
	}
}

// TestRunSaysWhoEndedIt checks how the page says that a request has ended a run.
func TestRunSaysWhoEndedIt(t *testing.T) {
	run := func(id int64, by string, ended process.EndedBy) *project.Run {
		r := &project.Run{By: by}
		r.RunID, r.State, r.Exit = id, process.Stopped, &process.Exit{Code: -1, Signal: "SIGTERM", By: ended}
		return r
	}
	stopped := logstore.Event{Run: 7, Kind: logstore.EventStopped, By: "cursor"}
	restarted := logstore.Event{Run: 8, Kind: logstore.EventRestarted, By: "cursor"}
	changed := logstore.Event{Run: 8, Kind: logstore.EventRestarted}
	for _, c := range []struct {
		want   string
		events []logstore.Event
		ended  process.EndedBy
		next   *project.Run
	}{
		{"stopped, SIGTERM, by user", nil, process.ByUser, nil},
		{"stopped, SIGTERM, by cursor", []logstore.Event{stopped}, process.ByUser, nil},
		{"stopped, SIGTERM, for a restart by cursor", []logstore.Event{restarted}, process.ByUser, run(8, "cursor", "")},
		{"stopped, SIGTERM, for a restart: src/web.py changed", []logstore.Event{changed}, process.ByUser, run(8, "src/web.py changed", "")},
		{"stopped, SIGTERM, by limit", []logstore.Event{changed}, process.ByLimit, run(8, "its restart policy", "")},
	} {
		r := run(7, "", c.ended)
		if got := pageRunOf(r, endedBy(c.events, r, c.next)).How; got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
