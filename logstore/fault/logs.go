package fault

import (
	"encoding/json"
	"strings"
)

// plainMaxForeign is the maxForeign of a line that may announce a stack.
const plainMaxForeign = 2

// plain is a line that states an error level and has no other recognised form. It may announce a
// stack.
var plain = row{
	words:    noWord,
	fallback: CategoryOther, fatal: true, adopts: true, maxForeign: plainMaxForeign,
	start: func(b *block, l line) verdict {
		if l.level < levelError || l.indent() > 0 && !strings.HasPrefix(l.trim(), "ERROR ") || l.text == "" || isHarmless(l.text) || l.text[0] == '}' || l.text[0] == ']' {
			return foreign
		}
		message, stated := cutLogPrefix(l.text)
		if !stated && !statesFailure(l) {
			if message, stated = cutAtLevel(l.text); !stated {
				return foreign
			}
		}
		if len(strings.TrimSpace(message)) < 3 || strings.Trim(message, "=-_*# ") == "" || strings.HasSuffix(message, " :") || countsLevels(message) {
			return foreign
		}
		b.appendMessage(message)
		b.setPosition(shellPosition(message))
		if b.setPosition(firstSourcePosition(message)); b.f.File == "" {
			b.setPosition(firstSourcePosition(strings.TrimSuffix(l.text, message)))
		}
		return taken
	},
	next:  nextPlain,
	yield: yieldPlain,
}

// levelBytes is the number of bytes of a line in which a level in capitals states the level of the line.
const levelBytes = 64

// cutAtLevel cuts what is before and at the name of a level of at least error off the start of s, and reports whether
// there is one: a word between TABs, or one in capitals at the start, or beside a mark such as "-" or ":" after a time.
func cutAtLevel(s string) (rest string, stated bool) {
	const marks = "-:*|"
	timed := true
	for i := 0; i < min(len(s), levelBytes); {
		word := firstWord(s[i:])
		end := i + len(word)
		name := strings.Trim(word, marks)
		rest = strings.TrimLeft(s[end:], " \t")
		isMarked := word != name || rest != "" && strings.IndexByte(marks, rest[0]) >= 0 || strings.TrimSpace(s[:i]) == ""
		isField := i > 0 && s[i-1] == '\t' && end < len(s) && s[end] == '\t'
		if timed && LevelOf([]byte(name)) >= levelError && !strings.HasPrefix(name, "FAIL") && (isField || isMarked && name == strings.ToUpper(name)) {
			return strings.TrimLeft(rest, marks+" \t"), true
		}
		if name != "" {
			timed = timed && i > 0 || isTimeWord(strings.Trim(word, "[,]"))
		}
		i = end + 1
	}
	return s, false
}

// countsLevels reports whether a message after a level is the number of lines at that level, before the
// number at another: "ERR 0 WARN 0".
func countsLevels(message string) bool {
	_, rest, ok := parseNumber(message)
	next := strings.Trim(firstWord(strings.TrimLeft(rest, " ,;|")), "[]():")
	name, _, _ := strings.Cut(next, "=")
	return ok && LevelOf([]byte(strings.TrimSuffix(strings.ToLower(name), "s"))) > 0
}

// failurePhrases are phrases which, in a line on standard error without a level, state that
// something failed.
var failurePhrases = [...]string{"error: ", "Error: ", "ERROR: ", "failed to ", "Failed to ", "failed: ", "cannot ", "Cannot ", "could not ", "Could not ", "unable to ", "Unable to ", "fatal: ", "exception: ", "Exception: "}

// statesFailure reports whether a line without a level states in words that something failed.
func statesFailure(l line) bool {
	if l.stream != 1 {
		return strings.Contains(l.text, " Error: ") || strings.Contains(l.text, " error: ")
	}
	if rest, ok := strings.CutPrefix(l.text, "Error "); ok {
		return rest != "" && isAlpha(rest[0])
	}
	for _, w := range failurePhrases {
		if i := strings.Index(l.text, w); i == 0 || i > 0 && strings.IndexByte(" :", l.text[i-1]) >= 0 {
			return true
		}
	}
	return false
}

