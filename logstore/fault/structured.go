package fault

import (
	"encoding/json"
	"strings"
)

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
