package server

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

// timeFormat is how times stand in answers: local time to the millisecond.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// formatTime is t for an answer; "" for the zero time, so that the key is left
// out.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(timeFormat)
}

var ago = regexp.MustCompile(`^(\d{1,6})(ms|s|m|h|d|w)$`)

var agoUnits = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
}

// earliest and latest bound what parseWhen answers: the log counts time in
// nanoseconds since 1970, which wrap in the years 1677 and 2262.
var (
	earliest = time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

// parseWhen reads a since or until argument: RFC 3339, a date (local midnight)
// or a time ago such as 10m, 1d, 2w. "" is the zero time, and nothing else is:
// what lies outside earliest and latest is the nearer of them.
func parseWhen(argument, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if m := ago.FindStringSubmatch(value); m != nil {
		n, _ := strconv.Atoi(m[1])
		unit := agoUnits[m[2]]
		return clampTime(now.Add(-min(time.Duration(n), math.MaxInt64/unit) * unit)), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly, "2006-01-02T15:04:05", "2006-01-02 15:04:05"} {
		if t, err := time.ParseInLocation(layout, value, time.Local); err == nil {
			return clampTime(t), nil
		}
	}
	return time.Time{}, fmt.Errorf("argument %s: want a time (2026-01-05T10:00:00Z), a date (2026-01-05) or a time ago (10m, 1d, 2w), got %q", argument, value)
}

func clampTime(t time.Time) time.Time {
	switch {
	case t.Before(earliest):
		return earliest
	case t.After(latest):
		return latest
	default:
		return t
	}
}

// parseSpan reads since and until together: a span that ends before it begins
// would quietly hold nothing.
func parseSpan(since, until string, now time.Time) (from, to time.Time, err error) {
	if from, err = parseWhen("since", since, now); err != nil {
		return from, to, err
	}
	if to, err = parseWhen("until", until, now); err != nil {
		return from, to, err
	}
	if !to.IsZero() && from.After(to) {
		err = fmt.Errorf("arguments since and until: since %s is later than until %s", since, until)
	}
	return from, to, err
}

// formatAge is a duration as a person says it, two units at most: "1h 2m".
func formatAge(d time.Duration) string {
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
