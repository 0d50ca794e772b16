package fault

import "strings"

// noise ignores lines that only summarise or repeat other errors, or that follow from other errors.
var noise = row{
	words: []string{"error", "fail", "data race"},
	start: func(b *block, l line) verdict {
		t, n := l.trim(), b.notes
		n.readSummary(t)
		if strings.HasPrefix(t, mavenError) && (strings.HasSuffix(t, "<<< FAILURE!") || strings.HasSuffix(t, "<<< ERROR!")) {
			n.suiteFailures++
		}
		heading := strings.HasPrefix(l.text, " FAIL  ") // vitest's heading of a failure
		if !heading && (isConsequence(t) || n.suiteFailures > 0 && isSuiteSummary(t) || b.repeatsStep(t)) {
			return ignored
		}
		return foreign
	},
}

// repeatsStep reports whether a line is one that BuildKit repeats after its step has failed.
func (b *block) repeatsStep(t string) bool {
	if _, ok := cutSeconds(t); !ok {
		return false
	}
	for i := range recentLines {
		if l, ok := b.above.line(i); !ok || strings.HasPrefix(l.text, " > [") {
			return ok
		}
	}
	return false
}

// consequences are the first words of the lines for which isConsequence is true.
var consequences = newPrefixes(
	"error: could not compile", "error: aborting due to", "For more information about ", "error: test failed", "error: doctest failed", "error: bench failed", "Some errors have detailed",
	"collect2: error: ld returned", "ld: symbol(s) not found", "clang: error: linker command failed", "compilation terminated", "Execution of ", "error Command failed", "ELIFECYCLE",
	"npm error Lifecycle script", "npm ERR! Lifecycle script", "> Build failed because", "\u2717 Build failed", "\u00d7 Build failed", "Build failed with", "Build failed in", "make: *** Waiting",
	"Test Suites:", "Tests:", "FAIL\t", "FAILED (", "FAIL:\t", "test result: FAILED", "Failed Tests ", "Failed Suites ", "exit status ", "error: compilation failed", "error: Type checking failed", "BEGIN failed--", "failed to load config from", "[nodemon] app crashed", "Failures:", "failures:",
	"The above exception was", "During handling of", "Build FAILED", "BUILD FAILED", "[ERROR] Failed to execute goal on ", "[ERROR] -> [Help", "[ERROR] Re-run Maven", "[ERROR] To see the full",
	"[ERROR] For more information", "[ERROR] COMPILATION ERROR", "[ERROR] [Help ", "[ERROR] Tests run: ", "[ERROR] There are test failures.", "[ERROR] See dump files (if any", "[ERROR] Please refer to dump files (if any", "FAILURE: Build failed with", "ERR_PNPM_RECURSIVE", "SUMMARY: ", "ERROR: \"", "ERROR: process \"", "error Command \"", "Node.js v",
)

// isConsequence reports whether a line states only that errors were reported before it, or that
// something failed because of such errors.
func isConsequence(t string) bool {
	if strings.HasPrefix(t, "[ERROR] Failed to execute goal on ") && strings.Contains(t, "Could not resolve dependencies") || strings.HasSuffix(t, "\" not found.") {
		return false // no other line of the output of Maven or Yarn reports this error
	}
	if consequences.startsWith(t) {
		return true
	}
	switch t {
	case "FAIL", "FAILED", "[ERROR]", "[ERROR] Failures:", "[ERROR] Errors:", "ERROR", "Error", "fatal", "error":
		return true
	}
	if strings.HasPrefix(t, mavenError) && strings.HasSuffix(t, " for the individual test results.") {
		return true
	}
	return strings.HasPrefix(t, "FAIL ") && (strings.HasSuffix(t, "s)") || isFileOrPosition(firstWord(strings.TrimSpace(t[5:])))) && !strings.Contains(t, " > ") ||
		strings.HasPrefix(t, "\u23af\u23af") || strings.HasPrefix(t, "test ") && strings.HasSuffix(t, " FAILED") || isErrorCount(t)
}

// isSuiteSummary reports whether a line of a test runner repeats a failure that the runner has
// already reported.
func isSuiteSummary(t string) bool {
	return (strings.HasPrefix(t, "FAILED ") || strings.HasPrefix(t, "ERROR ")) && strings.Contains(firstWord(t[strings.IndexByte(t, ' ')+1:]), ".py") ||
		strings.HasPrefix(t, "# fail") || strings.HasPrefix(t, "Error: Process completed") || isMavenFailure(t)
}

// mavenError is the prefix of Maven's error lines.
const mavenError = "[ERROR]"

// isMavenFailure reports whether a line is an entry of Maven's final list of failed tests: "[ERROR]
// AppTest.adds:12 expected".
func isMavenFailure(t string) bool {
	rest, ok := strings.CutPrefix(t, mavenError+"   ")
	class, at, found := strings.Cut(firstWord(rest), ":")
	return ok && found && class != "" && isUpper(class[0]) && strings.Contains(class, ".") && at != "" && isDigit(at[0])
}

