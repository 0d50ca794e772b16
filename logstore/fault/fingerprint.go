package fault

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// fingerprintVersion is part of every fingerprint; a change of the rules changes it.
const fingerprintVersion = "2"

// fingerprint identifies an error by its type, the first line of its message, the file and the
// function where it happened; numbers, addresses, ids, times and temporary paths are left out of
// all of them, so are line and column.
func fingerprint(f *Fault, function string) string {
	message, _, _ := strings.Cut(f.Message, "\n")
	text := strings.Join([]string{fingerprintVersion, f.Type, normal(cut(message, 512)), lastParts(normal(f.File), 3), normal(function)}, "\x00")
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// lastParts keeps the last n elements of a path: the same project may stand in another directory.
func lastParts(path string, n int) string {
	path = strings.TrimPrefix(strings.ReplaceAll(path, "\\", "/"), "./")
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] != '/' {
			continue
		}
		if n--; n == 0 {
			return path[i+1:]
		}
	}
	return path
}

// normal replaces what changes from one occurrence of an error to the next: numbers and times by
// "#", so are hexadecimal ids; other ids and addresses by "<id>", paths under temporary directories
// by "<tmp>".
func normal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		if n := temporary(s[i:]); n > 0 && (i == 0 || !isWord(s[i-1])) {
			b.WriteString("<tmp>")
			i += n
			continue
		}
		if n := identifier(s[i:]); n > 0 && (i == 0 || !isWord(s[i-1])) {
			b.WriteString("<id>")
			i += n
			continue
		}
		if !isWord(s[i]) {
			b.WriteByte(s[i])
			i++
			continue
		}
		end := i
		for end < len(s) && isWord(s[end]) {
			end++
		}
		b.WriteString(token(s[i:end], statusBefore(s[:i])))
		i = end
	}
	return joined(b.String())
}

const uuidBytes = 36

// identifier gives the length of the UUID or of the nanoid that s starts with; 0 for none.
func identifier(s string) int {
	if uuid(s) {
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

// uuid tells whether s starts with one.
func uuid(s string) bool {
	if len(s) < uuidBytes || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	return hexadecimal(s[:8]) && hexadecimal(s[9:13]) && hexadecimal(s[14:18]) && hexadecimal(s[19:23]) && hexadecimal(s[24:uuidBytes])
}

// joined makes one "#" of a number with separators in it: a date, a time, a version, an address, a fraction, a sign.
func joined(s string) string {
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

// statusBefore tells whether a number after s is a code that makes a difference: "status 404", "exit code 3".
func statusBefore(s string) bool {
	s = lowered(strings.TrimRight(s[max(0, len(s)-24):], " :=("))
	for _, w := range [...]string{"status", "status code", "exit code", "exited with code", "http", "http/1.1", "errno"} {
		if strings.HasSuffix(s, w) {
			return true
		}
	}
	return false
}

// temporary gives the length of the path under a temporary directory that s starts with, up to its
// second to last element: what a program names below is often fixed, the directory itself is not.
func temporary(s string) int {
	root := 0
	for _, r := range [...]string{"/tmp/", "/var/tmp/", "/var/folders/", "/private/tmp/", "/private/var/folders/", "/dev/shm/", "/run/user/"} {
		if strings.HasPrefix(s, r) {
			root = len(r)
		}
	}
	if root == 0 {
		if i := strings.Index(s, `\AppData\Local\Temp\`); i > 0 && i < 60 && len(s) > 2 && s[1] == ':' {
			root = i + len(`\AppData\Local\Temp\`)
		} else {
			return 0
		}
	}
	end := root
	for end < len(s) && strings.IndexByte(" \"'`:;,()[]{}<>\t", s[end]) < 0 {
		end++
	}
	if i := strings.LastIndexAny(s[root:end], "/\\"); i >= 0 {
		return root + i
	}
	return end
}

// token replaces a word that is a number, an address or an id.
func token(w string, code bool) string {
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
	case digits == 0:
		switch {
		case len(w) >= 8 && len(w)&(len(w)-1) == 0 && hexadecimal(w):
			return "#"
		case len(w) == 3 && calendar(w):
			return "<id>"
		default:
			return w
		}
	case code, known(w):
		return w
	case digits == len(w):
		if digits >= 24 {
			return "<id>"
		}
		return "#"
	case len(w) > 2 && w[0] == '0' && w[1]|0x20 == 'x':
		return "<id>"
	case len(w) >= 6 && digits >= 1 && hexadecimal(w):
		return "#" // as a number: one id in forty of eight places has digits only
	case switches >= 3 && len(w) >= 6, switches >= 2 && len(w) >= 10 && digits >= 2:
		return "<id>"
	case symbol(w):
		return w
	default:
		return withoutDigits(w)
	}
}

func hexadecimal(w string) bool {
	for i := range len(w) {
		if c := w[i] | 0x20; !isDigit(w[i]) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func calendar(w string) bool {
	return strings.Contains(" Mon Tue Wed Thu Fri Sat Sun Jan Feb Mar Apr Jun Jul Aug Sep Oct Nov Dec ", " "+w+" ")
}

// known are words with digits that mean something by them.
func known(w string) bool {
	const list = " int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64" +
		" utf8 utf16 sha1 sha256 sha512 md5 base32 base64 x86 x86_64 amd64 arm64 ipv4 ipv6 http1 http2 h2 es5 es6 s3 ec2 k8s oauth2 win32 python2 python3 "
	return strings.Contains(list, " "+lowered(w)+" ")
}

// symbol tells whether a word is a code of an error: E0308, TS2322, CS0103, F401.
func symbol(w string) bool {
	letters := 0
	for letters < len(w) && isUpper(w[letters]) {
		letters++
	}
	return letters >= 1 && letters <= 8 && len(w)-letters >= 2 && len(w)-letters <= 5 && strings.Trim(w[letters:], "0123456789") == ""
}

// withoutDigits replaces the runs of digits in a word; what follows a number is its unit, and goes with it.
func withoutDigits(w string) string {
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
