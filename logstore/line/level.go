package line

import "slices"

// Level is the severity that a line states. It takes 3 bits in storage.
type Level uint8

// The levels, in rising order. LevelNone is the level of a line that states no level.
const (
	LevelNone Level = iota
	LevelTrace
	LevelDebug
	LevelInfo
	LevelWarn
	LevelError
	LevelFatal

	LevelCount = 7
)

var levelNames = [LevelCount]string{"none", "trace", "debug", "info", "warn", "error", "fatal"}

// String returns the lower-case name of the level. The name of LevelNone is "none".
func (l Level) String() string { return levelNames[min(l, LevelCount)%LevelCount] }

// ParseLevel returns the level with the given lower-case name; "" stands for LevelNone. ok is false
// for any other word.
func ParseLevel(name string) (l Level, ok bool) {
	at := slices.Index(levelNames[:], name)
	return Level(max(at, 0)), at >= 0 || name == ""
}
