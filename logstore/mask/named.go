package mask

import (
	"bytes"
	"strings"
)

// Output is full of names: names of settings in dumps, but also of fields in messages, types and
// prose. In output, a value after the name of a secret is therefore masked only if the value itself
// looks like a secret.

// maxNamed is the number of bytes of a value that are examined.
const maxNamed = 512

var (
	// isJoined contains the bytes, other than those of isWord, that settings of the form name=value
	// consist of.
	isJoined = class("-_;<=>?@[\\]^`{|}~")
	// publicValue matches values with digits and letters that are not secret: a date, a memory
	// address, the name of a type, a placeholder.
	publicValue = lazily(`^(\d{4}-\d\d-\d\d.*|0[xX][0-9a-fA-F]{1,16}|[A-Z]?[a-z]+\d{1,3}([A-Z][a-z]+)+|(?i:your|xxxx).*)$`)
	// fieldOf matches a field in code: user2.password.
	fieldOf = lazily(`^[A-Za-z_]\w*([.?]+[A-Za-z_]\w*)+$`)
	// aWord matches a word of prose or a long part of such a word.
	aWord = lazily(`[A-Z]?[a-z]{4,}|[A-Z]{5,}`)
	// inProse matches names that messages and lists also use with other meanings.
	inProse = lazily(`(?i)(token|secret)$`)
)

// separator returns the offset of the = or : after the name that contains text[from], or -1 if
// there is none.
func separator(text []byte, from int) int {
	if !isSettingName[text[from]] {
		from++
	}
	head := text[:min(len(text), from+maxSettingName)]
	end := classEnd(head, classEnd(head, from, &isSettingName), &isAround)
	if end == len(text) || text[end] != '=' && text[end] != ':' {
		return -1
	}
	return end
}

// separatorBefore returns the offset of the = or : before the value at from, or -1 if there is
// none.
func separatorBefore(text []byte, from int) int {
	const most = 8
	at := from - 1
	for at >= 0 && from-at < most && (isAround[text[at]] || text[at] == '>') {
		at--
	}
	if at < 0 || text[at] != '=' && text[at] != ':' {
		return -1
	}
	return at
}

// maxAround bounds what is skipped between a name and its separator, in bytes.
const maxAround = 16

// isAround contains the bytes that can be between a name, its separator and its value.
var isAround = bytesOf(" \t\"'`\\")

func isQuote(b byte) bool { return b == '"' || b == '\'' || b == '`' }

// findNamed appends the secret that the name before the = or : at sep announces.
func findNamed(text []byte, sep int, spans []span) []span {
	if n := len(spans); n > 0 && spans[n-1].from <= sep && sep < spans[n-1].to {
		return spans // sep is within a secret
	}
	s, ok := settingAt(text, sep)
	if !ok || !s.mayBeSecret() || !s.isNamedSecret() || !s.looksSecret() {
		return spans
	}
	label := "password"
	if plainName().Match(s.name) {
		label = string(s.name)
	}
	return append(spans, span{from: s.from, to: s.to, label: label})
}

// namedValue is a name and the value after it.
type namedValue struct {
	name     []byte
	from, to int // the bounds of the value in the text
	value    []byte
	begin    int  // the offset of the name in the text
	quoted   bool // the name is quoted
	colon    bool // the separator is a colon
	prose    bool // words precede the name
	query    bool // the setting is in the query of a URL
}

// settingAt returns the name and the value around the = or : at sep.
func settingAt(text []byte, sep int) (s namedValue, ok bool) {
	end := classStart(text, sep-maxAround, sep, &isAround)
	s.begin = classStart(text, end-maxSettingName, end, &isSettingName)
	if s.begin == end {
		return s, false
	}
	before := byte('\n')
	if s.begin > 0 {
		before = text[s.begin-1]
	}
	s.name, s.colon, s.query = text[s.begin:end], text[sep] == ':', before == '?' || before == '&'
	s.quoted = isQuote(before) && bytes.IndexByte(text[end:sep], before) >= 0
	if !isBeforeSetting[before] && before != '|' && before != ':' {
		return s, false
	}
	s.from = sep + 1
	if s.from == len(text) || !s.mayPrecede(text[s.from]) {
		return s, false
	}
	if text[s.from] == '>' && !s.colon {
		s.from++
	}
	words := bytes.TrimRight(text[:s.begin], " ")
	s.prose = s.colon && !s.quoted && before == ' ' && len(words) > 0 && isWord[words[len(words)-1]] && words[len(words)-1] != '-'
	return s, s.takeValue(text, !s.colon && end == sep && s.isVariable() && isDump(text[:s.begin]))
}

// mayPrecede reports whether the separator may precede next: it is not part of ==, a::b or an arrow
// after a name without quotes.
func (s namedValue) mayPrecede(next byte) bool {
	if s.colon {
		return isAround[next]
	}
	return next != '=' && (next != '>' || s.quoted)
}

// isDump reports whether before contains only what may precede a name in a line of an env file.
func isDump(before []byte) bool {
	if len(before) > maxSettingName {
		return false
	}
	before = bytes.TrimLeft(before, " \t")
	return len(before) == 0 || string(before) == "export " || string(before) == "- "
}

