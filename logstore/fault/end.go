package fault

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// explainLines is the number of lines before the end of a run within which a fatal fault explains a
// bad exit.
const explainLines = 200

// lastWordLines is the number of lines of standard error that are searched for the reason of a bad
// exit.
const lastWordLines = 16

// explainNearLines is the same as explainLines, but for faults that do not have to end a program.
const explainNearLines = 20

// emittedFaults records which emitted faults explain the end of the run.
type emittedFaults struct {
	// fatal is the last line of the latest fault that ends a program, crash the last line of the
	// latest fault that can end a program by a signal. Both are 0 if there was no such fault.
	fatal, crash int64
	// uncaught is the last line of the latest error that nothing caught, or 0.
	uncaught int64
	// latest is the last line of the latest fault.
	latest int64
	// lanes holds the most recent fatal faults, each with its lane.
	lanes [8]laneEnd
	next  int
}

// laneEnd is the position of the last line of a fault.
type laneEnd struct {
	stream uint8
	lane   string
	line   int64
}

// fatalSince reports whether a fatal fault in l's stream and lane ended at line number or later.
func (k *emittedFaults) fatalSince(l line, number int64) bool {
	for _, e := range k.lanes {
		if e.line > 0 && e.stream == l.stream && e.lane == l.lane && e.line >= number {
			return true
		}
	}
	return false
}

func (k *emittedFaults) record(f *Fault, d *draft) {
	lane := d.from
	k.latest = max(k.latest, f.LastLine, 1)
	if d.isUncaught(f) {
		k.uncaught = max(k.uncaught, f.LastLine, 1)
	}
	if d.fatal {
		k.fatal = max(k.fatal, f.LastLine, 1)
		k.lanes[k.next%len(k.lanes)] = laneEnd{f.Stream, lane, f.LastLine}
		k.next++
		if f.Category == CategoryCrash || f.Category == CategoryOutOfMemory || f.Category == CategoryAssertion {
			k.crash = max(k.crash, f.LastLine, 1)
		}
	}
}

// isUncaught reports whether f, which d describes, is an error that nothing caught: a runtime has printed it,
// which prints its stack.
func (d *draft) isUncaught(f *Fault) bool {
	return d.fatal && d.test == "" && (d.site.found && f.Category != CategoryBuild || f.Category == CategoryCrash || f.Type == uncaughtValue)
}

// End marks the end of the run, whose output is complete. It emits all open errors. If the run
// ended badly and no recent fault explains that, End also emits a fault for the bad exit. signal is
// the name of the signal that ended the run ("SIGSEGV"), or "". For a run that was stopped on
// purpose, the caller passes (0, ""). An end by SIGTERM, SIGINT or SIGHUP (or with an exit code of
// 128 plus the number of one of these signals) is not a fault.
//
// End reports whether the run crashed: a signal ended it or a program that it ran, or its output ends with
// an error that nothing caught. Other runs that ended badly chose their exit code.
func (r *Recogniser) End(exitCode int, signal string) (crashed bool) {
	for i := range r.streams {
		r.closeAll(&r.streams[i], true)
	}
	if exitCode == 0 && signal == "" || isStopRequest(exitCode, signal) {
		return false
	}
	signal = cmp.Or(signal, signalOfExitCode[exitCode])
	uncaught := r.notes.emitted.uncaught
	crashed = signal != "" || uncaught > 0 && r.lastLine-uncaught <= explainNearLines
	explained := r.notes.emitted.fatal
	if signal != "" && signal != "SIGABRT" {
		explained = r.notes.emitted.crash
	}
	if explained > 0 && r.lastLine-explained <= explainLines {
		return crashed
	}
	if seen := r.notes.emitted.latest; signal == "" && seen > 0 && r.lastLine-seen <= explainNearLines {
		return crashed
	}
	r.emitDrafts([]*draft{r.exitFault(exitCode, signal)})
	return crashed
}

