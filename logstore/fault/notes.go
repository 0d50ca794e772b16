package fault

import "strings"

// notes is what the shapes of a run remember from line to line while none of them is open. All of it is bounded.
type notes struct {
	// seen is what was emitted, as far as it explains what comes later.
	seen seen
	// lint is the file whose diagnostics follow, lintLine the number of the last of them.
	lint     string
	lintLine int64
	// test is the test whose output follows in go test -v or in cargo test; logs are the lines that tests logged.
	test string
	logs testLogs
	// suite counts the failures of test runners: their summaries repeat them.
	suite int
	// repeats tells that a test runner prints what it has printed before once more.
	repeats bool
	// inline tells that Node's test runner printed an error below its test since its last summary;
	// placed that this summary says where its tests are.
	inline, placed bool
	// failing tells that mocha lists its failures.
	failing bool
	// phpunit tells that PHPUnit lists its failures.
	phpunit bool
	// watch asks that so many of the lines that follow are looked at although they hold no keyword.
	watch int
}

// summary notes where a test runner begins to print its failures once more, and where jest ends it.
// Since 2025 Node prints an error in the summary only, before that below its test as well.
func (n *notes) summary(t string) {
	switch {
	case strings.HasPrefix(t, "Summary of all failing tests"):
		n.repeats = true
	case strings.HasPrefix(t, "Test Suites:"):
		n.repeats = false
	case t == "\u2716 failing tests:":
		n.repeats, n.inline, n.placed = n.inline, false, false
	}
}

// repeated tells whether an error of that indentation was printed before. One below its test,
// without a place above, where the summary gives the places, is of the next round.
func (n *notes) repeated(indent int, b *back) bool {
	if indent == 0 {
		return false
	}
	above, _ := b.line(0)
	if strings.HasPrefix(above.trim(), "\u2716 ") && above.indent()+2 == indent {
		before, _ := b.line(1)
		switch {
		case strings.HasPrefix(before.text, "test at "):
			n.placed = true
		case !n.repeats || n.placed:
			n.repeats, n.inline = false, true
		}
	}
	return n.repeats
}

// starter begins a shape if l starts it.
type starter func(l line, b *back, n *notes) shape

// certainStarters gives the starts that cannot be anything else, in the order in which they are tried.
func certainStarters() []starter {
	return []starter{
		startNodeEnd, startRolldown, startTurbopack, startGoTestOutput, startPHPUnit, startNoise, startJSON, startPython, startPythonGroup, startGoPanic, startGinPanic, startChiPanic, startGoTest, startRustPanic, startRustTest, startRustc,
		startSanitizer, startPytest, startDoctest, startJest, startVitest, startMochaList, startMocha, startRSpec, startGradleTest, startTAP, startESLint, startBundler, startNpm, startMake, startTcl, startRuby,
		startPHP, startDiagnostic, startLinker, startNative, startUnittest,
	}
}

// uncertainStarters gives those that are tried after them.
func uncertainStarters() []starter {
	return []starter{startTrace, startRails, startPerl, startShell, startLogfmt, startDotnetLog, startPlain}
}

// done is a fault of one line that is complete at once.
type done struct{ one }

func (d *done) next(line) verdict { return ended }

// single makes a complete fault of one line.
func single(l line) *done {
	d := &done{}
	d.start(l)
	return d
}

// ignored is a shape without a fault: a line that is none of an error's business.
type ignored struct{}

func (ignored) next(line) verdict { return ended }
func (ignored) drafts() []*draft  { return nil }
func (ignored) patience() int     { return 0 }
