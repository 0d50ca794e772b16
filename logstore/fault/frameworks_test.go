package fault_test

import "testing"

// TestFrameworks has errors in the forms of common frameworks, and what only looks like them.
func TestFrameworks(t *testing.T) {
	for _, m := range []misread{
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
		{"no frames below", []string{
			"5TimeoutError (seconds, default 30):", "0  how long to wait", "5ActionController::RoutingError (No route matches [GET] \"/x\"):", "0  ", "0Completed 404 Not Found in 2ms", "5TypeError: x is not a function", "0    at f (/app/x.js:3:4)",
		}, []string{"TypeError|x is not a function|/app/x.js:3|1"}},
	} {
		m.test(t)
	}
}
