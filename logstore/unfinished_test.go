package logstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pmcp/logstore/line"
)

// TestErrorAfterUnfinishedLineIsRecognised checks that text after an unfinished line and a pause is
// recognised as a line of its own, and that the rest of a line that was cut for its length is not.
func TestErrorAfterUnfinishedLineIsRecognised(t *testing.T) {
	t.Parallel()
	const traceback = "Traceback (most recent call last):\n  File \"/app/shop.py\", line 2, in forwards\n    raise LookupError(\"no model\")\nLookupError: no model\n"
	for name, c := range map[string]struct {
		parts       []string // an empty part is silence
		first, last int64    // first and last line of the error; 0 for none
		levels      string   // the levels of the lines
	}{
		"paused":         {[]string{"  Applying shop.0002_x...", "", traceback}, 2, 5, "05555"},
		"not paused":     {[]string{"  Applying shop.0002_x...", traceback}, 1, 4, "0005"},
		"paused twice":   {[]string{"  Applying", "", " shop.0002_x...", "", traceback}, 3, 6, "005555"},
		"no error":       {[]string{"WARNING: waits for the error: ", "", "none\n", "ok\n"}, 0, 0, "440"},
		"a long line":    {[]string{strings.Repeat("x", line.MaxLineBytes), "TypeError: no model\n"}, 0, 0, "00"},
		"a long pause":   {[]string{strings.Repeat("x", line.MaxLineBytes), "y", "", "TypeError: no model\n"}, 0, 0, "000"},
		"long behind it": {[]string{"$ ", "", strings.Repeat("x", line.MaxLineBytes), "TypeError: no model\n"}, 0, 0, "000"},
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
				t.Errorf("got text %.200q, want %.200q", text.String(), printed)
			}
			if levels.String() != c.levels {
				t.Errorf("got levels %s, want %s", levels.String(), c.levels)
			}
			all, _, err := s.Faults(t.Context(), FaultQuery{})
			checkError(t, err)
			switch {
			case c.first == 0 && len(all) > 0:
				t.Errorf("got errors %+v, want none", all)
			case c.first > 0 && (len(all) != 1 || all[0].Type != "LookupError" || all[0].Line != 2 || all[0].FirstLine != c.first || all[0].LastLine != c.last):
				t.Errorf("got errors %+v, want one of lines %d to %d", all, c.first, c.last)
			}
		})
	}
}

// TestStorePromptsStoresUnfinishedLines checks that StorePrompts stores the unfinished lines of each
// stream once they are old enough, and that what follows continues them.
func TestStorePromptsStoresUnfinishedLines(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	texts := func() string {
		page, err := s.Read(t.Context(), Query{Runs: []int64{run}})
		checkError(t, err)
		var all []string
		for _, l := range page.Lines {
			all = append(all, fmt.Sprintf("%s %v %v", l.Text, l.Partial, l.Continuation))
		}
		return strings.Join(all, "|")
	}
	if silent := s.StorePrompts(run, 0); silent < 365*24*time.Hour {
		t.Errorf("before any output: got a silence of %v, want a long one", silent)
	}
	s.Capture(run, Stdout, time.Now(), []byte("line\nName: "))
	s.Capture(run, Stderr, time.Now(), []byte("Password: "))
	if silent := s.StorePrompts(run, time.Hour); silent < 0 || silent > 10*time.Minute || texts() != "line false false" {
		t.Errorf("got %s and a silence of %v, want no prompt yet", texts(), silent)
	}
	const prompts = "line false false|Name:  true false|Password:  true false"
	for range 2 {
		if s.StorePrompts(run, 0); texts() != prompts {
			t.Errorf("got %s, want %s", texts(), prompts)
		}
	}
	s.Capture(run, Stdout, time.Now(), []byte("Ada\nok\n"))
	if want := prompts + "|Ada false true|ok false false"; texts() != want {
		t.Errorf("got %s, want %s", texts(), want)
	}
	s.EndCapture(run)
	s.StorePrompts(run, 0)
	if silent := s.StorePrompts(1<<40, 0); silent < 365*24*time.Hour {
		t.Errorf("unknown run: got a silence of %v, want a long one", silent)
	}
}
