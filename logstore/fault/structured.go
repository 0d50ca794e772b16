package fault

import (
	"encoding/json"
	"strings"
)

// startJSON knows lines that are JSON objects of error level.
func startJSON(l line, _ *back, _ *notes) shape {
	if !strings.HasPrefix(l.text, "{") {
		return nil
	}
	if l.level < levelError {
		if l.level > 0 {
			return ignored{}
		}
		return nil
	}
	var object map[string]any
	if json.Unmarshal([]byte(l.text), &object) != nil {
		return nil
	}
	d := single(l)
	d.fallback = CategoryOther
	d.fatal = l.level > levelError
	d.fromObject(object, 0)
	if d.f.Message == "" && d.f.Type == "" {
		return nil
	}
	return d
}

// field gives the first of the named members that is a text.
func field(object map[string]any, names ...string) string {
	for _, n := range names {
		if s, ok := object[n].(string); ok && s != "" {
			return s
		}
	}
	return ""
}

// fromObject reads the members by which the usual loggers name the message, the error, its stack and the source.
func (d *draft) fromObject(o map[string]any, depth int) {
	message := field(o, "msg", "message", "event", "@m", "body", "textPayload")
	cause := field(o, "err", "error", "exception", "reason", "exc_info", "error.message", "@x")
	if depth > 0 {
		cause = ""
	}
	for _, k := range [...]string{"err", "error", "exception"} {
		if inner, ok := o[k].(map[string]any); ok && depth == 0 {
			d.fromObject(inner, 1)
			cause = ""
			break
		}
	}
	if kind := field(o, "type", "name", "class", "error.type", "exception.type", "error.kind", "exception_class"); kind != "" && (depth > 0 || errorName(kind)) && d.f.Type == "" {
		d.f.Type = kind
	}
	if stack := field(o, "stack", "stack_trace", "stacktrace", "exception", "exc_info", "error.stack", "traceback", "@x"); strings.ContainsRune(stack, '\n') {
		d.fromStack(stack)
		if cause == stack {
			cause = ""
		}
	}
	if source, ok := o["source"].(map[string]any); ok {
		d.fromSource(source)
	}
	if caller := field(o, "caller", "source", "logger.caller"); caller != "" {
		d.at(mentioned(caller))
	}
	d.words(message, cause)
}

// words makes a message of what is said and why, in front of what an inner error has said already.
func (d *draft) words(message, cause string) {
	parts := make([]string, 0, 3)
	for _, s := range [...]string{message, cause, d.f.Message} {
		if s = strings.TrimSpace(s); s != "" && (len(parts) == 0 || parts[len(parts)-1] != s) {
			parts = append(parts, s)
		}
	}
	d.f.Message = ""
	d.say(strings.Join(parts, ": "))
}

func (d *draft) fromSource(source map[string]any) {
	file := field(source, "file")
	n, _ := source["line"].(float64)
	if file != "" && n >= 0 && n < 1e9 {
		d.at(place{file: file, line: int(n)})
		d.function = callee(field(source, "function"))
	}
}

// fromStack recognises the stack that stands in a member of an object.
func (d *draft) fromStack(stack string) {
	var inner []Fault
	r := New(func(f Fault) { inner = append(inner, f) })
	n := int64(0)
	for text := range strings.Lines(cut(stack, maxText)) {
		n++
		r.Line(n, 1, levelError, []byte(strings.TrimRight(text, "\n")))
		d.push(strings.TrimRight(text, "\n"))
	}
	r.End(0, "")
	for _, f := range inner {
		if f.Type == "" {
			continue
		}
		d.f.Type = f.Type
		d.at(place{f.File, f.Line, f.Column})
		d.function = f.Fingerprint[:8]
		if d.f.Message == "" {
			d.say(f.Message)
		}
		return
	}
}

// startLogfmt knows level=error msg="…" err="…".
func startLogfmt(l line, _ *back, _ *notes) shape {
	if l.level < levelError || !strings.Contains(l.text, "=") {
		return nil
	}
	object := map[string]any{}
	level := false
	for i := 0; i < len(l.text) && len(object) < 64; {
		key, value, n := pairAt(l.text[i:])
		if n == 0 {
			i += len(firstWord(l.text[i:])) + 1
			continue
		}
		level = level || key == "level" || key == "lvl" || key == "severity"
		object[key] = value
		i += n
	}
	if !level || field(object, "msg", "message", "err", "error", "event") == "" {
		return nil
	}
	d := single(l)
	d.fallback = CategoryOther
	d.fatal = l.level > levelError
	d.fromObject(object, 0)
	return d
}

// pairAt reads key=value at the start of s; n is its length with the blank after it, 0 when there is none.
func pairAt(s string) (key, value string, n int) {
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
