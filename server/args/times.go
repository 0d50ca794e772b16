package args

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
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

// agePattern matches a duration of whole numbers with units, such as 10m, 10 min or 3m12s.
var agePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:\d{1,6} ?[a-z]+ ?)+$`) })

// agePart matches one number of such a duration, with its unit.
var agePart = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(\d+) ?([a-z]+)`) })

// units are the units of a duration. Those of more than one letter may end with s.
var units = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
	"sec": time.Second, "second": time.Second, "min": time.Minute, "minute": time.Minute, "hour": time.Hour,
	"day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

// parseAge parses a duration that agePattern matches. What is too long for a
// time.Duration becomes the longest.
func parseAge(text string) (d time.Duration, ok bool) {
	if !agePattern().MatchString(text) {
		return 0, false
	}
	for _, part := range agePart().FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(part[1])
		unit, known := units[part[2]]
		if !known {
			unit, known = units[strings.TrimSuffix(part[2], "s")]
		}
		if !known {
			return 0, false
		}
		d += min(time.Duration(n), (math.MaxInt64-d)/unit) * unit
	}
	return d, true
}

// ParseDuration is time.ParseDuration that also takes days and weeks: 2d, 1w.
func ParseDuration(text string) (time.Duration, error) {
	if d, ok := parseAge(text); ok {
		return d, nil
	}
	return time.ParseDuration(text)
}

// MinTime and MaxTime bound what ParseSince and ParseUntil return: the log counts time in
// nanoseconds since 1970, which overflow in the years 1677 and 2262.
var (
	MinTime = time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC)
	MaxTime = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

// wantTime is what a since or until argument takes.
const wantTime = "want a time (20:08, 2026-01-05 20:08:02, 2026-01-05T10:00:00Z), a date (2026-01-05) or a time ago (10m, 2d, 10 min ago)"

// ParseSince parses the value of a since argument: a time in one of the forms in which
// answers show it, RFC 3339, a date (local midnight) or a time ago such as 10m, 1d, 2w. A
// time of day without a date is the last such moment before now. ParseSince returns the
// zero time for "" and for nothing else: a time outside MinTime and MaxTime becomes the
// nearer of them. It refuses a time after now, which would silently match nothing.
func ParseSince(value string, now time.Time) (time.Time, error) {
	t, err := parseTime("since", value, now)
	if err == nil && t.After(now) {
		err = fmt.Errorf("argument since: %s is in the future, it is %s now; %s", value, now.Local().Format(time.DateTime), wantTime)
	}
	return t, err
}

// ParseUntil is ParseSince for an until argument, which may be in the future.
func ParseUntil(value string, now time.Time) (time.Time, error) {
	return parseTime("until", value, now)
}

func parseTime(argument, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if ago, ok := parseAge(strings.TrimSuffix(value, " ago")); ok {
		return clampTime(now.Add(-ago)), nil
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if clock, err := time.Parse(layout, value); err == nil {
			return lastMoment(clock, now.Local()), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly, "2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04", "2006-01-02 15:04"} {
		if t, err := time.ParseInLocation(layout, value, time.Local); err == nil {
			return clampTime(t), nil
		}
	}
	return time.Time{}, fmt.Errorf("argument %s: %s, got %q", argument, wantTime, value)
}

// lastMoment returns the last moment, up to now, with the time of day of clock.
func lastMoment(clock, now time.Time) time.Time {
	on := func(day int) time.Time {
		return time.Date(now.Year(), now.Month(), day, clock.Hour(), clock.Minute(), clock.Second(), clock.Nanosecond(), now.Location())
	}
	if today := on(now.Day()); !today.After(now) {
		return today
	}
	return on(now.Day() - 1)
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
	if from, err = ParseSince(since, now); err != nil {
		return from, to, err
	}
	if to, err = ParseUntil(until, now); err != nil {
		return from, to, err
	}
	if !to.IsZero() && from.After(to) {
		err = fmt.Errorf("arguments since and until: since %s is later than until %s (%s, %s)", since, until, from.Local().Format(time.DateTime), to.Local().Format(time.DateTime))
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
