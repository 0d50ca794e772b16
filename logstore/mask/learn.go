package mask

import (
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	// secretName matches the names of variables whose values are secret.
	secretName = regexp.MustCompile(`(?i)(token|secret|passw|passphrase|api_?key|auth|cookie|dsn|private|credential)|_key$|_pwd$|(^|_)pass($|_)`)
	// openName matches names that only look so: of package paths, columns and classes.
	openName = regexp.MustCompile(`(?i)^goprivate$|(^|_)(primary|foreign|sort|partition|public)_key$|_model$`)
	// secretOption matches the names of options whose values are, as isSecretOption spells them: fewer,
	// since an option's value is seen wherever the word is.
	secretOption = regexp.MustCompile(`(?i)(^|_)(pass|pwd|token|(shared_?)?(api|access|account|secret|private)_?key|credentials?|requirepass|masterauth|storepass|keypass)$|` +
		`(password|passwd|passphrase|(^|_|client)secret)$`)
	// openOption matches names of options that only look so: switches, and names of a secret.
	openOption = regexp.MustCompile(`(?i)^(no|ask|prompt|without)(_?|_[a-z]+_)pass|(^|_)(existing|pull|tls)_?secret$`)
	// hump is where a word begins within a name in camel case.
	hump = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	// call matches what code has behind a =, and no setting: password=readPassword(x).
	call = regexp.MustCompile(`= *[A-Za-z_][A-Za-z0-9_.]*\(`)
	// variableName matches the names of variables in a command line; in a script anything else may
	// stand before a = as well.
	variableName = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)
	// plainName matches what can stand in a mask: anything else may be a secret itself.
	plainName = regexp.MustCompile(`^-{0,2}[A-Za-z][A-Za-z0-9_.-]{0,39}$`)
	// setting matches the names of what says something about a secret.
	setting = regexp.MustCompile(`(?i)_(file|path|dir|sock|socket|url|uri|host|port|domain|mode|type|method|provider|alg|algorithm|enabled|name|user|username|email|` +
		`issuer|audience|realm|scopes?|region|ttl|timeout|expiry|expires|expiration|expires_in|lifetime|length|size|limit|count|version|date)$|sock$`)
	// file matches values that are names of files.
	file = regexp.MustCompile(`(?i)^(~|\.\.?)/|\.(pem|key|crt|cer|json|txt|ya?ml|env|toml|p12|pfx|jks|sock)$`)
	// assignment matches a line of a document, name: value or name=value. The padding of base64 is none.
	assignment = regexp.MustCompile(`^(?:- +)?(?:export +)?([A-Za-z_][A-Za-z0-9_.-]{0,63})(?: *= *|: +)([^=\s].*)$`)
	// userinfoOf matches the user and the password of each URL in a value.
	userinfoOf = regexp.MustCompile(`://[^/\s:@]*:([^\s/]+)@`)
	// namesOf matches the user and the database of a URL in what is behind its ://.
	namesOf = regexp.MustCompile(`^(?:([^/\s:@]*):[^\s/]+@)?[^/\s]*(?:/([^/?#&;,\s"']*))?`)
	// openSetting matches the names of the settings that are those.
	openSetting = regexp.MustCompile(`(?i)(^|_)(user|user_?name|user_?id|uid|id|database|db|db_?name|catalog)$`)
)

// minLongValue is the shortest value in a document that is secret under any name, in bytes.
const minLongValue = 16

// worthless are values that protect nothing, and that are ordinary words of output.
var worthless = map[string]bool{
	"password": true, "postgres": true, "changeme": true, "change-me": true, "changeit": true, "localhost": true, "development": true,
	"production": true, "disabled": true, "required": true, "optional": true, "undefined": true, "anonymous": true, "username": true,
	"passw0rd": true, "12345678": true, "123456789": true, "test1234": true, "password1": true, "mongodb": true, "rabbitmq": true,
	"redacted": true, "internal": true, "external": true, "database": true, "pass:word": true, "minioadmin": true, "elasticsearch": true,
}

// SecretName tells whether a variable of that name holds a secret.
func SecretName(name string) bool {
	name = strings.ReplaceAll(strings.ToUpper(name), "AUTHORIZ", "AUTH")
	return secretName.MatchString(strings.ReplaceAll(name, "AUTHOR", "")) && !openName.MatchString(name)
}

