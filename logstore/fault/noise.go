package fault

import "strings"

// startNoise keeps what only sums up, repeats or follows from other errors from being one.
func startNoise(l line, _ *back, n *notes) shape {
	t := l.trim()
	n.summary(t)
	if strings.HasPrefix(t, mavenError) && (strings.HasSuffix(t, "<<< FAILURE!") || strings.HasSuffix(t, "<<< ERROR!")) {
		n.suite++
	}
	if strings.HasPrefix(l.text, " FAIL  ") {
		return nil // vitest's heading of a failure
	}
	if consequence(t) || n.suite > 0 && suiteSummary(t) {
		return ignored{}
	}
	return nil
}

// consequence tells whether a line says no more than that errors were reported before it, or that
// something failed by them.
func consequence(t string) bool {
	for _, start := range [...]string{
		"error: could not compile", "error: aborting due to", "For more information about ", "error: test failed", "error: doctest failed", "error: bench failed", "Some errors have detailed",
		"collect2: error: ld returned", "ld: symbol(s) not found", "clang: error: linker command failed", "compilation terminated", "Execution of ", "error Command failed", "ELIFECYCLE",
		"npm error Lifecycle script", "npm ERR! Lifecycle script", "> Build failed because", "\u2717 Build failed", "\u00d7 Build failed", "Build failed with", "Build failed in", "make: *** Waiting",
		"Test Suites:", "Tests:", "FAIL\t", "FAILED (", "FAIL:\t", "test result: FAILED", "Failed Tests ", "Failed Suites ", "exit status ", "error: compilation failed", "BEGIN failed--", "failed to load config from", "[nodemon] app crashed", "Failures:", "failures:",
		"The above exception was", "During handling of", "Build FAILED", "BUILD FAILED", "[ERROR] Failed to execute goal", "[ERROR] -> [Help", "[ERROR] Re-run Maven", "[ERROR] To see the full",
		"[ERROR] For more information", "[ERROR] COMPILATION ERROR", "[ERROR] [Help ", "[ERROR] Tests run: ", "[ERROR] There are test failures.", "[ERROR] See dump files (if any", "[ERROR] Please refer to dump files (if any", "FAILURE: Build failed with", "ERR_PNPM_RECURSIVE", "SUMMARY: ", "ERROR: \"", "error Command \"", "Node.js v",
	} {
		if strings.HasPrefix(t, start) {
			return true
		}
	}
	switch t {
	case "FAIL", "FAILED", "[ERROR]", "[ERROR] Failures:", "[ERROR] Errors:", "ERROR", "Error", "fatal", "error":
		return true
	}
	if strings.HasPrefix(t, mavenError) && strings.HasSuffix(t, " for the individual test results.") {
		return true
	}
	return strings.HasPrefix(t, "FAIL ") && (strings.HasSuffix(t, "s)") || isFileOrPlace(firstWord(strings.TrimSpace(t[5:])))) && !strings.Contains(t, " > ") ||
		strings.HasPrefix(t, "\u23af\u23af") || strings.HasPrefix(t, "test ") && strings.HasSuffix(t, " FAILED") || counted(t)
}

// suiteSummary tells whether a line of a test runner names a failure that it has reported.
func suiteSummary(t string) bool {
	return (strings.HasPrefix(t, "FAILED ") || strings.HasPrefix(t, "ERROR ")) && strings.Contains(firstWord(t[strings.IndexByte(t, ' ')+1:]), ".py") ||
		strings.HasPrefix(t, "# fail") || strings.HasPrefix(t, "Error: Process completed") || mavenFailure(t)
}

// mavenError is what Maven puts in front of a line of an error.
const mavenError = "[ERROR]"

// mavenFailure tells whether a line is one of those by which Maven lists the failed tests at the end:
// "[ERROR]   AppTest.adds:12 expected".
func mavenFailure(t string) bool {
	rest, ok := strings.CutPrefix(t, mavenError+"   ")
	class, at, found := strings.Cut(firstWord(rest), ":")
	return ok && found && class != "" && isUpper(class[0]) && strings.Contains(class, ".") && at != "" && isDigit(at[0])
}

