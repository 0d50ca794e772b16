package fault

import "testing"

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
