package fault_test

import (
	"fmt"
	"strings"
	"testing"

	"pmcp/logstore/fault"
)

// TestFrameworkErrorsAreRecognised checks that the error formats of common frameworks are
// recognised, and that lines that only look like these formats are not.
func TestFrameworkErrorsAreRecognised(t *testing.T) {
	for _, m := range []misreadCase{
		{"zerolog", []string{
			`510:00AM ERR cannot connect error="connection refused"`, `612:07PM FTL main.go:7 > gave up`, `310:00AM INF error=none`, `510:00AM ERR done error=null`,
		}, []string{`|cannot connect error="connection refused"|:0|0`, "|main.go:7 > gave up|main.go:7|0"}},
		{"monolog", []string{
			`5[2026-01-05 10:00:00] local.ERROR: boom {"exception":"[object] (RuntimeException(code: 0): boom at /app/x.php:12)`, "0[stacktrace]", "0#0 /app/y.php(3): App\\f()", `0"} `,
			"4[2026-01-05 10:00:01] local.WARNING: ERROR rate is high", "5see log.ERROR for more", "5config.error: off",
		}, []string{`|boom {"exception":"[object] (RuntimeException(code: 0): boom at /app/x.php:12)|/app/x.php:12|1`}},
		{"rails", []string{
			"5NoMethodError (undefined method `foo' for nil):", "0  ", "0app/models/x.rb:12:in `total'", "0app/controllers/x.rb:5:in `index'", "0Completed 200 OK in 2ms",
			"5ArgumentError (no price):", "0  ", "0app/models/y.rb:3:in 'Y#price'",
		}, []string{"NoMethodError|undefined method `foo' for nil|app/models/x.rb:12|2", "ArgumentError|no price|app/models/y.rb:3|1"}},
		{"next, excerpt with aligned numbers", []string{
			"0\u2a2f ./app/page.tsx:9:13", "5Error: Expression expected", "0   8 |     <div>", "0>  9 |       <main <>", "0     |             ^", "0  10 |         <Image", "0", "0Parsing ecmascript source code failed", "0",
		}, []string{"|Expression expected|./app/page.tsx:9|5"}},
		{"no frames below", []string{
			"5TimeoutError (seconds, default 30):", "0  how long to wait", "5ActionController::RoutingError (No route matches [GET] \"/x\"):", "0  ", "0Completed 404 Not Found in 2ms", "5TypeError: x is not a function", "0    at f (/app/x.js:3:4)",
		}, []string{"TypeError|x is not a function|/app/x.js:3|1"}},
	} {
		m.run(t)
	}
}

