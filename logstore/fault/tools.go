package fault

import "strings"

// toolRows are the reports of tools. Most of them state the error on one line.
var toolRows = []*row{
	&elixir, &exunit, &elixirCompiler, &cmake, &gradleCause, &pnpm, &uv, &pytestConftest, &buildkit, &spring, &minitest, &lua, &ruff, &biome, &deno,
	// an import of a missing file, as a plugin of Vite reports it
	{opens: []string{`[plugin:%] Failed to resolve import "%" from "%`}, category: CategoryNotFound, fatal: true, start: startVitePlugin},
	// a failed test in pytest's summary, of which nothing but the summary was printed
	{opens: []string{"FAILED %.py::% - %"}, kind: "FAIL", fallback: CategoryAssertion, fatal: true, start: startPytestFailed},
	{opens: []string{"Error response from daemon: %", "docker: Error response from daemon: %"}, fields: "*", fallback: CategoryOther, fatal: true},
	// what the C library or the C++ runtime prints when it ends a program
	{opens: []string{"*** stack smashing detected ***%", "terminate called without%"}, fields: "*", category: CategoryCrash, fatal: true},
	{opens: []string{"Error from server (%): %"}, fields: "tm", fallback: CategoryOther, fatal: true}, // kubectl
	{opens: []string{"[ERROR] Failed to execute goal % on project %: %"}, fields: "--m", category: CategoryBuild, fatal: true, follows: true, finish: cutMavenHelp},
	{opens: []string{"MSBUILD : error %: %", "LINK : fatal error %: %"}, fields: "tm", category: CategoryBuild, fatal: true},
}

// cutMavenHelp removes the reference to Maven's help from the message.
func cutMavenHelp(b *block) { b.f.Message, _, _ = strings.Cut(b.f.Message, " -> [Help ") }

func startVitePlugin(b *block, l line) verdict {
	b.f.File, _, _ = strings.Cut(b.texts[2], `"`)
	_, message, _ := strings.Cut(l.text, "] ")
	b.appendMessage(message)
	return takenLast
}

func startPytestFailed(b *block, _ line) verdict {
	b.f.File, b.test = b.texts[0]+".py", b.texts[1]
	if strings.HasPrefix(b.texts[2], "assert ") {
		b.f.Type = "AssertionError"
	}
	b.setMessage(b.texts[2])
	return takenLast
}

// elixir is an error that ends an Elixir program: "** (RuntimeError) message", then the frames.
var elixir = row{
	opens: []string{"** (%) %"}, fallback: CategoryOther, fatal: true,
	start: func(b *block, _ line) verdict {
		kind := b.texts[0]
		if kind == "" || kind != "exit" && kind != "throw" && !strings.HasPrefix(kind, "EXIT from ") && (!isUpper(kind[0]) || strings.ContainsRune(kind, ' ')) {
			return foreign
		}
		b.f.Type = kind
		b.appendMessage(b.texts[1])
		return shown
	},
	next: func(b *block, l line, t string) verdict {
		application, below, ok := strings.Cut(t, ") ")
		if ok && t[0] == '(' {
			t = below
		}
		library := startsWith(application, "(elixir ", "(stdlib ", "(kernel ", "(mix ", "(ex_unit ", "(ecto", "(db_connection ", "(phoenix", "(plug")
		p, rest, ok := parsePosition(t)
		function, called := strings.CutPrefix(rest, ": ")
		if !ok || !called || l.indent() == 0 {
			return ended
		}
		if !library {
			b.site.offer(p, function)
		}
		return shown
	},
}

// exunit is a failed test of Elixir: "  1) test adds (ShopTest)", and below it the place of the test.
var exunit = testReport{
	opens: []string{"     %.exs:%"},
	start: func(b *block, l line) verdict {
		p, rest, ok := parsePosition(l.trim())
		above, _ := b.above.line(0)
		name, listed := parseListed(above)
		if !ok || rest != "" || !listed {
			return foreign
		}
		b.f.File, b.f.Line, b.test = p.file, p.line, name
		b.moveStart(above.number)
		return shown
	},
	ends: func(l line, t string) bool { return t != "" && l.indent() < 5 },
	detail: func(b *block, _ line, t string) {
		p, rest, ok := parsePosition(t)
		switch {
		case ok && rest == ": (test)":
			b.f.File, b.f.Line = p.file, p.line
		case !b.titled:
			b.setTitle(t)
		case startsWith(t, "left:", "right:"):
			b.appendMessage(t)
		}
	},
}.row()

