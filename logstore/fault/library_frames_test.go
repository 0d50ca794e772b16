package fault_test

import (
	"fmt"
	"strings"
	"testing"

	"pmcp/logstore/fault"
)

// TestLibraryFramesAreCountedAndNamed checks how many lines of a text are frames of libraries, and
// how these are named.
func TestLibraryFramesAreCountedAndNamed(t *testing.T) {
	const python = `  File "/usr/lib/python3.11/`
	for name, c := range map[string]struct {
		lines []string
		want  string // lines, frames, libraries
	}{
		"python": {[]string{
			python + `http/server.py", line 1307, in server_bind`, "    return super().server_bind(", "           ^^^^^^^^^^^^^^^^^^^^", "    )", python + `http/server.py", line 136, in server_bind`, "    socketserver.bind(self)", "OSError: in use",
		}, "6 2 python3.11/http"},
		"python's own and others": {[]string{
			`  File "<frozen runpy>", line 88, in _run_code`, python + `http/server.py", line 9, in f`, "    f()", "  [Previous line repeated 993 more times]", python + `socketserver.py", line 9, in f`, `  File "/app/.venv/lib/python3.11/site-packages/click/core.py", line 1, in g`, "    g()", `  File "/app/x.py", line 1, in h`,
		}, "7 4 python3.11, site-packages"},
		"a lane": {[]string{
			"web-1  |   " + python[2:] + `json/decoder.py", line 3, in f`, "web-1  |     f()", "db-1   |     starting", "web-1  |   " + python[2:] + `json/decoder.py", line 3, in f`,
		}, "2 1 python3.11/json"},
		"two lanes": {[]string{"web-1  | runtime.gopanic()", "db-1   | \t/usr/local/go/src/runtime/panic.go:860 +0x13a"}, "0 0 "},
		"node": {[]string{
			"    at Layer.handle (/app/node_modules/express/lib/router/layer.js:95:5)", "    at Array.map (<anonymous>)", "    at next (/app/node_modules/express/lib/router/index.js:280:10)", "    at handler (/app/src/app.js:3:1)",
		}, "3 3 node_modules/express"},
		"a scope": {[]string{"    at f (/app/node_modules/@nestjs/core/router.js:9:5)"}, "1 1 node_modules/@nestjs/core"},
		"node's modules": {[]string{
			"    at Module._compile (node:internal/modules/cjs/loader:1521:14)", "    at Module.load (node:internal/modules/cjs/loader:1266:32)", "    at node:internal/main/run_main_module:28:49", "", "Node.js v20.20.2",
		}, "3 3 node:internal"},
		"go": {[]string{
			"net/http.(*conn).serve(0xc000150000, {0x6d3e58, 0xc00011f0b0})", "\t/usr/local/go/src/net/http/server.go:2102 +0x625", "created by net/http.(*Server).Serve in goroutine 1", "\t/usr/local/go/src/net/http/server.go:3454 +0x485", "exit status 2",
		}, "4 2 go/src/net/http"},
		"go's modules": {[]string{"github.com/gin-gonic/gin.(*Context).Next(...)", "\t/home/dev/go/pkg/mod/github.com/gin-gonic/gin@v1.10.0/context.go:185", "main.main()", "\t/app/main.go:3 +0x1"}, "2 1 pkg/mod/github.com/gin-gonic/gin@v1.10.0"},
		"gin":          {[]string{"/usr/local/go/src/runtime/panic.go:115 (0x434f24)", "\tgoPanicIndex: panic(boundsError{})", "/app/main.go:12 (0x8a1b2c)", "\tmain.func1: return a[i]"}, "2 1 go/src/runtime"},
		"chi":          {[]string{"net/http.HandlerFunc.ServeHTTP", "      /usr/local/go/src/net/http/server.go:2136"}, "2 1 go/src/net/http"},
		"java": {[]string{
			"\tat java.base/java.util.ArrayList.forEach(ArrayList.java:1596)", "\tat java.base/jdk.internal.reflect.Native.invoke0(Native Method)", "\tat org.springframework.aop.Proxy.invoke(Proxy.java:4) ~[spring-aop-6.1.jar:6.1]", "\t... 7 more",
		}, "3 3 java, jdk, org.springframework"},
		"ruby":        {[]string{"\tfrom /var/lib/gems/3.2.0/gems/puma-6.4.0/lib/puma/binder.rb:333:in `add'", "\tfrom app.rb:4:in `run'"}, "1 1 gems/puma-6.4.0"},
		"rust":        {[]string{"  10: std::rt::lang_start", "             at /rustc/9fc6b4312/library/std/src/rt.rs:195:18", "  11: main"}, "2 1 rust"},
		"a crate":     {[]string{"   2: tokio::spawn", "             at /home/dev/.cargo/registry/src/index.crates.io-6f17d22bba15001f/tokio-1.38.0/src/task.rs:9:1"}, "2 1 cargo/tokio-1.38.0"},
		"a sanitizer": {[]string{"    #0 0x7f1 in __libc_start_main ../csu/libc-start.c:308:16", "    #1 0x4a in main /app/main.c:3:5"}, "1 1 libc"},
		"no name":     {[]string{`  File "<frozen runpy>", line 198, in _run_module_as_main`, `  File "<frozen runpy>", line 88, in _run_code`, "x"}, "2 2 "},

		"the user's frames":    {[]string{`  File "/app/x.py", line 1, in h`, python + `json/decoder.py", line 3, in f`}, "0 0 "},
		"a file of no code":    {[]string{"    at Shop.OrderService.Save(Order o)", "   at System.Linq.Enumerable.First()"}, "0 0 "},
		"a list of files":      {[]string{"files of the library:", "    /usr/local/go/src/net/http/server.go:12"}, "0 0 "},
		"prose":                {[]string{"we met at node:net, line 3", "    at the library"}, "0 0 "},
		"a line of its own":    {[]string{"/usr/lib/python3.11/json/decoder.py:355: JSONDecodeError"}, "0 0 "},
		"nothing":              {nil, "0 0 "},
		"text that is blank":   {[]string{"", "\t/usr/local/go/src/net/http/server.go:12"}, "0 0 "},
		"a program at its end": {[]string{"npm ERR! at run (/usr/lib/node_modules/npm/x.js:3:1)"}, "0 0 "},
	} {
		lines, frames, libraries := fault.LibraryFrames(func(i int) (string, bool) {
			if i >= len(c.lines) {
				return "", false
			}
			return c.lines[i], true
		})
		if got := fmt.Sprintf("%d %d %s", lines, frames, strings.Join(libraries, ", ")); got != c.want {
			t.Errorf("%s: got %q, want %q for\n%s", name, got, c.want, strings.Join(c.lines, "\n"))
		}
	}
}
