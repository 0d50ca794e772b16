package fault_test

import (
	"fmt"
	"reflect"
	"testing"

	"pmcp/logstore/fault"
)

// misread is output that was taken for something else than it is.
type misread struct {
	name string
	// lines are of standard error, each with its level in front: "5text".
	lines []string
	// want is each fault's type, message, place and the length of its stack.
	want []string
}

func (m misread) test(t *testing.T) {
	t.Helper()
	var got []string
	rec := fault.New(func(f fault.Fault) {
		got = append(got, fmt.Sprintf("%s|%s|%s:%d|%d", f.Type, f.Message, f.File, f.Line, len(f.Stack)))
	})
	for i, s := range m.lines {
		rec.Line(int64(i+1), 1, s[0]-'0', []byte(s[1:]))
	}
	rec.End(0, "")
	if !reflect.DeepEqual(got, m.want) {
		t.Errorf("%s: got %q, want %q", m.name, got, m.want)
	}
}

// TestRubyMessageInParentheses has a message of Ruby that looks like the type of an error.
func TestRubyMessageInParentheses(t *testing.T) {
	for _, m := range []misread{
		{"parentheses", []string{
			"0app.rb:3:in `foo': (cached)",
			"0app.rb:9:in `bar': divided by 0 (ZeroDivisionError)",
		}, []string{"|(cached)|app.rb:3|0", "ZeroDivisionError|divided by 0|app.rb:9|0"}},
		{"parentheses alone", []string{"0app.rb:3:in `foo': ()"}, []string{"|()|app.rb:3|0"}},
		{"a trace follows", []string{
			"0app.rb:3:in `foo': (cached)", "5TypeError: x is not a function", "0    at f (/app/x.js:3:4)",
		}, []string{"|(cached)|app.rb:3|0", "TypeError|x is not a function|/app/x.js:3|1"}},
	} {
		m.test(t)
	}
}
