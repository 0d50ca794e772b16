package mask

import (
	"bytes"
	"encoding/base64"
	"iter"
	"math"
	"slices"
	"strings"
)

// isWord contains the bytes of which words of tokens consist, isBase64 the bytes of base64,
// isEscapedBase64 those of base64 with escaped newlines, and isBearer the bytes that may follow the
// word Bearer.
var (
	isWord          = class("-_")
	isBase64        = class("+/=")
	isEscapedBase64 = class("+/=\\")
	isBearer        = class("-._~+/=")
	// isUserinfo contains the bytes that may be between :// and @. They include bytes that should
	// be encoded there but often are not.
	isUserinfo = class(userinfoMarks)
	isDigit    = bytesOf("0123456789")
)

const userinfoMarks = "!#$%&()*+,-.:;=?@[]^_{|}~"

// class returns the set that contains the letters, the digits and the bytes of more.
func class(more string) [256]bool {
	return bytesOf("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" + more)
}

func bytesOf(all string) (set [256]bool) {
	for i := range len(all) {
		set[all[i]] = true
	}
	return set
}

// shape is the form of a token: its prefix, how many bytes follow in the same word, and a condition
// on these bytes. If the prefix ends with a dot, which is not part of a word, the prefix precedes
// the word.
type shape struct {
	prefix string
	least  int // the minimum number of bytes after the prefix
	most   int // the maximum number of bytes after the prefix
	label  string
	also   func(rest []byte) bool // reports whether the bytes after the prefix fit
}

// fits reports whether the bytes after the prefix of a token have the shape.
func (s *shape) fits(rest []byte) bool {
	return len(rest) >= s.least && len(rest) <= s.most && s.also(rest)
}

const (
	awsID   = "AWS key id"
	anySize = math.MaxInt
)

// shapes holds the forms of tokens, indexed by first byte. A longer prefix comes before a shorter
// prefix that it starts with.
var shapes = shapesOf(
	shape{"AKIA ASIA", 16, 16, awsID, upperOrDigit},
	shape{"AIza", 35, 35, "Google key", mixed},
	shape{"eyJ", 10, anySize, jwt, func([]byte) bool { return true }}, // findShaped checks the rest
	shape{"ghp_ gho_ ghs_ ghu_ ghr_", 36, anySize, "GitHub token", mixed},
	shape{"github_pat_", 40, anySize, "GitHub token", mixed},
	shape{"glpat- glrt- gldt- glptt- glcbt- glsoat-", 20, anySize, "GitLab token", mixed},
	shape{"glsa_", 40, anySize, "Grafana token", mixed},
	shape{"gsk_", 40, anySize, "Groq key", alphanumeric},
	shape{"GOCSPX-", 28, 28, "Google secret", mixed},
	shape{"dop_v1_ doo_v1_ dor_v1_", 64, 64, "DigitalOcean token", alphanumeric},
	shape{"dapi", 32, 34, "Databricks token", hexadecimal},
	shape{"hf_", 30, 40, "Hugging Face token", bothCases},
	shape{"lin_api_", 32, anySize, "Linear key", alphanumeric},
	shape{"npm_", 36, anySize, "npm token", alphanumeric},
	shape{"pypi-Ag", 50, anySize, "PyPI token", mixed},
	shape{"r8_", 37, 40, "Replicate token", alphanumeric},
	shape{"rk_live_ rk_test_ sk_live_ sk_test_ whsec_", 16, anySize, "Stripe key", alphanumeric},
	shape{"sk-", 20, anySize, "API key", longSegment},
	shape{"shpat_ shpca_ shppa_ shpss_", 32, 32, "Shopify token", hexadecimal},
	shape{"xoxa- xoxb- xoxp- xoxr- xoxs- xapp-1-", 15, anySize, "Slack token", mixed},
	shape{"xai-", 60, anySize, "xAI key", alphanumeric},
	shape{"hvs. hvb. hvr.", 24, anySize, "Vault token", mixed},
	shape{"ya29.", 30, anySize, "Google token", mixed},
	shape{"SG.", 20, 24, "SendGrid key", mixed},
)

// shapesOf returns shapes indexed by the first byte of their prefixes. Each prefix of a row becomes
// a shape.
func shapesOf(rows ...shape) (all [256][]shape) {
	for _, row := range rows {
		for _, row.prefix = range strings.Fields(row.prefix) {
			all[row.prefix[0]] = append(all[row.prefix[0]], row)
		}
	}
	return all
}