// TestLevelIsReadAfterLoggerName checks that a log level is read after a time and the name of a
// logger, and that similar lines with no level or a lower level give no fault.
func TestLevelIsReadAfterLoggerName(t *testing.T) {
	for _, m := range []misreadCase{
		{"logging", []string{
			"52026-11-22 14:00:00,123 - shop.db - ERROR - connection lost", "32026-11-22 14:00:01,123 - shop - INFO - ERROR pages are cached", "62026-11-22 14:00:02,123 - root - CRITICAL - gave up",
			"52026-11-22 14:00:03,123 shop.cache ERROR no memory left",
		}, []string{"|connection lost|:0|0", "|gave up|:0|0", "|no memory left|:0|0"}},
		{"logging with a traceback", []string{
			"52026-11-22 14:00:00,123 - shop - ERROR - payment failed", "5Traceback (most recent call last):", `0  File "/app/shop.py", line 2, in pay`, "0    charge()", "5ValueError: no card",
		}, []string{"ValueError|no card|/app/shop.py:2|4"}},
		{"stack in the message", []string{
			`5{"message":"TypeError: cart is null\n    at eval (/app/src/pages/bad.astro:3:1)\n    at bad (/app/node_modules/astro/dist/x.js:16:12)","label":null,"level":"error"}`,
			`3{"message":"[200] / 23ms","label":null,"level":"info"}`,
			`5{"message":"cart is empty (see below)\n  Stack trace:\n    at eval (/app/src/pages/bad.astro:4:1)","label":null,"level":"error"}`,
			`5{"message":"two lines\nwithout a stack","level":"error"}`,
		}, []string{"TypeError|cart is null|/app/src/pages/bad.astro:3|3", "|cart is empty (see below)|/app/src/pages/bad.astro:4|3", "|two lines\nwithout a stack|:0|0"}},
		{"serilog", []string{
			"5[14:00:00 ERR] Payment declined", "3[14:00:01 INF] ERR is the short form", "6[14:00:02 FTL] Host terminated", "52026-11-22 14:00:03.123 +00:00 [ERR] Payment lost", "32026-11-22 14:00:03.123 +00:00 [INF] No [ERR] here",
		}, []string{"|Payment declined|:0|0", "|Host terminated|:0|0", "|Payment lost|:0|0"}},
		{"env_logger", []string{"5[2026-11-22T14:00:00Z ERROR app::db] connection lost", "3[2026-11-22T14:00:00Z INFO  app::db] ERROR pages: 3"}, []string{"|connection lost|:0|0"}},
		{"nlog", []string{"52026-11-22 14:00:00.1234|ERROR|Shop.Db|connection lost", "32026-11-22 14:00:00.1234|INFO|Shop.Db|ERROR pages"}, []string{"|Shop.Db|connection lost|:0|0"}},
		{"mysql", []string{
			"52026-11-22T14:00:00.000000Z 0 [ERROR] [MY-010257] [Server] Do you already have another mysqld server running on port: 3306 ?", "42026-11-22T14:00:00.000000Z 0 [Warning] [MY-010068] [Server] CA certificate ca.pem is self signed.",
		}, []string{"|Do you already have another mysqld server running on port: 3306 ?|:0|0"}},
		{"structlog", []string{
			"52026-11-22 14:00:00 [error    ] payment declined               order=5", "32026-11-22 14:00:00 [info     ] ERROR pages",
		}, []string{"|payment declined               order=5|:0|0"}},
		{"celery", []string{
			"5[2026-11-22 14:00:00,123: ERROR/MainProcess] consumer: Cannot connect to redis://localhost:6379//: Error 111 connecting to localhost:6379. Connection refused..", "5[2026-11-22 14:00:01,123: ERROR/MainProcess] Process 'ForkPoolWorker-2' pid:12 exited with 'signal 9 (SIGKILL)'", "3[2026-11-22 14:00:01,123: INFO/MainProcess] ERROR/3 pages",
			"5[2026-11-22 14:00:02,123: ERROR/ForkPoolWorker-1] Task shop.pay[6f1] raised unexpected: ValueError('no card')", "5Traceback (most recent call last):", `0  File "/app/shop.py", line 2, in pay`, "0    charge()", "5ValueError: no card",
		}, []string{"|consumer: Cannot connect to redis://localhost:6379//: Error 111 connecting to localhost:6379. Connection refused..|:0|0", "|Process 'ForkPoolWorker-2' pid:12 exited with 'signal 9 (SIGKILL)'|:0|0", "ValueError|no card|/app/shop.py:2|4"}},
		{"prose", []string{
			"5[14:00:00 GET /ERROR/3]", "514:00:00 retry after ERROR from upstream", "514:00:00 HTTP ERROR pages are served", "514:00:00 GET shop.html app.js ERROR", "514:00:00 tests/test_a.py::test_x FAILED [ 50%]", "514:00:00 see: ERROR in the manual",
			"514:00:00 api.latency 12ms ERROR budget", "514:00:00 shop.db ERROR_RATE 3", "5shop.db - ERROR - the format of a line", "514:00:00 [2 of 3] last state: ERROR",
		}, nil},
	} {
		m.run(t)
	}
}

