package logstore

import (
	"math"
	"strings"
)

// lineFilter is the part of a query that looks at a line's metadata.
type lineFilter struct {
	streams      uint8 // bit set; 0 = all
	minLevel     Level
	since, until int64 // since <= time < until; MinInt64, MaxInt64 = no bound
}

func (q *Query) filter() lineFilter {
	f := lineFilter{streams: q.Streams, minLevel: q.MinLevel, since: math.MinInt64, until: math.MaxInt64}
	if !q.Since.IsZero() {
		f.since = q.Since.UnixNano()
	}
	if !q.Until.IsZero() {
		f.until = q.Until.UnixNano()
	}
	return f
}

// takes tells whether a line's flags pass; its time is judged elsewhere.
func (f *lineFilter) takes(meta uint64) bool {
	return (f.streams == 0 || f.streams>>(meta&metaStream)&1 != 0) && Level(meta&metaLevel>>metaLevelAt) >= f.minLevel
}

// cardCondition makes the condition, with a leading AND, that leaves out chunks in which no line can pass.
func (f *lineFilter) cardCondition() (string, []any) {
	var where strings.Builder
	var args []any
	if f.streams != 0 {
		where.WriteString(" AND streams & ? != 0")
		args = append(args, f.streams)
	}
	if f.minLevel > LevelNone {
		columns := []string{"l0", "l1", "l2", "l3", "l4", "l5", "l6"}
		where.WriteString(" AND " + strings.Join(columns[min(int(f.minLevel), levelCount-1):], " + ") + " > 0")
	}
	if f.since != math.MinInt64 {
		where.WriteString(" AND max_at >= ?")
		args = append(args, f.since)
	}
	if f.until != math.MaxInt64 {
		where.WriteString(" AND min_at < ?")
		args = append(args, f.until)
	}
	return where.String(), args
}