// urlShapes lists parts of URLs that mark the last segment of the URL as secret.
var urlShapes = []shape{
	{"hooks.slack.com/", minWord, anySize, "Slack webhook", mixed}, {"/api/webhooks/", 60, anySize, "Discord webhook", mixed},
}

// findAWSSecretKeys appends the AWS secret keys (40 bytes of base64) that are on the same line as
// the id of an AWS key.
func findAWSSecretKeys(text []byte, spans []span) []span {
	const size = 40
	if !slices.ContainsFunc(spans, func(s span) bool { return s.label == awsID }) {
		return spans
	}
	for from, to := range runs(text, &isBase64) {
		if digits, upper, lower := count(text[from:to]); to-from == size && digits > 0 && upper > 0 && lower > 0 {
			spans = append(spans, span{from: from, to: to, label: "AWS secret key"})
		}
	}
	return spans
}

// findInWord appends the secret that is, or ends with, the word that contains text[i], and those of
// the settings around the word. It returns the end of the text that it has checked.
func findInWord(text []byte, i int, spans []span) (end int, _ []span) {
	from, to := i, i+windowSize
	if n := classEnd(text[:to], from, &isWord); n < to {
		if classEnd(text[:to], n, &isJoined) == to {
			for k := i; k < to; k++ {
				if text[k] == '=' {
					spans = findNamed(text, k, spans)
				}
			}
		}
		return i, spans
	}
	from, to = classStart(text, 0, from, &isWord), classEnd(text, to, &isWord)
	if to < len(text) && text[to] == '=' {
		spans = findNamed(text, to, spans)
	}
	if to-from < minWord {
		if from > 0 && text[from-1] == '=' {
			spans = findNamed(text, from-1, spans)
		}
		return to, spans
	}
	if sep := separatorBefore(text, from); sep >= 0 {
		spans = findNamed(text, sep, spans)
	}
	from = afterEscape(text, from)
	switch s := findToken(text, from, to); {
	case s.label == jwt:
		return to, append(spans, s) // its later parts may begin another JWT
	case s.to > 0:
		return s.to, append(spans, s)
	}
	if name := schemeBefore(text[:from]); name != "" && mixed(text[from:to]) {
		if last := classEnd(text, from, &isBearer); areCredentials(name, text[from:last]) {
			spans = append(spans, span{from: from, to: last, label: "credentials"})
		}
	}
	return to, spans
}

// findToken returns the token whose first or last part is the word text[from:to], or the zero span.
// The bytes around the word say which forms are possible.
func findToken(text []byte, from, to int) span {
	s := findShaped(text, from, to)
	if s.to == 0 && from > 0 {
		switch text[from-1] {
		case '.':
			s = findDotted(text, from, to)
		case '/':
			s = findInURL(text, from, to)
		case ':':
			s = findTelegram(text, from, to)
		}
	}
	if s.to == 0 && to < len(text) && text[to] == '.' {
		s = findDiscord(text, from, to)
	}
	return s
}

// The functions below are findToken for one form each.

// findShaped finds a token that starts with the prefix of a shape.
func findShaped(text []byte, from, to int) span {
	word := text[from:to]
	for i := range shapes[word[0]] {
		s := &shapes[word[0]][i]
		if rest, ok := bytes.CutPrefix(word, []byte(s.prefix)); !ok || !s.fits(rest) {
			continue
		}
		more := 0
		if s.label == jwt {
			if more = len(moreOfJWT().Find(text[to:])); more == 0 {
				break
			}
		}
		return span{from: from, to: to + more, label: s.label}
	}
	return span{}
}

// findDotted finds a token whose prefix ends with the dot before the word. Further parts may follow.
func findDotted(text []byte, from, to int) span {
	if from < 2 {
		return span{}
	}
	start := afterEscape(text, classStart(text, 0, from-1, &isWord))
	for _, s := range shapes[text[start]] {
		if string(text[start:from]) != s.prefix || !s.fits(text[from:to]) {
			continue
		}
		return span{from: start, to: to + len(moreWords().Find(text[to:])), label: s.label}
	}
	return span{}
}

