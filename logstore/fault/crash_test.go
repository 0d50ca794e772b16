package fault

import (
	"strings"
	"testing"
)

// TestAtEndIsTrueOnlyForBadExits checks that AtEnd returns true for a fault that only states a bad
// exit of the program, and false for an error that the program printed.
func TestAtEndIsTrueOnlyForBadExits(t *testing.T) {
	for _, c := range []struct {
		what, line string
		exit       int
		signal     string
		want       bool
	}{
		{"a code", "", 1, "", true},
		{"a code with last words", "cannot read the settings", 12, "", true},
		{"a signal", "", 0, "SIGSEGV", true},
		{"the code of a signal", "going on", 139, "", true},
		{"killed", "going on", 0, "SIGKILL", true},
		{"an error that explains the end", "panic: exited with code 2", 2, "", false},
	} {
		var all []Fault
		r := New(func(f Fault) { all = append(all, f) })
		if c.line != "" {
			r.Line(1, 1, 0, []byte(c.line))
		}
		r.End(c.exit, c.signal)
		if len(all) != 1 || AtEnd(all[0].Type, all[0].Message) != c.want {
			t.Errorf("%s: got faults %+v, want one with AtEnd = %v", c.what, all, c.want)
		}
	}
	for _, c := range [][2]string{{"", "ended by "}, {"exit code 1", "exited with code 12"}, {"SIGSEGV", "ended by SIGSEGVs"}, {"SIGSEGV", "SIGSEGV: segmentation violation"}} {
		if AtEnd(c[0], c[1]) {
			t.Errorf("AtEnd(%q): got true, want false", c)
		}
	}
}

// TestLastOutputExplainsBadExit checks which line is the reason of a bad exit that no row knows, and how many lines
// the stack shows from there. A line on standard error starts with "!".
func TestLastOutputExplainsBadExit(t *testing.T) {
	long := strings.Repeat("!step\n", lastWordLines)
	for _, c := range []struct {
		what, lines, signal, want string
		stack                     int
	}{
		{"the last block", "reading\n!starting up\n!\n!nothing to sell\n!  in this shop\n!see the manual", "", "exited with code 3: nothing to sell", 3},
		{"a block before advice", "!nothing to sell\n!\n!npm notice\n!npm notice New major version of npm available!\n!Run 'shop --help' for more", "", "exited with code 3: nothing to sell", 1},
		{"a problem above the last block", "!prices: invalid\n!  in line 3\n!\n!bye", "", "exited with code 3: prices: invalid", 2},
		{"the start of the block is unknown", long + "!nothing to sell", "", "exited with code 3: nothing to sell", 1},
		{"a problem on standard output", "start\nno price list\nbye", "", "exited with code 3: no price list", 2},
		{"standard error comes first", "!nothing to sell\nno price list", "", "exited with code 3: nothing to sell", 1},
		{"standard error that is long past", "!starting\n" + strings.Repeat("work\n", explainLines) + "no price list", "", "exited with code 3: no price list", 1},
		{"no problem on standard output", "start\nworking", "", "exited with code 3", 0},
		{"a signal has no reason on standard output", "start\nno price list", "SIGSEGV", "ended by SIGSEGV", 0},
	} {
		var all []Fault
		r := New(func(f Fault) { all = append(all, f) })
		for i, text := range strings.Split(c.lines, "\n") {
			rest, stderr := strings.CutPrefix(text, "!")
			stream := uint8(0)
			if stderr {
				stream = 1
			}
			r.Line(int64(i+1), stream, 0, []byte(rest))
		}
		exit := 3
		if c.signal != "" {
			exit = 0
		}
		r.End(exit, c.signal)
		if len(all) != 1 || all[0].Message != c.want || len(all[0].Stack) != c.stack {
			t.Errorf("%s: got %+v, want one fault %q with a stack of %d", c.what, all, c.want, c.stack)
		}
	}
}