// takeValue sets the value that starts at s.from or after the quotes there, and reports whether the
// value is long enough. In a line of an env file the value extends to the next blank.
func (s *namedValue) takeValue(text []byte, dump bool) bool {
	value := bytes.TrimLeft(bytes.TrimLeft(text[s.from:], " \t"), `\`)
	s.from = len(text) - len(value)
	value = value[:min(len(value), maxSecret)]
	if len(value) > 0 && isQuote(value[0]) {
		s.from++
		inner, _, closed := bytes.Cut(value[1:], value[:1])
		if value = inner; closed {
			value = bytes.TrimRight(inner, `\`)
		}
	} else {
		end := 0
		for end < len(value) && value[end] != ' ' && value[end] != '\t' && !isQuote(value[end]) && (dump || !endsValue(value[end:])) {
			end++
		}
		after := `,\.)}]>`
		if dump {
			after = ","
		}
		value = bytes.TrimRight(value[:end], after)
	}
	s.to = s.from + len(value)
	s.value = value[:min(len(value), maxNamed)]
	return len(value) >= minSecret
}

// endsValue reports whether a value without quotes ends where text starts. A value ends at an =
// after it, because the value is then the name of another setting; so each byte is checked for only
// a few settings.
func endsValue(text []byte) bool {
	return text[0] == '=' && len(text) > 1 && isSettingName[text[1]] || text[0] == ';' || text[0] == '&' || text[0] == '<' || text[0] == '|' ||
		text[0] == ',' && endsSetting(string(text[:min(len(text), maxSettingName+2)]))
}

// mayBeSecret reports whether name and value need a closer check: the value has letters as well as
// digits or other bytes, and the name ends with a letter with which names of secrets end.
func (s namedValue) mayBeSecret() bool {
	digits, upper, lower := count(s.value)
	first, last := s.name[0], s.name[len(s.name)-1]
	return upper+lower > 0 && (digits > 0 || digits+upper+lower < len(s.value)) &&
		(first >= 'A' && first <= 'Z' || bytes.IndexByte([]byte("dehlnsty"), last|0x20) >= 0)
}

// isNamedSecret reports whether the name is that of a secret by the rules for options or, if the
// name is in capitals, by those for variables. It excludes authorization headers, whose credentials
// are found by their scheme, and "PASS:", which test runners print.
func (s namedValue) isNamedSecret() bool {
	if bytes.HasSuffix(s.name, []byte("AUTHORIZATION")) || bytes.EqualFold(s.name, []byte("pass")) && s.colon && !s.quoted {
		return false
	}
	return isSecretOption(string(s.name)) || s.isVariable() && SecretName(string(s.name))
}

func (s namedValue) isVariable() bool { return variableName().Match(s.name) }

// looksSecret reports whether the value is not a word, name, number, type, file or address. The
// check is stricter after a name that also has other meanings.
func (s namedValue) looksSecret() bool {
	v := s.value
	digits, _, _ := count(v)
	special := bytes.ContainsAny(v[1:len(v)-1], "!#$%^&*~") && !bytes.ContainsAny(v, "=|?")
	variable := s.isVariable()
	free := variable || s.query || !inProse().Match(s.name)
	switch {
	case digits == 0 && !(special && free):
		return false
	case bytes.ContainsAny(v, " \t(") || v[0] == '[' || v[0] == '{' || v[0] == '<', isTemplate(string(v)), publicValue().Match(v), isStandIn(v):
		return false
	case s.prose && !free && len(v) < minLongValue:
		return false
	case !variable && (fieldOf().Match(v) || isGivenName(v)), !free && isWords(v):
		return false
	}
	return isSecret(spelled(hump().ReplaceAllString(strings.TrimLeft(string(s.name), "-"), "${1}_$2")), string(v))
}

// unfinishedSetting returns the start of the name of a secret whose value extends to the end of
// text, or len(text) if there is none. The value must have at least least bytes; if least is 1, the
// quote before the value is enough.
func unfinishedSetting(text []byte, least int) int {
	from := max(0, len(text)-maxNamed)
	for end := len(text); end > from; {
		sep := bytes.LastIndexAny(text[from:end], "=:")
		if sep < 0 {
			break
		}
		end = from + sep
		value := bytes.TrimLeft(text[end+1:], "> \t\\\"'`")
		if bytes.ContainsAny(value, " \t") {
			break
		}
		begun := len(value) >= least || least == 1 && text[len(text)-1] != ' '
		if s, _ := settingAt(text, end); begun && len(s.name) > 0 && s.from+len(s.value) >= len(bytes.TrimRight(text, "\\,.)}]>")) && s.isNamedSecret() {
			return s.begin
		}
	}
	return len(text)
}

// isGivenName reports whether a value is the name of something: it consists of words and short
// numbers, separated by - _ or a dot.
func isGivenName(value []byte) bool {
	const short = 2
	for part := range bytes.FieldsFuncSeq(value, func(r rune) bool { return r == '-' || r == '_' || r == '.' }) {
		if digits, upper, lower := count(part); upper+lower != len(part) && (digits != len(part) || digits > short) {
			return false
		}
	}
	return true
}

// isWords reports whether a value consists mostly of words, or is an address.
func isWords(value []byte) bool {
	words := 0
	for _, w := range aWord().FindAll(value, -1) {
		words += len(w)
	}
	return 2*words >= len(value) || bytes.IndexByte(value, '/') >= 0 && bytes.IndexByte(value, '.') >= 0 || bytes.IndexByte(value, ':') >= 0
}
