package mask

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

var (
	// secretName matches the names of variables whose values are secret.
	secretName = lazily(`(?i)(token|secret|passw|passphrase|api_?key|auth|cookie|dsn|private|credential)|_key$|_pwd$|(^|_)pass($|_)|` +
		`(^|_)(pat|salt|mnemonic|((otp|totp|mfa|2fa|wallet|key|master|recovery)_seed|seed_phrase))$`)
	// publicName matches names of variables that look secret but are not: of package paths, columns
	// and classes.
	publicName = lazily(`(?i)^goprivate$|(^|_)(primary|foreign|sort|partition|public)_key$|_model$`)
	// webhook matches the names of variables whose values are secret if the value is a URL that
	// contains a token.
	webhook = lazily(`(?i)webhook(_url)?$`)
	// secretOption matches the names of options whose values are secret, in the spelling that
	// isSecretOption produces. It matches fewer names than secretName, since the value of an option
	// may be a word that is frequent in output.
	secretOption = lazily(`(?i)(^|_)(pass|pwd|token|(shared_?)?(api|access|account|secret|private|signing|encryption|master)_?key|secret_key_base|credentials?|requirepass|masterauth|storepass|keypass)$|` +
		`(password|passwd|passphrase|(^|_|client)secret)$`)
	// publicOption matches names of options that look secret but are not: switches, and options
	// that hold the name of a secret.
	publicOption = lazily(`(?i)^(no|ask|prompt|without)(_?|_[a-z]+_)pass|(^|_)(existing|pull|tls)_?secret$`)
	// hump matches the boundary between two words in a camel-case name.
	hump = lazily(`([a-z0-9])([A-Z])`)
	// call matches a function call that is assigned in code: password=readPassword(x). Such an
	// assignment is not a setting.
	call = lazily(`= *[A-Za-z_][A-Za-z0-9_.]*\(`)
	// variableName matches the names of variables in a command line. The pattern is strict because
	// in a script other text may precede a = too.
	variableName = lazily(`^[A-Z][A-Z0-9_]*$`)
	// plainName matches names that a mask may show. Any other name may contain a secret.
	plainName = lazily(`^-{0,2}[A-Za-z][A-Za-z0-9_.-]{0,39}$`)
	// setting matches the names of settings that describe a secret but do not hold it.
	setting = lazily(`(?i)_(file|path|dir|sock|socket|url|uri|host|port|domain|mode|type|method|provider|alg|algorithm|enabled|name|user|username|email|` +
		`issuer|audience|realm|scopes?|region|ttl|timeout|expiry|expires|expiration|expires_in|lifetime|length|size|limit|count|version|date)$|sock$`)
	// file matches values that are file names.
	file = lazily(`(?i)^(~|\.\.?)/|\.(pem|key|crt|cer|json|txt|ya?ml|env|toml|p12|pfx|jks|sock)$`)
	// assignment matches a line of a document of the form name: value or name=value, but not base64
	// that ends in padding.
	assignment = lazily(`^(?:- +)?(?:export +)?([A-Za-z_][A-Za-z0-9_.-]{0,63})(?: *= *|: +)([^=\s].*)$`)
	// userinfoOf matches the user and the password of a URL.
	userinfoOf = lazily(`://[^/\s:@]*:([^\s/]+)@`)
	// namesOf matches the user and the database of a URL, in the text after "://".
	namesOf = lazily(`^(?:([^/\s:@]*):[^\s/]+@)?[^/\s]*(?:/([^/?#&;,\s"']*))?`)
	// publicSetting matches the names of settings that hold a user or a database.
	publicSetting = lazily(`(?i)(^|_)(user|user_?name|user_?id|uid|id|database|db|db_?name|catalog)$`)
)

// minLongValue is the minimum length of a value in a document that is secret whatever its name, in
// bytes.
const minLongValue = 16

// commonWords are values that are too common to protect anything and that ordinary output contains.
var commonWords = map[string]bool{
	"password": true, "postgres": true, "changeme": true, "change-me": true, "changeit": true, "localhost": true, "development": true,
	"production": true, "disabled": true, "required": true, "optional": true, "undefined": true, "anonymous": true, "username": true,
	"passw0rd": true, "12345678": true, "123456789": true, "test1234": true, "password1": true, "mongodb": true, "rabbitmq": true,
	"redacted": true, "internal": true, "external": true, "database": true, "pass:word": true, "minioadmin": true, "elasticsearch": true,
}

