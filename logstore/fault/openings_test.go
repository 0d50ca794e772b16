package fault_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pmcp/logstore/fault"
	"pmcp/logstore/line"
)

// A sample is output of a program from a file in testdata, where its name follows "#### " and what is expected of it
// "=> ".
type sample struct {
	name, want string
	lines      []string
}

func samples(t *testing.T, file string) (list []sample) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq("\n"+string(text), "\n#### ") {
		if part == "" {
			continue
		}
		lines := strings.Split(strings.TrimRight(part, "\n"), "\n")
		s := sample{name: lines[0], lines: lines[1:]}
		if want, ok := strings.CutPrefix(s.lines[0], "=> "); ok {
			s.want, s.lines = want, s.lines[1:]
		}
		list = append(list, s)
	}
	return list
}

// faults returns the faults of the sample on one stream, with the levels that the store guesses.
func (s sample) faults(stream uint8, exit int) (list []fault.Fault) {
	rec := fault.New(func(f fault.Fault) { list = append(list, f) })
	for i, text := range s.lines {
		rec.Line(int64(i+1), stream, uint8(line.GuessLevel([]byte(text), stream == 1)), []byte(text))
	}
	rec.End(exit, "")
	return list
}

// first returns the fault that an answer shows first.
func first(faults []fault.Fault) (f fault.Fault) {
	if len(faults) == 0 {
		return f
	}
	rank := func(f fault.Fault) int {
		if f.IsConsequence() {
			return 1
		}
		return 0
	}
	return slices.MinFunc(faults, func(a, b fault.Fault) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.FirstLine, b.FirstLine), cmp.Compare(a.LastLine, b.LastLine))
	})
}

// TestOpeningsGiveTheFirstError checks that the first line of the first error of a failed run has the message that a
// person would name, and that the error has its place, whichever stream the tool prints it on. A name that ends in "stderr"
// is that of output of which standard error alone is recognised.
func TestOpeningsGiveTheFirstError(t *testing.T) {
	for _, s := range samples(t, "openings.txt") {
		want, place, _ := strings.Cut(s.want, " @ ")
		for stream, name := range []string{"stdout", "stderr"} {
			if stream == 0 && strings.HasSuffix(s.name, "stderr") {
				continue
			}
			f := first(s.faults(uint8(stream), 1))
			got, _, _ := strings.Cut(f.Message, "\n")
			at := strings.ReplaceAll(fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column), ":0", "")
			if !strings.Contains(got, want) || at != place {
				t.Errorf("%s, %s:\n got %s @ %s\nwant %s @ %s", s.name, name, got, at, want, place)
			}
		}
	}
}

// TestBenignOutputGivesNoFault checks that no error is seen in the output of programs that work, while they run and
// after they have exited with code 0, whichever stream they print it on.
func TestBenignOutputGivesNoFault(t *testing.T) {
	for _, s := range samples(t, "benign.txt") {
		for stream, name := range []string{"stdout", "stderr"} {
			for _, f := range s.faults(uint8(stream), 0) {
				t.Errorf("%s, %s: got %v, want none", s.name, name, asExpected(f))
			}
		}
	}
}

// TestErrorLevelOfLoggersIsAnError checks that a line at error level is an error while the program runs, in the forms of
// many loggers.
func TestErrorLevelOfLoggersIsAnError(t *testing.T) {
	text, err := os.ReadFile("testdata/loggers.txt")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		for stream := range uint8(2) {
			got := sample{lines: []string{"serving", strings.TrimSuffix(l, "\n"), "serving"}}.faults(stream, 0)
			if len(got) != 1 || !strings.Contains(got[0].Message, "boom goes the shop") {
				t.Errorf("stream %d, %q: got %+v, want one error", stream, l, got)
			}
		}
	}
}
