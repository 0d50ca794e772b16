package upstream

import (
	"strings"
	"testing"
	"time"
)

// TestLimitsOfEnvironment checks which limits an environment sets, and which values are refused.
func TestLimitsOfEnvironment(t *testing.T) {
	for _, c := range []struct {
		start, size string
		want        Limits
		bad         string // part of the error; "" for none
	}{
		{"", "", Limits{}, ""},
		{"5m", "", Limits{StartTimeout: 5 * time.Minute}, ""},
		{"120000", "2048", Limits{2 * time.Minute, 2048}, ""},
		{"1h", "1073741824", Limits{time.Hour, 1 << 30}, ""},
		{"0", "", Limits{}, "from 1ms to 1h"},
		{"2h", "2048", Limits{MaxMessage: 2048}, startTimeoutVariable},
		{"soon", "", Limits{}, `got "soon"`},
		{"5m", "10", Limits{StartTimeout: 5 * time.Minute}, maxMessageVariable},
		{"", "1MB", Limits{}, `got "1MB"`},
	} {
		got, err := LimitsOf(map[string]string{startTimeoutVariable: c.start, maxMessageVariable: c.size})
		if got != c.want || (err != nil) != (c.bad != "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%q, %q: got %v and %v, want %v and %q", c.start, c.size, got, err, c.want, c.bad)
		}
	}
}
