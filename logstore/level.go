package logstore

import "strings"

// Level is how severe a line says it is. It takes 3 bits in storage.
type Level uint8

// The levels, in rising order. LevelNone is a line that states no level.
const (
	LevelNone Level = iota
	LevelTrace
	LevelDebug
	LevelInfo
	LevelWarn
	LevelError
	LevelFatal

	levelCount = 7
)

// String gives the level's lower-case name; LevelNone is "none".
func (l Level) String() string {
	switch l {
	case LevelTrace:
		return "trace"
	case LevelDebug:
		return "debug"
	case LevelInfo:
		return "info"
	case LevelWarn:
		return "warn"
	case LevelError:
		return "error"
	case LevelFatal:
		return "fatal"
	default:
		return "none"
	}
}

// ParseLevel understands the usual names of levels in any case: trace, debug, info, notice, warn,
// warning, error, err, fatal, critical, panic, and so on. ok is false for any other word; "none"
// and "" give LevelNone.
func ParseLevel(name string) (l Level, ok bool) {
	switch strings.ToLower(name) {
	case "", "none":
		return LevelNone, true
	case "trace", "verbose", "finest", "finer", "silly":
		return LevelTrace, true
	case "debug", "dbg", "fine":
		return LevelDebug, true
	case "info", "information", "notice", "log", "config":
		return LevelInfo, true
	case "warn", "warning":
		return LevelWarn, true
	case "error", "err", "severe":
		return LevelError, true
	case "fatal", "critical", "crit", "panic", "emerg", "emergency", "alert", "dpanic":
		return LevelFatal, true
	default:
		return LevelNone, false
	}
}
