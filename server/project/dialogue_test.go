package project

import (
	"strings"
	"testing"

	"pmcp/logstore"
)

// TestEchoIsTakenFromOutput checks what is left of the output after the echo of an input.
func TestEchoIsTakenFromOutput(t *testing.T) {
	for name, c := range map[string]struct {
		echo  echo
		lines []string // a "+" at the end marks an unfinished line
		want  string   // what is left; "-" for a line that was all echo
	}{
		"terminal":             {echo{[]string{"Ada"}, true, "Name: "}, []string{"Ada", "hello Ada"}, "-|hello Ada"},
		"in parts":             {echo{[]string{"Ada"}, true, ""}, []string{"A+", "da", "Ada"}, "-|-|Ada"},
		"with output":          {echo{[]string{"y"}, true, ""}, []string{"yes"}, "es"},
		"several lines":        {echo{[]string{"a", "b"}, true, ""}, []string{"a", "b", "a"}, "-|-|a"},
		"output first":         {echo{[]string{"Ada"}, true, ""}, []string{"late", "Ada"}, "late|Ada"},
		"program":              {echo{[]string{"Ada"}, false, ""}, []string{"Ada", "Ada"}, "-|Ada"},
		"program, line again":  {echo{[]string{"Ada"}, false, "Name: "}, []string{"Name: Ada", "Name: Ada"}, "-|Name: Ada"},
		"no echo":              {echo{[]string{"y"}, false, "Sure? "}, []string{"yes, it is done", "y"}, "yes, it is done|y"},
		"nothing was written":  {echo{nil, true, ""}, []string{"", "x"}, "|x"},
		"an empty line before": {echo{[]string{"a"}, true, ""}, []string{"", "a"}, "|a"},
	} {
		var left []string
		for _, text := range c.lines {
			text, partial := strings.CutSuffix(text, "+")
			rest, wasEcho := c.echo.without(&logstore.Line{Text: text, Partial: partial})
			if wasEcho {
				rest = "-" + rest
			}
			left = append(left, rest)
		}
		if got := strings.Join(left, "|"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	e := echo{[]string{"Ada"}, true, ""}
	if text, wasEcho := e.without(&logstore.Line{Text: "Ada", Stream: logstore.Stderr}); text != "Ada" || wasEcho {
		t.Errorf("another stream: got %q, %v; want it unchanged", text, wasEcho)
	}
}

// TestStepsMatchWithinLines checks where a step matches, and that what follows the match is
// searched by the next step.
func TestStepsMatchWithinLines(t *testing.T) {
	for _, c := range []struct {
		expect string
		regex  bool
		text   string
		want   int
	}{
		{"Name", false, "? Name: ", 6}, {"name", false, "? Name: ", -1}, {"(.*)", false, "x", -1}, {"a.c", true, "xabc", 4}, {"^abc$", true, "xabc", -1}, {"$", true, "abc", 3},
	} {
		s := Step{Expect: c.expect, Regex: c.regex}
		if err := s.check(); err != nil {
			t.Fatal(err)
		}
		if got := s.match(c.text); got != c.want {
			t.Errorf("%q in %q: got %d, want %d", c.expect, c.text, got, c.want)
		}
	}
	d := dialogue{rest: map[uint8]string{}, lines: []outputLine{{"A: B: ", 0, false}, {"err", 1, false}, {"C: ", 0, true}, {"next", 0, false}}}
	for _, want := range []struct {
		expect string
		found  bool
	}{{"A: ", true}, {"B: C: ", true}, {"err", true}, {"A", false}, {"next", true}, {"next", false}} {
		if got := d.find(&Step{Expect: want.expect}); got != want.found {
			t.Errorf("%q: got %v, want %v", want.expect, got, want.found)
		}
	}
}
