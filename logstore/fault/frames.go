package fault

import (
	"slices"
	"strings"
)

// parseFrame parses a stack line of a language that prints the error first and the frames after it.
func parseFrame(l line) (p position, function string, ok bool) {
	t := l.trim()
	switch {
	case strings.HasPrefix(t, "at ") && l.indent() > 0:
		return parseAtFrame(t[3:])
	case strings.HasPrefix(t, "from ") && l.indent() > 0: // Ruby
		return parseRubyFrame(t[5:])
	case strings.HasPrefix(t, "\u276f ") && l.indent() > 0: // vitest: ❯ function file:1:2
		return parseArrowFrame(t[len("\u276f "):])
	case strings.HasPrefix(t, "#") && len(t) > 3 && isDigit(t[1]): // PHP
		return parseHashFrame(t)
	case l.indent() > 0 && strings.Contains(t, " called at "): // Perl
		function, rest, _ := strings.Cut(t, " called at ")
		file, n, found := strings.Cut(rest, " line ")
		if line, _, isNumber := parseNumber(n); found && isNumber {
			return position{file: file, line: line}, callee(function), true
		}
	}
	return position{}, "", false
}

// parseAtFrame parses what follows "at " in a frame of V8, the JVM or .NET.
func parseAtFrame(t string) (p position, function string, ok bool) {
	if i := strings.LastIndex(t, ") in "); i > 0 { // .NET: Type.Method(args) in file:line 3
		if file, n, found := strings.Cut(t[i+5:], ":line "); found {
			p.file = file
			p.line, _, _ = parseNumber(n)
		}
		return p, callee(t[:i]), true
	}
	if i := strings.Index(t, ") ~["); i > 0 { // JVM loggers append the name of the archive
		t = t[:i+1]
	}
	t = strings.TrimSuffix(strings.TrimRight(t, ",{ "), ":")
	open := strings.Index(t, "(webpack-internal:") // whose names may contain parentheses
	if open < 0 {
		open = strings.LastIndexByte(t, '(')
	}
	if open > 0 && strings.HasSuffix(t, ")") {
		inside := t[open+1 : len(t)-1]
		if q, rest, found := parsePosition(inside); found && rest == "" {
			return q, callee(t[:open]), true
		}
		function := callee(t[:open])
		plausible := inside == "" || strings.HasPrefix(inside, "<") || strings.Contains(inside, "Native Method") || inside == "Unknown Source" || inside == "native" ||
			strings.HasPrefix(inside, "index ") || strings.HasSuffix(inside, ".java") || strings.HasSuffix(inside, ".kt") || strings.Contains(function, ".")
		return position{}, function, plausible
	}
	if strings.HasPrefix(t, "[") && strings.Contains(t, "]:") || strings.HasPrefix(t, "[") && strings.Contains(t, "]-") { // code without a file
		return position{}, "", true
	}
	t = strings.TrimPrefix(t, "async ")
	if q, rest, found := parsePosition(t); found && (rest == "" || rest[0] == ' ') {
		return q, "", true
	}
	return position{}, "", false
}

func parseArrowFrame(t string) (p position, function string, ok bool) {
	if p, rest, ok := parsePosition(t); ok && rest == "" {
		return p, "", true
	}
	i := strings.LastIndexByte(t, ' ')
	if i < 0 {
		return position{}, "", false
	}
	p, rest, ok := parsePosition(t[i+1:])
	return p, callee(t[:i]), ok && rest == ""
}

// parseHashFrame parses "#0 file(3): function()" or "#1 {main}".
func parseHashFrame(t string) (p position, function string, ok bool) {
	if t == "" || t[0] != '#' {
		return position{}, "", false
	}
	_, rest, ok := parseNumber(t[1:])
	if !ok || !strings.HasPrefix(rest, " ") {
		return position{}, "", false
	}
	rest = rest[1:]
	if rest == "{main}" || strings.HasPrefix(rest, "[internal function]") {
		return position{}, "", true
	}
	p, rest, ok = parsePosition(rest)
	return p, callee(strings.TrimPrefix(rest, ": ")), ok
}