// counted tells whether a line counts errors: "2 errors", "Found 3 errors in 2 files", "compiled
// with 1 error in 30 ms", "make: *** [x] Error 1" does not.
func counted(t string) bool {
	lower := lowered(t)
	for _, word := range [...]string{" error", " failed", " failure", " problem", " data race"} {
		for from := 0; ; {
			i := strings.Index(lower[from:], word)
			if i < 0 {
				break
			}
			i += from
			from = i + 1
			start := i
			for start > 0 && isDigit(lower[start-1]) {
				start--
			}
			if start < i && counts(lower[:start]) {
				if countEnds(t[i+1:], lower[i+len(word):]) {
					return true
				}
			}
		}
	}
	return false
}

// harmless tells whether a line speaks of errors without there being one.
func harmless(t string) bool {
	lower := lowered(cut(t, 400))
	for _, phrase := range [...]string{
		"no error", "0 error", "without error", "zero error", "error: null", "error: none", "error: undefined", "error: false", "error: false alarm", "error: 0", "error: nil", "error=null", "error=nil", "error=0", "error=false",
		"error=none", "errors=0", "errors: 0", "error: \"\"", "error=\"\"", "error count: 0", "errors found: 0", "no failures", "0 failed", "0 failures", "failed: 0", "failed=0", "failures: 0", "failures=0", "error rate: 0", "ignoring error",
	} {
		i := strings.Index(lower, phrase)
		if i < 0 {
			continue
		}
		if phrase[0] == '0' && i > 0 && (isDigit(lower[i-1]) || lower[i-1] == '.') {
			continue
		}
		if end := i + len(phrase); phrase[len(phrase)-1] == '0' && end < len(lower) && (isDigit(lower[end]) || lower[end] == 'x') {
			continue
		}
		if !valueEnds(phrase, lower[i+len(phrase):]) {
			continue
		}
		return true
	}
	return ofHandling(t, lower) || consequence(strings.TrimLeft(t, " \t"))
}

// valueEnds tells whether the value for "no error", if a phrase ends in one, ends where the phrase
// does: "error: null" tells of none, "error: null value in column" of one.
func valueEnds(phrase, rest string) bool {
	switch phrase[strings.LastIndexAny(phrase, ":= ")+1:] {
	case "null", "none", "undefined", "false", "nil":
	default:
		return true
	}
	if rest == "" || rest == "." || strings.IndexByte(",;)}]\"'", rest[0]) >= 0 {
		return true
	}
	return strings.Contains(phrase, "=") && strings.IndexByte(" \t", rest[0]) >= 0 // the next key=value follows
}

// ofHandling tells whether a line, given in lower case as well, speaks of what handles errors: one
// that states the level of an error, or says what went wrong behind a colon, does not.
func ofHandling(t, lower string) bool {
	if _, stated := statement(t); stated {
		return false
	}
	for _, phrase := range [...]string{"error handling", "error handler", "error reporting", "error page", "error boundary"} {
		if _, rest, ok := strings.Cut(lower, phrase); ok && !strings.Contains(strings.TrimPrefix(rest, ": "), ": ") {
			return true
		}
	}
	return false
}

// countEnds tells whether a counted word ends like one: word and what follows it, in the original
// case and in lower case.
func countEnds(word, rest string) bool {
	if rest == "" || strings.IndexByte("s,.);", rest[0]) >= 0 {
		return true
	}
	for _, w := range [...]string{"(s)", " in ", " found", " generated", " (", " and ", " |", ":"} {
		if strings.HasPrefix(rest, w) {
			return !isUpper(word[0])
		}
	}
	return false
}

// counts tells whether what stands before a number introduces a count.
func counts(before string) bool {
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

// startMake knows what make says: that there is no rule, or that a command failed, which matters
// only if the command said nothing.
func startMake(l line, _ *back, n *notes) shape {
	if !strings.HasPrefix(l.text, "make") {
		return nil
	}
	_, message, ok := strings.Cut(l.text, ": *** ")
	if !ok {
		return nil
	}
	if strings.HasPrefix(message, "[") && n.seen.fatal > 0 && l.number-n.seen.fatal <= explainLines {
		return ignored{}
	}
	d := single(l)
	d.fallback, d.fatal, d.f.Type = CategoryBuild, true, "make"
	d.at(mentioned(strings.TrimPrefix(message, "[")))
	d.say(message)
	return d
}
