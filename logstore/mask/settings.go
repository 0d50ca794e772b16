package mask

import (
	"iter"
	"slices"
	"strings"
)

// maxSettingName bounds the name of a setting, in bytes.
const maxSettingName = 100

var (
	// isSettingName contains the bytes of which names of settings consist, isBeforeSetting the
	// bytes that may precede such a name.
	isSettingName   = class("-_.")
	isBeforeSetting = bytesOf(" \t\r\n;?&=,#\"'([{")
)

// settingSecrets returns the secrets in a text that consists of settings of the form name=value: a
// connection string (Server=db;Password=X), the query of a URL, options. Each secret is returned
// both as written and decoded. If label is "", each secret is labelled with the name of
// its setting.
func settingSecrets(label, text string) (all []secret) {
	if strings.HasPrefix(text, "() {") { // a shell function
		return nil
	}
	open := publicNames(text)
	for name, value := range settingsOf(text, isSecretOption) {
		if !isSecret(spelled(name), value) || isTemplate(value) || open[unescaped(value)] {
			continue
		}
		label := label
		if label == "" && plainName().MatchString(name) {
			label = name
		} else if label == "" {
			label = "password"
		}
		all = append(all, encodedAndDecoded(label, value)...)
	}
	return all
}

// argumentSecrets returns the secrets among the settings in an argument. An argument that contains
// more than settings may be a script. In a script only settings within a word count, such as the
// query of a URL, and only values that have both digits and letters, since others may be names.
func argumentSecrets(arg string) (all []secret) {
	words, others := strings.Fields(arg), false
	for _, word := range words {
		others = others || !strings.Contains(word, "=")
	}
	if !others && !call().MatchString(arg) {
		return settingSecrets("", arg)
	}
	for _, word := range words {
		if !call().MatchString(word) {
			all = append(all, settingSecrets("", word[classEnd([]byte(word), 0, &isSettingName):])...)
		}
	}
	return slices.DeleteFunc(all, func(l secret) bool { return !mixed([]byte(l.value)) })
}

// publicNames returns the decoded names of the users and databases in the URLs and settings of a
// text.
func publicNames(text string) map[string]bool {
	open := make(map[string]bool)
	for _, rest := range strings.Split(text, "://")[1:] {
		for _, name := range namesOf().FindStringSubmatch(rest)[1:] {
			open[unescaped(name)] = true
		}
	}
	for _, value := range settingsOf(text, func(name string) bool { return publicSetting().MatchString(spelled(name)) }) {
		open[unescaped(value)] = true
	}
	return open
}

// settingsOf returns the names and values of the settings in a text whose names are wanted. A
// setting may be inside the value of another one: --from-literal=password=X.
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

// settingValue returns the value at the start of text: the text in quotes, or everything up to the
// end of the setting, at most maxSecret bytes.
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

// endsSetting reports whether the value of a setting ends where text starts. A comma ends the value
// if another setting follows.
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

// isTemplate reports whether a value is a template that a program fills in: {db_password},
// %(password)s.
func isTemplate(value string) bool {
	return strings.ContainsAny(value[:1], "{%") && !mixed([]byte(value))
}