// LearnEnv learns the secrets among the variables of a process: the values of those whose names
// look secret, and passwords in URLs and connection strings.
func (m *Masker) LearnEnv(env map[string]string) { m.learn(inEnv(env), false) }

// LearnEnviron is LearnEnv for entries of the form NAME=value that every child inherits: they are
// not forgotten for others.
func (m *Masker) LearnEnviron(entries []string) {
	env := make(map[string]string, len(entries))
	for _, entry := range entries {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	m.learn(inEnv(env), true)
}

// inEnv are the secrets among variables.
func inEnv(env map[string]string) (all []learned) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, inVariable(name, env[name])...)
	}
	return all
}

// LearnArgs learns the secrets in a command line, taken apart or not: --password=X, --token X,
// API_KEY=X, passwords in URLs, and settings within an argument: --from-literal=password=X.
func (m *Masker) LearnArgs(args ...string) {
	if m == nil {
		return
	}
	all := inWords(args)
	for _, arg := range args {
		all = append(all, inArgument(arg)...)
		if words := strings.Fields(arg); len(words) > 1 { // a script, or a line that is not taken apart yet
			for i := range words {
				words[i] = strings.Trim(words[i], "\"'`;,()")
			}
			all = append(all, inWords(words)...)
		}
	}
	m.learn(all, false)
}

// inWords are the secrets in the words of a command line.
func inWords(words []string) (all []learned) {
	for i, word := range words {
		name, value, assigned := strings.Cut(word, "=")
		if !assigned && strings.HasPrefix(name, "-") && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			value = words[i+1]
		}
		value = strings.Trim(value, "\"'")
		isOption, isVariable := strings.HasPrefix(name, "-") && isSecretOption(name), variableName.MatchString(name) && SecretName(name)
		if (isOption && plainName.MatchString(name) || isVariable) && isSecret(spelled(strings.TrimLeft(name, "-")), value) {
			all = append(all, variants(name, value)...)
		}
		if !assigned || !plainName.MatchString(name) {
			name = "password"
		}
		all = append(all, inURLs(name, word)...)
	}
	return all
}

// spelled is the name of an option or a setting in words with _ between them.
func spelled(name string) string { return strings.NewReplacer("-", "_", ".", "_").Replace(name) }

// isSecretOption tells whether an option or a setting of that name is a secret: in words with - _ or .
// between them, or in camel case.
func isSecretOption(name string) bool {
	name = hump.ReplaceAllString(spelled(strings.TrimLeft(name, "-")), "${1}_$2")
	return secretOption.MatchString(name) && !openOption.MatchString(name)
}

// inVariable are the secrets in a variable.
func inVariable(name, value string) (all []learned) {
	if SecretName(name) && isSecret(name, value) {
		all = variants(name, value)
	}
	all = append(all, inURLs(name, value)...)
	return append(all, inSettings(name, value)...)
}

// inURLs are the passwords of the URLs in a value, as they stand there and decoded, but for those
// that are the name of the user or the database as well: they protect nothing, and masking them
// would take that name out of the log.
func inURLs(name, value string) (all []learned) {
	if !strings.Contains(value, "://") {
		return nil
	}
	open := openIn(value)
	for _, found := range userinfoOf.FindAllStringSubmatch(value, -1) {
		password := found[1]
		if isPlaceholder(password) || isPort([]byte(password)) || open[unescaped(password)] {
			continue
		}
		all = append(all, inBothForms(name, password)...)
	}
	return all
}

// inBothForms is a part of a URL as it stands there and decoded, as far as either can be looked for.
func inBothForms(name, part string) (all []learned) {
	if isWorthy(part) {
		all = variants(name, part)
	}
	if decoded := unescaped(part); decoded != part && isWorthy(decoded) {
		all = append(all, variants(name, decoded)...)
	}
	return all
}

// unescaped is a part of a URL decoded; as it is if it cannot be.
func unescaped(part string) string {
	if decoded, err := url.PathUnescape(part); err == nil {
		return decoded
	}
	return part
}