// elixirCompiler is an error of Elixir's compiler, whose place follows the source.
var elixirCompiler = row{
	opens: []string{"    error: %"}, category: CategoryBuild, fatal: true, maxBlank: 1,
	start: func(b *block, _ line) verdict {
		b.void = true
		b.appendMessage(b.texts[0])
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		if l.indent() == 0 {
			return ended
		}
		if where, ok := strings.CutPrefix(t, "\u2514\u2500 "); ok {
			b.setPositionIn(where)
			b.void = false
			return shownLast
		}
		return shown
	},
}

// cmake is an error of CMake. The message follows in indented lines.
var cmake = row{
	opens: []string{"CMake Error at %:% (%):"}, kind: "CMake Error", category: CategoryBuild, fatal: true, maxBlank: 1,
	start: func(b *block, _ line) verdict {
		line, _, _ := parseNumber(b.texts[1])
		b.setPosition(position{file: b.texts[0], line: line})
		return shown
	},
	next: nextIndented,
}

// nextIndented reads a message in indented lines.
func nextIndented(b *block, l line, t string) verdict {
	if l.indent() == 0 {
		return ended
	}
	b.appendMessage(t)
	return shown
}

// gradleCause is the reason that Gradle prints for a failed build.
var gradleCause = row{
	opens: []string{"* What went wrong:"}, category: CategoryBuild, fatal: true, follows: true,
	start: func(b *block, _ line) verdict {
		for i := range 4 {
			above, _ := b.above.line(i)
			if where, ok := match(above.text, "% file '%' line: %"); ok {
				line, _, _ := parseNumber(where[2])
				b.setPosition(position{file: where[1], line: line})
			}
		}
		return taken
	},
	next: func(b *block, _ line, t string) verdict {
		if t == "" {
			return ended
		}
		b.void = b.void || startsWith(t, "> There were failing tests", "> Compilation failed; see")
		b.appendMessage(t)
		return shown
	},
}

// pnpm is an error of pnpm, with its code. The errors of scripts come before ERR_PNPM_RECURSIVE_….
var pnpm = row{
	opens: []string{"ERR_PNPM_% %"}, indented: true, category: CategoryBuild, fatal: true,
	start: func(b *block, _ line) verdict {
		if strings.HasPrefix(b.texts[0], "RECURSIVE") {
			return ignored
		}
		b.f.Type = "ERR_PNPM_" + b.texts[0]
		b.appendMessage(strings.TrimSpace(b.texts[1]))
		return takenLast
	},
}

// uv is uv's report of requirements that contradict each other, or of a package that it could not build.
var uv = row{
	opens: []string{"\u00d7 No solution found%", "\u00d7 Failed to %"}, indented: true, category: CategoryBuild, fatal: true,
	start: func(b *block, l line) verdict {
		b.appendMessage(strings.TrimPrefix(l.trim(), "\u00d7 "))
		return shown
	},
	next: nextIndented,
}

// pythonBare is a Python error without its traceback, whose name does not end like that of an error:
// "django.core.exceptions.ImproperlyConfigured: message".
var pythonBare = row{
	opens: []string{"%.exceptions.%: %"}, fallback: CategoryOther, fatal: true,
	start: func(b *block, l line) verdict {
		name := b.texts[1]
		if !isPythonError(l.text) || name == "" || !isUpper(name[0]) || l.level > 0 && l.level < levelError {
			return foreign
		}
		b.f.Type = b.texts[0] + ".exceptions." + name
		b.appendMessage(b.texts[2])
		return takenLast
	},
}

// pytestConftest is an error in a conftest.py, which pytest reports as it reports a failed test.
var pytestConftest = row{
	opens: []string{"%Error while loading conftest '%'."}, kind: "ImportError", fallback: CategoryOther, fatal: true, maxLines: maxReport,
	start: func(*block, line) verdict { return shown },
	next:  func(b *block, l line, t string) verdict { return pytest.next(b, l, t) },
}

// buildkit is the last line of a docker build: a step whose command failed. The step's own errors come before it, and
// the line of the Dockerfile above it.
var buildkit = row{
	opens: []string{"%failed to solve: process %"}, category: CategoryBuild, fatal: true,
	start: func(b *block, l line) verdict {
		if k := &b.notes.emitted; k.fatal > 0 && l.number-k.fatal <= explainLines { // in the lane of the step
			return ignored
		}
		b.appendMessage("process " + b.texts[1])
		for i := range recentLines {
			if above, ok := b.above.line(i); !ok {
				break
			} else if p, rest, ok := parsePosition(above.text); ok && rest == "" {
				b.setPosition(p)
			} else if name, line, ok := strings.Cut(above.text, ":"); ok && strings.HasSuffix(name, "Dockerfile") {
				row, _, _ := parseNumber(line)
				b.setPosition(position{file: name, line: row})
			}
		}
		return takenLast
	},
}

