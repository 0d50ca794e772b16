package logstore

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"pmcp/logstore/fault"
)

const (
	// guessBytes is how much of a line's start is looked at for a word that names a level.
	guessBytes = 64
	// guessJSONBytes is the same for the level key of a line that is a JSON object.
	guessJSONBytes = 1024
)

// guessLevel reads the level that a line states in one of the usual forms: a word (ERROR, [warn],
// error:), a JSON or logfmt key, klog's first letter, pino's numbers, an exception's name. A JSON
// object may stand behind the prefix of a tool. stderr is a hint only: there a bare "error" or
// "failed" counts as well.
func guessLevel(text []byte, stderr bool) Level {
	if len(text) < 3 {
		return LevelNone
	}
	if text[0] == '{' {
		return jsonLevel(text[:min(len(text), guessJSONBytes)])
	}
	if text[len(text)-1] == '}' {
		if object := fault.LanedObject(text); object != nil {
			return jsonLevel(object[:min(len(object), guessJSONBytes)])
		}
	}
	if l := klogLevel(text); l != LevelNone {
		return l
	}
	return wordLevel(text, stderr)
}

// klogLevel reads I0102 15:04:05 and its like.
func klogLevel(text []byte) Level {
	if len(text) < 6 || text[5] != ' ' {
		return LevelNone
	}
	for _, b := range text[1:5] {
		if b < '0' || b > '9' {
			return LevelNone
		}
	}
	switch text[0] {
	case 'I':
		return LevelInfo
	case 'W':
		return LevelWarn
	case 'E':
		return LevelError
	case 'F':
		return LevelFatal
	default:
		return LevelNone
	}
}

// jsonLevel reads the value of the first level key of a JSON object, by pattern: parsing would cost
// more than storing the line.
func jsonLevel(text []byte) Level {
	for _, key := range [...]string{`level"`, `severity"`, `"lvl"`, `levelname"`, `"@l"`} {
		i := bytes.Index(text, []byte(key))
		if i < 0 {
			continue
		}
		rest := bytes.TrimLeft(text[i+len(key):], " ")
		if len(rest) < 2 || rest[0] != ':' {
			continue
		}
		return jsonValueLevel(bytes.TrimLeft(rest[1:], " "))
	}
	return LevelNone
}

func jsonValueLevel(v []byte) Level {
	if len(v) == 0 {
		return LevelNone
	}
	if v[0] == '"' {
		return namedLevel(letters(v[1:]))
	}
	n := 0
	for _, b := range v[:min(len(v), 3)] {
		if b < '0' || b > '9' {
			break
		}
		n = n*10 + int(b-'0')
	}
	return pinoLevel(n)
}

// pinoLevel maps the numbers of pino and bunyan: 10 trace … 60 fatal.
func pinoLevel(n int) Level {
	if n < 10 || n > 60 || n%10 != 0 {
		return LevelNone
	}
	return Level(n / 10)
}

// letters is the word that b starts with.
func letters(b []byte) []byte {
	n := 0
	for n < len(b) && letter(b[n]) {
		n++
	}
	return b[:n]
}

func letter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// namedLevel is ParseLevel for a word in any case, without allocating.
func namedLevel(word []byte) Level {
	var low [12]byte
	if len(word) < 3 || len(word) > len(low) {
		return LevelNone
	}
	for i, b := range word {
		low[i] = b | 0x20
	}
	switch string(low[:len(word)]) {
	case "trace", "trc", "verbose", "silly":
		return LevelTrace
	case "debug", "dbg", "dbug":
		return LevelDebug
	case "info", "inf", "information", "notice":
		return LevelInfo
	case "warn", "wrn", "warning":
		return LevelWarn
	case "error", "err", "severe", "fail", "exception":
		return LevelError
	case "fatal", "ftl", "critical", "crit", "panic", "emerg", "emergency", "alert", "dpanic":
		return LevelFatal
	default:
		return LevelNone
	}
}

// wordLevel looks for a word that names a level near the start of the line.
func wordLevel(text []byte, stderr bool) Level {
	for left := letterMask(text); left != 0; {
		i := bits.TrailingZeros64(left)
		end := i + bits.TrailingZeros64(^(left >> i))
		for end >= guessBytes && end < len(text) && letter(text[end]) { // a word may reach over the end of what is looked at
			end++
		}
		if n := end - i; n >= 3 && n <= 11 && levelPrefix(text[i:]) {
			if l := statedLevel(text, i, end, stderr); l != LevelNone {
				return l
			}
		} else if n > 5 && exceptionName(text, i, end) {
			return LevelError
		}
		if end >= guessBytes {
			break
		}
		left = left >> end << end
	}
	return LevelNone
}

