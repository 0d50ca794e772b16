package fault

import "strings"

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