func nextPlain(b *block, l line, t string) verdict {
	q, function, isFrame := b.frame(l)
	switch {
	case l.belowError():
		return ended
	case isCause(t):
		b.hint += "\n" + t
		return shown
	case isFrame:
		if b.f.File == "" && !isLibraryCode(q.file, function) {
			b.setPosition(q)
			b.function = function
		}
		return shown
	}
	if l.indent() == 0 && l.level >= levelError {
		if _, _, _, ok := parseErrorHeader(trimIntroduction(t)); !ok && !startsWith(t, "Traceback", "panic: ") {
			return ended
		}
	}
	return foreign
}

// yieldPlain gives way to the stack that the line announced, since the stack contains more details.
func yieldPlain(b *block, to *draft) bool {
	return len(b.head) == 0 && !(b.isAboutSystem() && to.isAboutCode()) && joinMessage(b, to)
}

// isAboutSystem reports whether the message states what the system refused. An error in the code
// does not explain that.
func (d *draft) isAboutSystem() bool {
	switch classify("", d.f.Message, "", false, "") {
	case CategoryPermission, CategoryNotFound, CategoryAddressInUse, CategoryDiskSpace:
		return true
	default:
		return false
	}
}

// isAboutCode reports whether the error is one of the code or of the data.
func (d *draft) isAboutCode() bool {
	category := classify(d.f.Type, d.f.Message, "", false, "")
	return category == CategorySyntax || category == CategoryType
}

// npm is the block of lines that npm prints when it fails.
var npm = row{
	opens: []string{"npm error%", "npm ERR!%"}, fallback: CategoryBuild, fatal: true,
	start: func(b *block, _ line) verdict {
		b.readNpm(b.texts[0])
		return taken
	},
	next: func(b *block, l line, _ string) verdict {
		t, ok := cutPrefix(l.text, "npm error", "npm ERR!")
		if !ok {
			return ended
		}
		b.readNpm(t)
		return shown
	},
	finish: func(b *block) {
		if strings.HasPrefix(b.f.Type, "E") && b.f.Message == "" {
			b.appendMessage("code " + b.f.Type)
		}
		// The error of a script precedes this block.
		b.void = b.f.Type == "ELIFECYCLE" || b.f.Message == "" || strings.HasPrefix(b.f.Message, "Lifecycle script")
	},
}

func (b *block) readNpm(t string) {
	t = strings.TrimSpace(t)
	key, value, _ := strings.Cut(t, " ")
	switch {
	case t == "", strings.Contains(t, "/_logs/"): // where npm's own log is
	case key == "code":
		b.f.Type = value
	case key == "path" && b.f.File == "" && strings.HasPrefix(value, "/"):
		b.f.File = value
	case b.f.Message != "", key == "syscall", key == "errno", key == "path", key == "A", key == "To", key == "command", key == "Lifecycle", key == "workspace", key == "location":
	default:
		b.appendMessage(strings.TrimPrefix(t, lowerASCII(b.f.Type)+" "))
	}
}

// shell is a message that a shell, or a tool that it runs, prints when a command or a file does not
// exist or is not accessible.
var shell = row{
	words:    []string{"not found", "denied", "no such file", "error", "fail", "fatal", " line ", "curl: (", "getaddrinfo e"},
	fallback: CategoryOther, fatal: true,
	start: func(b *block, l line) verdict {
		if l.indent() > 0 || l.level > 0 && l.level < levelError {
			return foreign
		}
		if isToolReport(l.text) || strings.HasPrefix(l.text, "zsh: command not found: ") {
			b.fallback = CategoryNetwork
			b.appendMessage(l.text)
			return takenLast
		}
		if l.stream != 1 && !startsWith(l.text, "bash: ", "sh: ", "zsh: ", "dash: ", "/bin/sh: ", "/bin/bash: ") ||
			!endsWith(l.text, ": command not found", ": not found", ": Permission denied", ": No such file or directory", ": No space left on device", ": Address already in use", ": Connection refused", ": cannot execute: required file not found") {
			return foreign
		}
		name, rest, _ := strings.Cut(l.text, ": ")
		row, rest, ok := parseNumber(strings.TrimPrefix(rest, "line "))
		message, found := strings.CutPrefix(rest, ": ")
		if !ok || !found {
			message = l.text
		} else if shell := name[strings.LastIndexByte(name, '/')+1:]; shell != "bash" && shell != "sh" && shell != "zsh" && shell != "dash" {
			b.setPosition(position{file: name, line: row})
		}
		b.appendMessage(message)
		return takenLast
	},
}

