package logstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// readTexts returns the lines of a run, each with "+" before a continuation and "…" behind an unfinished line.
func readTexts(t *testing.T, s *Store, run int64) (all []string) {
	t.Helper()
	page, err := s.Read(t.Context(), Query{Runs: []int64{run}})
	checkError(t, err)
	for _, l := range page.Lines {
		text := l.Text
		if l.Continuation {
			text = "+" + text
		}
		if l.Partial {
			text += "…"
		}
		all = append(all, text)
	}
	return all
}

// TestSlowRedrawsAreNotStored checks that of a line and of a frame that are redrawn more slowly than an unfinished
// line waits, the first state and the last are stored.
func TestSlowRedrawsAreNotStored(t *testing.T) {
	s := openTest(t, Options{})
	at := time.Now().Add(time.Hour) // the tracker of silence sees no time pass
	for name, c := range map[string]struct {
		update, end string
		want        []string
	}{
		"line":  {"\r%d of 20", "\r%d of 20\n", []string{"1 of 20…", "20 of 20"}},
		"frame": {"\x1b[3A\x1b[2Ka %[1]d\n\x1b[2Kb %[1]d\n\x1b[2Kc %[1]d\n", "\x1b[3A\x1b[2Ka %[1]d\n\x1b[2Kb %[1]d\n\x1b[2Kc %[1]d\n", []string{"a 20", "b 20", "c 20"}},
	} {
		run := startRun(s, "/p", name)
		for i := 1; i < 20; i++ {
			s.Capture(run, Stdout, at, fmt.Appendf(nil, c.update, i))
			s.Capture(run, Stdout, at.Add(200*time.Millisecond), nil)
			at = at.Add(300 * time.Millisecond)
		}
		s.Capture(run, Stdout, at, fmt.Appendf(nil, c.end, 20))
		s.EndCapture(run)
		if got := readTexts(t, s, run); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestHeldLinesAreStored checks that lines that are held because they may be redrawn are stored after a while without
// redraws, before a stop, at the end of the first process, and when a caller asks for prompts.
func TestHeldLinesAreStored(t *testing.T) {
	t.Parallel()
	const frame = "\x1b[?25lone\ntwo\n"
	for name, store := range map[string]func(s *Store, run int64){
		"after a while": func(s *Store, run int64) {
			if _, err := s.WaitLine(t.Context(), run, 0, func(l Line) bool { return l.Text == "two" }); err != nil {
				t.Error(err)
			}
		},
		"with other output": func(s *Store, run int64) {
			s.Capture(run, Stdout, time.Now().Add(time.Minute), []byte("three"))
		},
		"before a stop": func(s *Store, run int64) {
			if s.StopBegan(run); s.ownRun(run).stopped != 2 {
				t.Error("got the lines after the stop, want them before")
			}
		},
		"at the end":          func(s *Store, run int64) { s.RunEnded(run, 0, "") },
		"for prompts":         func(s *Store, run int64) { s.StorePrompts(run, 0) },
		"at the last end":     func(s *Store, run int64) { s.EndCapture(run) },
		"at the Store's end":  func(s *Store, _ int64) { s.captureTable.endAll() },
		"with a crash's exit": func(s *Store, run int64) { s.RunEnded(run, 1, "") },
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, Options{})
			run := startRun(s, "/p", "web")
			s.Capture(run, Stdout, time.Now(), []byte(frame))
			if got := readTexts(t, s, run); len(got) > 0 {
				t.Fatalf("got %q, want no lines yet", got)
			}
			store(s, run)
			if got := readTexts(t, s, run); strings.Join(got, "|") != "one|two" {
				t.Errorf("got %q, want the two lines", got)
			}
		})
	}
}

// TestPromptAfterRedrawsIsStored checks that a prompt in a line that was redrawn is stored, although nothing follows.
func TestPromptAfterRedrawsIsStored(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	for _, text := range []string{"10%", "", "\r20%", "", "\r\x1b[KPassword: ", ""} {
		s.Capture(run, Stdout, time.Now(), []byte(text))
	}
	if _, err := s.WaitLine(t.Context(), run, 0, func(l Line) bool { return l.Text == "Password: " }); err != nil {
		t.Error(err)
	}
	if got := readTexts(t, s, run); strings.Join(got, "|") != "10%…|Password: …" {
		t.Errorf("got %q, want the first state and the prompt", got)
	}
}
