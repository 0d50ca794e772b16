package project

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/sirupsen/logrus"

	"pmcp/logstore/mask"
	"pmcp/process/command"
	"pmcp/server/offered"
)

const (
	// maxExpanded is the most that the expansions in a file may insert, in bytes.
	maxExpanded = 1 << 20
	// maxExpansions bounds the sum over all $ of the length of their lines, each counted as
	// 1000 bytes longer than it is: for each, the parser may go through the rest of the line.
	maxExpansions = 16 << 20
	// maxUnset is how many unset names a note shows.
	maxUnset = 8
)

// An envFiles is what dotenv files define.
type envFiles struct {
	own       map[string]string // variables that override those of the files
	inherited map[string]string // variables that those of the files override

	vars map[string]string
	path string // the file that has set PATH, or ""
	// unset lists what is expanded although it is not set: names, or "one in PASSWORD".
	unset []string
}

// readEnvFiles reads dotenv files, in the syntax of Docker Compose; later files take
// precedence. The files are relative to dir, in which the child runs. own is added to the
// variables that the files define.
func readEnvFiles(files []string, dir string, own map[string]string) (*envFiles, error) {
	e := &envFiles{own: own, vars: make(map[string]string)}
	if len(files) > 0 {
		e.inherited = command.Inherited(os.Environ(), dir)
	}
	for _, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		content, err := offered.ReadFile(file)
		if err == nil {
			err = e.add(file, strings.ReplaceAll(string(content), "\r\n", "\n")+"\n")
		}
		if err != nil {
			return nil, fmt.Errorf("argument env_files: %w", err)
		}
	}
	maps.Copy(e.vars, own)
	return e, nil
}

// add adds the variables in text, the content of file. Its errors quote none of it, since it
// may hold secrets.
func (e *envFiles) add(file, text string) error {
	at := strings.IndexByte(text, 0)
	if at >= 0 {
		return fmt.Errorf("%s, line %d: it has a NUL byte; save the file as UTF-8 text", file, 1+strings.Count(text[:at], "\n"))
	}
	number, left := 0, maxExpansions
	for line := range strings.Lines(text) {
		number++
		if left -= (len(line) + 1000) * strings.Count(line, "$"); left < 0 {
			return fmt.Errorf("%s, line %d: there are too many $ up to here", file, number)
		}
	}
	before := maps.Clone(e.vars)
	unset, err := e.parse(text, e.vars)
	if err != nil {
		line := e.failingLine(text, before, err)
		return fmt.Errorf("%s, line %d: %s", file, line, problem(err))
	}
	if now, set := e.vars["PATH"]; set && (now != before["PATH"] || e.path == "") {
		e.path = file
	}
	for _, name := range unset {
		if len(e.unset) > maxUnset {
			break
		}
		if in := secretWith(text, name); in != "" {
			name = "one in " + in
		}
		if !slices.Contains(e.unset, name) {
			e.unset = append(e.unset, name)
		}
	}
	return nil
}

var (
	errTooMuch = fmt.Errorf("its variables expand to more than %d KiB", maxExpanded>>10)
	errNoName  = errors.New("a name is empty")
)

// unclosed is what the parser's error has before the first line of a value whose closing quote is missing.
const unclosed = "unterminated quoted value "

// parser guards the logger of the parser, which logs the names that are not set and reports them nowhere else.
var parser sync.Mutex

// parse adds the variables in text to vars, and returns the names that are expanded
// although they are not set.
func (e *envFiles) parse(text string, vars map[string]string) (unset []string, err error) {
	left := maxExpanded
	lookup := func(name string) (string, bool) {
		value, ok := e.own[name]
		for _, env := range []map[string]string{vars, e.inherited} {
			if !ok {
				value, ok = env[name]
			}
		}
		if left -= len(value); left < 0 { // variables that double one another have no end
			return "", ok
		}
		return value, ok
	}
	parser.Lock()
	defer parser.Unlock()
	hook := unsetNames{}
	logger := logrus.StandardLogger()
	logger.SetOutput(io.Discard)
	defer logger.ReplaceHooks(logger.ReplaceHooks(logrus.LevelHooks{logrus.WarnLevel: {hook}}))
	err = dotenv.ParseWithFormat(strings.NewReader(text), "", vars, lookup, dotenv.DotEnv)
	if _, bad := vars[""]; bad && err == nil {
		err = errNoName
	}
	if left < 0 {
		err = errTooMuch
	}
	return slices.Sorted(maps.Keys(hook)), err
}

// unsetNames collects the names in the parser's warnings.
type unsetNames map[string]bool

func (unsetNames) Levels() []logrus.Level { return []logrus.Level{logrus.WarnLevel} }

func (u unsetNames) Fire(entry *logrus.Entry) error {
	var name string
	if _, err := fmt.Sscanf(entry.Message, "The %q variable is not set", &name); err == nil {
		u[name] = true
	}
	return nil
}

// failingLine returns the number of the line for which parse has returned err. The parser
// does not state it for an expansion, and for a quote that is not closed it states the last line.
func (e *envFiles) failingLine(text string, before map[string]string, err error) int {
	if _, value, ok := strings.Cut(err.Error(), unclosed); ok {
		at := strings.LastIndex(text, value)
		for at > 0 && text[at-1] == '\\' { // no quote after the opening one closes it
			at = strings.LastIndex(text[:at], value)
		}
		return 1 + strings.Count(text[:max(at, 0)], "\n")
	}
	lines := slices.Collect(strings.Lines(text))
	return 1 + sort.Search(len(lines)-1, func(i int) bool {
		_, err := e.parse(strings.Join(lines[:i+1], ""), maps.Clone(before))
		return err != nil && !strings.Contains(err.Error(), unclosed)
	})
}

// problem describes an error of parse, without text of the file.
func problem(err error) string {
	var required *template.MissingRequiredError
	var invalid *template.InvalidTemplateError
	switch {
	case errors.Is(err, errTooMuch):
		return err.Error()
	case errors.As(err, &required):
		return fmt.Sprintf("%.60s is not set, and ${%[1]s:?…} requires it", required.Variable)
	case errors.As(err, &invalid):
		return "not dotenv syntax: after ${ there is no NAME} or NAME:-default}; $$ or single quotes keep a $"
	case strings.Contains(err.Error(), unclosed):
		return "not dotenv syntax: a quote is not closed"
	default:
		return "not dotenv syntax: want NAME=value, with a name of letters, digits, _ . and -"
	}
}

// secretWith returns the name of a variable in text that looks secret and has $name in its value, or "".
// Such a name may be a part of the secret.
func secretWith(text, name string) string {
	variable := ""
	for line := range strings.Lines(text) {
		if key, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "="); ok && IsPlainWord(strings.TrimSpace(key)) {
			variable = strings.TrimSpace(key)
		}
		bare := strings.Contains(line, "$"+name)
		if bare && strings.Contains(line, "@") || (bare || strings.Contains(line, "${"+name)) && mask.SecretName(variable) { // @: a password in a URL
			return variable
		}
	}
	return ""
}

// note returns a sentence on the names that are expanded although they are not set, or "".
func (e *envFiles) note() string {
	if len(e.unset) == 0 {
		return ""
	}
	names := slices.Clone(e.unset)
	for i := range names {
		names[i] = fmt.Sprintf("%.60s", names[i])
	}
	if len(names) > maxUnset {
		names[maxUnset] = "…"
	}
	return fmt.Sprintf("env_files expand names that are not set: %s (${NAME:-default} gives a default, $$ or single quotes keep a $)", strings.Join(names, ", "))
}
