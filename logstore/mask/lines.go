package mask

import (
	"bytes"
	"regexp"
	"strings"
)

const (
	// maxLine bounds a masked line, in bytes. If masks with names would make the line longer, its
	// secrets are masked with stars, which are never longer than the secret.
	maxLine = 16 << 10
	// maxKeyLines bounds the number of lines of a private key.
	maxKeyLines = 200
	// minKeyRun is the minimum length of a run of base64 that counts as the first line of a private
	// key's body, minLaterRun that of a run that counts as a later line.
	minKeyRun   = 40
	minLaterRun = 16
	// maxKeyHeaders bounds the number of headers of a private key. Headers are the lines between
	// the BEGIN line and the body.
	maxKeyHeaders = 10
	// maxKeyOnLine bounds the search for the end of a private key on the line where the key begins.
	// maxKind bounds the search backwards from the end of a BEGIN line to its start. Both are in
	// bytes.
	maxKeyOnLine = 16 << 10
	maxKind      = 40
	// maxHeader is the maximum length of a private key's BEGIN line, from the first dash to the
	// last, in bytes.
	maxHeader = maxKind + len("PRIVATE KEY BLOCK-----")
	// stars is the mask without a name.
	stars = "***"
)

// Lines masks the lines of one stream, in order, because a private key extends over many lines. The
// zero value masks nothing. A Lines must not be used by two goroutines at the same time.
type Lines struct {
	m        *Masker
	keyLines int  // how many further lines may belong to a private key; 0: none
	inBody   bool // a line of the key's body has been read
	spans    []span
	out      []byte
}

// Lines returns a Lines for one stream.
func (m *Masker) Lines() Lines { return Lines{m: m} }

// Line returns text, a whole line without its newline, with its secrets masked. If text has no
// secrets, Line returns text itself; otherwise the result is valid until the next call.
func (l *Lines) Line(text []byte) []byte {
	if l.m == nil {
		return text
	}
	l.spans = l.m.set.Load().find(text, l.spans[:0])
	if l.keyLines > 0 {
		l.keyLine(text)
	}
	if len(l.spans) == 0 {
		return text
	}
	spans := mergeSpans(l.spans)
	for _, s := range spans {
		if s.continues {
			l.keyLines, l.inBody = maxKeyLines, false
		}
	}
	if l.replace(text, spans, true); len(l.out) > max(maxLine, len(text)) {
		l.replace(text, spans, false)
	}
	return l.out
}

// replace sets l.out to text with each span replaced by a mask.
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

// findPrivateKey appends the private key that follows text[from:to], the end of a BEGIN line. If
// the key ends on the same line, as in JSON, the span ends there; otherwise the span extends to the
// end of the line and continues in the next lines.
func findPrivateKey(text []byte, from, to int, spans []span) []span {
	if n := len(spans); n > 0 && spans[n-1].continues {
		return spans // the rest of the line is already masked
	}
	if !bytes.Contains(text[max(0, from-maxKind):from], []byte(keyBegin)) {
		return spans
	}
	if end := bytes.Index(text[to:min(len(text), to+maxKeyOnLine)], []byte(dashes+"END ")); end >= 0 {
		return append(spans, span{from: to, to: to + end, label: keyLabel})
	}
	end := to + len(bytes.TrimRight(text[to:], " \t\"',;|\\"))
	return append(spans, span{from: to, to: end, label: keyLabel, continues: true})
}

// keyLine masks the part of a private key that is in a line after the BEGIN line.
func (l *Lines) keyLine(text []byte) {
	l.keyLines--
	if end := bytes.Index(text, []byte(dashes)); end >= 0 {
		l.lastOfKey(text, end)
		return
	}
	bare := bytes.Trim(text, " \t\"',;|+\\")
	if len(bare) == 0 {
		return
	}
	least := minKeyRun
	if l.inBody {
		least = minLaterRun
	}
	found := false // a shorter run is the last line of the key if it fills the line and is not a word
	for from, to := range runs(text, &isBase64) {
		if to-from >= least || to-from == len(bare) && l.inBody && bytes.ContainsAny(bare, "0123456789+/=") {
			l.spans = append(l.spans, span{from: from, to: to, label: keyLabel})
			found = true
		}
	}
	switch {
	case found:
		l.inBody = true
	case !l.inBody && l.keyLines >= maxKeyLines-maxKeyHeaders && (keyHeader().Match(bare) || text[len(bytes.TrimRight(text, " \t"))-1] == '|'):
	default:
		l.keyLines = 0 // the key was cut short, or the BEGIN line was only mentioned
	}
}

// lastOfKey masks the part of a private key that precedes the dashes at end. It may be longer than
// a line of the key: if a key with its newlines escaped as \n is on one line that is too long for
// one piece, several of its lines precede the dashes.
func (l *Lines) lastOfKey(text []byte, end int) {
	l.keyLines = 0
	ends := bytes.HasPrefix(text[end:], []byte(dashes+"END "))
	for from, to := range runs(text[:end], &isEscapedBase64) {
		if to-from >= minLaterRun || to == end && ends {
			l.spans = append(l.spans, span{from: from, to: to, label: keyLabel})
		}
	}
}

