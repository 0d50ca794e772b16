package fault

import "strings"

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
		_, own, library := strings.Cut(t, ") ")
		if library = library && t[0] == '('; library {
			t = own
		}
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

// gradleCause is the reason that Gradle prints for a failed build. Errors of the tools that it ran come before
// it, and it only follows from them.
var gradleCause = row{
	opens: []string{"* What went wrong:"}, category: CategoryBuild, fatal: true,
	start: func(b *block, l line) verdict {
		if b.notes.isFatalOpen || b.notes.emitted.fatalSince(l, l.number-explainLines) {
			return ignored
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

// uv is uv's report that the requirements contradict each other.
var uv = row{
	opens: []string{"\u00d7 No solution found%"}, indented: true, category: CategoryBuild, fatal: true,
	start: func(b *block, l line) verdict {
		b.appendMessage(strings.TrimPrefix(l.trim(), "\u00d7 "))
		return shown
	},
	next: nextIndented,
}

// vitePlugin is the import of a missing file, as a plugin of Vite reports it.
var vitePlugin = row{
	opens: []string{`[plugin:%] Failed to resolve import "%" from "%`}, category: CategoryNotFound, fatal: true,
	start: func(b *block, l line) verdict {
		b.f.File, _, _ = strings.Cut(b.texts[2], `"`)
		_, message, _ := strings.Cut(l.text, "] ")
		b.appendMessage(message)
		return takenLast
	},
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

// pytestFailed is a failed test in pytest's summary, of which nothing but the summary was printed.
var pytestFailed = row{
	opens: []string{"FAILED %.py::% - %"}, kind: "FAIL", fallback: CategoryAssertion, fatal: true,
	start: func(b *block, _ line) verdict {
		b.f.File, b.test = b.texts[0]+".py", b.texts[1]
		if strings.HasPrefix(b.texts[2], "assert ") {
			b.f.Type = "AssertionError"
		}
		b.setMessage(b.texts[2])
		return takenLast
	},
}

// pytestConftest is an error in a conftest.py, which pytest reports as it reports a failed test.
var pytestConftest = row{
	opens: []string{"%Error while loading conftest '%'."}, kind: "ImportError", fallback: CategoryOther, fatal: true, maxLines: maxReport,
	start: func(*block, line) verdict { return shown },
	next:  func(b *block, l line, t string) verdict { return pytest.next(b, l, t) },
}