// shellPosition returns the position at the start of a shell's error message: "run.sh: line 3: message".
func shellPosition(t string) (p position) {
	file, rest, ok := strings.Cut(t, ": line ")
	if n, _, isNumber := parseNumber(rest); ok && isNumber && isFile(file) {
		return position{file: file, line: n}
	}
	return position{}
}

// isToolReport reports whether a line is an error report of curl, or a report of Node's resolver
// without a stack.
func isToolReport(t string) bool {
	if rest, ok := strings.CutPrefix(t, "curl: ("); ok {
		_, rest, ok = parseNumber(rest)
		return ok && strings.HasPrefix(rest, ") ")
	}
	return strings.HasPrefix(t, "getaddrinfo E") || strings.Contains(t, ": getaddrinfo E")
}

// levelWords lists the words with which loggers state each level, in lower case. All have at least
// 3 letters.
var levelWords = [...]string{
	levelTrace: "trace trc verbose silly",
	levelDebug: "debug dbg dbug debu",
	levelInfo:  "info inf information notice",
	levelWarn:  "warn wrn warning",
	levelError: "error err erro severe fail exception",
	levelFatal: "fatal ftl fata critical crit panic emerg emergency alert dpanic",
}

// longestLevelWord is the length of the longest of the levelWords.
const longestLevelWord = len("information")

// A levelWord is one of the levelWords.
type levelWord struct {
	text  string
	level uint8
}

// levelIndexBits sets the size of levelIndex, so that few words of prose share an entry with a
// level.
const levelIndexBits = 9

var (
	// levelIndex maps the hash of the first three letters of a word to an index of levelLists.
	levelIndex [1 << levelIndexBits]uint8
	// levelLists holds the levelWords with the same hash; list 0 is empty.
	levelLists = indexLevels()
)

func indexLevels() [][]levelWord {
	lists := make([][]levelWord, 1)
	for level, words := range levelWords {
		for _, w := range strings.Fields(words) {
			at := &levelIndex[levelHash([]byte(w))]
			if *at == 0 {
				*at = uint8(len(lists))
				lists = append(lists, nil)
			}
			lists[*at] = append(lists[*at], levelWord{w, uint8(level)})
		}
	}
	return lists
}

func levelHash(word []byte) uint32 {
	return gramIndex(uint64(word[0])|uint64(word[1])<<8|uint64(word[2])<<16) >> (gramBits - levelIndexBits)
}

// LevelOf returns the level that a word is the name of, in any case, or 0.
func LevelOf(word []byte) uint8 {
	if len(word) < 3 || len(word) > longestLevelWord {
		return 0
	}
	list := levelIndex[levelHash(word)]
	if list == 0 {
		return 0
	}
	for _, w := range levelLists[list] {
		if len(w.text) == len(word) && hasFoldedPrefix(word, w.text) {
			return w.level
		}
	}
	return 0
}

// KlogLevel returns the level that the first word of klog's lines states: a letter and the date, as
// in "I0102 15:04:05". It returns 0 for other words.
func KlogLevel(word []byte) uint8 {
	if len(word) != 5 || strings.Trim(string(word[1:]), "0123456789") != "" {
		return 0
	}
	switch word[0] {
	case 'I':
		return levelInfo
	case 'W':
		return levelWarn
	case 'E':
		return levelError
	case 'F':
		return levelFatal
	default:
		return 0
	}
}

// IsLevelKey reports whether a key of a logfmt line names the level of the line.
func IsLevelKey(key string) bool { return key == "level" || key == "lvl" || key == "severity" }

// isErrorWord reports whether a word names a level of at least error, in any case, or states that
// something failed.
func isErrorWord(w string) bool {
	return LevelOf([]byte(w)) >= levelError || strings.EqualFold(w, "failed")
}

// isErrorCapitals reports whether a word names a level of at least error in capitals.
func isErrorCapitals(w string) bool { return isErrorWord(w) && w == strings.ToUpper(w) }

// maxNameWords is the maximum number of words between the time of a log line and its level.
const maxNameWords = 3

