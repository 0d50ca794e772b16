package mask

import (
	"iter"
	"slices"
	"strings"
)

// maxSettingName bounds the name of a setting, in bytes.
const maxSettingName = 100

var (
	// isSettingName tells what the name of a setting is made of, isBeforeSetting what can stand before it.
	isSettingName   = class("-_.")
	isBeforeSetting = [256]bool{
		' ': true, '\t': true, '\r': true, '\n': true, ';': true, '?': true, '&': true, '=': true, ',': true,
		'#': true, '"': true, '\'': true, '(': true, '[': true, '{': true,
	}
)

// inSettings are the secrets among the settings in a text, name=value one after the other: those of
// a connection string (Server=db;Password=X), of the query of a URL, of options. As in URLs, they
// are learned as they stand there and decoded. Without a label the name of each is its own.
func inSettings(label, text string) (all []learned) {
	if strings.HasPrefix(text, "() {") { // a shell's function
		return nil
	}
	open := openIn(text)
	for name, value := range settingsOf(text, isSecretOption) {
		if !isSecret(spelled(name), value) || isTemplate(value) || open[unescaped(value)] {
			continue
		}
		label := label
		if label == "" && plainName.MatchString(name) {
			label = name
		} else if label == "" {
			label = "password"
		}
		all = append(all, inBothForms(label, value)...)
	}
	return all
}

// inArgument are the secrets among the settings in an argument. One that is more than settings may
// be a script: there only those within a word count, such as the query of a URL, and none that could
// be a name of something.
func inArgument(arg string) (all []learned) {
	words, others := strings.Fields(arg), false
	for _, word := range words {
		others = others || !strings.Contains(word, "=")
	}
	if !others && !call.MatchString(arg) {
		return inSettings("", arg)
	}
	for _, word := range words {
		if !call.MatchString(word) {
			all = append(all, inSettings("", word[classEnd([]byte(word), 0, &isSettingName):])...)
		}
	}
	return slices.DeleteFunc(all, func(l learned) bool { return !mixed([]byte(l.value)) })
}

// openIn are the names of the users and of the databases in the URLs and settings of a text, decoded.
func openIn(text string) map[string]bool {
	open := make(map[string]bool)
	for _, rest := range strings.Split(text, "://")[1:] {
		for _, name := range namesOf.FindStringSubmatch(rest)[1:] {
			open[unescaped(name)] = true
		}
	}
	for _, value := range settingsOf(text, func(name string) bool { return openSetting.MatchString(spelled(name)) }) {
		open[unescaped(value)] = true
	}
	return open
}

// settingsOf are the names and the values of those settings in a text whose names are wanted. The
// value of another one may have such in it: --from-literal=password=X.
func settingsOf(text string, wanted func(name string) bool) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for at := 0; ; {
			n := strings.IndexByte(text[at:], '=')
			if n < 0 {
				return
			}
			from, equals := at+n, at+n
			for from > at && equals-from < maxSettingName && isSettingName[text[from-1]] {
				from--
			}
			at = equals + 1
			if name := text[from:equals]; name != "" && (from == 0 || isBeforeSetting[text[from-1]]) && wanted(name) {
				value := settingValue(text[at:])
				if !yield(name, value) {
					return
				}
				at += len(value)
			}
		}
	}
}

// settingValue is the value that text begins with: what is in quotes, or all up to what ends it, at
// most maxSecret bytes.
func settingValue(text string) string {
	text = text[:min(len(text), maxSecret)]
	for _, quote := range []string{`"`, `'`} {
		if rest, ok := strings.CutPrefix(text, quote); ok {
			if value, _, closed := strings.Cut(rest, quote); closed {
				return value
			}
		}
	}
	end := 0
	for end < len(text) && !endsSetting(text[end:]) {
		end++
	}
	return strings.TrimRight(text[:end], `\,`)
}

// endsSetting tells whether the value of a setting ends where text begins. A comma does if another
// setting follows it.
func endsSetting(text string) bool {
	switch text[0] {
	case ' ', '\t', '\r', '\n', ';', '&', '"', '\'':
		return true
	case ',':
		end := 1
		for end < len(text) && end <= maxSettingName && isSettingName[text[end]] {
			end++
		}
		return end > 1 && end < len(text) && text[end] == '='
	}
	return false
}

// isTemplate tells whether a value is the name of what a program puts there: {db_password}, %(password)s.
func isTemplate(value string) bool {
	return strings.ContainsAny(value[:1], "{%") && !mixed([]byte(value))
}