// findInURL finds a token that is a segment of a URL.
func findInURL(text []byte, from, to int) span {
	const most = 100
	for _, s := range urlShapes {
		if s.fits(text[from:to]) && bytes.Contains(text[max(0, from-most):from], []byte(s.prefix)) {
			return span{from: from, to: to, label: s.label}
		}
	}
	return span{}
}

// findTelegram finds a token of Telegram, which starts with a number and a colon.
func findTelegram(text []byte, from, to int) span {
	if to-from == 35 && bytes.HasPrefix(text[from:], []byte("AA")) && mixed(text[from:to]) {
		id := len(bytes.TrimRight(text[:from-1], "0123456789"))
		if n := from - 1 - id; n >= 8 && n <= 10 {
			return span{from: id, to: to, label: "Telegram token"}
		}
	}
	return span{}
}

// findDiscord finds a token of Discord: a number in base64 and two other words, joined by dots.
func findDiscord(text []byte, from, to int) span {
	if to-from > 28 {
		return span{}
	}
	if more := moreOfDiscord().Find(text[to:]); more != nil {
		id, err := base64.RawStdEncoding.DecodeString(string(text[from:to]))
		if digits, _, _ := count(id); err == nil && digits == len(id) {
			return span{from: from, to: to + len(more), label: "Discord token"}
		}
	}
	return span{}
}

var (
	// moreOfJWT matches the text of a JSON web token after its first part: two more parts, of which
	// the first is a JSON object, like the part before it.
	moreOfJWT = lazily(`^\.eyJ[\w-]{5,}\.[\w-]*`)
	// moreOfDiscord matches the text of a token of Discord after its first part. The last part is
	// at least minWord bytes long.
	moreOfDiscord = lazily(`^\.[\w-]{5,}\.[\w-]{20,}`)
	moreWords     = lazily(`^(\.[\w-]+)*`)
)

// jwt is the label of JSON web tokens.
const jwt = "JWT"

// afterEscape returns the start of the word at from without the byte that belongs to the escape of a
// newline, return or tab before it.
func afterEscape(text []byte, from int) int {
	if from > 0 && from < len(text) && text[from-1] == '\\' && bytes.IndexByte([]byte("nrt"), text[from]) >= 0 {
		from++
	}
	return from
}

// classStart returns the start of the run of bytes in class that ends at to, at least from.
func classStart(text []byte, from, to int, class *[256]bool) int {
	for to > max(from, 0) && class[text[to-1]] {
		to--
	}
	return to
}

// classEnd returns the end of the run of bytes in class that starts at from.
func classEnd(text []byte, from int, class *[256]bool) int {
	for from < len(text) && class[text[from]] {
		from++
	}
	return from
}

// runs yields the bounds of each run of bytes in class.
func runs(text []byte, class *[256]bool) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for from := 0; from < len(text); from++ {
			to := classEnd(text, from, class)
			if to > from && !yield(from, to) {
				return
			}
			from = to
		}
	}
}

// count returns the numbers of digits, upper-case letters and lower-case letters in b.
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

// mixed reports whether b has both digits and letters.
func mixed(b []byte) bool {
	digits, upper, lower := count(b)
	return digits > 0 && upper+lower > 0
}

func alphanumeric(b []byte) bool {
	digits, upper, lower := count(b)
	return digits+upper+lower == len(b) && digits > 0 && upper+lower > 0
}

func hexadecimal(b []byte) bool {
	return mixed(b) && len(bytes.Trim(b, "0123456789abcdef-")) == 0 && bytes.Count(b, []byte("-")) <= 1
}

// bothCases reports whether b has letters in lower and in upper case, and nothing except letters
// and digits.
func bothCases(b []byte) bool {
	digits, upper, lower := count(b)
	return digits+upper+lower == len(b) && upper > 0 && lower > 0
}

func upperOrDigit(b []byte) bool {
	digits, upper, _ := count(b)
	return digits+upper == len(b)
}

// longSegment reports whether a part of b between dashes or underscores is too long and too mixed
// to be a word. The check is needed because names of CSS classes start with sk- too.
func longSegment(b []byte) bool {
	for segment := range bytes.FieldsFuncSeq(b, func(r rune) bool { return r == '-' || r == '_' }) {
		if len(segment) >= 16 && mixed(segment) {
			return true
		}
	}
	return false
}