// isWorthy tells whether a value can be looked for: it is long enough, has more than two different
// bytes, and is no word that everybody uses.
func isWorthy(value string) bool {
	different := make(map[byte]bool)
	for i := range len(value) {
		different[value[i]] = true
	}
	return len(value) >= minSecret && len(different) > 2 && !worthless[strings.ToLower(value)]
}

// isSecret tells whether the value of a variable whose name looks secret is one: no setting, no
// file, no address, no place to fill in.
func isSecret(name, value string) bool {
	value = strings.TrimSpace(value)
	switch {
	case !isWorthy(value), value == name, isPlaceholder(value), setting.MatchString(name):
		return false
	case strings.Contains(value, "\n"):
		return true
	case file.MatchString(value), strings.HasPrefix(value, "/") && isFile(value):
		return false
	}
	if u, err := url.Parse(value); err == nil && u.Scheme != "" && u.Host != "" {
		return u.User != nil || u.RawQuery != "" || slices.ContainsFunc(strings.Split(u.Path, "/"), func(s string) bool {
			return len(s) >= minWord && mixed([]byte(s))
		})
	}
	return true
}

// isFile tells whether an absolute path is that of a file, or of one that could be made.
func isFile(path string) bool {
	if _, err := os.Lstat(path); err == nil {
		return true
	}
	dir := filepath.Dir(path)
	if dir == "/" {
		return false
	}
	_, err := os.Lstat(dir)
	return err == nil
}

// variants are the texts as which a value may be printed: as it is and within JSON; of several
// lines each; of a very long one each piece.
func variants(name, value string) (all []learned) {
	value = strings.Trim(value, "\r\n")
	if strings.Contains(value, "\n") {
		for _, line := range linesOf(value) {
			all = append(all, variants(name, line)...)
		}
		return append(all, inJSON(name, value)...)
	}
	return append(pieces(name, strings.TrimSpace(value)), inJSON(name, strings.TrimSpace(value))...)
}

// linesOf are the lines of a value that are secret themselves. Of a document, which has settings in
// it, only the values of those that are secret count, and else the words that a token could be.
func linesOf(value string) (all []string) {
	lines := strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	if !isDocument(value, lines) {
		all = lines
	} else {
		for _, line := range lines {
			all = append(all, inDocument(line)...)
		}
	}
	return slices.DeleteFunc(all, func(s string) bool { return !isWorthy(s) || strings.HasPrefix(s, dashes) })
}

// isDocument tells whether a value is a document: JSON, XML, YAML, an env file. A key in PEM is
// none, whatever headers it has.
func isDocument(value string, lines []string) bool {
	return strings.ContainsAny(value[:1], "{[<") || !strings.HasPrefix(value, dashes) && slices.ContainsFunc(lines, assignment.MatchString)
}

// inDocument are the secrets in a line of a document.
func inDocument(line string) []string {
	if found := assignment.FindStringSubmatch(line); found != nil && !strings.ContainsAny(found[2][:1], "{[<") {
		name, value := spelled(found[1]), strings.Trim(found[2], "\"',;")
		long := len(value) >= minLongValue && mixed([]byte(value)) && !strings.ContainsAny(value, " \t")
		if (long || SecretName(name)) && isSecret("_"+name, value) {
			return []string{value}
		}
		return nil
	}
	words := strings.FieldsFunc(line, func(r rune) bool { return r >= 0x80 || !isBase64[byte(r)] && !isWord[byte(r)] })
	return slices.DeleteFunc(words, func(s string) bool { return len(s) < minWord || !mixed([]byte(s)) })
}

// pieces is a value of one line, in pieces that can be looked for.
func pieces(name, value string) (all []learned) {
	for len(value) > maxSecret {
		all = append(all, learned{value[:maxSecret], name})
		value = value[maxSecret:]
	}
	if isWorthy(value) {
		all = append(all, learned{value, name})
	}
	return all
}

// inJSON is a value as JSON writers spell it, where that differs.
func inJSON(name, value string) (all []learned) {
	for _, html := range []bool{true, false} {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		if e.Encode(value) != nil {
			continue
		}
		spelled := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
		if spelled != value {
			all = append(all, pieces(name, spelled)...)
		}
	}
	return all
}