// parseRubyFrame parses "file.rb:3:in `method'".
func parseRubyFrame(t string) (p position, function string, ok bool) {
	where, rest, ok := strings.Cut(t, ":in ")
	i := strings.LastIndexByte(where, ':')
	if !ok || i <= 0 || rest == "" || rest[0] != '`' && rest[0] != '\'' {
		return position{}, "", false
	}
	p.file = where[:i]
	if p.line, where, ok = parseNumber(where[i+1:]); !ok || where != "" {
		return position{}, "", false
	}
	rest = rest[1:]
	if i := strings.IndexByte(rest, '\''); i >= 0 {
		rest = rest[:i]
	}
	return p, rest, true
}

// callee returns the name of a function without its arguments, package path and decoration.
func callee(s string) string {
	if i := strings.IndexByte(s, '('); i > 0 {
		s = s[:i]
	}
	s = strings.TrimPrefix(s, "async ")
	if i := strings.Index(s, " [as "); i > 0 {
		s = s[:i]
	}
	if i := strings.LastIndexByte(s, '/'); i >= 0 && i+1 < len(s) { // cut off a JVM module or the path of a Go package
		s = s[i+1:]
	}
	return cut(strings.TrimSpace(s), maxField)
}

// site selects, among the frames of a stack, the frame where the error happened: the innermost
// frame of the user's own code, else the innermost of all.
type site struct {
	user     bool
	found    bool
	position position
	function string
}

// offer considers the next frame of a stack that lists the innermost frame first.
func (s *site) offer(p position, function string) {
	if s.user || p.file == "" && function == "" {
		return
	}
	own := p.file != "" && !isLibraryCode(p.file, function)
	if own || !s.found {
		s.position, s.function, s.found, s.user = p, function, true, own
	}
}

// offerReversed considers the next frame of a stack that lists the innermost frame last.
func (s *site) offerReversed(p position, function string) {
	own := !isLibraryCode(p.file, function)
	if own || !s.user {
		s.position, s.function, s.found, s.user = p, function, true, own
	}
}

// applyTo sets the position and the function of d. It omits files of Node's runtime, since the user
// cannot open them.
func (s *site) applyTo(d *draft) {
	if !s.found {
		return
	}
	if s.user || !strings.HasPrefix(s.position.file, "node:") {
		d.setPosition(s.position)
	}
	if d.function == "" {
		d.function = s.function
	}
}

