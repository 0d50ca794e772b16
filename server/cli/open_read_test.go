package cli

import (
	"testing"
	"time"
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
