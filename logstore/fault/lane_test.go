package fault_test

import "testing"

// TestErrorTaggedOnlyOnFirstLineIsOneFault checks that an error is one fault both if a logger puts
// a tag only before its first line and if a tool puts a tag before every line of a program.
func TestErrorTaggedOnlyOnFirstLineIsOneFault(t *testing.T) {
	for _, m := range []misreadCase{
		{"frames", []string{
			"5[api] TypeError: x is not a function", "5    at f (/app/src/a.js:3:9)", "5    at g (/app/src/b.js:4:9)", "0[api] TypeError: y is not a function", "5    at h (/app/src/c.js:5:9)", "0[api] listening",
		}, []string{"TypeError|x is not a function|/app/src/a.js:3|2", "TypeError|y is not a function|/app/src/c.js:5|1"}},
		{"an exception below", []string{
			"5[main] ERROR com.x.App - no orders", "5java.lang.IllegalStateException: no connection", "5\tat com.x.Orders.load(Orders.java:14)", "5Caused by: java.io.IOException: closed", "5\tat com.x.Pool.open(Pool.java:33)", "3[main] INFO com.x.App - goes on",
		}, []string{"java.io.IOException|closed (in java.lang.IllegalStateException: no connection)|Pool.java:33|3"}},
		{"nest", []string{
			"5[Nest] 29  - 01/05/2026, 10:00:00 AM   ERROR [ExceptionsHandler] TypeError: x is not a function", "5    at f (/app/src/a.js:3:9)", "5[Nest] 29  - 01/05/2026, 10:00:01 AM   ERROR [Users] no mail",
		}, []string{"TypeError|x is not a function|/app/src/a.js:3|1", "|no mail|:0|0"}},
		{"a traceback", []string{
			"5[app] Traceback (most recent call last):", `0  File "/app/main.py", line 3, in main`, "0    load()", "5ValueError: out of range",
		}, []string{"ValueError|out of range|/app/main.py:3|4"}},
		{"not directly below", []string{
			"5[api] TypeError: x is not a function", "0[web] ready", "0    at f (/app/src/a.js:3:9)",
		}, []string{"TypeError|x is not a function|:0|0"}},
		{"each line is marked", []string{
			"5[api] TypeError: x is not a function", "0  a line of the tool", "0[api]     at f (/app/src/a.js:3:9)", "5[web] RangeError: y", "5[api]     at g (/app/src/a.js:4:9)", "0[web]     at h (/app/src/b.js:3:9)",
		}, []string{"TypeError|x is not a function|/app/src/a.js:3|2", "RangeError|y|/app/src/b.js:3|1"}},
		{"a number in a message", []string{"5ERROR 500 - Internal Server Error"}, []string{"|500 - Internal Server Error|:0|0"}},
	} {
		m.run(t)
	}
}

// TestPrefixedJSONNeedsErrorLevel checks that a JSON log behind a tool's prefix is an error only if
// it has an error level.
func TestPrefixedJSONNeedsErrorLevel(t *testing.T) {
	for _, m := range []misreadCase{
		{"levels", []string{
			`5api-1  | {"level":"error","msg":"db down"}`, `3api-1  | {"level":"info","msg":"TypeError: x is not a function"}`, `0api-1  | {"msg":"TypeError: x is not a function"}`,
			`0[web] {"msg":"retried after TypeError: x"}`, "0[web]     at f (/app/x.js:3:9)", `5[api] {"level":50,"msg":"no route"}`,
		}, []string{"|db down|:0|0", "|no route|:0|0"}},
		{"no object alone", []string{`0[api] TypeError: cannot read {"a":1}`, `5ERROR | {"a":1}`}, []string{`TypeError|cannot read {"a":1}|:0|0`}},
	} {
		m.run(t)
	}
}
