package logstore

import (
	"math"
	"strings"

	"pmcp/logstore/line"
)

// A lineFilter is the part of a query that depends on a line's metadata only.
type lineFilter struct {
	streams      uint8 // bit set; 0 = all
	minLevel     line.Level
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

// matches reports whether a line's flags pass the filter. The caller checks the line's time.
func (f *lineFilter) matches(meta uint64) bool {
	return (f.streams == 0 || f.streams>>(meta&metaStream)&1 != 0) && line.Level(meta&metaLevel>>metaLevelAt) >= f.minLevel
}

// chunkCondition returns an SQL condition, with a leading AND, that excludes chunks in which no line can pass
// the filter. A chunk of which the numbers that this depends on are damaged is not excluded.
func (f *lineFilter) chunkCondition() (string, []any) {
	var where strings.Builder
	var args []any
	if f.streams != 0 {
		where.WriteString(" AND streams & ? != 0")
		args = append(args, f.streams)
	}
	if f.minLevel > line.LevelNone {
		columns := []string{"l0", "l1", "l2", "l3", "l4", "l5", "l6"}
		where.WriteString(" AND " + strings.Join(columns[min(int(f.minLevel), line.LevelCount-1):], " + ") + " > 0")
	}
	if f.since != math.MinInt64 {
		where.WriteString(" AND max_at >= ?")
		args = append(args, f.since)
	}
	if f.until != math.MaxInt64 {
		where.WriteString(" AND min_at < ?")
		args = append(args, f.until)
	}
	if where.Len() == 0 {
		return "", nil
	}
	return " AND (true" + where.String() + " OR sum IS NOT NULL AND sum >> 32 IS NOT (" + metaSumSQL + "))", args
}