// TestMavenRepetitionsGiveNoFault checks that the summary at the end of Maven's output, which
// repeats earlier errors, gives no fault, and that log lines that only start like the summary give
// faults.
func TestMavenRepetitionsGiveNoFault(t *testing.T) {
	const help = "5[ERROR] [Help 1] http://cwiki.apache.org/confluence/display/MAVEN/MojoFailureException"
	for _, m := range []misreadCase{
		{"compiler", []string{
			"5[ERROR] COMPILATION ERROR : ", "3[INFO] -----", "5[ERROR] /app/src/App.java:[12,20] cannot find symbol", "0  symbol:   variable missing", "0  location: class com.example.App", "3[INFO] 1 error", "3[INFO] BUILD FAILURE",
			"5[ERROR] Failed to execute goal org.apache.maven.plugins:maven-compiler-plugin:3.11.0:compile (default-compile) on project app: Compilation failure",
			"5[ERROR] /app/src/App.java:[12,20] cannot find symbol", "5[ERROR]   symbol:   variable missing", "5[ERROR]   location: class com.example.App", "5[ERROR] ", "5[ERROR] -> [Help 1]", help,
		}, []string{"|cannot find symbol\nsymbol:   variable missing|/app/src/App.java:12|2", "|cannot find symbol\nsymbol:   variable missing|/app/src/App.java:12|2"}},
		{"surefire", []string{
			"5[ERROR] Tests run: 2, Failures: 1, Errors: 1, Skipped: 0, Time elapsed: 0.05 s <<< FAILURE! -- in com.example.AppTest",
			"5[ERROR] com.example.AppTest.adds -- Time elapsed: 0.01 s <<< FAILURE!", "5org.opentest4j.AssertionFailedError: expected: <3> but was: <4>", "0\tat com.example.AppTest.adds(AppTest.java:12)", "0",
			"5[ERROR] com.example.AppTest.breaks -- Time elapsed: 0.002 s <<< ERROR!", "5java.lang.IllegalStateException: boom", "0\tat com.example.AppTest.breaks(AppTest.java:17)", "0",
			"3[INFO] Results:", "5[ERROR] Failures: ", "5[ERROR]   AppTest.adds:12 expected: <3> but was: <4>", "5[ERROR] Errors: ", "5[ERROR]   AppTest.breaks:17 » IllegalState boom", "5[ERROR] Tests run: 2, Failures: 1, Errors: 1, Skipped: 0",
			"5[ERROR] Failed to execute goal org.apache.maven.plugins:maven-surefire-plugin:3.2.5:test (default-test) on project app: There are test failures.", "5[ERROR] There are test failures.",
			"5[ERROR] See /app/target/surefire-reports for the individual test results.", "5[ERROR] See dump files (if any exist) [date].dump, [date]-jvmRun[N].dump and [date].dumpstream.",
			"5[ERROR] Please refer to /app/target/surefire-reports for the individual test results.", "5[ERROR] Please refer to dump files (if any exist) [date].dump, [date]-jvmRun[N].dump and [date].dumpstream.", help,
		}, []string{"org.opentest4j.AssertionFailedError|expected: <3> but was: <4>|AppTest.java:12|1", "java.lang.IllegalStateException|boom|AppTest.java:17|1"}},
		{"logs", []string{"5[ERROR] Failures: of the disk", "5[ERROR] Errors: too many", "5[ERROR] See the manual: no key", "5[ERROR]   Shop.pay:12 declined", "5[ERROR]   symbol: unknown", "5[ERROR]   :3 x"},
			[]string{"|Failures: of the disk|:0|0", "|Errors: too many|:0|0", "|See the manual: no key|:0|0", "|Shop.pay:12 declined|:0|0", "|symbol: unknown|:0|0", "|3 x|:0|0"}},
	} {
		m.run(t)
	}
}