func isStopRequest(exitCode int, signal string) bool {
	if signal == "" {
		return exitCode == 130 || exitCode == 143 || exitCode == 129
	}
	return slices.Contains([]string{"SIGTERM", "SIGINT", "SIGHUP", "terminated", "interrupt", "hangup"}, signal)
}

// signalOfExitCode maps the exit code with which a shell reports a crash to the signal.
var signalOfExitCode = map[int]string{132: "SIGILL", 134: "SIGABRT", 135: "SIGBUS", 136: "SIGFPE", 137: "SIGKILL", 139: "SIGSEGV"}

// The prefixes of the type (exitType) and of the message of a bad exit.
const (
	exitType   = "exit code "
	exitedWith = "exited with code "
	endedBy    = "ended by "
)

// AtEnd reports whether the Type and Message of a Fault are those of a bad exit. The Fault of a bad
// exit follows all output of the run; its FirstLine and LastLine only point to the last output.
func AtEnd(typ, message string) bool {
	how := endedBy + typ
	if code, ok := strings.CutPrefix(typ, exitType); ok {
		how = exitedWith + code
	}
	rest, ok := strings.CutPrefix(message, how)
	return ok && typ != "" && (rest == "" || rest[0] == ':' || rest[0] == ' ')
}

// exitFault returns the fault of a bad exit. The last output that describes a problem serves as its
// reason: no row knows it, so it is a guess.
func (r *Recogniser) exitFault(exitCode int, signal string) *draft {
	d := &draft{fatal: true, fallback: CategoryCrash}
	d.f.Stream = 1
	d.f.Type = signal
	what := endedBy + signal
	if signal == "" {
		d.f.Type = exitType + strconv.Itoa(exitCode)
		what = exitedWith + strconv.Itoa(exitCode)
	}
	if signal == "SIGKILL" {
		what += " (killed from outside, or by the system for want of memory)"
	}
	d.appendMessage(what)
	words := r.lastWords(1)
	if len(words) == 0 && signal == "" {
		words = r.lastWords(0)
	}
	if len(words) == 0 {
		d.f.FirstLine, d.f.LastLine = r.lastLine, r.lastLine
		return d
	}
	text := words[0].trim()
	d.start(words[0])
	d.f.Message += ": " + cut(text, MaxMessage/2)
	d.setPosition(shellPosition(text))
	d.setPosition(firstSourcePosition(text))
	for _, l := range words {
		d.add(l)
	}
	return d
}

// lastWords returns the lines of a stream that best explain the end of the run: the latest block between
// blank lines that describes a problem, from the line that does. Otherwise it is the last block of standard error,
// or its last line if the start of the block is unknown. What a program prints last on standard output is mostly
// what it was doing.
func (r *Recogniser) lastWords(stream uint8) (words []line) {
	lines := r.latestLines(stream)
	whole := len(lines) < lastWordLines
	for len(lines) > 0 {
		start := len(lines) - 1
		for start > 0 && (lines[start-1].trim() != "" || lines[start].indent() > 1) {
			start--
		}
		block := outermost(lines[start:])
		if i := slices.IndexFunc(block, line.describesProblem); i >= 0 {
			return block[i:]
		}
		if start == 0 && !whole {
			block = block[max(0, len(block)-1):]
		}
		if len(words) == 0 && stream == 1 {
			words = block
		}
		lines = lines[:max(0, start-1)]
	}
	return words
}

// latestLines returns the last lines of a stream that no fault explains, without those that explain nothing.
func (r *Recogniser) latestLines(stream uint8) (lines []line) {
	above := &lookback{stream: &r.streams[stream], all: true, before: r.lastLine + 1}
	for i := range lastWordLines {
		l, ok := above.line(i)
		if !ok || l.number <= r.notes.emitted.latest || r.lastLine-l.number >= explainLines {
			break
		}
		if !l.belowError() && !isAdvice(l.trim()) && !isConsequence(l.trim()) {
			l.stream = stream
			lines = append(lines, l)
		}
	}
	slices.Reverse(lines)
	return lines
}

