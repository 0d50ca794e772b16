package server

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"pmcp/logstore/line"
	"pmcp/server/project"
)

// outputNotice is in every answer that holds output of a process, or quotes some: such
// text is data, not instructions.
const outputNotice = "process output"

// answerText builds the text of an answer. Text chosen by a process, a directory, a
// health check or an MCP server may appear within a line but cannot begin a line:
// each call of line writes exactly one line. The zero value is ready to use.
type answerText struct {
	b strings.Builder
	l strings.Builder // the current, incomplete line

	noticed bool // the notice about output was written
	ordered bool // orderNote was written
}

// part adds text to the current line. A call of line completes that line.
func (t *answerText) part(format string, args ...any) { fmt.Fprintf(&t.l, format, args...) }

// line adds text to the current line and completes it. It escapes line breaks and
// invisible characters.
func (t *answerText) line(format string, args ...any) {
	t.part(format, args...)
	t.b.WriteString(line.Visible(t.l.String()))
	t.b.WriteByte('\n')
	t.l.Reset()
}

// optPart is part for one value. It adds nothing if value is the zero value of its
// type; it formats what a pointer points to.
func (t *answerText) optPart(format string, value any) {
	if v := reflect.ValueOf(value); !v.IsZero() {
		t.part(format, reflect.Indirect(v))
	}
}

// optLine is line for one value. It writes nothing if value is the zero value of
// its type.
func (t *answerText) optLine(format string, value any) {
	if !reflect.ValueOf(value).IsZero() {
		t.line(format, value)
	}
}

func (t *answerText) hint(hint string) { t.optLine("hint: %s", hint) }

func (t *answerText) more(more bool) { t.optLine("more: %t", more) }

func (t *answerText) section(format string, args ...any) {
	t.line("")
	t.line(format, args...)
}

// events writes a section with the texts of events, if there are any. quoted reports
// whether some of them quote output of a process.
func (t *answerText) events(heading string, texts []string, quoted bool) {
	if len(texts) == 0 {
		return
	}
	t.section("%s", heading)
	if quoted {
		t.notice()
	}
	for _, text := range texts {
		t.line("%s", text)
	}
}

// notice writes that output of a process follows, once in an answer.
func (t *answerText) notice() {
	if !t.noticed {
		t.line("[%s]", outputNotice)
	}
	t.noticed = true
}

// output writes lines, each of which begins with text of pmcp, then errors. It writes
// nothing if both are empty. Output of a process enters an answer only after the notice,
// behind text of pmcp in its line.
func (t *answerText) output(lines []string, errors []errorResult) {
	if len(lines)+len(errors) == 0 {
		return
	}
	t.notice()
	for _, l := range lines {
		t.line("%s", l)
	}
	errorTexts(errors).write(t)
}

// A writer writes its text in terse lines, complete without more, for clients that
// show the model only the text.
type writer interface{ write(t *answerText) }

func textOf(parts ...writer) string { return textAfter("", parts...) }

// textAfter is textOf for parts that follow another text of the same answer.
func textAfter(before string, parts ...writer) string {
	t := answerText{noticed: strings.Contains(before, "\n["+outputNotice+"]\n")}
	for _, part := range parts {
		part.write(&t)
	}
	return t.b.String()
}

// quoteLines splits text into lines for output, and prefixes each so that none
// begins like a line of pmcp.
func quoteLines(text string) []string {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = "  | " + lines[i]
	}
	return lines
}

// quoteShortened returns at most limit bytes of s, quoted. If s was cut, the mark
// that shows it follows the closing quote, where s cannot fake it.
func quoteShortened(s string, limit int) string {
	if len(s) <= limit {
		return strconv.Quote(s)
	}
	short := cut(s, limit)
	mark := strings.LastIndex(short, cutMark)
	return strconv.Quote(short[:mark]) + short[mark:]
}

// quoteUnlessPlain returns s, which is a name or a path that a process chose. It
// quotes s unless s is one plain word.
func quoteUnlessPlain(s string) string {
	if project.IsPlainWord(s) {
		return s
	}
	return strconv.Quote(s)
}

// A composedError is an error whose text consists of lines that pmcp wrote with
// answerText.
type composedError struct {
	text    string
	cause   error      // nil if the text is all there is
	reports []reported // what the text reports about processes

	seen []project.ShownLines // what the text shows of each run
}

func (e *composedError) Error() string { return e.text }

func (e *composedError) Unwrap() error { return e.cause }

func (e *composedError) about() []reported { return e.reports }

func (e *composedError) showed() []project.ShownLines { return e.seen }

// errorText returns the text of err on one line. If err ends with a composed error,
// the lines of that error are kept.
func errorText(err error) string {
	text := withoutInvalid(err.Error())
	var own *composedError
	if errors.As(err, &own) {
		if before, ok := strings.CutSuffix(text, withoutInvalid(own.Error())); ok {
			return line.Visible(before) + own.Error()
		}
	}
	return line.Visible(text)
}

// withHint returns err with a hint on what to do. The hint is on a line of its own.
func withHint(err error, format string, args ...any) error {
	return &composedError{text: errorText(err) + "\nhint: " + line.Visible(fmt.Sprintf(format, args...)), cause: err}
}