// TestAnnouncementJoinsItsError checks that a line that only announces the error on the following
// lines gives one fault together with that error.
func TestAnnouncementJoinsItsError(t *testing.T) {
	for _, m := range []misreadCase{
		{"vite's proxy", []string{
			"52:00:00 PM [vite] http proxy error: /api/users", "5AggregateError [ECONNREFUSED]: ", "0    at internalConnectMultiple (node:net:1122:18)", "0    at afterConnectMultiple (node:net:1689:7)",
			"52:00:01 PM [vite] http proxy error: /api/users", "5Error: connect ECONNREFUSED 127.0.0.1:3001", "0    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1555:16)",
			"52:00:02 PM [vite] http proxy error: /api/orders", "02:00:03 PM [vite] hmr update /src/a.js",
			"52:00:04 PM [vite] Internal server error: no such import", "0  Plugin: vite:import-analysis",
		}, []string{
			"AggregateError|AggregateError|:0|2", "|http proxy error: /api/orders|:0|0", "Error|connect ECONNREFUSED 127.0.0.1:3001|:0|1", "vite:import-analysis|no such import|:0|1",
		}},
		{"django", []string{
			"5Internal Server Error: /api/x/", "5Traceback (most recent call last):", `0  File "/app/shop/views.py", line 12, in x`, "0    return 1 / 0", "0           ~~^~~", "5ZeroDivisionError: division by zero",
			`0[22/Nov/2026 14:00:00] "GET /api/x/ HTTP/1.1" 500 65432`, "5ERROR Internal Server Error: /api/y/", `0[22/Nov/2026 14:00:01] "GET /api/y/ HTTP/1.1" 500 32`,
			"4WARNING Internal Server Error: /api/z/", "5Internal Server Error: /api/w/",
		}, []string{"|Internal Server Error: /api/y/|:0|0", "ZeroDivisionError|division by zero|/app/shop/views.py:12|5", "|Internal Server Error: /api/w/|:0|0"}},
		{"no request", []string{"5Internal Server Error: no disk"}, []string{"Error|no disk|:0|0"}},
	} {
		m.run(t)
	}
}

// TestDotnetMessageIsReadBelowClass checks that an error of .NET's console logger, which prints the
// message below the class, gives one fault with this message.
func TestDotnetMessageIsReadBelowClass(t *testing.T) {
	for _, m := range []misreadCase{
		{"messages", []string{
			"3info: Microsoft.Hosting.Lifetime[14]", "0      Now listening on: http://localhost:5000", "5fail: Shop.OrderService[0]", "0      Order 5 could not be saved", "5fail: Shop.OrderService[0]", "0      No card",
			"614:00:00 crit: Shop.OrderService[7]", "0      Disk gone", "0      SELECT 1", "4warn: Shop.OrderService[0]", "5      Something failed", "5fail: Shop.Empty[0]", "3info: Shop.OrderService[0]", "0      Done",
		}, []string{"|Order 5 could not be saved|:0|0", "|No card|:0|0", "|Disk gone|:0|1", "|Shop.Empty[0]|:0|0"}},
		{"an exception", []string{
			"5fail: Shop.OrderService[0]", "0      Order 6 has no items", "5      System.InvalidOperationException: no items", "0         at Shop.OrderService.Save(Order o) in /app/OrderService.cs:line 42",
			"3info: Shop.OrderService[0]", "0      Done",
		}, []string{"System.InvalidOperationException|no items|/app/OrderService.cs:42|1"}},
		{"other forms", []string{"5fail: Shop.OrderService[0] No card", "0      below", "5fail: see [3]", "0      below", "5ERROR: Shop.OrderService[0]", "0      below", "5fail: items[a]", "0      below"},
			[]string{"|Shop.OrderService[0] No card|:0|0", "|see [3]|:0|0", "|Shop.OrderService[0]|:0|0", "|items[a]|:0|0"}},
	} {
		m.run(t)
	}
}

// TestRecoveredPanicsAreRecognised checks that panics that a Go framework recovered are recognised.
func TestRecoveredPanicsAreRecognised(t *testing.T) {
	gin := []string{
		"0", "0", "02026/11/22 14:00:00 [Recovery] 2026/11/22 - 14:00:00 panic recovered:", "0GET /x HTTP/1.1", "0Host: localhost:8080", "5X-Note: an ERROR: of old", "0", "0",
		"5runtime error: index out of range [5] with length 3", "0/home/dev/sdk/go/src/runtime/panic.go:115 (0x434f24)", "0\tgoPanicIndex: panic(boundsError{x: int64(x), signed: true, y: y, code: boundsIndex})",
		"0/app/main.go:12 (0x8a1b2c)", "0\tmain.func1: return a[i]", "0/home/dev/go/pkg/mod/github.com/gin-gonic/gin@v1.10.0/context.go:185 (0x8a0000)", "0\t(*Context).Next: c.handlers[c.index](c)", "0",
		`0[GIN] 2026/11/22 - 14:00:00 | 500 |     1.1ms |             ::1 | GET      "/x"`, "5TypeError: of the next",
	}
	for _, m := range []misreadCase{
		{"gin", gin, []string{"panic|runtime error: index out of range [5] with length 3|/app/main.go:12|6", "TypeError|of the next|:0|0"}},
		{"gin in release mode", append([]string{gin[2], "0boom"}, gin[11:16]...), []string{"panic|boom|/app/main.go:12|4"}},
		{"no panic of gin", []string{"0the [Recovery] text is: panic recovered:", "0boom", "0[Recovery] of 3 files"}, nil},
		{"chi", []string{
			"0", "6 panic: boom", "0 ", "0 -> main.main.func1", "0 ->   /app/main.go:14", "0", "0    net/http.HandlerFunc.ServeHTTP", "0      /usr/local/go/src/net/http/server.go:2136",
			`02026/11/22 14:00:00 "GET http://localhost:3000/ HTTP/1.1" from [::1]:5 - 500 0B in 1ms`,
		}, []string{"panic|boom|/app/main.go:14|5"}},
		{"no panic of chi", []string{"6 panic: of the crowd", "0 ", "0 it went", "0 -> away", "0", "0 -> main.main"}, nil},
	} {
		m.run(t)
	}
}

