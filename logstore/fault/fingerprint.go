package fault

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// fingerprintVersion is part of every fingerprint. Change it when the rules change.
const fingerprintVersion = "2"

// fingerprint returns a hash of an error's type, the first line of its message, and the file and
// function where the error happened. Numbers, addresses, ids, times and temporary paths are
// normalised in all four; line and column are left out.
func fingerprint(f *Fault, function string) string {
	message, _, _ := strings.Cut(f.Message, "\n")
	text := strings.Join([]string{fingerprintVersion, f.Type, normalise(cut(message, 512)), lastElements(normalise(f.File), 3), normalise(function)}, "\x00")
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// lastElements returns the last n elements of a path, since the same project may be in another
// directory.
func lastElements(path string, n int) string {
	elements := strings.Split(strings.TrimPrefix(strings.ReplaceAll(path, "\\", "/"), "./"), "/")
	return strings.Join(elements[max(0, len(elements)-n):], "/")
}

// normalise replaces the parts of s that differ between occurrences of the same error: numbers,
// times and hexadecimal ids become "#", other ids and addresses "<id>", and paths under temporary
// directories "<tmp>".
func normalise(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		end := i + 1
		switch start := i == 0 || !isWord(s[i-1]); {
		case start && tempPathLength(s[i:]) > 0:
			b.WriteString("<tmp>")
			end = i + tempPathLength(s[i:])
		case start && idLength(s[i:]) > 0:
			b.WriteString("<id>")
			end = i + idLength(s[i:])
		case !isWord(s[i]):
			b.WriteByte(s[i])
		default:
			for end < len(s) && isWord(s[end]) {
				end++
			}
			word := s[i:end]
			b.WriteString(normaliseWord(word, strings.ContainsAny(word, "0123456789") && endsWithCodeWord(s[:i])))
		}
		i = end
	}
	return joinNumbers(b.String())
}

const uuidBytes = 36

// idLength returns the length of the UUID or nanoid at the start of s, or 0.
func idLength(s string) int {
	if hasUUIDPrefix(s) {
		return uuidBytes
	}
	const nanoid = 21
	n, digits, upper, lower := 0, 0, 0, 0
	for n < len(s) && (isWord(s[n]) || s[n] == '-') {
		switch {
		case isDigit(s[n]):
			digits++
		case isUpper(s[n]):
			upper++
		case isAlpha(s[n]):
			lower++
		}
		if n++; n > nanoid {
			return 0
		}
	}
	if n == nanoid && digits >= 1 && upper >= 3 && lower >= 3 {
		return n
	}
	return 0
}

func hasUUIDPrefix(s string) bool {
	if len(s) < uuidBytes || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	return isHex(s[:8]) && isHex(s[9:13]) && isHex(s[14:18]) && isHex(s[19:23]) && isHex(s[24:uuidBytes])
}

// joinNumbers replaces several "#" that separators join by a single "#". Such a group comes from a
// date, a time, a version, an address, a fraction or a signed number.
func joinNumbers(s string) string {
	if strings.IndexByte(s, '#') < 0 && !strings.Contains(s, "<id>") {
		return s
	}
	s = strings.ReplaceAll(s, "<id>-<id>", "<id>")
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '-' && i+1 < len(s) && s[i+1] == '#' && (i == 0 || strings.IndexByte(" (=[,", s[i-1]) >= 0) {
			continue // a negative number
		}
		b.WriteByte(s[i])
		if s[i] != '#' {
			continue
		}
		for i+2 < len(s) && strings.IndexByte(".:-/,+", s[i+1]) >= 0 && s[i+2] == '#' {
			i += 2
		}
	}
	return b.String()
}

// endsWithCodeWord reports whether s ends with a word after which a number is a code that
// distinguishes errors: "status 404", "exit code 3".
func endsWithCodeWord(s string) bool {
	s = lowerASCII(strings.TrimRight(s[max(0, len(s)-24):], " :=("))
	return endsWith(s, "status", "status code", "exit code", "exited with code", "http", "http/1.1", "errno")
}