// spring is Spring Boot's description of what keeps an application from starting.
var spring = row{
	opens: []string{"APPLICATION FAILED TO START"}, fallback: CategoryOther, fatal: true, announcement: replaces, maxLines: 60, maxBlank: 2,
	next: func(b *block, _ line, t string) verdict {
		switch {
		case t == "Action:":
			return takenLast
		case t == "Description:":
			b.titled = true
		case b.titled:
			b.appendMessage(t)
			return shown
		}
		return taken
	},
}

// minitest is a failed test of Ruby's Minitest: "Failure:", and below it the test, its place and the message.
var minitest = row{
	opens: []string{"Failure:"}, suite: true, fallback: CategoryAssertion, fatal: true,
	start: func(b *block, _ line) verdict {
		b.void = true
		return taken
	},
	next: func(b *block, _ line, t string) verdict {
		test, where, _ := strings.Cut(strings.TrimSuffix(t, ":"), " [")
		switch {
		case t == "":
			return ended
		case !b.void:
			b.appendMessage(t)
		case strings.Contains(test, "#") && strings.HasSuffix(t, ":"):
			b.void, b.test = false, test
			b.setPositionIn(strings.TrimSuffix(where, "]"))
		default:
			return ended
		}
		return shown
	},
}

// lua is an error that ends a Lua program. Only the line below the message identifies it as an error.
var lua = row{
	opens: []string{"stack traceback:"}, fallback: CategoryOther, fatal: true, announcement: replaces,
	start: func(b *block, _ line) verdict {
		above, ok := b.above.line(0)
		_, message, found := strings.Cut(above.text, ": ")
		if !ok || !found {
			return foreign
		}
		if p, rest, ok := parsePosition(message); ok && strings.HasPrefix(rest, ": ") {
			b.setPosition(p)
			message = rest[len(": "):]
		}
		b.moveStart(above.number)
		b.pushStack(above.text)
		b.appendMessage(message)
		return shown
	},
	next: func(b *block, l line, _ string) verdict {
		if l.indent() == 0 {
			return ended
		}
		return shown
	},
}

// ruff is a finding of ruff: "F401 message", and below it the place: " --> src/a.py:1:8".
var ruff = row{
	opens: []string{"--> %"}, indented: true, category: CategoryBuild, fatal: true,
	start: func(b *block, _ line) verdict {
		above, _ := b.above.line(0)
		code, message, _ := strings.Cut(above.text, " ")
		if p, rest, ok := parsePosition(b.texts[0]); ok && rest == "" && isLintCode(code) {
			b.setPosition(p)
			b.moveStart(above.number)
			b.pushStack(above.text)
			b.f.Type = code
			b.appendMessage(strings.TrimPrefix(message, "[*] "))
			return shown
		}
		return foreign
	},
	next: func(b *block, l line, t string) verdict {
		if _, rest, ok := parseNumber(t); t == "" || !strings.HasPrefix(t, "|") && !(ok && strings.HasPrefix(rest, " |")) {
			return ended
		}
		return shown
	},
}

// isLintCode reports whether a word is the code of an error that a Python linter finds: F401, PLR0913.
func isLintCode(w string) bool {
	letters := strings.TrimRight(w, "0123456789")
	digits := len(w) - len(letters)
	return letters != "" && len(letters) <= 5 && strings.Trim(letters, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" &&
		(digits == 3 || digits == 4 && (len(letters) > 1 || letters == "E" || letters == "F")) // one letter and four digits: pylint
}

// deno is an error that Deno's type checker found. Its place follows the source.
var deno = row{
	opens: []string{"TS% [ERROR]: %"}, category: CategoryType, fatal: true,
	start: func(b *block, _ line) verdict {
		b.f.Type = "TS" + b.texts[0]
		b.appendMessage(b.texts[1])
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		if p, _, ok := parseFrame(l); ok {
			b.setPosition(p)
			return shownLast
		}
		if t == "" {
			return ended
		}
		return shown
	},
}

// biome is a finding of Biome: "./src/a.ts:1:5 lint/rule ━━━", and below it the message.
var biome = row{
	opens: []string{"% lint/% \u2501%"}, category: CategoryBuild, fatal: true, maxBlank: 1,
	start: func(b *block, _ line) verdict {
		p, rest, ok := parsePosition(b.texts[0])
		if !ok || rest != "" {
			return foreign
		}
		b.setPosition(p)
		b.f.Type, b.void = "lint/"+firstWord(b.texts[1]), true
		return shown
	},
	next: func(b *block, l line, t string) verdict {
		if l.indent() == 0 {
			return ended
		}
		if message, ok := cutPrefix(t, "\u2716 ", "\u00d7 "); ok && b.void {
			b.void = false
			b.appendMessage(message)
		}
		return shown
	},
}