// keyHeader matches a line of the form `Word: text`, possibly with other text before the word. PGP
// keys have the headers Version and Comment, PEM keys Proc-Type and DEK-Info.
var keyHeader = lazily(`^([^:]*[ \t|])?[\w-]+:( |$)`)

// SafePrefix returns the number of bytes of text, the first part of a line, that can be masked and
// passed on before the rest of the line is known: all except a suffix that may be the start of a
// secret. cut means that the rest of the line follows immediately. Otherwise the output has paused;
// then SafePrefix defers less, so that a prompt is shown.
func (l *Lines) SafePrefix(text []byte, cut bool) int {
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
		if n.kind == valueNeedle {
			keep = min(keep, partialAt(tail, n.text, least))
		}
	}
	keep = min(keep, unfinishedToken(tail, least), unfinishedCredentials(tail, least-1), unfinishedKeyHeader(tail, cut), unfinishedSetting(tail, least))
	if cut {
		keep = min(keep, unfinishedURL(tail))
	}
	if keep < len(tail) {
		keep = l.m.before(tail, keep)
	}
	return len(text) - len(tail) + keep
}

// before returns the start of the secret in text that contains at, or at if there is none: a
// complete secret may overlap the start of another one. It ignores a private key whose end is not
// in text, since the key is masked wherever it is cut.
func (m *Masker) before(text []byte, at int) int {
	for _, s := range mergeSpans(m.set.Load().find(text, nil)) {
		if s.from < at && at < s.to && !s.continues {
			return s.from
		}
	}
	return at
}

// unfinishedKeyHeader returns the start of an incomplete BEGIN line of a private key at the end of
// text, or len(text) if there is none. If the line was cut, any prefix of a BEGIN line counts; if
// the output paused, dashes alone do not.
func unfinishedKeyHeader(text []byte, cut bool) int {
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
	return from + partialAt(text[from:], keyBegin, least)
}

// partialAt returns the start of the longest suffix of text that is a proper prefix of secret and
// has at least least bytes, or len(text) if there is none.
func partialAt(text []byte, secret string, least int) int {
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

// unfinishedToken returns the start of the last word of text if the word is or may become a token,
// else len(text).
func unfinishedToken(text []byte, least int) int {
	from := classStart(text, 0, len(text), &isSettingName)
	if from > 0 && from == len(text) && text[from-1] == '\\' && least == 1 {
		return from - 1 // the backslash may start the escape of a newline before a token
	}
	from = afterEscape(text, from)
	if len(text)-from < least {
		return len(text)
	}
	for _, s := range shapes[text[from]] {
		n := min(len(text)-from, len(s.prefix))
		if string(text[from:from+n]) == s.prefix[:n] {
			return from
		}
	}
	return len(text)
}

// announced matches the name of a header or a scheme, in lower case, at the end of the text before
// credentials. After a header and its notation (a colon, an equals sign or a quote) the scheme may
// be unknown.
var announced = lazily(`(authorization|bearer|basic)` + between + `(bearer)?(basic)?(token)?(apikey)?` + between + `$|` +
	`authorization` + between + `[` + notation + `]` + between + `[a-z-]{1,16}` + between + `$`)

// between matches what may separate the name of a header from its value.
const between = `[` + separators + `]*`

// unfinishedCredentials returns the start of the name of a header or a scheme that precedes the
// last word of text, or len(text) if there is none. The word must have at least least bytes; if
// least is 0, the name itself may be incomplete.
func unfinishedCredentials(text []byte, least int) int {
	from := classStart(text, 0, len(text), &isBearer)
	word := bytes.ToLower(text[from:])
	const header = "authorization="
	if at := bytes.LastIndex(word, []byte(header)); at >= 0 && len(word)-at-len(header) >= least {
		return from + at
	}
	const most = 48 // "authorization": "Klaviyo-API-Key
	if before := max(0, from-most); len(word) >= least {
		lower := bytes.ToLower(text[before:from]) // longer than the text if that begins within a character
		if at := announced().FindIndex(lower); at != nil {
			return from - (len(lower) - at[0])
		}
	}
	word = word[afterEscape(text, from)-from:]
	for _, name := range []string{"authorization ", "bearer ", "basic "} {
		n := len(word) - partialAt(word, name, 1)
		if n == 1 && len(word) > 1 && bytes.IndexByte([]byte("-_="), word[len(word)-2]) < 0 {
			n = 0 // the last letter of another word
		}
		if n > 0 && least == 0 {
			return len(text) - n
		}
	}
	return len(text)
}

// urlBegun matches the end of a text in a URL's userinfo or in the "://" before it.
var urlBegun = lazily(`://[\w` + regexp.QuoteMeta(userinfoMarks) + `]*$|:/?$`)

// unfinishedURL returns the start of the "://", or of its first bytes, after which a URL's password
// may follow, or len(text) if there is none.
func unfinishedURL(text []byte) int {
	from := max(0, len(text)-len("://")-maxUserinfo)
	if at := urlBegun().FindIndex(text[from:]); at != nil {
		return from + at[0]
	}
	return len(text)
}
