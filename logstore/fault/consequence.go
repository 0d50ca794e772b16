package fault

import "strings"

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
