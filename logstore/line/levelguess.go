package line

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"

	"pmcp/logstore/fault"
)

const (
	// guessBytes is how much of a line's start is searched for a word that names a level.
	guessBytes = 64
	// guessJSONBytes is how much of the start of a JSON object is searched for its level key.
	guessJSONBytes = 1024
)

// GuessLevel returns the level that a line states in one of the usual forms: a word (ERROR, [warn],
// error:), a JSON or logfmt key, klog's first letter, pino's numbers, or the name of an exception.
// A JSON object may follow the prefix of a tool. stderr is only a hint: on standard error a bare
// "error" or "failed" states a level as well.
func GuessLevel(text []byte, stderr bool) Level {
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
	if len(text) > 5 && text[5] == ' ' {
		if l := fault.KlogLevel(text[:5]); l > 0 {
			return Level(l)
		}
	}
	return wordLevel(text, stderr)
}

// jsonLevel returns the level in the first level key of a JSON object. It searches the text for the
// key, because parsing the object would cost more than storing the line.
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

// jsonValueLevel returns the level that the value v of a level key names: a word, or a number of
// pino and bunyan from 10 (trace) to 60 (fatal).
func jsonValueLevel(v []byte) Level {
	switch {
	case len(v) < 2:
	case v[0] == '"':
		return Level(fault.LevelOf(leadingLetters(v[1:])))
	case v[0] >= '1' && v[0] <= '6' && v[1] == '0' && (len(v) == 2 || !isDigit(v[2])):
		return Level(v[0] - '0')
	}
	return LevelNone
}

func leadingLetters(b []byte) []byte {
	n := 0
	for n < len(b) && isLetter(b[n]) {
		n++
	}
	return b[:n]
}

func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// wordLevel returns the level that a word near the start of the line names.
func wordLevel(text []byte, stderr bool) Level {
	for left := letterMask(text); left != 0; {
		i := bits.TrailingZeros64(left)
		end := i + bits.TrailingZeros64(^(left >> i))
		for end >= guessBytes && end < len(text) && isLetter(text[end]) { // a word may extend beyond guessBytes
			end++
		}
		if end-i >= 3 {
			if l := statedLevel(text, i, end, stderr); l != LevelNone {
				return l
			}
		}
		if end >= guessBytes {
			break
		}
		left = left >> end << end
	}
	return LevelNone
}

// letterMask returns a mask with one bit for each of the first guessBytes bytes. The bit is set if
// the byte is a letter. The lowest bit is that of the first byte.
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
		// In the first sum the high bit of each byte from 'a' on is set, in the second sum the high bit
		// of each byte beyond 'z'. Neither sum carries into the next byte.
		is := (low + everyByte*(0x80-'a')) &^ (low + everyByte*(0x7f-'z')) &^ x & everyHigh
		mask |= packBits(is>>7) << i
	}
	return mask
}

func packBits(w uint64) uint64 { return w * 0x0102040810204080 >> 56 }

// statedLevel returns the level that the word text[i:end] states.
func statedLevel(text []byte, i, end int, stderr bool) Level {
	if l := Level(fault.LevelOf(text[i:end])); l != LevelNone {
		if newWord(text, i, end).namesLevel(l, stderr) {
			return l
		}
		return LevelNone
	}
	switch first := i == 0; {
	case end < len(text) && text[end] == '=':
		if first || text[i-1] == ' ' || text[i-1] == '[' {
			return logfmtLevel(text[i:end], text[end+1:])
		}
	case isException(text, i, end), stderr && (first || text[i-1] == ' ') && isFailure(text[i:end]), first && bytes.HasPrefix(text, []byte("Traceback (most recent call")):
		return LevelError
	}
	return LevelNone
}

// A word is the name of a level in a line.
type word struct {
	line, name     []byte
	from, to       int  // the bounds of name in line
	previous, next byte // the bytes around name; a blank at the start and at the end of the line
}