// isErrorCount reports whether a line counts errors: "2 errors", "Found 3 errors in 2 files",
// "compiled with 1 error in 30 ms". "make: *** [x] Error 1" is not a count.
func isErrorCount(t string) bool {
	for i := 0; ; i++ {
		next := strings.IndexByte(t[i:], ' ')
		if next < 0 {
			return false
		}
		if i += next; i == 0 || !isDigit(t[i-1]) || i+1 == len(t) || strings.IndexByte("efpd", t[i+1]|0x20) < 0 {
			continue
		}
		rest, ok := cutPrefix(lowerASCII(t[i:]), " error", " failed", " failure", " problem", " data race")
		if ok && introducesCount(lowerASCII(strings.TrimRight(t[:i], "0123456789"))) && endsCount(t[i+1:], rest) {
			return true
		}
	}
}

// isHarmless reports whether a line mentions errors without reporting one.
func isHarmless(t string) bool {
	if isPassedTest(t) || isCommit(t) {
		return true
	}
	lower := lowerASCII(cut(t, 400))
	if !strings.Contains(lower, "error") && !strings.Contains(lower, "fail") { // as each phrase does
		return isConsequence(strings.TrimLeft(t, " \t"))
	}
	for _, phrase := range [...]string{
		"no error", "0 error", "without error", "zero error", "error: null", "error: none", "error: undefined", "error: false", "error: false alarm", "error: 0", "error: nil", "error=null", "error=nil", "error=0", "error=false",
		"error=none", "errors=0", "errors: 0", "error: \"\"", "error=\"\"", "error count: 0", "errors found: 0", "no failures", "0 failed", "0 failures", "failed: 0", "failed=0", "failures: 0", "failures=0", "error rate: 0", "ignoring error",
	} {
		before, after, ok := strings.Cut(lower, phrase)
		inNumber := phrase[0] == '0' && strings.TrimRight(before, "0123456789.") != before ||
			phrase[len(phrase)-1] == '0' && strings.TrimLeft(after, "0123456789x") != after
		if ok && !inNumber && endsValue(phrase, after) {
			return true
		}
	}
	return isAboutHandling(t, lower) || isConsequence(strings.TrimLeft(t, " \t"))
}

// isCommit reports whether a line is one of a list of commits: a short name, and the subject.
func isCommit(t string) bool {
	name := firstWord(t)
	return len(name) >= 7 && len(name) <= 10 && strings.Trim(name, "0123456789abcdef") == "" && strings.ContainsAny(name, "0123456789") && strings.ContainsAny(name, "abcdef") &&
		!isErrorCapitals(strings.Trim(firstWord(strings.TrimLeft(t[len(name):], " ")), "[]:"))
}

// endsValue reports whether a value such as null or none at the end of phrase is complete, given
// the text after the phrase. "error: null" means no error, but "error: null value in column" is an
// error.
func endsValue(phrase, rest string) bool {
	switch phrase[strings.LastIndexAny(phrase, ":= ")+1:] {
	case "null", "none", "undefined", "false", "nil":
	default:
		return true
	}
	if rest == "" || rest == "." || strings.IndexByte(",;)}]\"'", rest[0]) >= 0 {
		return true
	}
	return strings.Contains(phrase, "=") && strings.IndexByte(" \t", rest[0]) >= 0 // another key=value follows
}

// isAboutHandling reports whether a line is about error handling rather than an error. A line with
// an error level, or with a reason after a colon, is an error. lower is t in lower case.
func isAboutHandling(t, lower string) bool {
	if _, stated := cutLogPrefix(t); stated {
		return false
	}
	for _, phrase := range [...]string{"error handling", "error handler", "error reporting", "error page", "error boundary"} {
		if _, rest, ok := strings.Cut(lower, phrase); ok && !strings.Contains(strings.TrimPrefix(rest, ": "), ": ") {
			return true
		}
	}
	return false
}

// endsCount reports whether a counted word, given the text after it, is the end of a count. word is
// in its original case, rest in lower case.
func endsCount(word, rest string) bool {
	if rest == "" || strings.IndexByte("s,.);", rest[0]) >= 0 {
		return true
	}
	return !isUpper(word[0]) && startsWith(rest, "(s)", " in ", " found", " generated", " (", " and ", " |", ":")
}

// introducesCount reports whether the text before a number introduces a count.
func introducesCount(before string) bool {
	before = strings.TrimRight(before, " ")
	if before == "" || strings.IndexByte("(|,=", before[len(before)-1]) >= 0 {
		return true
	}
	switch before[strings.LastIndexByte(before, ' ')+1:] {
	case "found", "with", "tests", "files", "suites:", "tests:", "passed,", "\u2716", "\u00d7", "and":
		return true
	default:
		return false
	}
}

// makeError is an error of make: a missing rule, or a command that failed. A failed command gives a
// fault only if the command itself reported no error.
var makeError = row{
	opens: []string{"make%: *** %"}, kind: "make", fallback: CategoryBuild, fatal: true,
	start: func(b *block, l line) verdict {
		message := b.texts[1]
		if explained := b.notes.emitted.fatal; strings.HasPrefix(message, "[") && (b.notes.isFatalOpen || explained > 0 && l.number-explained <= explainLines) {
			return ignored
		}
		b.setPosition(firstSourcePosition(strings.TrimPrefix(message, "[")))
		b.appendMessage(message)
		return takenLast
	},
}