// lazily returns a function that compiles pattern when it is first called: few patterns are
// needed for a start, of which compiling all of them took a twentieth.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// SecretName reports whether a variable with this name holds a secret.
func SecretName(name string) bool {
	name = strings.ReplaceAll(strings.ToUpper(name), "AUTHORIZ", "AUTH")
	return secretName().MatchString(strings.ReplaceAll(name, "AUTHOR", "")) && !publicName().MatchString(name)
}

// LearnEnv learns the secrets among the environment variables of a process: the values of variables
// whose names look secret, and passwords in URLs and connection strings.
func (m *Masker) LearnEnv(env map[string]string) { m.learn(envSecrets(env), false) }

// LearnEnviron is like LearnEnv, but takes entries of the form NAME=value that every child
// inherits. Their secrets are never evicted in favour of others.
func (m *Masker) LearnEnviron(entries []string) {
	env := make(map[string]string, len(entries))
	for _, entry := range entries {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	m.learn(envSecrets(env), true)
}

// LearnInput learns a secret that is sent to a process as input; it is never evicted in favour of
// others. LearnInput reports whether the secret is masked from now on: a value of fewer than 8 bytes,
// a common word and a part of an exempt text are not.
func (m *Masker) LearnInput(value string) (masked bool) {
	m.learn(variants("input", value), true)
	return m.Text(value) != value
}

// LearnSteps learns the inputs that the arguments of a call, a JSON text, mark as secret: the strings
// "send" of objects in which "secret" is true, or "true", as arguments may be. It needs no valid
// call, because an error may quote the arguments of an invalid one.
func (m *Masker) LearnSteps(raw []byte) {
	if m == nil || !bytes.Contains(raw, []byte("secret")) {
		return
	}
	var value any
	if json.Unmarshal(raw, &value) == nil {
		m.learn(stepSecrets(value), true)
	}
}

// stepSecrets returns the inputs in value that are marked as secret.
func stepSecrets(value any) (all []secret) {
	switch value := value.(type) {
	case string: // some clients send an array as a string
		var inner any
		if strings.Contains(value, "secret") && json.Unmarshal([]byte(value), &inner) == nil {
			all = stepSecrets(inner)
		}
	case []any:
		for _, element := range value {
			all = append(all, stepSecrets(element)...)
		}
	case map[string]any:
		if send, ok := value["send"].(string); ok && (value["secret"] == true || value["secret"] == "true") {
			all = variants("input", send)
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			all = append(all, stepSecrets(value[key])...)
		}
	}
	return all
}

func envSecrets(env map[string]string) (all []secret) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, variableSecrets(name, env[name])...)
	}
	return all
}

// LearnArgs learns the secrets in a command line, whether or not the line is split into words:
// --password=X, --token X, API_KEY=X, passwords in URLs, and settings within an argument:
// --from-literal=password=X. An argument after -c is a script.
func (m *Masker) LearnArgs(args ...string) {
	if m == nil {
		return
	}
	all := wordSecrets(args)
	for _, arg := range args {
		all = append(all, argumentSecrets(arg)...)
		all = append(all, textSecrets(arg)...)
		if words := strings.Fields(arg); len(words) > 1 { // a script, or a command line that is not split into words
			for i := range words {
				words[i] = strings.Trim(words[i], "\"'`;,()")
			}
			all = append(all, wordSecrets(words)...)
		}
	}
	m.learn(all, false)
}

// textSecrets returns the secrets in an argument that would be masked in any text because a name
// precedes them: values of headers and of JSON members.
func textSecrets(arg string) (all []secret) {
	var spans []span
	text := []byte(arg)
	for i, b := range text {
		if b == '=' || b == ':' {
			spans = findNamed(text, i, spans)
		}
	}
	if len(spans) == 0 {
		return nil
	}
	open := publicNames(arg)
	for _, s := range spans {
		if value := arg[s.from:s.to]; !open[unescaped(value)] {
			all = append(all, variants(s.label, value)...)
		}
	}
	return all
}

// credentials lists the options of programs whose value is a password or, if user is set, a user
// and a password separated by a colon. A program is matched without its directory, so that the
// patterns start with ^ and fail at the first byte of a long word. The value may follow a single-letter option in the same
// word; if joined is set, it must.
var credentials = []struct {
	programs, options *regexp.Regexp
	joined, user      bool
}{
	{regexp.MustCompile(`^(curl|https?|xh|wget)$`), regexp.MustCompile(`^(-u|--user|--proxy-user|-a|--auth)$`), false, true},
	{regexp.MustCompile(`^(mysql|mariadb)[a-z-]*$`), regexp.MustCompile(`^-p$`), true, false},
	{regexp.MustCompile(`^sshpass$`), regexp.MustCompile(`^-p$`), false, false},
	{regexp.MustCompile(`^redis-cli$`), regexp.MustCompile(`^(-a|--pass)$`), false, false},
}

