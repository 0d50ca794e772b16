package logstore

import (
	"strings"
	"testing"
	"time"
)

// TestErrorBehindAnUnfinishedLine: what follows a line that paused without its end is recognised as
// a line of its own, what follows a piece that was cut off for its length is not.
func TestErrorBehindAnUnfinishedLine(t *testing.T) {
	const traceback = "Traceback (most recent call last):\n  File \"/app/shop.py\", line 2, in forwards\n    raise LookupError(\"no model\")\nLookupError: no model\n"
	for name, c := range map[string]struct {
		parts       []string // an empty one is silence
		first, last int64    // of the error; 0: there is none
		levels      string   // of the lines
	}{
		"paused":         {[]string{"  Applying shop.0002_x...", "", traceback}, 2, 5, "05555"},
		"not paused":     {[]string{"  Applying shop.0002_x...", traceback}, 1, 4, "0005"},
		"paused twice":   {[]string{"  Applying", "", " shop.0002_x...", "", traceback}, 3, 6, "005555"},
		"goes well":      {[]string{"WARNING: waits for the error: ", "", "none\n", "ok\n"}, 0, 0, "440"},
		"a long line":    {[]string{strings.Repeat("x", maxLineBytes), "TypeError: no model\n"}, 0, 0, "00"},
		"a long pause":   {[]string{strings.Repeat("x", maxLineBytes), "y", "", "TypeError: no model\n"}, 0, 0, "000"},
		"long behind it": {[]string{"$ ", "", strings.Repeat("x", maxLineBytes), "TypeError: no model\n"}, 0, 0, "000"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, Options{})
			run := startRun(s, "/p", "web")
			for _, p := range c.parts {
				s.Capture(run, Stdout, time.Now(), []byte(p))
			}
			s.EndCapture(run)
			page, err := s.Read(t.Context(), Query{Project: "/p", Names: []string{"web"}})
			checkError(t, err)
			var text, levels strings.Builder
			for i, l := range page.Lines {
				if i > 0 && !l.Continuation {
					text.WriteByte('\n')
				}
				text.WriteString(l.Text)
				levels.WriteByte('0' + byte(l.Level))
			}
			if printed := strings.TrimSuffix(strings.Join(c.parts, ""), "\n"); text.String() != printed {
				t.Errorf("%.200q instead of %.200q", text.String(), printed)
			}
			if levels.String() != c.levels {
				t.Errorf("levels %s, want %s", levels.String(), c.levels)
			}
			all, _, err := s.Faults(t.Context(), FaultQuery{})
			checkError(t, err)
			switch {
			case c.first == 0 && len(all) > 0:
				t.Errorf("errors %+v", all)
			case c.first > 0 && (len(all) != 1 || all[0].Type != "LookupError" || all[0].Line != 2 || all[0].FirstLine != c.first || all[0].LastLine != c.last):
				t.Errorf("errors %+v, want one of lines %d to %d", all, c.first, c.last)
			}
		})
	}
}
