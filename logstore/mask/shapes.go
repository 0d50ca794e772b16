package mask

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// isWord tells which bytes the words of tokens are made of, isBase64 the same of base64,
// isEscapedBase64 of base64 whose newlines are escaped, and isBearer of what stands behind the word
// Bearer.
var (
	isWord          = class("-_")
	isBase64        = class("+/=")
	isEscapedBase64 = class("+/=\\")
	isBearer        = class("-._~+/=")
	// isUserinfo tells what can stand between :// and @. What should be encoded there often is not.
	isUserinfo = class("!#$%&()*+,-.:;=?@[]^_{|}~")
)

// class is the letters, the digits and more.
func class(more string) (c [256]bool) {
	for b := range 256 {
		c[b] = b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b < 0x80 && strings.IndexByte(more, byte(b)) >= 0
	}
	return c
}

// shape is the form of a token: what it begins with, how much must follow in its word, and what else must hold.
type shape struct {
	prefix string
	least  int // bytes behind the prefix
	most   int // 0: any number
	label  string
	also   func(rest []byte) bool // of what is behind the prefix
}

// shapes are the forms, by first byte. A longer prefix stands before its own beginning.
var shapes = map[byte][]shape{
	'A': {
		{"AKIA", 16, 16, "AWS key id", upperOrDigit}, {"ASIA", 16, 16, "AWS key id", upperOrDigit},
		{"AIza", 35, 35, "Google key", mixed},
	},
	'e': {{"eyJ", 10, 0, "JWT", nil}}, // completed by jwt
	'g': {
		{"ghp_", 36, 0, "GitHub token", mixed}, {"gho_", 36, 0, "GitHub token", mixed}, {"ghs_", 36, 0, "GitHub token", mixed},
		{"ghu_", 36, 0, "GitHub token", mixed}, {"ghr_", 36, 0, "GitHub token", mixed},
		{"github_pat_", 40, 0, "GitHub token", mixed}, {"glpat-", 20, 0, "GitLab token", mixed},
	},
	'n': {{"npm_", 36, 0, "npm token", alphanumeric}},
	'p': {{"pypi-Ag", 50, 0, "PyPI token", mixed}},
	'r': {{"rk_live_", 16, 0, "Stripe key", alphanumeric}, {"rk_test_", 16, 0, "Stripe key", alphanumeric}},
	's': {
		{"sk_live_", 16, 0, "Stripe key", alphanumeric}, {"sk_test_", 16, 0, "Stripe key", alphanumeric},
		{"sk-", 20, 0, "API key", longSegment},
	},
	'x': {
		{"xoxa-", 15, 0, "Slack token", mixed}, {"xoxb-", 15, 0, "Slack token", mixed}, {"xoxp-", 15, 0, "Slack token", mixed},
		{"xoxr-", 15, 0, "Slack token", mixed}, {"xoxs-", 15, 0, "Slack token", mixed}, {"xapp-1-", 15, 0, "Slack token", mixed},
	},
	'w': {{"whsec_", 16, 0, "Stripe key", alphanumeric}},
}

// word looks at the word that text[i] is in, and returns its end.
func word(text []byte, i int, spans []span) (end int, _ []span) {
	for k := i; k < i+lookout; k++ {
		if !isWord[text[k]] {
			return i, spans
		}
	}
	from, to := i, i+lookout
	for from > 0 && isWord[text[from-1]] {
		from--
	}
	for to < len(text) && isWord[text[to]] {
		to++
	}
	if to-from < minWord {
		return to, spans
	}
	if from > 0 && text[from-1] == '\\' && isEscape(text[from]) {
		from++ // the escape of a newline before it
	}
	if s := shapeOf(text[from:to]); s != nil {
		if s.prefix != "eyJ" {
			return to, append(spans, span{from: from, to: to, label: s.label})
		}
		if last := jwt(text, to); last > 0 {
			return to, append(spans, span{from: from, to: last, label: s.label})
		}
	}
	if name := schemeBefore(text[:from]); name != "" && mixed(text[from:to]) {
		if last := classEnd(text, from, &isBearer); areCredentials(name, text[from:last]) {
			return to, append(spans, span{from: from, to: last, label: "credentials"})
		}
	}
	return to, spans
}