// credentialSecrets returns the passwords that the words of a command line pass to the options
// listed in credentials.
func credentialSecrets(words []string) (all []secret) {
	for _, c := range credentials {
		at := slices.IndexFunc(words, func(word string) bool { return c.programs.MatchString(word[strings.LastIndexByte(word, '/')+1:]) })
		for i := at + 1; at >= 0 && i < len(words); i++ {
			option, value, assigned := strings.Cut(words[i], "=")
			switch {
			case assigned && strings.HasPrefix(option, "--"):
			case len(words[i]) > 2 && words[i][0] == '-' && words[i][1] != '-':
				option, value = words[i][:2], words[i][2:]
			case c.joined || i+1 == len(words):
				continue
			default:
				option, value = words[i], words[i+1]
			}
			value = strings.Trim(value, "\"'")
			if _, password, ok := strings.Cut(value, ":"); ok && c.user {
				value = password
			}
			if c.options.MatchString(option) && !isPlaceholder(value) {
				all = append(all, variants("password", value)...)
			}
		}
	}
	return all
}

// LearnJSON learns the secrets in a JSON text: the strings whose keys are names of secret options.
func (m *Masker) LearnJSON(raw []byte) {
	var value any
	if m != nil && json.Unmarshal(raw, &value) == nil {
		m.learn(jsonSecrets("", value), false)
	}
}

// jsonSecrets returns the secrets in the JSON value of a key.
func jsonSecrets(key string, value any) (all []secret) {
	switch value := value.(type) {
	case string:
		if isSecretOption(key) && isSecret(spelled(key), value) {
			return variants(key, value)
		}
	case []any:
		for _, element := range value {
			all = append(all, jsonSecrets(key, element)...)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			all = append(all, jsonSecrets(key, value[key])...)
		}
	}
	return all
}

// wordSecrets returns the secrets in the words of a command line.
func wordSecrets(words []string) (all []secret) {
	all = credentialSecrets(words)
	for i, word := range words {
		name, value, assigned := strings.Cut(word, "=")
		if i > 0 && words[i-1] == "-c" && strings.ContainsAny(word, " \t\n") {
			name, value, assigned = "", "", false // a script is not a setting
		}
		if !assigned && strings.HasPrefix(name, "-") && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			value = words[i+1]
		}
		value = strings.Trim(value, "\"'")
		isOption, isVariable := strings.HasPrefix(name, "-") && isSecretOption(name), variableName().MatchString(name) && SecretName(name)
		if (isOption && plainName().MatchString(name) || isVariable) && isSecret(spelled(strings.TrimLeft(name, "-")), value) {
			all = append(all, variants(name, value)...)
		}
		if !assigned || !plainName().MatchString(name) {
			name = "password"
		}
		all = append(all, urlSecrets(name, word)...)
	}
	return all
}

func spelled(name string) string { return strings.NewReplacer("-", "_", ".", "_").Replace(name) }

// isSecretOption reports whether an option or a setting with this name holds a secret. The words of
// the name may be separated by - _ or . or be in camel case.
func isSecretOption(name string) bool {
	name = hump().ReplaceAllString(spelled(strings.TrimLeft(name, "-")), "${1}_$2")
	return secretOption().MatchString(name) && !publicOption().MatchString(name)
}

func variableSecrets(name, value string) (all []secret) {
	if SecretName(name) && isSecret(name, value) || webhook().MatchString(name) && strings.Contains(value, "://") && isSecret("", value) {
		all = variants(name, value)
	}
	all = append(all, urlSecrets(name, value)...)
	return append(all, settingSecrets(name, value)...)
}

// urlSecrets returns the passwords of the URLs in a value, both as written and decoded. It omits a
// password that is also the name of the user or the database: such a password protects nothing, and
// masking it would remove that name from the log.
func urlSecrets(name, value string) (all []secret) {
	if !strings.Contains(value, "://") {
		return nil
	}
	open := publicNames(value)
	for _, found := range userinfoOf().FindAllStringSubmatch(value, -1) {
		password := found[1]
		if isPlaceholder(password) || isPort([]byte(password)) || open[unescaped(password)] {
			continue
		}
		all = append(all, encodedAndDecoded(name, password)...)
	}
	return all
}