// sourceName returns the source file that the name of a module stands for, without the query and the
// scheme that bundlers and dev servers add: "src/a.ts?t=17" is src/a.ts, "webpack-internal:///(rsc)/./app/page.js"
// is app/page.js. exact is false if the lines of the module are not those of the file.
func sourceName(module string) (file string, exact bool) {
	if i := strings.LastIndexByte(module, '?'); i > 0 && !strings.ContainsAny(module[i:], " \t") {
		module = module[:i]
	}
	scheme, rest, ok := strings.Cut(module, "://")
	if !ok || !startsWith(scheme, "webpack", "turbopack") {
		return module, true
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 { // the name of the bundle, often empty
		rest = rest[i+1:]
	}
	if strings.HasPrefix(rest, "(") || strings.HasPrefix(rest, "[") { // the layer, the project
		_, rest, _ = strings.Cut(rest, "/")
	}
	return strings.TrimPrefix(rest, "./"), scheme != "webpack-internal"
}

// frame is parseFrame, with the source in place of a module that a tool generated from it.
func (b *block) frame(l line) (p position, function string, ok bool) {
	p, function, ok = parseFrame(l)
	if source := b.sourceOf(p.file); source != "" {
		p = position{file: source} // the lines of the generated module are others
	}
	return p, function, ok
}

// sourceOf returns the file that Vite made a module from, or "". Vite writes the module beside the
// file or into a directory of its own; then a line above must name the file.
func (b *block) sourceOf(module string) string {
	name := generatedFrom(module)
	if name == "" || strings.Contains(module, "/.vite-temp/") {
		return b.findPath(name)
	}
	return module[:strings.LastIndexByte(module, '/')+1] + name
}

// generatedFrom returns the name of the file from which Vite made the module that it loads its
// configuration from and deletes: vite.config.js for ".vite-temp/vite.config.js.timestamp-17-ab.mjs". It
// returns "" for other files.
func generatedFrom(file string) string {
	base := file[strings.LastIndexByte(file, '/')+1:]
	name, stamp, ok := strings.Cut(base, ".timestamp-")
	if !ok || stamp == "" || !isDigit(stamp[0]) {
		return ""
	}
	return name
}

// findPath returns the path of a file that one of the lines above the report names, or "".
func (b *block) findPath(name string) string {
	for i := 0; name != "" && i < recentLines; i++ {
		l, ok := b.above.line(i)
		if !ok {
			return ""
		}
		before, after, found := strings.Cut(l.text, "/"+name)
		if !found || after != "" && (isWord(after[0]) || after[0] == '.') {
			continue
		}
		return before[strings.LastIndexAny(before, " \t\"'([")+1:] + "/" + name
	}
	return ""
}

// A library is the runtime or the library to which the code of a frame belongs.
type library struct {
	// root is where libraries of its kind are, such as "node_modules", "python3.11" or
	// "org.springframework", and sub is the part of root that the code is in, such as "express" or
	// "http". sub may be "", and so may both if the frame does not say more.
	root, sub string
}

// libraryPaths are the parts of a path that mark a file of a library, the more telling ones first. A
// part that does not end with a slash continues to the next slash; root stands for the part, and is
// empty if the file says nothing to a reader.
var libraryPaths = [...]struct{ part, root string }{
	{"/node_modules/", "node_modules"}, {"/site-packages/", "site-packages"}, {"/dist-packages/", "dist-packages"}, {"/pkg/mod/", "pkg/mod"},
	{"/.cargo/registry/src/", cargoRoot}, {"/rustc/", rustRoot}, {"/gems/", "gems"}, {"/lib/ruby/", "ruby"}, {"/vendor/", "vendor"},
	{"/lib/python", "python"}, {"/lib64/python", "python"}, {"/lib/pypy", "pypy"}, {"/usr/share/perl", "perl"}, {"/usr/share/php/", "php"}, {"node:", "node:"}, {"/.next/", ".next"},
	{"/usr/include/", "/usr/include"}, {"/usr/lib/", "/usr/lib"}, {"../sysdeps/", "libc"}, {"../csu/", "libc"}, {"/libsanitizer/", "libsanitizer"},
	{"/.cargo/registry/", ""}, {"<anonymous>", ""}, {"<frozen", ""}, {"<internal:", ""}, {"_testmain.go", ""},
	// The scripts with which a package manager starts a program that is a library.
	{"/usr/bin/", ""}, {"/usr/local/bin/", ""}, {"/.local/bin/", ""}, {"venv/bin/", ""}, {"/env/bin/", ""}, {"/bundle/bin/", ""},
}

// Roots with parts of more than one element.
const (
	goRoot    = "go/src"
	modRoot   = "pkg/mod"
	cargoRoot = "cargo"
	rustRoot  = "rust"
)

// libraryPackages are the beginnings of the functions of libraries of the JVM and of .NET, whose frames
// have no directory.
var libraryPackages = [...]string{
	"java.", "javax.", "jdk.", "sun.", "com.sun.", "kotlin.", "kotlinx.", "scala.", "groovy.", "clojure.", "org.junit.", "org.mockito.", "org.gradle.", "org.springframework.", "org.apache.", "org.postgresql.", "org.hibernate.",
	"org.eclipse.jetty.", "org.jboss.", "org.slf4j.", "ch.qos.logback.", "com.mysql.", "com.zaxxer.", "com.fasterxml.", "com.google.common.", "io.netty.", "io.vertx.", "io.quarkus.", "io.micrometer.", "reactor.", "okhttp3.", "System.", "Microsoft.",
}

// libraryOf returns the library that a frame belongs to. It reports false for the user's own code.
func libraryOf(file, function string) (library, bool) {
	if path, ok := cutGoRoot(file); ok {
		return libraryAt(goRoot, path), true
	}
	switch {
	case strings.HasPrefix(file, "node_modules/"):
		file = "/" + file
	case startsWith(file, "internal/process/", "internal/modules/", "internal/main/"): // Node before version 16
		file = "node:" + file
	case strings.HasPrefix(file, "webpack") && strings.Contains(file, "bootstrap"):
		return library{root: "webpack"}, true
	case strings.HasSuffix(file, ".go") && !strings.HasPrefix(file, "/") && strings.Contains(file, "@v"): // a program built with -trimpath
		return libraryAt(modRoot, file), true
	}
	for _, p := range libraryPaths {
		if i := strings.LastIndex(file, p.part); i >= 0 {
			rest := file[i+len(p.part):]
			if p.root == "" {
				return library{}, true
			}
			root := p.root
			if !strings.HasSuffix(p.part, "/") {
				name, below, _ := strings.Cut(rest, "/")
				root, rest = root+name, below
			}
			return libraryAt(root, rest), true
		}
	}
	for _, p := range libraryPackages {
		if strings.HasPrefix(function, p) {
			return library{root: strings.TrimSuffix(p, ".")}, true
		}
	}
	return library{}, false
}

// isLibraryCode reports whether a frame belongs to a runtime or a library rather than to the user's
// own code.
func isLibraryCode(file, function string) bool {
	_, ok := libraryOf(file, function)
	return ok
}

// libraryAt returns the library of a file at path below root.
func libraryAt(root, path string) library {
	dirs := strings.Split(path, "/")
	dirs = dirs[:len(dirs)-1]
	n := min(1, len(dirs))
	switch {
	case root == goRoot:
		n = len(dirs)
	case root == rustRoot: // the hash of a commit
		n = 0
	case root == cargoRoot && n > 0: // the name of the registry
		dirs, n = dirs[1:], min(1, len(dirs)-1)
	case root == modRoot:
		for n < len(dirs) && !strings.Contains(dirs[n-1], "@") {
			n++
		}
	case n > 0 && strings.HasPrefix(dirs[0], "@"): // the scope of a package of npm
		n = min(2, len(dirs))
	}
	return library{root, strings.Join(dirs[:n], "/")}
}

// goPackages are the directories of Go's standard library, with a blank on each side.
const goPackages = " archive bufio bytes cmd compress container context crypto database debug embed encoding errors expvar flag fmt go hash html image internal io iter log maps math mime net os path plugin reflect regexp runtime slices sort strconv strings sync syscall testing text time unicode unique vendor "

// cutGoRoot returns the path of a file of Go's standard library without the directory of Go:
// "net/http/server.go" for "/home/dev/sdk/go1.26.0/src/net/http/server.go". A program built with
// -trimpath prints only that path.
func cutGoRoot(file string) (path string, ok bool) {
	if !isGoFile(file) {
		return "", false
	}
	path = file
	if i := strings.LastIndex(file, "/src/"); i >= 0 {
		path = file[i+len("/src/"):]
		dir := file[strings.LastIndexByte(file[:i], '/')+1 : i]
		version := strings.TrimPrefix(strings.TrimPrefix(dir, "go"), "-")
		if dir != "go" && dir != "x64" && dir != "libexec" && (version == "" || !isDigit(version[0])) {
			return "", false
		}
	}
	top, _, below := strings.Cut(path, "/")
	return path, below && strings.Contains(goPackages, " "+top+" ")
}

// isGoFile reports whether a file of a stack can be one of Go, or of assembly.
func isGoFile(file string) bool { return endsWith(file, ".go", ".s") }

// LibraryFrames returns how many lines at the start of a text are the frames of libraries in a stack
// trace, how many frames these are, and the libraries that they name, at most maxLibraries of them:
// "python3.11/http" if all frames belong to it, else "python3.11", "site-packages". line returns the line with
// index i, and false after the last one.
func LibraryFrames(line func(i int) (text string, ok bool)) (lines, frames int, libraries []string) {
	var sub string
	for {
		lib, n := libraryFrameAt(func(i int) (string, bool) { return line(lines + i) })
		if n == 0 {
			break
		}
		if lib.root != "" && !slices.Contains(libraries, lib.root) {
			libraries = append(libraries, lib.root)
			sub = lib.sub
		} else if lib.sub != sub && lib.root != "" {
			sub = ""
		}
		lines, frames = lines+n, frames+1
	}
	if len(libraries) == 1 && sub != "" {
		libraries[0] += "/" + sub
	}
	return lines, frames, libraries[:min(len(libraries), maxLibraries)]
}

// maxLibraries is the maximum number of libraries that LibraryFrames names.
const maxLibraries = 3

// libraryFrameAt returns the library of the frame at the start of a text and the number of its lines, or
// 0 if the text starts with anything else.
func libraryFrameAt(text func(i int) (string, bool)) (lib library, lines int) {
	var first line
	at := func(i int) (l line, ok bool) { // a line of the program that printed the first one
		s, ok := text(i)
		lane, s := splitLane(s)
		if !ok || i > 0 && lane != first.lane {
			return line{}, false
		}
		return line{lane: lane, text: strings.TrimRight(s, " \t")}, true
	}
	first, _ = at(0)
	second, _ := at(1)
	p, function, lines := parseFrameAt(first, second)
	lib, isLibrary := libraryOf(p.file, function)
	if lines == 0 || !isLibrary && (p.file != "" || !isBuiltin(first.text)) {
		return lib, 0
	}
	if !strings.HasPrefix(first.trim(), `File "`) {
		return lib, lines
	}
	for ; ; lines++ { // the source below a frame of Python
		if l, ok := at(lines); !ok || l.indent() <= first.indent() && !strings.HasPrefix(l.trim(), "[Previous line repeated") {
			return lib, lines
		}
	}
}

// isBuiltin reports whether a frame without a file belongs to a function of the runtime.
func isBuiltin(text string) bool {
	return containsAny(text, "(<anonymous>)", "(native)", "(index ", "[internal function]")
}

// parseFrameAt parses a frame of any language, which takes one line or two.
func parseFrameAt(first, second line) (p position, function string, lines int) {
	t, below := first.trim(), second.trim()
	if q, f, ok := parsePythonFrame(t); ok {
		return q, f, 1
	}
	if q, rest, ok := parsePosition(t); ok && strings.HasPrefix(rest, " (0x") && strings.HasPrefix(second.text, "\t") { // a panic that Gin recovered
		return q, "", 2
	}
	if second.indent() > first.indent() {
		_, rest, numbered := parseNumber(t)
		q, after, ok := parsePosition(strings.TrimPrefix(below, "at "))
		switch {
		case ok && numbered && strings.HasPrefix(rest, ": ") && strings.HasPrefix(below, "at "): // Rust
			return q, "", 2
		case ok && isGoFile(q.file) && isGoCall(t) && (after == "" || strings.HasPrefix(after, " +0x")):
			return q, shortGoFunction(t), 2
		}
	}
	if q, f, ok := parseFrame(first); ok {
		return q, f, 1
	}
	if q, f, ok := parseSanitizerFrame(t); ok && first.indent() > 0 && q.file != "" {
		return q, f, 1
	}
	return position{}, "", 0
}

// isGoCall reports whether t is the line above a position in the stack of a goroutine.
func isGoCall(t string) bool {
	return startsWith(t, "created by ", "panic(") || strings.ContainsRune(t, '.') && !strings.ContainsRune(t, ':') && (strings.HasSuffix(t, ")") || !strings.ContainsRune(t, ' '))
}