// isEscape tells whether b is what stands behind the backslash of an escaped newline, return or tab.
func isEscape(b byte) bool { return b == 'n' || b == 'r' || b == 't' }

// shapeOf is the form that a word has; nil if it has none.
func shapeOf(word []byte) *shape {
	candidates := shapes[word[0]]
	for i := range candidates {
		s := &candidates[i]
		rest, ok := bytes.CutPrefix(word, []byte(s.prefix))
		if ok && len(rest) >= s.least && (s.most == 0 || len(rest) <= s.most) && (s.also == nil || s.also(rest)) {
			return s
		}
	}
	return nil
}

// jwt is the end of the token whose first part ends at end; 0 if it is none: two more parts must
// follow, the first of which is an object as well.
func jwt(text []byte, end int) int {
	rest, ok := bytes.CutPrefix(text[end:], []byte(".eyJ"))
	if !ok {
		return 0
	}
	middle := classEnd(rest, 0, &isWord)
	if middle < 5 || middle == len(rest) || rest[middle] != '.' {
		return 0
	}
	return end + len(".eyJ") + classEnd(rest, middle+1, &isWord)
}

// classEnd is the end of the run of bytes of the class that begins at from.
func classEnd(text []byte, from int, class *[256]bool) int {
	for from < len(text) && class[text[from]] {
		from++
	}
	return from
}

// count says how many of the bytes are digits, upper and lower case letters.
func count(b []byte) (digits, upper, lower int) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c >= 'A' && c <= 'Z':
			upper++
		case c >= 'a' && c <= 'z':
			lower++
		}
	}
	return digits, upper, lower
}

// mixed tells that there are digits and letters.
func mixed(b []byte) bool {
	digits, upper, lower := count(b)
	return digits > 0 && upper+lower > 0
}

func alphanumeric(b []byte) bool {
	digits, upper, lower := count(b)
	return digits+upper+lower == len(b) && digits > 0 && upper+lower > 0
}

func upperOrDigit(b []byte) bool {
	digits, upper, _ := count(b)
	return digits+upper == len(b)
}

// longSegment tells that a piece between dashes is too long and too mixed to be a word: sk- begins
// names of style classes, too.
func longSegment(b []byte) bool {
	for segment := range bytes.FieldsFuncSeq(b, func(r rune) bool { return r == '-' || r == '_' }) {
		if len(segment) >= 16 && mixed(segment) {
			return true
		}
	}
	return false
}

// schemeBefore is the authorization scheme, in lower case, that text ends with, white space behind
// it; "" if it ends otherwise.
func schemeBefore(text []byte) string {
	rest := bytes.TrimRight(text, " ")
	if len(rest) == len(text) {
		return ""
	}
	for _, name := range []string{"bearer", "basic"} {
		if len(rest) >= len(name) && strings.EqualFold(string(rest[len(rest)-len(name):]), name) {
			return name
		}
	}
	return ""
}

// areCredentials tells whether a word behind the name of a scheme, in lower case, is more than prose about it.
func areCredentials(scheme string, word []byte) bool {
	if len(word) < minSecret {
		return false
	}
	switch scheme {
	case "basic":
		pair, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(string(word), "="))
		return err == nil && bytes.IndexByte(pair, ':') >= 0
	case "bearer":
		return mixed(word) || len(word) >= 2*minSecret
	case "token", "apikey":
		return mixed(word)
	}
	return false
}

// maxScheme is the longest name of a scheme that areCredentials does not know, in bytes.
const maxScheme = 16

// scheme is how much of text may be the name of such a scheme: Negotiate, Klaviyo-API-Key.
func scheme(text []byte) int {
	n := 0
	for n < len(text) && (text[n]|0x20 >= 'a' && text[n]|0x20 <= 'z' || text[n] == '-') {
		n++
	}
	return n
}

// areOtherCredentials tells whether a word behind the name of any scheme and a blank looks like a
// token: no path, and no `name=value`.
func areOtherCredentials(name, blank, word []byte) bool {
	return len(name) > 0 && len(name) <= maxScheme && scheme(name) == len(name) && len(bytes.Trim(blank, " \t")) == 0 &&
		len(word) >= minWord && mixed(word) && word[0] != '/' && bytes.IndexByte(bytes.TrimRight(word, "="), '=') < 0
}