// encodedAndDecoded returns a part of a URL both as written and decoded, omitting a form that
// cannot be masked.
func encodedAndDecoded(name, part string) (all []secret) {
	for _, form := range slices.Compact([]string{part, unescaped(part)}) {
		if isMaskable(form) {
			all = append(all, variants(name, form)...)
		}
	}
	return all
}

// unescaped returns a part of a URL decoded, or unchanged if its encoding is invalid.
func unescaped(part string) string {
	if decoded, err := url.PathUnescape(part); err == nil {
		return decoded
	}
	return part
}

// isMaskable reports whether a value can be masked: it is long enough, has more than two different
// bytes, and is not a common word.
func isMaskable(value string) bool {
	different := make(map[byte]bool)
	for i := range len(value) {
		different[value[i]] = true
	}
	return len(value) >= minSecret && len(different) > 2 && !commonWords[strings.ToLower(value)]
}

// isSecret reports whether the value of a variable whose name looks secret is in fact secret.
// Settings, file names, addresses and placeholders are not.
func isSecret(name, value string) bool {
	value = strings.TrimSpace(value)
	switch {
	case !isMaskable(value), value == name, isPlaceholder(value), setting().MatchString(name):
		return false
	case strings.Contains(value, "\n"):
		return true
	case file().MatchString(value), strings.HasPrefix(value, "/") && isFile(value):
		return false
	}
	if u, err := url.Parse(value); err == nil && u.Scheme != "" && u.Host != "" {
		return u.User != nil || u.RawQuery != "" || slices.ContainsFunc(strings.Split(u.Path, "/"), func(s string) bool {
			return len(s) >= minWord && mixed([]byte(s))
		})
	}
	return true
}

// isFile reports whether an absolute path names an existing file or a file in an existing directory
// other than the root.
func isFile(path string) bool {
	_, err := os.Lstat(path)
	if dir := filepath.Dir(path); err != nil && dir != "/" {
		_, err = os.Lstat(dir)
	}
	return err == nil
}

// variants returns the forms in which a value may be printed: unchanged, and as JSON encodes it. A
// value of several lines is split into its lines, and a very long value into pieces.
func variants(name, value string) (all []secret) {
	value = strings.Trim(value, "\r\n")
	if strings.Contains(value, "\n") {
		for _, line := range linesOf(value) {
			all = append(all, variants(name, line)...)
		}
	} else {
		value = strings.TrimSpace(value)
		all = pieces(name, value)
	}
	return append(all, jsonForms(name, value)...)
}

// linesOf returns the lines of a value of several lines, each of which is a secret. If the value is
// a document that contains settings, linesOf returns only the values of the secret settings, and
// words that may be tokens.
func linesOf(value string) (all []string) {
	lines := strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	if !isDocument(value, lines) {
		all = lines
	} else {
		for _, line := range lines {
			all = append(all, documentSecrets(line)...)
		}
	}
	return slices.DeleteFunc(all, func(s string) bool { return !isMaskable(s) || strings.HasPrefix(s, dashes) })
}

// isDocument reports whether a value is a document: JSON, XML, YAML or an env file. A PEM key is
// not a document, even if it has headers.
func isDocument(value string, lines []string) bool {
	return strings.ContainsAny(value[:1], "{[<") || !strings.HasPrefix(value, dashes) && slices.ContainsFunc(lines, assignment().MatchString)
}

// documentSecrets returns the secrets in a line of a document.
func documentSecrets(line string) []string {
	if found := assignment().FindStringSubmatch(line); found != nil && !strings.ContainsAny(found[2][:1], "{[<") {
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

// pieces splits a value of one line into pieces that are short enough to be masked.
func pieces(name, value string) (all []secret) {
	for len(value) > maxSecret {
		all = append(all, secret{value[:maxSecret], name})
		value = value[maxSecret:]
	}
	if isMaskable(value) {
		all = append(all, secret{value, name})
	}
	return all
}

// jsonForms returns a value in the spellings that JSON encoders use, if they differ from the value.
func jsonForms(name, value string) (all []secret) {
	for _, html := range []bool{true, false} {
		quoted := encodeJSON(value, html)
		if spelled := quoted[1 : len(quoted)-1]; string(spelled) != value {
			all = append(all, pieces(name, string(spelled))...)
		}
	}
	return all
}