// outermost returns the lines from the first with the least indentation.
func outermost(block []line) []line {
	first := 0
	for i, l := range block {
		if l.trim() != "" && l.indent() < block[first].indent() {
			first = i
		}
	}
	return block[first:]
}

// isAdvice reports whether a line only says what to do or to read next.
func isAdvice(t string) bool {
	return startsWith(t, "npm notice", "(See ", "See ", "Run ", "Try ", "For more ", "Pass --", "Use --", "hint: ", "info Visit ")
}

// describesProblem reports whether a line states an error level or describes a problem in words.
func (l line) describesProblem() bool {
	return l.level >= levelError || containsAny(" "+lowerASCII(l.text)+" ", " couldn't ", " could not ", " cannot ", " can't ", " invalid ", " unknown ", " unable to ", " missing ", " must ", "*** ", " required", " unexpected ",
		" already ", " don't ", " not ", " no ", " bad ", " unbound ", " refused", " denied", " failed")
}

// IsConsequence reports whether an error only states that a command or a script failed, which
// another error explains if there is one: "make: *** [all] Error 1", "Command failed", a bad exit.
func (f *Fault) IsConsequence() bool {
	if AtEnd(f.Type, f.Message) || f.Type == "make" && strings.HasPrefix(f.Message, "[") {
		return true
	}
	first, _, _ := strings.Cut(f.Message, "\n")
	return containsAny(lowerASCII(cut(first, MaxStackLine)),
		"command failed", "subcommand failed", "lifecycle script", "exited with ", "exit status ", "exit code ", "exit value ", "process didn't exit successfully",
		"failed to run custom build command", "build command failed", "could not compile", "error occurred prerendering page")
}

// Stopping reports to the Recogniser that the run is being stopped on purpose. From then on an error
// that only states the signal of the stop, such as Python's KeyboardInterrupt, is none.
func (r *Recogniser) Stopping() {
	if !r.stopping {
		r.stopping, r.stoppedAt = true, r.lastLine
	}
}

// isInterrupt reports whether an error only states that a signal interrupted the program, or a
// program that it ran.
func (f *Fault) isInterrupt() bool {
	switch f.Type[strings.LastIndexByte(f.Type, '.')+1:] {
	case "KeyboardInterrupt", "CancelledError", "Interrupt", "SignalException", "SIGKILL":
		return true
	}
	first, _, _ := strings.Cut(f.Message, "\n")
	if f.IsConsequence() && endsWith(strings.TrimRight(first, "."), " 130", " 137", " 143") { // 128 plus the signal's number
		return true
	}
	return containsAny(lowerASCII(cut(first, MaxStackLine)), "signal: interrupt", "signal: terminated", "signal: killed", "sigint", "sigterm", "sigkill")
}

// watcherLines is the number of the last lines of a stream in which a watcher may say that it waits.
const watcherLines = 3

// watcherWaits matches what a watcher prints when its program has failed: node --watch, deno, nodemon, dotnet watch,
// cargo watch, watchexec, air, and those that run go.
var watcherWaits = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\bwaiting for (a file to change|(a )?(file )?changes?\b)|\brestarting on file change|^Failed running '|^\[Finished running\. Exit status: [1-9]|^\[Command exited with [1-9]|^failed to build, error:|^exit status [1-9]\d*$`)
})

// Failing reports whether the output so far ends with an error that ends a program, or with what a watcher prints
// about the end of its program.
func (r *Recogniser) Failing() bool {
	if fatal := r.notes.emitted.fatal; fatal > 0 && r.lastLine-fatal <= explainNearLines {
		return true
	}
	for i := range r.streams {
		b := &lookback{stream: &r.streams[i], all: true, before: r.lastLine + 1}
		for n := range watcherLines {
			if l, ok := b.line(n); ok && r.lastLine-l.number < watcherLines && watcherWaits().MatchString(l.trim()) {
				return true
			}
		}
	}
	return false
}