// headerValue finds the credentials of a header whose name ends behind from, in any notation:
// `Authorization: Bearer x`, `"authorization":"Basic x"`, `HTTP_AUTHORIZATION=token x`. Without a
// scheme that is known the notation must be one: what follows the bare word is prose.
func headerValue(text []byte, from int, spans []span) []span {
	rest := text[from:]
	if len(rest) > 0 && isWord[rest[0]] {
		return spans
	}
	i := punctuation(rest)
	end := classEnd(rest, i, &isBearer)
	first := rest[i:end]
	noted := bytes.ContainsAny(rest[:i], notation)
	if blank := punctuation(rest[end:]); blank > 0 {
		second := end + blank
		last := classEnd(rest, second, &isBearer)
		if areCredentials(strings.ToLower(string(first)), rest[second:last]) || noted && areOtherCredentials(first, rest[end:second], rest[second:last]) {
			return append(spans, span{from: from + second, to: from + last, label: "credentials"})
		}
	}
	if noted && len(first) >= minWord && mixed(first) {
		spans = append(spans, span{from: from + i, to: from + end, label: "credentials"})
	}
	return spans
}

// notation is what makes of a header's name more than a word: one of these behind it.
const notation = ":=\"'"

// punctuation is how much of what can stand between a header's name and its value text begins with.
func punctuation(text []byte) int {
	const most = 8
	for i, b := range text[:min(len(text), most)] {
		if bytes.IndexByte([]byte(" \t:=\"'\\,[>"), b) < 0 {
			return i
		}
	}
	return min(len(text), most)
}

// maxUserinfo bounds how far before an @ a URL's beginning is looked for.
const maxUserinfo = 512

// userinfo finds the password of a URL, or a token in its place: scheme://user:password@host. It
// looks at all that stands together around the @ at at, back to done at most, and returns its end.
func userinfo(text []byte, done, at int, spans []span) (end int, _ []span) {
	from := at
	for from > done && isUserinfo[text[from-1]] {
		from--
	}
	end = classEnd(text, at, &isUserinfo)
	if !bytes.HasSuffix(text[:from], []byte("://")) {
		return end, spans
	}
	// The last @ decides: an @ in a password often is not encoded. What stands before a colon may
	// be a token in a URL of its own.
	info := text[from:min(end, from+maxUserinfo+1)]
	info = info[:bytes.LastIndexByte(info, '@')+1]
	colon := bytes.IndexByte(info, ':')
	user := info
	if colon >= 0 {
		user = info[:colon]
	}
	if n := bytes.LastIndexByte(user, '@'); n >= minWord && mixed(user[:n]) && !standsForSecret(user[:n]) {
		spans = append(spans, span{from: from, to: from + n, label: "credentials"})
	}
	if last := len(info) - 1; colon >= 0 && !standsForSecret(info[colon+1:last]) && !isPort(info[colon+1:last]) {
		spans = append(spans, span{from: from + colon + 1, to: from + last, label: "password"})
	}
	return end, spans
}

// standsForSecret tells that there is nothing where a secret could be, or what stands for one.
func standsForSecret(b []byte) bool {
	return len(bytes.Trim(b, "*")) == 0 || isPlaceholder(string(b))
}

// isPort tells that what stands behind a URL's colon is a port and more, up to the @ of something else: 8080?email=me.
func isPort(b []byte) bool {
	digits := 0
	for digits < len(b) && b[digits] >= '0' && b[digits] <= '9' {
		digits++
	}
	return digits >= 1 && digits <= 5 && digits < len(b) && bytes.IndexByte([]byte("?#,;:."), b[digits]) >= 0
}

// isPlaceholder tells whether a word only says where a secret belongs: ${NAME}, $NAME, %NAME%, {{ name, <name>.
func isPlaceholder(word string) bool {
	switch {
	case strings.HasPrefix(word, "${"), strings.HasPrefix(word, "$("), strings.HasPrefix(word, "{{"), strings.HasPrefix(word, "<"):
		return true
	case strings.HasPrefix(word, "$"), strings.HasPrefix(word, "%"):
		name := strings.Trim(word, "$%")
		return name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == ""
	}
	return false
}
