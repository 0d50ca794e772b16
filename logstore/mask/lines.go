package mask

import (
	"bytes"
	"strings"
)

const (
	// maxLine bounds a masked line, in bytes: one that grows beyond it by long names is masked with
	// stars, which no secret is shorter than.
	maxLine = 16 << 10
	// maxKeyLines bounds the lines of a private key.
	maxKeyLines = 200
	// minKeyRun is the shortest run of base64 that is the first line of a private key, minLaterRun that of a later one.
	minKeyRun   = 40
	minLaterRun = 16
	// maxKeyHeaders bounds the headers of a private key, the lines between its beginning and its body.
	maxKeyHeaders = 10
	// maxKeyOnLine bounds how far the end of a private key on one line is looked for, and maxKind
	// how far before the end of its announcement the beginning is, in bytes.
	maxKeyOnLine = 16 << 10
	maxKind      = 40
	// maxHeader is the longest announcement of a private key, from its first dash to its last, in bytes.
	maxHeader = maxKind + len("PRIVATE KEY BLOCK-----")
	// stars are the mask without a name.
	stars = "***"
)

// Lines masks the lines of one stream, in order: a private key has many. The zero value masks
// nothing. It must not be used by two goroutines at a time.
type Lines struct {
	m     *Masker
	key   int  // lines of a private key that may still come; 0: none
	body  bool // some have come
	spans []span
	out   []byte
}

// Lines gives a Lines for a stream.
func (m *Masker) Lines() Lines { return Lines{m: m} }

// Line is text, a whole line without its newline, with its secrets masked: text itself if it has
// none, else bytes that are valid until the next call.
func (l *Lines) Line(text []byte) []byte {
	if l.m == nil {
		return text
	}
	return l.mask(text)
}

func (l *Lines) mask(text []byte) []byte {
	l.spans = l.m.set.Load().find(text, l.spans[:0])
	if l.key > 0 {
		l.keyLine(text)
	}
	if len(l.spans) == 0 {
		return text
	}
	spans := settle(l.spans)
	for _, s := range spans {
		if s.open {
			l.key, l.body = maxKeyLines, false
		}
	}
	if l.replace(text, spans, true); len(l.out) > max(maxLine, len(text)) {
		l.replace(text, spans, false)
	}
	return l.out
}

// replace puts text into l.out with masks in place of the spans.
func (l *Lines) replace(text []byte, spans []span, named bool) {
	l.out = l.out[:0]
	at := 0
	for _, s := range spans {
		l.out = append(l.out, text[at:s.from]...)
		at = s.to
		switch {
		case s.from == s.to:
		case named:
			l.out = append(append(append(l.out, "[masked "...), s.label...), ']')
		default:
			l.out = append(l.out, stars[:min(len(stars), s.to-s.from)]...)
		}
	}
	l.out = append(l.out, text[at:]...)
}

const (
	keyLabel = "private key"
	dashes   = "-----"
	keyBegin = dashes + "BEGIN "
)

// pemHeader finds the private key that text[from:to], the end of a line of dashes, announces: to
// its end if that is on the same line, as in JSON, else to the end of the line and on.
func pemHeader(text []byte, from, to int, spans []span) []span {
	if n := len(spans); n > 0 && spans[n-1].open {
		return spans // all the rest is masked
	}
	if !bytes.Contains(text[max(0, from-maxKind):from], []byte(keyBegin)) {
		return spans
	}
	if end := bytes.Index(text[to:min(len(text), to+maxKeyOnLine)], []byte(dashes+"END ")); end >= 0 {
		return append(spans, span{from: to, to: to + end, label: keyLabel})
	}
	end := to + len(bytes.TrimRight(text[to:], " \t\"',;|\\"))
	return append(spans, span{from: to, to: end, label: keyLabel, open: true})
}