// TestOneLineErrorsOfToolsAreRecognised checks that errors that shells and tools print in one line
// are recognised on either stream, and that similar lines are not.
func TestOneLineErrorsOfToolsAreRecognised(t *testing.T) {
	for _, m := range []struct {
		level uint8
		text  string
		want  string // type, category, message and position
	}{
		{0, "bash: foo: command not found", "|not_found|bash: foo: command not found|:0"},
		{0, "bash: line 3: foo: command not found", "|not_found|foo: command not found|:0"},
		{0, "sh: 1: foo: not found", "|not_found|foo: not found|:0"},
		{0, "zsh: command not found: foo", "|not_found|zsh: command not found: foo|:0"},
		{5, "npm ERR! code ENOENT", "ENOENT|not_found|code ENOENT|:0"},
		{5, "npm error code E404", "E404|build|code E404|:0"},
		{0, "curl: (6) Could not resolve host: db.invalid", "|network|curl: (6) Could not resolve host: db.invalid|:0"},
		{0, "curl: (22) The requested URL returned error: 500", "|network|curl: (22) The requested URL returned error: 500|:0"},
		{0, "getaddrinfo ENOTFOUND db.invalid", "|network|getaddrinfo ENOTFOUND db.invalid|:0"},
		{0, "proxy failed: getaddrinfo EAI_AGAIN db.invalid", "|network|proxy failed: getaddrinfo EAI_AGAIN db.invalid|:0"},
		{5, "[ERROR] Failed to execute goal on project app: Could not resolve dependencies for project a:b:jar:1", "|not_found|Failed to execute goal on project app: Could not resolve dependencies for project a:b:jar:1|:0"},
		{5, "2026/01/05 10:00:00 main.go:12: ERROR not a word of it", "|other|not a word of it|main.go:12"},
		{5, "main.go:12: ERROR not a word of it", "|other|not a word of it|main.go:12"},

		{0, "the page was not found", ""}, {0, "GET /x: not found", ""}, {0, "curl: (c) its authors", ""}, {0, "see curl: (6) in the manual", ""}, {0, "getaddrinfo is slow", ""},
		{3, "retry after: getaddrinfo EAI_AGAIN db", ""}, {3, "main.go:12: INFO ERROR pages", ""}, {5, "[ERROR] Failed to execute goal on project app: Compilation failure", ""}, {5, "npm error code ELIFECYCLE", ""},
	} {
		for stream := range uint8(2) {
			got := ""
			rec := fault.New(func(f fault.Fault) {
				got += fmt.Sprintf("%s|%s|%s|%s:%d", f.Type, f.Category, f.Message, f.File, f.Line)
			})
			rec.Line(1, stream, m.level, []byte(m.text))
			rec.End(0, "")
			if stream == 1 && m.want == "" && strings.HasSuffix(m.text, ": not found") {
				continue // a shell prints this error only on standard error
			}
			if got != m.want {
				t.Errorf("%s, on stream %d: got %q, want %q", m.text, stream, got, m.want)
			}
		}
	}
}