func newWord(line []byte, from, to int) *word {
	w := &word{line: line, name: line[from:to], from: from, to: to, previous: ' ', next: ' '}
	if from > 0 {
		w.previous = line[from-1]
	}
	if to < len(line) {
		w.next = line[to]
	}
	return w
}

// namesLevel reports whether a word that is the name of level l states the level of the line. That
// depends on how the word is written.
func (w *word) namesLevel(l Level, stderr bool) bool {
	capitals := isUpper(w.name)
	if w.isPartOfName(capitals) || !capitals && w.isCodeOrProse() {
		return false
	}
	switch {
	case capitals, w.next == ':', w.previous == '|', w.next == '[' && w.from == 0: // rustc: error[E0308]
		return true
	case w.previous == '[' && bytes.HasPrefix(bytes.TrimLeft(w.line[w.to:], " "), []byte("]")): // structlog pads the level to a width: [info     ]
		return true
	case w.previous == '<' && w.next == '>', w.previous == '\t' && w.next == '\t', w.previous == '(' && w.next == ')', w.next == '!' && l >= LevelWarn: // "panic! …"
		return true
	case w.previous == ' ' && w.next == ' ' && w.from > 0 && w.from <= 8 && bytes.HasPrefix(w.line, []byte("npm")):
		return true
	case w.from == 0 && l >= LevelError && w.name[0] != 'a' && w.name[0] != 'f': // "Error loading …"
		return true
	default:
		return stderr && l == LevelError
	}
}

// isPartOfName reports whether the word is part of a longer name, a path or a setting.
func (w *word) isPartOfName(capitals bool) bool {
	channel := w.previous == '.' && w.next == ':' && capitals // Monolog puts its channel first: local.ERROR:
	return strings.IndexByte("0123456789/-_", w.previous) >= 0 || w.previous == '.' && !channel ||
		strings.IndexByte("0123456789-_=", w.next) >= 0 || w.next == '/' && !w.followsTime() ||
		w.next == '.' && w.to+1 < len(w.line) && isLetter(w.line[w.to+1]) // the name of a file: error.log, panic.rs
}

// isCodeOrProse reports whether the word is a call or a plural, such as panic({0x51e2a0, …}) and
// error(s), or prose about exceptions.
func (w *word) isCodeOrProse() bool {
	isException := len(w.name) == len("exception") && w.name[0]|0x20 == 'e'
	return w.next == '(' || isException && w.next == ' ' && !bytes.HasPrefix(w.line[w.from:], []byte("Exception in "))
}

// followsTime reports whether the word is at the place where Celery prints the level, before the
// name of the process: [2026-01-05 10:00:00,123: ERROR/MainProcess].
func (w *word) followsTime() bool {
	return w.line[0] == '[' && w.from > 2 && isDigit(w.line[w.from-3]) && string(w.line[w.from-2:w.from]) == ": "
}

func logfmtLevel(key, value []byte) Level {
	if !fault.IsLevelKey(string(key)) {
		return LevelNone
	}
	return Level(fault.LevelOf(leadingLetters(bytes.TrimPrefix(value, []byte(`"`)))))
}

// isException reports whether text[i:end] is the name of an exception, as in "TypeError: …" and
// "java.lang.IllegalStateException: …".
func isException(text []byte, i, end int) bool {
	return (end == len(text) || text[end] == ':' || text[end] == ' ' && i == 0) &&
		(bytes.HasSuffix(text[i:end], []byte("Error")) || bytes.HasSuffix(text[i:end], []byte("Exception")))
}

// isFailure reports whether a word on standard error states that something failed.
func isFailure(word []byte) bool {
	switch string(word) {
	case "failed", "Failed", "failure", "cannot", "Cannot":
		return true
	default:
		return false
	}
}

func isUpper(word []byte) bool {
	for _, b := range word {
		if b >= 'a' {
			return false
		}
	}
	return true
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }
