package fault_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pmcp/logstore/fault"
	"pmcp/logstore/line"
)

// named returns the faults of text on standard error, each as "category|type|message|file:line", with the
// levels that the store guesses.
func named(text string, exit int) (got []string) {
	rec := fault.New(func(f fault.Fault) {
		got = append(got, fmt.Sprintf("%s|%s|%s|%s:%d", f.Category, f.Type, f.Message, f.File, f.Line))
	})
	for i, t := range strings.Split(text, "\n") {
		rec.Line(int64(i+1), 1, uint8(line.GuessLevel([]byte(t), true)), []byte(t))
	}
	rec.End(exit, "")
	return got
}

// TestReportsOfToolsAreNamed checks the category, the type, the message and the position of reports
// of tools, on standard error.
func TestReportsOfToolsAreNamed(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		exit       int
		want       []string
	}{
		{"bash", "bash: foo: command not found", 127, []string{"not_found||bash: foo: command not found|:0"}},
		{"dash", "sh: 1: foo: not found", 127, []string{"not_found||foo: not found|:0"}},
		{"a script of dash", "/app/x.sh: 3: foo: not found", 127, []string{"not_found||foo: not found|/app/x.sh:3"}},
		{"npm 9", strings.Join([]string{
			"npm ERR! code ENOENT", "npm ERR! syscall open", "npm ERR! path /app/package.json", "npm ERR! errno -2",
			"npm ERR! enoent ENOENT: no such file or directory, open '/app/package.json'", "npm ERR! enoent ", "",
			"npm ERR! A complete log of this run can be found in:", "npm ERR!     /home/me/.npm/_logs/2026-01-01T00_00_00_000Z-debug-0.log",
		}, "\n"), 254, []string{"not_found|ENOENT|ENOENT: no such file or directory, open '/app/package.json'|/app/package.json:0"}},
		{"npm 10", "npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/nope - Not found\nnpm error A complete log of this run can be found in: /home/me/.npm/_logs/x.log", 1,
			[]string{"build|E404|404 Not Found - GET https://registry.npmjs.org/nope - Not found|:0"}},
		{"curl", "curl: (6) Could not resolve host: nope.invalid", 6, []string{"network||curl: (6) Could not resolve host: nope.invalid|:0"}},
		{"a resolver", "getaddrinfo ENOTFOUND db.internal", 1, []string{"network||getaddrinfo ENOTFOUND db.internal|:0"}},
		{"maven", "[ERROR] Failed to execute goal on project app: Could not resolve dependencies for project x:app:jar:1: Could not find artifact x:nope:jar:1 in central -> [Help 1]", 1,
			[]string{"not_found||Failed to execute goal on project app: Could not resolve dependencies for project x:app:jar:1: Could not find artifact x:nope:jar:1 in central -> [Help 1]|:0"}},
		{"log with a position", "main.go:12: ERROR cannot read the config", 1, []string{"other||cannot read the config|main.go:12"}},
		{"log with a position and a colon", "main.go:12: ERROR: cannot read the config", 1, []string{"other||cannot read the config|main.go:12"}},
		{"a key", "Traceback (most recent call last):\n  File \"/app/x.py\", line 4, in main\n    d['config']\nKeyError: 'config'", 1, []string{"type|KeyError|'config'|/app/x.py:4"}},
		{"a value", "Traceback (most recent call last):\n  File \"/app/x.py\", line 4, in main\n    int('x')\nValueError: invalid literal for int() with base 10: 'x'", 1,
			[]string{"type|ValueError|invalid literal for int() with base 10: 'x'|/app/x.py:4"}},
		{"a name", "ReferenceError: missing is not defined\n    at f (/app/x.js:3:4)", 1, []string{"type|ReferenceError|missing is not defined|/app/x.js:3"}},
		{"what the system refused, then an error in the code", "ERROR: permission denied for table users\nSyntaxError: Unexpected token } in JSON\n    at f (/app/x.js:3:4)", 1,
			[]string{"permission||permission denied for table users|:0", "syntax|SyntaxError|Unexpected token } in JSON|/app/x.js:3"}},
		{"what the code did, then its error", "ERROR: cannot load the orders\nTypeError: orders is not iterable\n    at f (/app/x.js:3:4)", 1, []string{"type|TypeError|orders is not iterable|/app/x.js:3"}},
		{"no errors", strings.Join([]string{
			"npm notice New major version of npm available!", "# 404 Not Found pages are cached", "curl 8.5.0 (x86_64) libcurl/8.5.0", "KeyError and ValueError are handled", "main.go:12: errors: 0",
			"see getaddrinfo(3)", "GET /not-found 404 3ms", "the command not found handler is installed", "sh: a shell",
		}, "\n"), 0, nil},
	} {
		if got := named(tc.text, tc.exit); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestGeneratedPathsAreGivenAsTheirSource checks that a path which a tool generated is given as the
// source that the output names, and as it is if the output names none.
func TestGeneratedPathsAreGivenAsTheirSource(t *testing.T) {
	const module = "/app/node_modules/.vite-temp/vite.config.js.timestamp-1763834012345-abc.mjs"
	for _, tc := range []struct{ name, text, want string }{
		{"vite's configuration", "failed to load config from /app/vite.config.js\nerror when starting dev server:\nReferenceError: no\n    at file://" + module + ":4:3\n    at a (node:internal/x:1:2)", "/app/vite.config.js:0"},
		{"vite build", "failed to load config from /app/vite.config.js\nerror during build:\nReferenceError: no\n    at file://" + module + ":4:3", "/app/vite.config.js:0"},
		{"beside the source", "ReferenceError: no\n    at file:///app/vite.config.ts.timestamp-1763834012345-abc.mjs:4:3", "/app/vite.config.ts:0"},
		{"not named", "see /app/vite.config.jsx and vite.config.js\nReferenceError: no\n    at file://" + module + ":4:3", module + ":4"},
		{"the user's own name", "ReferenceError: no\n    at file:///app/a.timestamp-new.mjs:4:3", "/app/a.timestamp-new.mjs:4"},
		{"a query", "TypeError: no\n    at f (file:///app/src/x.ts?t=1763834012345:4:3)", "/app/src/x.ts:4"},
		{"webpack's modules", "TypeError: no\n    at f (webpack-internal:///(rsc)/./app/page.js:14:3)", "app/page.js:0"},
		{"webpack's sources", "TypeError: no\n    at f (webpack://shop/./src/page.js:14:3)", "src/page.js:14"},
		{"a chunk above its source", "TypeError: no\n    at f (/app/.next/server/chunks/ssr/[root]__abc._.js:1:2)\n    at g (app/page.tsx:14:3)", "app/page.tsx:14"},
		{"a chunk only", "TypeError: no\n    at f (/app/.next/server/chunks/12.js:1:2)", "/app/.next/server/chunks/12.js:1"},
	} {
		got := named(tc.text, 1)
		if len(got) != 1 || !strings.HasSuffix(got[0], "|"+tc.want) {
			t.Errorf("%s: got %q, want one at %s", tc.name, got, tc.want)
		}
	}
}

// TestLastCauseNamesTheError checks that the last cause of an error gives its type, its message and
// its position, with the error that it caused behind the message.
func TestLastCauseNamesTheError(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"java", "Exception in thread \"main\" a.BException: x\n\tat A.a(A.java:1)\n\tSuppressed: java.io.IOException: close\n\t\tat A.b(A.java:2)\n\tCaused by: java.io.IOException: suppressed\n\t\t... 1 more\n" +
			"Caused by: a.CException: y\n\tat A.c(A.java:3)\n\t... 1 more\nCaused by: a.DException: z\n\tat java.base/java.util.X.x(X.java:9)\n\t... 1 more", "other|a.DException|z (in a.BException: x)|A.java:3"},
		{"only a suppressed one has a cause", "Exception in thread \"main\" a.BException: x\n\tat A.a(A.java:1)\n\tSuppressed: java.io.IOException: close\n\t\tat A.b(A.java:2)\n\tCaused by: java.io.IOException: s\n\t\t... 1 more", "other|a.BException|x|A.java:1"},
		{"v8", "TypeError: fetch failed\n    at f (/app/x.js:1:2) {\n  [cause]: Error: connect ECONNREFUSED 127.0.0.1:9\n      at g (node:net:1:2) {\n    errno: -111,\n    code: 'ECONNREFUSED'\n  }\n}", "connection|Error|connect ECONNREFUSED 127.0.0.1:9 (in TypeError: fetch failed)|/app/x.js:1"},
		{"v8 without a stack", "Error: a\n    at f (/app/x.js:1:2) {\n  [cause]: [RangeError: b]\n}", "other|RangeError|b (in Error: a)|/app/x.js:1"},
		{"v8, a cause that is no error", "Error: a\n    at f (/app/x.js:1:2) {\n  [cause]: 'b'\n}", "other|Error|a|/app/x.js:1"},
	} {
		if got := named(tc.text, 1); len(got) != 1 || got[0] != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestDirectCauseNamesPythonError checks that the exception which was "the direct cause" of others
// names the error, and that one that was being handled does not.
func TestDirectCauseNamesPythonError(t *testing.T) {
	traceback := func(file, err string) string {
		return "Traceback (most recent call last):\n  File \"/app/" + file + "\", line 4, in main\n    f()\n" + err
	}
	const direct = "\n\nThe above exception was the direct cause of the following exception:\n\n"
	const during = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
	for _, tc := range []struct{ name, text, want string }{
		{"a cause", traceback("a.py", "KeyError: 'a'") + direct + traceback("b.py", "LoadError: b"), "type|KeyError|'a' (in LoadError: b)|/app/a.py:4"},
		{"a cause of a cause", traceback("a.py", "KeyError: 'a'") + direct + traceback("b.py", "B: b") + direct + traceback("c.py", "C: c"), "type|KeyError|'a' (in C: c)|/app/a.py:4"},
		{"handling", traceback("a.py", "KeyError: 'a'") + during + traceback("b.py", "B: b"), "other|B|b|/app/b.py:4"},
		{"handling, then a cause", traceback("a.py", "A: a") + during + traceback("b.py", "B: b") + direct + traceback("c.py", "C: c"), "other|B|b (in C: c)|/app/b.py:4"},
		{"a cause, then handling", traceback("a.py", "A: a") + direct + traceback("b.py", "B: b") + during + traceback("c.py", "C: c"), "other|C|c|/app/c.py:4"},
		{"raised again", traceback("a.py", "A: a") + direct + traceback("b.py", "A: a"), "other|A|a|/app/a.py:4"},
	} {
		if got := named(tc.text, 1); len(got) != 1 || got[0] != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