// cutLevelAfterName cuts the name of a logger or the number of a process, and the error level after
// it, off the start of s, which is the text after a time: "shop.db - ERROR - text", "0 [ERROR]
// text". Blanks, a dash between blanks, or bars separate the words. If all separators are blanks,
// there may be only one name, and it must look like a logger's name, since prose has words before
// ERROR too.
func cutLevelAfterName(s string) (rest string, ok bool) {
	names := 0
	for range maxNameWords + 1 {
		word, after := cutNameWord(s)
		rest = strings.TrimLeft(after, " \t|-")
		if isLoggerLevel(word) {
			return rest, after != rest
		}
		gap := after[:len(after)-len(rest)]
		switch {
		case !isLoggerName(word):
			return "", false
		case strings.ContainsAny(gap, "|-"), word[0] == '[', strings.Trim(word, "0123456789+:") == "":
		case strings.ContainsAny(word, "._:@/") || word == "root":
			names++
		default:
			return "", false
		}
		if names > 1 {
			return "", false
		}
		s = rest
	}
	return "", false
}

// cutNameWord cuts off the first word, or the first tag in brackets.
func cutNameWord(s string) (word, rest string) {
	if strings.HasPrefix(s, "[") {
		if i := strings.IndexByte(s[:min(len(s), maxLane)], ']'); i > 0 {
			return s[:i+1], s[i+1:]
		}
	}
	if i := strings.IndexAny(s, " \t|"); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// isLoggerName reports whether a word has the form of a logger's name, a number, or a tag in
// brackets.
func isLoggerName(word string) bool {
	if word == "" || word[len(word)-1] == ':' {
		return false
	}
	if word[0] == '[' {
		return word[len(word)-1] == ']'
	}
	for i := range len(word) {
		if !isWord(word[i]) && strings.IndexByte(".:@/$-+", word[i]) < 0 {
			return false
		}
	}
	return true
}

// isLoggerLevel reports whether a word is a level of at least error as loggers write it: in
// capitals, or in brackets.
func isLoggerLevel(word string) bool {
	if strings.HasPrefix(word, "[") {
		return isErrorWord(strings.Trim(word, "[] "))
	}
	word = strings.TrimSuffix(word, ":")
	return isErrorCapitals(word) && !strings.HasPrefix(word, "FAIL") // test runners print FAIL or FAILED after a name
}

// isLevelTag reports whether the text in brackets is a level of at least error, alone or after a
// time: "ERROR", "14:00:00 ERR", "2026-01-05T10:00:00Z ERROR app::db", or Celery's form "2026-01-05
// 10:00:00,123: ERROR/MainProcess".
func isLevelTag(tag string) bool {
	tag = strings.TrimSpace(tag)
	if isErrorWord(tag) {
		return true
	}
	timed := false
	for {
		word := firstWord(tag)
		if !isTimeWord(word) {
			level, _, _ := strings.Cut(word, "/")
			return timed && isLoggerLevel(level)
		}
		timed = true
		tag = strings.TrimLeft(tag[len(word):], " \t")
	}
}

// jsonObject is a line that is a JSON object of error level.
var jsonObject = row{
	first: "{", fallback: CategoryOther,
	start: func(b *block, l line) verdict {
		switch {
		case !strings.HasPrefix(l.text, "{"), l.level == 0:
			return foreign
		case l.level < levelError:
			return ignored
		}
		var object map[string]any
		if json.Unmarshal([]byte(l.text), &object) != nil {
			return foreign
		}
		return b.startObject(object, l)
	},
}

// startObject starts the fault that the object of a log line describes. The result is foreign if
// the object describes no error.
func (b *block) startObject(object map[string]any, l line) verdict {
	before := b.draft
	if b.readObject(object, 0); b.f.Message == "" && b.f.Type == "" {
		b.draft = before
		return foreign
	}
	b.fatal = l.level > levelError
	return takenLast
}

// firstText returns the first non-empty string among the named members.
func firstText(object map[string]any, names ...string) string {
	for _, n := range names {
		if s, ok := object[n].(string); ok && s != "" {
			return s
		}
	}
	return ""
}

// readObject reads the members in which common loggers store the message, the error, the error's
// stack and the source.
func (b *block) readObject(o map[string]any, depth int) {
	message := firstText(o, "msg", "message", "event", "@m", "body", "textPayload")
	cause := firstText(o, "err", "error", "exception", "reason", "exc_info", "error.message", "@x")
	if depth > 0 {
		cause = ""
	}
	for _, k := range [...]string{"err", "error", "exception"} {
		if inner, ok := o[k].(map[string]any); ok && depth == 0 {
			b.readObject(inner, 1)
			cause = ""
			break
		}
	}
	if kind := firstText(o, "type", "name", "class", "error.type", "exception.type", "error.kind", "exception_class"); kind != "" && (depth > 0 || isErrorName(kind)) && b.f.Type == "" {
		b.f.Type = kind
	}
	if stack := firstText(o, "stack", "stack_trace", "stacktrace", "exception", "exc_info", "error.stack", "error.stack_trace", "exception.stacktrace", "traceback", "@x"); strings.ContainsRune(stack, '\n') {
		b.readStack(stack)
		if cause == stack {
			cause = ""
		}
	} else if title, frames, ok := cutFrames(message); ok {
		if b.readStack(message); b.f.Type == "" && b.f.Message == "" {
			b.setPosition(frames)
		}
		if message = title; title == tracebackLine || b.f.Message != "" && strings.Contains(title, b.f.Message) {
			message = ""
		}
	}
	if source, ok := o["source"].(map[string]any); ok {
		b.readSource(source)
	}
	if caller := firstText(o, "caller", "source", "logger.caller"); caller != "" {
		b.setPosition(firstSourcePosition(caller))
	}
	b.setCombinedMessage(message, cause)
}

// cutFrames returns the first line of a message into which a logger has put the stack, as Astro does,
// and the position where the error happened. It reports false for a message without frames.
func cutFrames(message string) (title string, where position, ok bool) {
	title, below, _ := strings.Cut(cut(message, maxText), "\n")
	var s site
	for text := range strings.Lines(below) {
		text = strings.TrimRight(text, "\n")
		if p, function, isFrame := parseFrame(line{text: text}); isFrame && p.line > 0 {
			s.offer(p, function)
		} else if p, function, isFrame := parsePythonFrame(strings.TrimSpace(text)); isFrame {
			s.offerReversed(p, function)
			s.found = true
		}
	}
	if !s.found {
		return message, position{}, false
	}
	return title, s.position, true
}

// setCombinedMessage joins the message and the cause, and puts both before the message of an inner
// error.
func (b *block) setCombinedMessage(message, cause string) {
	parts := make([]string, 0, 3)
	for _, s := range [...]string{message, cause, b.f.Message} {
		if s = strings.TrimSpace(s); s != "" && (len(parts) == 0 || parts[len(parts)-1] != s) {
			parts = append(parts, s)
		}
	}
	b.f.Message = ""
	b.appendMessage(strings.Join(parts, ": "))
}

func (b *block) readSource(source map[string]any) {
	file := firstText(source, "file")
	n, _ := source["line"].(float64)
	if file != "" && n >= 0 && n < 1e9 {
		b.setPosition(position{file: file, line: int(n)})
		b.function = callee(firstText(source, "function"))
	}
}

// readStack reads the stack in a member of an object.
func (b *block) readStack(stack string) {
	var inner []Fault
	r := b.notes.rows.newRecogniser(func(f Fault) { inner = append(inner, f) })
	n := int64(0)
	for text := range strings.Lines(cut(stack, maxText)) {
		n++
		r.Line(n, 1, levelError, []byte(strings.TrimRight(text, "\n")))
		b.pushStack(strings.TrimRight(text, "\n"))
	}
	r.End(0, "")
	for _, f := range inner {
		if f.Type == "" {
			continue
		}
		b.f.Type = f.Type
		b.setPosition(position{f.File, f.Line, f.Column})
		b.function = f.Fingerprint[:8]
		if b.f.Message == "" {
			b.appendMessage(f.Message)
		}
		return
	}
}

// logfmt is a line such as level=error msg="…" err="…".
var logfmt = row{
	words:    noWord,
	fallback: CategoryOther,
	start: func(b *block, l line) verdict {
		if l.level < levelError || !strings.Contains(l.text, "=") {
			return foreign
		}
		object := map[string]any{}
		level := false
		for i := 0; i < len(l.text) && len(object) < 64; {
			key, value, n := parsePair(l.text[i:])
			if n == 0 {
				i += len(firstWord(l.text[i:])) + 1
				continue
			}
			level = level || IsLevelKey(key)
			object[key] = value
			i += n
		}
		if !level || firstText(object, "msg", "message", "err", "error", "event") == "" {
			return foreign
		}
		return b.startObject(object, l)
	},
}

// parsePair parses key=value at the start of s. n is the length of the pair including the blank
// after it, or 0 if s does not start with a pair.
func parsePair(s string) (key, value string, n int) {
	i := 0
	for i < len(s) && (isWord(s[i]) || s[i] == '.' || s[i] == '-' || s[i] == '@') {
		i++
	}
	if i == 0 || i >= len(s) || s[i] != '=' {
		return "", "", 0
	}
	key = s[:i]
	i++
	if i < len(s) && s[i] == '"' {
		end := i + 1
		for end < len(s) && s[end] != '"' {
			if s[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end, len(s))
		return key, strings.ReplaceAll(s[i+1:end], `\"`, `"`), min(end+2, len(s)+1)
	}
	end := i + len(firstWord(s[i:]))
	return key, s[i:end], end + 1
}

// dotnetIndent is the indentation of messages of .NET's console logger.
const dotnetIndent = 6

// dotnetLog is an error of .NET's console logger: the first line, "fail: Shop.OrderService[0]", names
// the class that logs the error, and the message follows below. If an exception follows the
// message, the exception holds more details. The block's name is the class.
var dotnetLog = row{
	words:    noWord,
	fallback: CategoryOther, fatal: true, maxLines: 32,
	start: func(b *block, l line) verdict {
		if l.level < levelError || !strings.HasSuffix(l.text, "]") {
			return foreign
		}
		class, stated := cutLogPrefix(l.text)
		before := l.text[:len(l.text)-len(class)]
		if !stated || !strings.HasSuffix(before, "fail: ") && !strings.HasSuffix(before, "crit: ") || strings.ContainsRune(class, ' ') {
			return foreign
		}
		open := strings.LastIndexByte(class, '[')
		if _, rest, ok := parseNumber(class[open+1:]); open <= 0 || !ok || rest != "]" {
			return foreign
		}
		b.name = class
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		switch {
		case l.indent() < dotnetIndent || t == "":
			return ended
		case startsError(t):
			return foreign
		case b.f.Message == "":
			b.appendMessage(t)
			return taken
		}
		return shown
	},
	finish: func(b *block) {
		if b.f.Message == "" {
			b.appendMessage(b.name)
		}
		b.setPosition(firstSourcePosition(b.f.Message))
	},
	yield: joinMessage,
}

// joinMessage makes a block part of the report to that it announced.
func joinMessage(b *block, to *draft) bool {
	to.moveStart(b.f.FirstLine)
	to.hint += "\n" + b.f.Message
	return true
}

// noise ignores lines that only summarise or repeat other errors, or that follow from other errors.
var noise = row{
	words: []string{"error", "fail", "data race"},
	start: func(b *block, l line) verdict {
		t, n := l.trim(), b.notes
		n.readSummary(t)
		if strings.HasPrefix(t, mavenError) && (strings.HasSuffix(t, "<<< FAILURE!") || strings.HasSuffix(t, "<<< ERROR!")) {
			n.suiteFailures++
		}
		heading := strings.HasPrefix(l.text, " FAIL  ") // vitest's heading of a failure
		if !heading && (isConsequence(t) || n.suiteFailures > 0 && isSuiteSummary(t) || b.repeatsStep(t)) {
			return ignored
		}
		return foreign
	},
}

// repeatsStep reports whether a line is one that BuildKit repeats after its step has failed.
func (b *block) repeatsStep(t string) bool {
	if _, ok := cutSeconds(t); !ok {
		return false
	}
	for i := range recentLines {
		if l, ok := b.above.line(i); !ok || strings.HasPrefix(l.text, " > [") {
			return ok
		}
	}
	return false
}

// consequences are the first words of the lines for which isConsequence is true.
var consequences = newPrefixes(
	"error: could not compile", "error: aborting due to", "For more information about ", "error: test failed", "error: doctest failed", "error: bench failed", "Some errors have detailed",
	"collect2: error: ld returned", "ld: symbol(s) not found", "clang: error: linker command failed", "compilation terminated", "Execution of ", "error Command failed", "ELIFECYCLE",
	"npm error Lifecycle script", "npm ERR! Lifecycle script", "> Build failed because", "\u2717 Build failed", "\u00d7 Build failed", "Build failed with", "Build failed in", "make: *** Waiting",
	"Test Suites:", "Tests:", "FAIL\t", "FAILED (", "FAIL:\t", "test result: FAILED", "Failed Tests ", "Failed Suites ", "exit status ", "error: compilation failed", "error: Type checking failed", "BEGIN failed--", "failed to load config from", "[nodemon] app crashed", "Failures:", "failures:",
	"The above exception was", "During handling of", "Build FAILED", "BUILD FAILED", "[ERROR] Failed to execute goal on ", "[ERROR] -> [Help", "[ERROR] Re-run Maven", "[ERROR] To see the full",
	"[ERROR] For more information", "[ERROR] COMPILATION ERROR", "[ERROR] [Help ", "[ERROR] Tests run: ", "[ERROR] There are test failures.", "[ERROR] See dump files (if any", "[ERROR] Please refer to dump files (if any", "FAILURE: Build failed with", "ERR_PNPM_RECURSIVE", "SUMMARY: ", "ERROR: \"", "ERROR: process \"", "error Command \"", "Node.js v",
)

// isConsequence reports whether a line states only that errors were reported before it, or that
// something failed because of such errors.
func isConsequence(t string) bool {
	if strings.HasPrefix(t, "[ERROR] Failed to execute goal on ") && strings.Contains(t, "Could not resolve dependencies") || strings.HasSuffix(t, "\" not found.") {
		return false // no other line of the output of Maven or Yarn reports this error
	}
	if consequences.startsWith(t) {
		return true
	}
	switch t {
	case "FAIL", "FAILED", "[ERROR]", "[ERROR] Failures:", "[ERROR] Errors:", "ERROR", "Error", "fatal", "error":
		return true
	}
	if strings.HasPrefix(t, mavenError) && strings.HasSuffix(t, " for the individual test results.") {
		return true
	}
	return strings.HasPrefix(t, "FAIL ") && (strings.HasSuffix(t, "s)") || isFileOrPosition(firstWord(strings.TrimSpace(t[5:])))) && !strings.Contains(t, " > ") ||
		strings.HasPrefix(t, "\u23af\u23af") || strings.HasPrefix(t, "test ") && strings.HasSuffix(t, " FAILED") || isErrorCount(t)
}

// isSuiteSummary reports whether a line of a test runner repeats a failure that the runner has
// already reported.
func isSuiteSummary(t string) bool {
	return (strings.HasPrefix(t, "FAILED ") || strings.HasPrefix(t, "ERROR ")) && strings.Contains(firstWord(t[strings.IndexByte(t, ' ')+1:]), ".py") ||
		strings.HasPrefix(t, "# fail") || strings.HasPrefix(t, "Error: Process completed") || isMavenFailure(t)
}

// mavenError is the prefix of Maven's error lines.
const mavenError = "[ERROR]"

// isMavenFailure reports whether a line is an entry of Maven's final list of failed tests: "[ERROR]
// AppTest.adds:12 expected".
func isMavenFailure(t string) bool {
	rest, ok := strings.CutPrefix(t, mavenError+"   ")
	class, at, found := strings.Cut(firstWord(rest), ":")
	return ok && found && class != "" && isUpper(class[0]) && strings.Contains(class, ".") && at != "" && isDigit(at[0])
}

// isErrorCount reports whether a line counts errors: "2 errors", "Found 3 errors in 2 files",
// "compiled with 1 error in 30 ms". "make: *** [x] Error 1" is not a count.
func isErrorCount(t string) bool {
	for i := 0; ; i++ {
		next := strings.IndexByte(t[i:], ' ')
		if next < 0 {
			return false
		}
		if i += next; i == 0 || !isDigit(t[i-1]) || i+1 == len(t) || strings.IndexByte("efpd", t[i+1]|0x20) < 0 {
			continue
		}
		rest, ok := cutPrefix(lowerASCII(t[i:]), " error", " failed", " failure", " problem", " data race")
		if ok && introducesCount(lowerASCII(strings.TrimRight(t[:i], "0123456789"))) && endsCount(t[i+1:], rest) {
			return true
		}
	}
}

// isHarmless reports whether a line mentions errors without reporting one.
func isHarmless(t string) bool {
	if isPassedTest(t) || isCommit(t) {
		return true
	}
	lower := lowerASCII(cut(t, 400))
	if !strings.Contains(lower, "error") && !strings.Contains(lower, "fail") { // as each phrase does
		return isConsequence(strings.TrimLeft(t, " \t"))
	}
	for _, phrase := range [...]string{
		"no error", "0 error", "without error", "zero error", "error: null", "error: none", "error: undefined", "error: false", "error: false alarm", "error: 0", "error: nil", "error=null", "error=nil", "error=0", "error=false",
		"error=none", "errors=0", "errors: 0", "error: \"\"", "error=\"\"", "error count: 0", "errors found: 0", "no failures", "0 failed", "0 failures", "failed: 0", "failed=0", "failures: 0", "failures=0", "error rate: 0", "ignoring error",
	} {
		before, after, ok := strings.Cut(lower, phrase)
		inNumber := phrase[0] == '0' && strings.TrimRight(before, "0123456789.") != before ||
			phrase[len(phrase)-1] == '0' && strings.TrimLeft(after, "0123456789x") != after
		if ok && !inNumber && endsValue(phrase, after) {
			return true
		}
	}
	return isAboutHandling(t, lower) || isConsequence(strings.TrimLeft(t, " \t"))
}

// isCommit reports whether a line is one of a list of commits: a short name, and the subject.
func isCommit(t string) bool {
	name := firstWord(t)
	return len(name) >= 7 && len(name) <= 10 && strings.Trim(name, "0123456789abcdef") == "" && strings.ContainsAny(name, "0123456789") && strings.ContainsAny(name, "abcdef") &&
		!isErrorCapitals(strings.Trim(firstWord(strings.TrimLeft(t[len(name):], " ")), "[]:"))
}

// endsValue reports whether a value such as null or none at the end of phrase is complete, given
// the text after the phrase. "error: null" means no error, but "error: null value in column" is an
// error.
func endsValue(phrase, rest string) bool {
	switch phrase[strings.LastIndexAny(phrase, ":= ")+1:] {
	case "null", "none", "undefined", "false", "nil":
	default:
		return true
	}
	if rest == "" || rest == "." || strings.IndexByte(",;)}]\"'", rest[0]) >= 0 {
		return true
	}
	return strings.Contains(phrase, "=") && strings.IndexByte(" \t", rest[0]) >= 0 // another key=value follows
}

// isAboutHandling reports whether a line is about error handling rather than an error. A line with
// an error level, or with a reason after a colon, is an error. lower is t in lower case.
func isAboutHandling(t, lower string) bool {
	if _, stated := cutLogPrefix(t); stated {
		return false
	}
	for _, phrase := range [...]string{"error handling", "error handler", "error reporting", "error page", "error boundary"} {
		if _, rest, ok := strings.Cut(lower, phrase); ok && !strings.Contains(strings.TrimPrefix(rest, ": "), ": ") {
			return true
		}
	}
	return false
}

// endsCount reports whether a counted word, given the text after it, is the end of a count. word is
// in its original case, rest in lower case.
func endsCount(word, rest string) bool {
	if rest == "" || strings.IndexByte("s,.);", rest[0]) >= 0 {
		return true
	}
	return !isUpper(word[0]) && startsWith(rest, "(s)", " in ", " found", " generated", " (", " and ", " |", ":")
}

// introducesCount reports whether the text before a number introduces a count.
func introducesCount(before string) bool {
	before = strings.TrimRight(before, " ")
	if before == "" || strings.IndexByte("(|,=", before[len(before)-1]) >= 0 {
		return true
	}
	switch before[strings.LastIndexByte(before, ' ')+1:] {
	case "found", "with", "tests", "files", "suites:", "tests:", "passed,", "\u2716", "\u00d7", "and":
		return true
	default:
		return false
	}
}

// makeError is an error of make: a missing rule, or a command that failed. A failed command gives a
// fault only if the command itself reported no error.
var makeError = row{
	opens: []string{"make%: *** %"}, kind: "make", fallback: CategoryBuild, fatal: true,
	start: func(b *block, l line) verdict {
		message := b.texts[1]
		if explained := b.notes.emitted.fatal; strings.HasPrefix(message, "[") && (b.notes.isFatalOpen || explained > 0 && l.number-explained <= explainLines) {
			return ignored
		}
		b.setPosition(firstSourcePosition(strings.TrimPrefix(message, "[")))
		b.appendMessage(message)
		return takenLast
	},
}