// schemeBefore returns, in lower case, the authorization scheme (and the blanks after it) that text
// ends with, or "".
func schemeBefore(text []byte) string {
	if len(text) == 0 || text[len(text)-1] != ' ' {
		return ""
	}
	rest := bytes.TrimRight(text, " ")
	for _, name := range []string{"bearer", "basic"} {
		if at := len(rest) - len(name); at >= 0 && bytes.EqualFold(rest[at:], []byte(name)) {
			return name
		}
	}
	return ""
}

// areCredentials reports whether the word after the name of an authentication scheme, such as Bearer,
// is credentials rather than prose about the scheme. scheme must be in lower case.
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

// otherScheme matches the name of a scheme that areCredentials may not know: Negotiate,
// Klaviyo-API-Key.
var otherScheme = lazily(`^[A-Za-z-]{1,16}$`)

// areOtherCredentials reports whether the word after the name of an unknown scheme and a blank
// looks like a token, rather than a path or `name=value`.
func areOtherCredentials(name, blank, word []byte) bool {
	return otherScheme().Match(name) && len(bytes.Trim(blank, " \t")) == 0 &&
		len(word) >= minWord && mixed(word) && word[0] != '/' && bytes.IndexByte(bytes.TrimRight(word, "="), '=') < 0
}

// findHeaderValue appends the credentials in a header whose name ends at from, in any notation:
// `Authorization: Bearer x`, `"authorization":"Basic x"`, `HTTP_AUTHORIZATION=token x`. If the
// scheme is unknown, a colon, an equals sign or a quote must follow the name: text after the bare
// word is prose.
func findHeaderValue(text []byte, from int, spans []span) []span {
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

const (
	// notation contains the bytes that, after the name of a header, distinguish the header from a
	// word of prose.
	notation = `:="'`
	// separators contains the bytes that may separate the name of a header from its value, as in a
	// character class of a pattern.
	separators = notation + " \t\\\\,\\[>"
)

var isSeparator = bytesOf(separators)

// punctuation returns the number of separators at the start of text, at most 8.
func punctuation(text []byte) int { return classEnd(text[:min(len(text), 8)], 0, &isSeparator) }

// maxUserinfo is the number of bytes of a URL's userinfo that are examined.
const maxUserinfo = 512

// findUserinfo appends the password of a URL, or the token in its place:
// scheme://user:password@host. It checks the run of userinfo bytes around the @ at offset at,
// starting no earlier than done, and returns the end of the run.
func findUserinfo(text []byte, done, at int, spans []span) (end int, _ []span) {
	from := classStart(text, done, at, &isUserinfo)
	end = classEnd(text, at, &isUserinfo)
	if !bytes.HasSuffix(text[:from], []byte("://")) {
		return end, spans
	}
	// The last @ ends the userinfo, since an @ in a password is often not encoded. The text before
	// a colon may be the token of another URL.
	info := text[from:min(end, from+maxUserinfo+1)]
	info = info[:bytes.LastIndexByte(info, '@')+1]
	colon := bytes.IndexByte(info, ':')
	user := info
	if colon >= 0 {
		user = info[:colon]
	}
	if n := bytes.LastIndexByte(user, '@'); n >= minWord && mixed(user[:n]) && !isStandIn(user[:n]) {
		spans = append(spans, span{from: from, to: from + n, label: "credentials"})
	}
	if last := len(info) - 1; colon >= 0 && !isStandIn(info[colon+1:last]) && !isPort(info[colon+1:last]) {
		spans = append(spans, span{from: from + colon + 1, to: from + last, label: "password"})
	}
	return end, spans
}

// isStandIn reports whether b only stands in for a secret: it is empty, consists of stars, or is a
// placeholder.
func isStandIn(b []byte) bool {
	return len(bytes.Trim(b, "*")) == 0 || isPlaceholder(string(b))
}

// isPort reports whether the text between a URL's colon and an @ is a port followed by other text,
// so that the @ does not end a userinfo: 8080?email=me.
func isPort(b []byte) bool {
	digits := classEnd(b, 0, &isDigit)
	return digits >= 1 && digits <= 5 && digits < len(b) && bytes.IndexByte([]byte("?#,;:."), b[digits]) >= 0
}

// isPlaceholder reports whether a word only marks where a secret belongs: ${NAME}, $NAME, %NAME%,
// {{ name, <name>.
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
