package fault_test

import "testing"

// TestPlaceIsDeepestFrameOfUser checks that the place of an error is the deepest frame of the user's own
// code, and the deepest of all only if every frame belongs to a library.
func TestPlaceIsDeepestFrameOfUser(t *testing.T) {
	for _, m := range []misreadCase{
		{"python, its library in lib64", []string{
			"5Traceback (most recent call last):", `0  File "/app/server.py", line 9, in <module>`, "0    HTTPServer(address, Handler)", `0  File "/usr/lib64/python3.11/socketserver.py", line 472, in server_bind`, "0    self.socket.bind(self.server_address)",
			"5OSError: [Errno 98] Address already in use",
		}, []string{"OSError|[Errno 98] Address already in use|/app/server.py:9|6"}},
		{"python, started by a script of its environment", []string{
			"5Traceback (most recent call last):", `0  File "/app/.venv/bin/uvicorn", line 8, in <module>`, "0    sys.exit(main())", `0  File "/app/.venv/lib/python3.11/site-packages/uvicorn/importer.py", line 24, in import_from_string`, "0    raise exc from None",
			"5ModuleNotFoundError: No module named 'app'",
		}, []string{"ModuleNotFoundError|No module named 'app'|/app/.venv/lib/python3.11/site-packages/uvicorn/importer.py:24|6"}},
		{"node, of its runtime", []string{
			"0node:events:502", "0      throw er; // Unhandled 'error' event", "0      ^", "0", "5Error: listen EADDRINUSE: address already in use :::3000", "0    at Server.setupListenHandle [as _listen2] (node:net:1908:16)",
			"0    at listen (/app/node_modules/@hapi/hapi/lib/core.js:321:14)", "0    at start (/app/src/server.js:12:7)", "0    at node:internal/main/run_main_module:28:49",
		}, []string{"Error|listen EADDRINUSE: address already in use :::3000|/app/src/server.js:12|7"}},
		{"node, a program of the user below internal/process", []string{
			"5TypeError: x is not a function", "0    at run (/app/internal/process/run.js:3:4)", "0    at main (/app/main.js:9:1)",
		}, []string{"TypeError|x is not a function|/app/internal/process/run.js:3|2"}},
		{"node, before version 16", []string{
			"5TypeError: x is not a function", "0    at processTicksAndRejections (internal/process/task_queues.js:93:5)", "0    at main (/app/main.js:9:1)",
		}, []string{"TypeError|x is not a function|/app/main.js:9|2"}},
		{"go, installed elsewhere", []string{
			"5panic: boom", "0", "0goroutine 1 [running]:", "0encoding/json.(*encodeState).marshal.func1()", "0\t/home/dev/sdk/go1.26.0/src/encoding/json/encode.go:339 +0x68", "0sort.Slice({0x5a8c00?}, 0x5ff788)", "0\t/home/dev/sdk/go1.26.0/src/sort/slice.go:29 +0xc5",
			"0main.main()", "0\t/app/main.go:5 +0x54",
		}, []string{"panic|boom|/app/main.go:5|8"}},
		{"go, built with -trimpath", []string{
			"5panic: boom", "0", "0goroutine 1 [running]:", "0encoding/json.Marshal({0x5baec0})", "0\tencoding/json/encode.go:209 +0xbe", "0github.com/gin-gonic/gin.(*Context).JSON(0x1)", "0\tgithub.com/gin-gonic/gin@v1.10.0/context.go:9 +0x1",
			"0main.main()", "0\texample.com/shop/main.go:5 +0x54",
		}, []string{"panic|boom|example.com/shop/main.go:5|8"}},
		{"go, a package of the user named as one of Go", []string{
			"5panic: boom", "0", "0goroutine 1 [running]:", "0log.Write()", "0\t/home/dev/go-shop/src/log/write.go:7 +0x5", "0main.main()", "0\t/home/dev/go-shop/src/main.go:5 +0x54",
		}, []string{"panic|boom|/home/dev/go-shop/src/log/write.go:7|6"}},
		{"java", []string{
			`5Exception in thread "main" java.lang.NumberFormatException: For input string: "x"`, "0\tat java.base/java.lang.Integer.parseInt(Integer.java:668)", "0\tat com.google.common.collect.Lists.transform(Lists.java:7)", "0\tat com.example.Cart.total(Cart.java:42)",
			"0\tat com.example.Main.main(Main.java:5)",
		}, []string{`java.lang.NumberFormatException|For input string: "x"|Cart.java:42|4`}},
		{"ruby", []string{
			"5/usr/lib/ruby/3.2.0/socket.rb:201:in `bind': Address already in use - bind(2) (Errno::EADDRINUSE)", "0\tfrom /var/lib/gems/3.2.0/gems/puma-6.4.0/lib/puma/binder.rb:333:in `add_tcp_listener'", "0\tfrom config.ru:4:in `block in <main>'",
			"0\tfrom /usr/local/bin/rackup:25:in `<main>'",
		}, []string{"Errno::EADDRINUSE|Address already in use - bind(2)|config.ru:4|3"}},
		{"php", []string{
			"5PHP Fatal error:  Uncaught GuzzleHttp\\ConnectException: no route in /app/vendor/guzzle/src/Curl.php:210", "0Stack trace:", "0#0 /app/vendor/guzzle/src/Client.php(158): GuzzleHttp\\Curl->send()", "0#1 /app/src/Shop.php(12): GuzzleHttp\\Client->get()", "0#2 {main}",
			"0  thrown in /app/vendor/guzzle/src/Curl.php on line 210",
		}, []string{`GuzzleHttp\ConnectException|no route|/app/src/Shop.php:12|5`}},
		{"rust", []string{
			"5thread 'main' panicked at /home/dev/.cargo/registry/src/index.crates.io-6f17/tokio-1.38.0/src/runtime.rs:12:5:", "0no reactor running", "0stack backtrace:", "0   0: rust_begin_unwind", "0             at /rustc/9fc6/library/std/src/panicking.rs:652:5",
			"0   1: shop::main", "0             at ./src/main.rs:7:3",
		}, []string{"panic|no reactor running|./src/main.rs:7|7"}},
		{"a stack in a message", []string{
			`5{"level":"error","message":"cart is empty (see below)\n    at check (/app/node_modules/zod/index.js:9:1)\n    at pay (/app/src/pay.js:4:1)"}`,
		}, []string{"|cart is empty (see below)|/app/src/pay.js:4|3"}},
	} {
		m.run(t)
	}
}
