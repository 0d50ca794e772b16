// Package fault recognises errors in the lines that a program prints: stack traces, panics,
// compiler diagnostics, failed tests, structured and plain log lines at error level, and a bad exit
// that no other error explains.
//
// A Recogniser takes the lines of one run in order, both streams interleaved, and emits a Fault for
// each error once the error is complete. It uses no clock, no files and no goroutines. A line that
// is unrelated to any error costs one scan for keywords and a copy of its first bytes (kept for
// lookback); only the other lines are parsed.
//
// A corpus pins what is recognised: testdata/corpus holds the output of real programs with the
// faults expected in it. testdata/record recorded the output from the sources in testdata/programs.
// testdata/clean holds output that mentions errors but contains none. testdata/openings.txt holds short
// output of many tools, each with the message and the place that the first error must have, and
// testdata/benign.txt such output without errors.
//
// Each language or tool has a row, and each kind of tool its own file of rows. A row defines how a
// report starts, which lines belong to the report and what these lines mean; a block reads one
// report. Lines from another stream, with another prefix ("web-1 | …") or of an unknown form are
// never added to a stack. If two stacks of one language are interleaved line by line in one stream
// without prefixes, the package does not try to separate them.
package fault

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
)

// The limits on what is kept. Longer text is truncated, never rejected.
const (
	// MaxStack is the maximum number of lines in a Fault's Stack. A longer stack keeps its first
	// and last lines, with a line between them that counts the omitted ones.
	MaxStack = 64
	// MaxStackLine is the maximum length of one line of a Stack, in bytes.
	MaxStackLine = 512
	// MaxMessage is the maximum length of a Fault's Message in bytes, and maxField that of its Type
	// and its File.
	MaxMessage = 2048
	maxField   = 512
	// MaxOpen is the maximum number of unfinished errors of one stream. When another error starts,
	// the oldest is closed.
	MaxOpen = 8
)

// A Fault is one error that a program reported.
type Fault struct {
	// Category is the kind of error: one of the Category constants.
	Category string
	// Type is the program's own name for the error: "TypeError", "panic",
	// "java.lang.IllegalStateException", "E0308", "TS2322", "no-undef", "SIGSEGV". It is empty when
	// the error has none.
	Type string
	// Message describes the error in the program's words. Lines are separated by \n; it has at most
	// MaxMessage bytes.
	Message string
	// File is the file where the error happened, as the program wrote it. For a stack it is the
	// file of the innermost frame in the user's own code, if there is one. It is empty when
	// unknown.
	File string
	// Line and Column are positions in File, counted from 1; 0 when unknown.
	Line, Column int
	// Stack is the stack trace as it was printed, or the source lines that show the error. It has
	// at most MaxStack lines of at most MaxStackLine bytes.
	Stack []string
	// FirstLine and LastLine are the numbers, as passed to Recogniser.Line, of the first and last
	// line that belong to the error. Both are 0 for the end of a run that printed nothing.
	FirstLine, LastLine int64
	// Stream is the stream that the error was printed on, as passed to Recogniser.Line.
	Stream uint8
	// Fingerprint identifies the error across occurrences: numbers, addresses, ids, times and
	// temporary paths do not affect it. It is 32 hexadecimal digits and stable across sessions.
	Fingerprint string
}

// The fault categories.
const (
	CategoryOutOfMemory        = "out_of_memory"       // memory was exhausted, or the system killed the program to free memory
	CategoryPermission         = "permission"          // access was denied
	CategoryNotFound           = "not_found"           // a file, module, command or symbol does not exist
	CategoryConnection         = "connection"          // a connection was refused, reset or timed out
	CategoryAddressInUse       = "address_in_use"      // another process is listening on the port
	CategorySyntax             = "syntax"              // source or data could not be parsed
	CategoryType               = "type"                // a value, a name or an expression that the code may not use there: of the wrong type, out of range, undefined
	CategoryNetwork            = "network"             // DNS, routing, TLS or HTTP trouble, but not the connection itself
	CategoryDiskSpace          = "disk_space"          // no space left, or a quota or the number of open files is exhausted
	CategoryAssertion          = "assertion"           // a test or an assertion failed
	CategoryBuild              = "build"               // a compiler, linter, bundler or build tool failed
	CategoryCrash              = "crash"               // a panic, a signal, a memory error, or a bad exit code
	CategoryUnhandledRejection = "unhandled_rejection" // a promise was rejected and not handled
	CategoryOther              = "other"               // any other error
)

// Categories returns all categories, in the order of the constants.
func Categories() []string {
	return []string{
		CategoryOutOfMemory, CategoryPermission, CategoryNotFound, CategoryConnection, CategoryAddressInUse, CategorySyntax,
		CategoryType, CategoryNetwork, CategoryDiskSpace, CategoryAssertion, CategoryBuild, CategoryCrash,
		CategoryUnhandledRejection, CategoryOther,
	}
}

