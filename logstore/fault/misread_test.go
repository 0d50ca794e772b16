package fault_test

import (
	"fmt"
	"reflect"
	"testing"

	"pmcp/logstore/fault"
)

// misreadCase is output in which an earlier version recognised something wrong.
type misreadCase struct {
	name string
	// lines are the lines printed on standard error, each preceded by the digit of its log level
	// (see levelError): "5text" is text at the level error.
	lines []string
	// want lists the type, the message, the position and the length of the stack of each fault.
	want []string
}

func (m misreadCase) run(t *testing.T) {
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

// TestRubyMessageInParenthesesIsNotType checks that a Ruby message in parentheses is not taken for
// the type of the error.
func TestRubyMessageInParenthesesIsNotType(t *testing.T) {
	for _, m := range []misreadCase{
		{"parentheses", []string{
			"0app.rb:3:in `foo': (cached)",
			"0app.rb:9:in `bar': divided by 0 (ZeroDivisionError)",
		}, []string{"|(cached)|app.rb:3|0", "ZeroDivisionError|divided by 0|app.rb:9|0"}},
		{"parentheses alone", []string{"0app.rb:3:in `foo': ()"}, []string{"|()|app.rb:3|0"}},
		{"a trace follows", []string{
			"0app.rb:3:in `foo': (cached)", "5TypeError: x is not a function", "0    at f (/app/x.js:3:4)",
		}, []string{"|(cached)|app.rb:3|0", "TypeError|x is not a function|/app/x.js:3|1"}},
	} {
		m.run(t)
	}
}

// TestBulletsOfOtherToolsAreNotJestFailures checks that a line with a bullet is taken for the
// heading of a failed jest test only if jest printed the line.
func TestBulletsOfOtherToolsAreNotJestFailures(t *testing.T) {
	for _, m := range []misreadCase{
		{"next build", []string{
			"0Route (pages)                              Size     First Load JS",
			"0┌ ● / (ISR: 60 Seconds)                 5.1 kB          85 kB",
			"0○  (Static)  prerendered as static content",
			"0●  (SSG)     prerendered as static HTML (uses getStaticProps)",
			"0           (ISR)  incremental static regeneration",
		}, nil},
		{"systemctl status", []string{
			"0● nginx.service - A high performance web server",
			"0     Loaded: loaded (/lib/systemd/system/nginx.service; enabled)",
			"0     Active: active (running) since Mon 2026-01-05 10:00:00 UTC",
		}, nil},
		{"warnings of jest", []string{
			"0● Validation Warning:", "0", "0  Unknown option \"moduleFile\" with value 3 was found.", "0",
			"0● Deprecation Warning:", "0", "0  Option \"setupTestFrameworkScriptFile\" was replaced.", "0",
			"0  ● Validation Warning:", "0", "0  Unknown option \"x\" was found.",
		}, nil},
		{"configuration of jest", []string{
			"0● Validation Error:", "0", "0  Module ./setup.js in the setupFiles option was not found.",
		}, []string{"FAIL|Validation Error:: Module ./setup.js in the setupFiles option was not found.|:0|2"}},
		{"a failed test", []string{
			"0  ● sum › shows Warning: none", "0", "0    boom", "0", "0      at Object.<anonymous> (/app/sum.test.js:3:9)",
		}, []string{"FAIL|sum › shows Warning: none: boom|/app/sum.test.js:3|3"}},
	} {
		m.run(t)
	}
}

// TestHarmlessLinesGiveNoFault checks that lines that mention errors without reporting one give no
// fault, and that errors that only start like such lines give one.
func TestHarmlessLinesGiveNoFault(t *testing.T) {
	for _, m := range []misreadCase{
		{"node-postgres", []string{`5error: null value in column "email" of relation "users" violates not-null constraint`},
			[]string{`error|null value in column "email" of relation "users" violates not-null constraint|:0|0`}},
		{"pgx", []string{`52026/11/22 08:00:00 insert: ERROR: null value in column "x" violates not-null constraint (SQLSTATE 23502)`},
			[]string{`|insert: ERROR: null value in column "x" violates not-null constraint (SQLSTATE 23502)|:0|0`}},
		{"a level and error handling", []string{"5[ERROR] Error handling request: connection refused"}, []string{"|Error handling request: connection refused|:0|0"}},
		{"error handling and why", []string{"5Error handling request: connection refused"}, []string{"|Error handling request: connection refused|:0|0"}},
		{"react native", []string{"5 ERROR  TypeError: undefined is not a function, js engine: hermes"}, []string{"TypeError|undefined is not a function, js engine: hermes|:0|0"}},
		{"none", []string{
			"5ERROR: null", "5error: none", "5error: none.", `5result {"error": "x", error: undefined}`, "5[ERROR] last error: nil, retries 0", "5failed to sync, error=null user=3", "5ERROR error=nil", "5retrying after error: false alarm",
		}, nil},
		{"handling", []string{"5Error handling is enabled", "5Error reporting: enabled", "5Error page registered", "5cannot replace the error handler"}, nil},
	} {
		m.run(t)
	}
}

// TestErrorClassCalledErrorIsNotRustc checks that errors of V8 whose class is called "error" are
// not taken for errors of rustc, which start in the same way.
func TestErrorClassCalledErrorIsNotRustc(t *testing.T) {
	thrown := []string{
		`5error: relation "users" does not exist`,
		"0    at Parser.parseErrorMessage (/app/node_modules/pg-protocol/dist/parser.js:285:98)",
		"0    at Socket.<anonymous> (/app/node_modules/pg-protocol/dist/index.js:11:42)",
		"0    at async createUser (/app/src/users.js:12:5) {",
		"0  length: 105,",
		"5  severity: 'ERROR',",
		"0  code: '42P01',",
		"0  routine: 'parserOpenTable'",
		"0}",
	}
	uncaught := append([]string{"0/app/node_modules/pg-pool/index.js:45", "0    Error.captureStackTrace(err);", "0          ^", "0"}, thrown...)
	const want = `error|relation "users" does not exist|/app/src/users.js:12|`
	for _, m := range []misreadCase{
		{"caught", append(thrown[:len(thrown):len(thrown)], "0server goes on", "5error: out of cheese"), []string{want + "7", "error|out of cheese|:0|0"}},
		{"uncaught", append(uncaught, "0", "0Node.js v22.1.0"), []string{want + "10"}},
		{"without properties", []string{"5error: syntax error at or near \"x\"", "0    at async f (/app/x.js:3:4)", "0", "0Node.js v22.1.0"}, []string{"error|syntax error at or near \"x\"|/app/x.js:3|1"}},
		{"rustc", []string{"5error: expected one of", "0 --> src/main.rs:3:4", "0  |", "03 | let x", "0", "0    at f (/app/x.js:3:4)"}, []string{"|expected one of|src/main.rs:3|3"}},
	} {
		m.run(t)
	}
}

// TestTracebackIsRecognisedAfterUnendedLine checks that a Python traceback is recognised after text
// without a newline.
func TestTracebackIsRecognisedAfterUnendedLine(t *testing.T) {
	misreadCase{"a migration of Django", []string{
		"0  Applying shop.0002_price...Traceback (most recent call last):", `0  File "/app/shop.py", line 2, in forwards`, "0    raise LookupError(name)", "5LookupError: no model",
	}, []string{"LookupError|no model|/app/shop.py:2|4"}}.run(t)
}

// TestHeldLinesDoNotMoveIntoYoungerReport checks that lines which one report held, and gave back
// when it was closed, do not become part of a report that starts below them.
func TestHeldLinesDoNotMoveIntoYoungerReport(t *testing.T) {
	misreadCase{"an excerpt above", []string{
		"5TypeError: x is not a function", "0    in the shop", "5a.c:3:5: error: expected ';'", "0    3 | int x",
	}, []string{"TypeError|x is not a function|:0|0", "|expected ';'|a.c:3|1"}}.run(t)
}