// keyLine masks what belongs to a private key in a line that comes after its beginning.
func (l *Lines) keyLine(text []byte) {
	l.key--
	if end := bytes.Index(text, []byte(dashes)); end >= 0 {
		l.lastOfKey(text, end)
		return
	}
	bare := bytes.Trim(text, " \t\"',;|+\\")
	if len(bare) == 0 {
		return
	}
	least := minKeyRun
	if l.body {
		least = minLaterRun
	}
	found := false // a shorter run is the last line if it is a whole one, and no word
	for i := 0; i < len(text); i++ {
		end := classEnd(text, i, &isBase64)
		if end-i >= least || end-i == len(bare) && l.body && bytes.ContainsAny(bare, "0123456789+/=") {
			l.spans = append(l.spans, span{from: i, to: end, label: keyLabel})
			found = true
		}
		i = end
	}
	switch {
	case found:
		l.body = true
	case !l.body && l.key >= maxKeyLines-maxKeyHeaders && (isKeyHeader(bare) || text[len(bytes.TrimRight(text, " \t"))-1] == '|'):
	default:
		l.key = 0 // it was cut short, or only spoken of
	}
}

// lastOfKey masks what belongs to a private key before the dashes at end: all of it, where it has
// its newlines as \n on one line that was too long for one piece.
func (l *Lines) lastOfKey(text []byte, end int) {
	l.key = 0
	ends := bytes.HasPrefix(text[end:], []byte(dashes+"END "))
	for i := 0; i < end; i++ {
		to := classEnd(text[:end], i, &isEscapedBase64)
		if to-i >= minLaterRun || to > i && to == end && ends {
			l.spans = append(l.spans, span{from: i, to: to, label: keyLabel})
		}
		i = to
	}
}

// isKeyHeader tells whether a line is of the form `Word: text`, whatever stands before the word:
// Version and Comment of PGP, Proc-Type and DEK-Info of PEM.
func isKeyHeader(bare []byte) bool {
	name, _, ok := bytes.Cut(bare, []byte(":"))
	if len(name) < len(bare)-1 && bare[len(name)+1] != ' ' {
		return false
	}
	name = name[bytes.LastIndexAny(name, " \t|")+1:]
	return ok && len(name) > 0 && classEnd(name, 0, &isWord) == len(name)
}

// Whole is how much of text, the beginning of a line, can be masked and given away before the rest
// is known: all but what may be the beginning of a secret. cut tells that the line goes on at once;
// otherwise it has paused, and what is held back is more certain to be one, since a prompt must be
// seen.
func (l *Lines) Whole(text []byte, cut bool) int {
	if l.m == nil {
		return len(text)
	}
	least := 2
	if cut {
		least = 1
	}
	tail := text[max(0, len(text)-maxSecret):]
	keep := len(tail)
	for _, n := range l.m.set.Load().needles {
		if n.kind == value {
			keep = min(keep, beginning(tail, n.text, least))
		}
	}
	keep = min(keep, openToken(tail, least), openCredentials(tail, least-1), openHeader(tail, cut))
	if cut {
		keep = min(keep, openURL(tail))
	}
	if keep < len(tail) {
		keep = l.m.before(tail, keep)
	}
	return len(text) - len(tail) + keep
}

// before is at, or where the secret in text begins that at is in: a secret that is complete may end
// as another begins. What follows the beginning of a private key is masked wherever it is cut.
func (m *Masker) before(text []byte, at int) int {
	for _, s := range settle(m.set.Load().find(text, nil)) {
		if s.from < at && at < s.to && !s.open {
			return s.from
		}
	}
	return at
}

// openHeader is where in text, at its end, the announcement of a private key stands that is not
// complete; len(text) if none does. Where the line goes on at once, any beginning of one may be it;
// where it has paused, dashes alone are not.
func openHeader(text []byte, cut bool) int {
	least := len(dashes) + 1
	if cut {
		least = 1
	}
	from := max(0, len(text)-maxHeader+1)
	if at := bytes.LastIndex(text[from:], []byte(keyBegin)); at >= 0 {
		closed := bytes.Index(text[from+at+len(keyBegin):], []byte(dashes))
		if closed < 0 {
			return from + at
		}
		from += at + len(keyBegin) + closed + len(dashes)
	}
	return from + beginning(text[from:], keyBegin, least)
}