// categorySigns lists, for each category, the lower-case words in a fault's type and message that
// indicate it. The first group that matches wins; groups are ordered from certain to vague.
var categorySigns = [...]struct {
	category string
	words    []string
}{
	{CategoryOutOfMemory, []string{"out of memory", "outofmemory", "heap limit", "cannot allocate memory", "memoryerror", "enomem", "oomkilled", "oom-kill", "bad_alloc", "stack overflow at", "allowed memory size"}},
	{CategoryDiskSpace, []string{"no space left", "enospc", "disk full", "disk is full", "disk quota", "edquot", "too many open files", "emfile", "enfile"}},
	{CategoryAddressInUse, []string{"eaddrinuse", "address already in use", "address in use", "port is already allocated", "port already in use", "is already in use"}},
	{CategoryPermission, []string{"eacces", "eperm", "permission denied", "permissionerror", "access denied", "access is denied", "accessdenied", "operation not permitted", "forbidden", "unauthorized"}},
	{CategoryConnection, []string{"econnrefused", "connection refused", "connectionrefused", "econnreset", "connection reset", "connectionreset", "etimedout", "timed out connecting",
		"connection timed out", "connect timeout", "connectexception", "sockettimeout", "i/o timeout", "connection closed", "connection aborted", "socket hang up", "epipe", "broken pipe", "brokenpipe", "connectionerror", "could not connect", "timed out", "deadline exceeded", "timeoutexception", "timeouterror", "connecttimeout", "cannot connect", "failed to connect"}},
	{CategoryNetwork, []string{" enotfound", "'enotfound", "eai_again", "getaddrinfo", "no such host", "could not resolve host", "name or service not known", "name resolution", "unknownhost", "fetch failed", "enetunreach", "ehostunreach",
		"network is unreachable", "no route to host", "network error", "networkerror", "certificate", "tls handshake", "ssl error", "sslerror", "bad gateway"}},
	{CategoryUnhandledRejection, []string{"unhandledpromiserejection", "unhandled promise rejection", "err_unhandled_rejection", "unhandled rejection"}},
	{CategoryAssertion, []string{"assertionerror", "assertion", "assert_", "assertionfailed", "expectation failed"}},
	{CategorySyntax, []string{"syntaxerror", "indentationerror", "taberror", "parseerror", "parsererror", "jsondecodeerror", "syntax error", "syntax:", "unexpected token", "unexpected end of", "unexpected eof", "parse error",
		"parsing error", "parse failed", "invalid syntax", "is not valid json", "unterminated string", "unexpected indent", "expected identifier but found", "unexpected \";\"", "transform failed"}},
	{CategoryNotFound, []string{"enoent", "no such file", "module_not_found", "cannot find module", "modulenotfound", "module not found", "command not found", "filenotfound", "file not found", "could not resolve", "can't resolve",
		"cannot resolve", "failed to resolve import", "no module named", "cannot find package", "no required module provides", "could not find or load main class", "classnotfound", "noclassdeffound", "importerror", "loaderror",
		"cannot load such file", "no rule to make target", "missing script", "unresolved import", "cannot find the path", ": not found", "couldn't find", "could not find a version", "no matching distribution", "could not be resolved", "can't locate ", "failed opening", "err_module_not_found"}},
	{CategoryType, []string{"typeerror", "keyerror:", "indexerror:", "valueerror:", "nameerror:", "referenceerror:", "classcastexception", "attributeerror", "nullpointerexception", "nomethoderror", "invalidcast", "nullreferenceexception", "is not a function", "cannot read propert",
		"incompatible type", "incompatible types", "mismatched types", "cannot convert", "cannot implicitly convert", "type mismatch", "invalid conversion", "cannot use "}},
}

// classify returns the category of a fault. A failed test counts as a failed assertion unless the
// fault indicates a problem with the environment.
func classify(kind, message, hint string, test bool, fallback string) string {
	text := lowerASCII(kind + ": " + cut(message, 1024) + "\n" + cut(hint, 512))
	found := signs().groups(text, test)
	for i, s := range categorySigns {
		if found>>i&1 == 0 || test && (s.category == CategoryType || s.category == CategorySyntax && (strings.Contains(text, "expect(") || strings.Contains(text, " expected"))) {
			continue
		}
		return s.category
	}
	if fallback == "" {
		return CategoryOther
	}
	return fallback
}

// signs finds the words of categorySigns in one pass over a text.
var signs = sync.OnceValue(newSignIndex)

// A signIndex maps the first three bytes of a word to the index of the list of words that start with
// them; list 0 is empty.
type signIndex struct {
	grams [1 << gramBits]uint8
	lists [][]sign
}

// sign is a word of a group of categorySigns.
type sign struct {
	word  string
	group int
}

func newSignIndex() *signIndex {
	x := &signIndex{lists: make([][]sign, 1)}
	for group, s := range categorySigns {
		for _, word := range s.words {
			list := &x.grams[gramAt(word, 0)]
			if *list == 0 {
				*list = uint8(len(x.lists))
				x.lists = append(x.lists, nil)
			}
			x.lists[*list] = append(x.lists[*list], sign{word, group})
		}
	}
	return x
}

func gramAt(s string, i int) uint32 {
	return gramIndex(uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16)
}

// groups returns the set of the groups of which text contains a word. Failed tests time out for any
// reason.
func (x *signIndex) groups(text string, test bool) (found uint) {
	for i := 0; i+2 < len(text); i++ {
		for _, s := range x.lists[x.grams[gramAt(text, i)]] {
			if strings.HasPrefix(text[i:], s.word) && !(test && s.word == "timed out") {
				found |= 1 << s.group
			}
		}
	}
	return found
}

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