// letterMask has a bit for each of the first guessBytes bytes that is a letter, the first in the lowest place.
func letterMask(text []byte) (mask uint64) {
	var short [guessBytes]byte
	head := &short
	if len(text) >= guessBytes {
		head = (*[guessBytes]byte)(text)
	} else {
		copy(short[:], text)
	}
	for i := 0; i < guessBytes; i += 8 {
		x := binary.LittleEndian.Uint64(head[i:])
		low := (x | everyByte*0x20) &^ everyHigh
		// A byte's high bit is set in the first sum from 'a' on, in the second beyond 'z'. Neither carries.
		is := (low + everyByte*(0x80-'a')) &^ (low + everyByte*(0x7f-'z')) &^ x & everyHigh
		mask |= packBytes(is>>7) << i
	}
	return mask
}

// levelPrefix tells whether three letters start the name of a level, the key of one, or a word that
// is a hint on standard error.
func levelPrefix(word []byte) bool {
	switch string([]byte{word[0] | 0x20, word[1] | 0x20, word[2] | 0x20}) {
	case "tra", "trc", "ver", "sil", "deb", "dbg", "dbu", "inf", "not", "war", "wrn", "err", "sev", "fai", "exc", "fat", "ftl", "cri", "pan", "eme", "ale", "dpa",
		"lev", "lvl", "can":
		return true
	default:
		return false
	}
}

// statedLevel decides whether the word text[i:end] states a level by the way it is written.
func statedLevel(text []byte, i, end int, stderr bool) Level {
	word := text[i:end]
	var before, after byte = ' ', ' '
	if i > 0 {
		before = text[i-1]
	}
	if end < len(text) {
		after = text[end]
	}
	if after == '=' && (before == ' ' || before == '[') {
		return logfmtLevel(word, text[end+1:])
	}
	l := namedLevel(word)
	if l == LevelNone {
		if exceptionName(text, i, end) || stderr && failureWord(word) && before == ' ' {
			return LevelError
		}
		return tracebackLevel(text, i)
	}
	named := before == '.' && after == ':' && upper(word) // Monolog writes its channel first: local.ERROR:
	if digit(before) || digit(after) || before == '/' || before == '-' || before == '_' || before == '.' && !named ||
		after == '/' && !behindTime(text, i) || after == '-' || after == '_' || after == '=' {
		return LevelNone
	}
	switch {
	case after == '.' && end+1 < len(text) && letter(text[end+1]): // a file: error.log, panic.rs
		return LevelNone
	case after == '(' && !upper(word): // a call, a plural: panic({0x51e2a0, …}), error(s)
		return LevelNone
	case after == ' ' && word[0]|0x20 == 'e' && len(word) == len("exception") && !bytes.HasPrefix(text[i:], []byte("Exception in ")) && !upper(word):
		return LevelNone // talks of exceptions
	}
	switch {
	case upper(word), after == ':', before == '[' && bracketEnds(text[end:]), before == '<' && after == '>', before == '(' && after == ')', before == '|':
		return l
	case after == '[' && i == 0: // rustc: error[E0308]
		return l
	case after == '!' && l >= LevelWarn, i == 0 && l >= LevelError && word[0] != 'a' && word[0] != 'f': // "panic! …", "Error loading …"
		return l
	case i > 0 && i <= 8 && before == ' ' && after == ' ' && bytes.HasPrefix(text, []byte("npm")):
		return l
	case stderr && l == LevelError:
		return l
	default:
		return LevelNone
	}
}

// behindTime tells whether the word at i stands where Celery has the level, with the name of the
// process behind it: [2026-01-05 10:00:00,123: ERROR/MainProcess].
func behindTime(text []byte, i int) bool {
	return text[0] == '[' && i > 2 && digit(text[i-3]) && text[i-2] == ':' && text[i-1] == ' '
}

// bracketEnds tells whether a bracket ends at the start of rest, or behind blanks: structlog pads
// the level to a width, [info     ].
func bracketEnds(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " ")
	return len(rest) > 0 && rest[0] == ']'
}

func logfmtLevel(key, value []byte) Level {
	if k := string(key); k != "level" && k != "lvl" && k != "severity" {
		return LevelNone
	}
	if len(value) > 0 && value[0] == '"' {
		value = value[1:]
	}
	return namedLevel(letters(value))
}

// exceptionName knows TypeError: …, java.lang.IllegalStateException: … and their like.
func exceptionName(text []byte, i, end int) bool {
	word := text[i:end]
	if !bytes.HasSuffix(word, []byte("Error")) && !bytes.HasSuffix(word, []byte("Exception")) {
		return false
	}
	return end == len(text) || text[end] == ':' || text[end] == ' ' && i == 0
}

// tracebackLevel knows the first line of Python's stack traces and of Java's uncaught exceptions.
func tracebackLevel(text []byte, i int) Level {
	if i == 0 && bytes.HasPrefix(text, []byte("Traceback (most recent call")) {
		return LevelError
	}
	return LevelNone
}

func failureWord(word []byte) bool {
	switch string(word) {
	case "failed", "Failed", "failure", "cannot", "Cannot", "fatal":
		return true
	default:
		return false
	}
}

func upper(word []byte) bool {
	for _, b := range word {
		if b >= 'a' {
			return false
		}
	}
	return true
}

func digit(b byte) bool { return b >= '0' && b <= '9' }
