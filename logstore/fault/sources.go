package fault

import "strings"

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
