package fault

import (
	"strconv"
	"strings"
)

// explainLines is how many lines before the end of a run a fault may lie that explains its bad exit.
const explainLines = 200

// lastWordLines is how many lines of standard error are searched for the reason of a bad end.
const lastWordLines = 16

// explainNear is the same for a fault that need not end a program.
const explainNear = 20

// seen remembers of the faults emitted what tells whether they explain the end of the run.
type seen struct {
	// fatal and broken are the last lines of the last fault that ends a program, and of the last
	// that ends it by a signal; 0 = there was none.
	fatal, broken int64
	// any is the last line of the last fault.
	any int64
	// lanes are the last fatal faults, each with its lane.
	lanes [8]laneEnd
	next  int
}

// laneEnd is where the last line of a fault is.
type laneEnd struct {
	stream uint8
	lane   string
	line   int64
}

// since tells whether a fault that ends a program ended in l's lane on line number or after it.
func (k *seen) since(l line, number int64) bool {
	for _, e := range k.lanes {
		if e.stream == l.stream && e.lane == l.lane && e.line >= number {
			return true
		}
	}
	return false
}

func (k *seen) note(f *Fault, lane string, fatal bool) {
	k.any = max(k.any, f.LastLine, 1)
	if fatal {
		k.fatal = max(k.fatal, f.LastLine, 1)
		k.lanes[k.next%len(k.lanes)] = laneEnd{f.Stream, lane, f.LastLine}
		k.next++
		if f.Category == CategoryCrash || f.Category == CategoryOutOfMemory || f.Category == CategoryAssertion {
			k.broken = max(k.broken, f.LastLine, 1)
		}
	}
}

// End says that the run is over and its output complete: all that is open is emitted, and after it
// a fault for a bad end that none of the run's last faults explains. signal is the name of the
// signal that ended the run ("SIGSEGV"), else "". A run that somebody stopped on purpose is ended
// with (0, ""). An end by SIGTERM, SIGINT or SIGHUP (or 128 plus their numbers) is none of the
// program's faults.
func (r *Recogniser) End(exitCode int, signal string) {
	for i := range r.streams {
		r.closeAll(&r.streams[i], true)
	}
	if exitCode == 0 && signal == "" || asked(exitCode, signal) {
		return
	}
	if signal == "" {
		signal = signalOf(exitCode)
	}
	explained := r.notes.seen.fatal
	if signal != "" && signal != "SIGABRT" {
		explained = r.notes.seen.broken
	}
	if explained > 0 && r.at-explained <= explainLines {
		return
	}
	if seen := r.notes.seen.any; signal == "" && seen > 0 && r.at-seen <= explainNear {
		return
	}
	r.send([]*draft{r.crash(exitCode, signal)})
}

func asked(exitCode int, signal string) bool {
	switch signal {
	case "SIGTERM", "SIGINT", "SIGHUP", "terminated", "interrupt", "hangup":
		return true
	case "":
		return exitCode == 130 || exitCode == 143 || exitCode == 129
	default:
		return false
	}
}

// signalOf reads the exit code by which shells tell of a signal.
func signalOf(exitCode int) string {
	switch exitCode - 128 {
	case 4:
		return "SIGILL"
	case 6:
		return "SIGABRT"
	case 7:
		return "SIGBUS"
	case 8:
		return "SIGFPE"
	case 9:
		return "SIGKILL"
	case 11:
		return "SIGSEGV"
	default:
		return ""
	}
}

// How the type and the message of a bad end begin.
const (
	exitType   = "exit code "
	exitedWith = "exited with code "
	endedBy    = "ended by "
)

// AtEnd tells by the Type and Message of a Fault whether it is the bad end of a run, which comes
// after all that the run printed: its FirstLine and LastLine are only of the run's last words.
func AtEnd(typ, message string) bool {
	how := endedBy + typ
	if code, ok := strings.CutPrefix(typ, exitType); ok {
		how = exitedWith + code
	}
	rest, ok := strings.CutPrefix(message, how)
	return ok && typ != "" && (rest == "" || rest[0] == ':' || rest[0] == ' ')
}

// crash is the fault of a bad end; the last thing that the run said on standard error is the best reason there is.
func (r *Recogniser) crash(exitCode int, signal string) *draft {
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
	d.say(what)
	if l, ok := r.lastWords(); ok {
		d.start(l)
		d.f.Message += ": " + cut(l.trim(), MaxMessage/2)
		if file, rest, ok := strings.Cut(l.trim(), ": line "); ok && isFile(file) { // a shell
			if row, _, ok := number(rest); ok {
				d.at(place{file: file, line: row})
			}
		}
		d.at(mentioned(l.trim()))
		d.push(l.text)
		return d
	}
	d.f.FirstLine, d.f.LastLine = r.at, r.at
	return d
}

// lastWords gives the line of standard error that says most of why the run ended: of the last ones
// one that says what is wrong, else the first without indentation after a blank line, else the last
// of all.
func (r *Recogniser) lastWords() (l line, ok bool) {
	b := &back{stream: &r.streams[1], all: true, before: r.at + 1}
	for i := range lastWordLines {
		if p, more := b.line(i); more && p.number > r.notes.seen.any && !p.stated() && p.indent() == 0 && complains(p.text) {
			p.stream = 1
			return p, true
		}
	}
	for i := range lastWordLines {
		p, more := b.line(i)
		if !more || ok && strings.TrimSpace(p.text) == "" {
			return l, ok
		}
		if p.trim() != "" && !p.stated() && (!ok || p.indent() == 0) && p.number > r.notes.seen.any {
			l, l.stream, ok = p, 1, true
		}
	}
	return l, ok
}

// complains tells whether a line says in words that something is wrong.
func complains(t string) bool {
	t = " " + lowered(t)
	for _, w := range [...]string{" couldn't ", " could not ", " cannot ", " can't ", " invalid ", " unknown ", " unable to ", " missing ", " must ", "*** ", " required", " unexpected "} {
		if strings.Contains(t, w) {
			return true
		}
	}
	return false
}