// beginning is where in text a beginning of secret, at least so many bytes of it and not all,
// stands at the end; len(text) if none does.
func beginning(text []byte, secret string, least int) int {
	for i := max(0, len(text)-len(secret)+1); i <= len(text)-least; i++ {
		next := bytes.IndexByte(text[i:], secret[0])
		if next < 0 {
			break
		}
		i += next
		if rest := text[i:]; len(rest) >= least && strings.HasPrefix(secret, string(rest)) {
			return i
		}
	}
	return len(text)
}

// openToken is where in text a word begins, at its end, that is or may become a token; len(text) if none does.
func openToken(text []byte, least int) int {
	from := len(text)
	for from > 0 && (isWord[text[from-1]] || text[from-1] == '.') {
		from--
	}
	if from > 0 && text[from-1] == '\\' {
		if from == len(text) && least == 1 {
			return from - 1 // of the escape before a token
		}
		if from < len(text) && isEscape(text[from]) {
			from++
		}
	}
	word := text[from:]
	if len(word) < least {
		return len(text)
	}
	for _, s := range shapes[word[0]] {
		n := min(len(word), len(s.prefix))
		if string(word[:n]) == s.prefix[:n] {
			return from
		}
	}
	return len(text)
}

// openCredentials is where in text the name of a header or a scheme stands before a word, of at
// least so many bytes, that goes to the end; len(text) if none does. Where the word may be nothing,
// the name itself may be unfinished.
func openCredentials(text []byte, least int) int {
	from := len(text)
	for from > 0 && isBearer[text[from-1]] {
		from--
	}
	const most = 48 // "authorization": "Klaviyo-API-Key
	before := bytes.ToLower(text[max(0, from-most):from])
	word := bytes.ToLower(text[from:])
	const header = "authorization="
	if at := bytes.LastIndex(word, []byte(header)); at >= 0 && len(word)-at-len(header) >= least {
		return from + at
	}
	if len(word) > 0 && from > 0 && text[from-1] == '\\' && isEscape(text[from]) {
		word = word[1:]
	}
	for _, name := range []string{"authorization", "bearer", "basic"} {
		if at := bytes.LastIndex(before, []byte(name)); at >= 0 && len(text)-from >= least && announces(before[at+len(name):], name == "authorization") {
			return from - len(before) + at
		}
		if least == 0 {
			if n := nameBegun(word, name); n > 0 {
				return len(text) - n
			}
		}
	}
	return len(text)
}

// nameBegun is how many bytes of name, from its first on, word ends with; a single one counts only behind punctuation.
func nameBegun(word []byte, name string) int {
	for n := min(len(word), len(name)); n > 0; n-- {
		if begun := len(word) - n; string(word[begun:]) == name[:n] && (n > 1 || begun == 0 || bytes.IndexByte([]byte("-_="), word[begun-1]) >= 0) {
			return n
		}
	}
	return 0
}

// announces tells whether nothing but a scheme stands between a header's name, or a scheme, and a
// word. Behind a header's name and its notation the scheme may be any.
func announces(between []byte, header bool) bool {
	noted := header && bytes.ContainsAny(between[:punctuation(between)], notation)
	between = between[punctuation(between):]
	if n := scheme(between); noted && n > 0 && n <= maxScheme && len(between)-n == punctuation(between[n:]) {
		return true
	}
	for _, scheme := range []string{"bearer", "basic", "token", "apikey"} {
		between = bytes.TrimPrefix(between, []byte(scheme))
	}
	return len(between) == punctuation(between)
}

// openURL is where in text a URL's :// stands, or begins, that may have a password behind it; len(text) if none does.
func openURL(text []byte) int {
	from := len(text)
	for from > 0 && len(text)-from < maxUserinfo && isUserinfo[text[from-1]] {
		from--
	}
	for _, begun := range []string{"://", ":/", ":"} {
		if before, ok := bytes.CutSuffix(text[:from], []byte(begun)); ok {
			return len(before)
		}
		from = len(text)
	}
	return len(text)
}
