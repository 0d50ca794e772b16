package args

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// timeFormat is the format of times in answers: local time to the millisecond.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// FormatTime returns t as answers show it, or "" for the zero time, so that the key
// is left out.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(timeFormat)
}

// simplePattern matches a duration of one unit, such as 10m.
var simplePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\d{1,6})(ms|s|m|h|d|w)$`) })

var units = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
}

// parseSimple parses a duration of one unit. What is too long for a time.Duration becomes the longest.
func parseSimple(text string) (d time.Duration, ok bool) {
	m := simplePattern().FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, _ := strconv.Atoi(m[1])
	unit := units[m[2]]
	return min(time.Duration(n), math.MaxInt64/unit) * unit, true
}

// ParseDuration is time.ParseDuration that also takes days and weeks: 2d, 1w.
func ParseDuration(text string) (time.Duration, error) {
	if d, ok := parseSimple(text); ok {
		return d, nil
	}
	return time.ParseDuration(text)
}

// MinTime and MaxTime bound what ParseTime returns: the log counts time in
// nanoseconds since 1970, which overflow in the years 1677 and 2262.
var (
	MinTime = time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC)
	MaxTime = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

// ParseTime parses the value of a since or until argument: RFC 3339, a date (local
// midnight) or a time ago such as 10m, 1d, 2w. It returns the zero time for "" and
// for nothing else: a time outside MinTime and MaxTime becomes the nearer of them.
func ParseTime(argument, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if ago, ok := parseSimple(value); ok {
		return clampTime(now.Add(-ago)), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly, "2006-01-02T15:04:05", "2006-01-02 15:04:05"} {
		if t, err := time.ParseInLocation(layout, value, time.Local); err == nil {
			return clampTime(t), nil
		}
	}
	return time.Time{}, fmt.Errorf("argument %s: want a time (2026-01-05T10:00:00Z), a date (2026-01-05) or a time ago (10m, 1d, 2w), got %q", argument, value)
}

// clampTime returns t, limited to MinTime and MaxTime.
func clampTime(t time.Time) time.Time {
	switch {
	case t.Before(MinTime):
		return MinTime
	case t.After(MaxTime):
		return MaxTime
	default:
		return t
	}
}

// ParseSpan parses since and until together. It refuses a span that ends before it
// begins, which would silently match nothing.
func ParseSpan(since, until string, now time.Time) (from, to time.Time, err error) {
	if from, err = ParseTime("since", since, now); err != nil {
		return from, to, err
	}
	if to, err = ParseTime("until", until, now); err != nil {
		return from, to, err
	}
	if !to.IsZero() && from.After(to) {
		err = fmt.Errorf("arguments since and until: since %s is later than until %s", since, until)
	}
	return from, to, err
}

// FormatAge returns d as a person would say it, in at most two units: "1h 2m".
func FormatAge(d time.Duration) string {
	d = d.Round(time.Second)
	days, d := d/(24*time.Hour), d%(24*time.Hour)
	hours, d := d/time.Hour, d%time.Hour
	minutes, seconds := d/time.Minute, d%time.Minute/time.Second
	switch {
	case days > 0:
		return fmt.Sprintf("%dd %dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh %dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm %ds", minutes, seconds)
	default:
		return fmt.Sprintf("%ds", seconds)
	}
}