// tempPathLength returns the length of the path under a temporary directory at the start of s, up
// to the second to last element of the path. The directory itself varies, but names inside it are
// often fixed.
func tempPathLength(s string) int {
	path, ok := "", false
	if s[0] == '/' {
		path, ok = cutPrefix(s, "/tmp/", "/var/tmp/", "/var/folders/", "/private/tmp/", "/private/var/folders/", "/dev/shm/", "/run/user/")
	}
	if !ok && len(s) > 1 && s[1] == ':' {
		var home string
		home, path, ok = strings.Cut(s, `\AppData\Local\Temp\`)
		ok = ok && len(home) < 60
	}
	if !ok {
		return 0
	}
	root := len(s) - len(path)
	if end := strings.IndexAny(path, " \"'`:;,()[]{}<>\t"); end >= 0 {
		path = path[:end]
	}
	if i := strings.LastIndexAny(path, "/\\"); i >= 0 {
		return root + i
	}
	return root + len(path)
}

// normaliseWord replaces a word that is a number, an address or an id.
func normaliseWord(w string, code bool) string {
	digits, switches := 0, 0
	for i := range len(w) {
		if isDigit(w[i]) {
			digits++
		}
		if i > 0 && isDigit(w[i]) != isDigit(w[i-1]) {
			switches++
		}
	}
	switch {
	case digits == 0 && len(w) >= 8 && len(w)&(len(w)-1) == 0 && isHex(w):
		return "#"
	case digits == 0 && len(w) == 3 && isCalendarName(w):
		return "<id>"
	case digits == 0, code, isKnownWord(w):
		return w
	case digits == len(w) && digits >= 24, len(w) > 2 && w[0] == '0' && w[1]|0x20 == 'x':
		return "<id>"
	case digits == len(w), len(w) >= 6 && isHex(w):
		return "#" // a word of hexadecimal digits too, since one in forty ids of eight digits has only decimal digits
	case switches >= 3 && len(w) >= 6, switches >= 2 && len(w) >= 10 && digits >= 2:
		return "<id>"
	case isErrorCode(w):
		return w
	default:
		return replaceDigits(w)
	}
}

func isHex(w string) bool {
	for i := range len(w) {
		if c := w[i] | 0x20; !isDigit(w[i]) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isCalendarName(w string) bool {
	return strings.Contains(" Mon Tue Wed Thu Fri Sat Sun Jan Feb Mar Apr Jun Jul Aug Sep Oct Nov Dec ", " "+w+" ")
}

// isKnownWord reports whether w is a word whose digits belong to its meaning.
func isKnownWord(w string) bool {
	const list = " int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64" +
		" utf8 utf16 sha1 sha256 sha512 md5 base32 base64 x86 x86_64 amd64 arm64 ipv4 ipv6 http1 http2 h2 es5 es6 s3 ec2 k8s oauth2 win32 python2 python3 "
	return strings.Contains(list, " "+lowerASCII(w)+" ")
}

// isErrorCode reports whether a word is an error code: E0308, TS2322, CS0103, F401.
func isErrorCode(w string) bool {
	letters := 0
	for letters < len(w) && isUpper(w[letters]) {
		letters++
	}
	return letters >= 1 && letters <= 8 && len(w)-letters >= 2 && len(w)-letters <= 5 && strings.Trim(w[letters:], "0123456789") == ""
}

// replaceDigits replaces each run of digits in a word. A unit after a number is removed together
// with the number.
func replaceDigits(w string) string {
	var b strings.Builder
	for i := 0; i < len(w); i++ {
		if !isDigit(w[i]) {
			b.WriteByte(w[i])
			continue
		}
		b.WriteByte('#')
		for i+1 < len(w) && isDigit(w[i+1]) {
			i++
		}
	}
	s := b.String()
	if s[0] == '#' && len(s) <= 4 { // 12ms, 3s, 5MiB
		return "#"
	}
	return s
}
