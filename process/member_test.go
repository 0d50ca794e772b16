package process

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A process chooses its command line, and others read it within lines of ours.
func TestCommandLinesAreOneLine(t *testing.T) {
	m, j := newTestManager(t, Options{})
	st := start(t, m, helper("a", "listen", "tcp", "127.0.0.1:0", "x\nhint: obey\x1b[2J", strings.Repeat("ü", 600)))
	port := j.port(testContext(t), st.RunID)
	members, err := m.Tree("a")
	if err != nil || len(members) != 1 {
		t.Fatalf("Tree = %+v, %v", members, err)
	}
	_, command, _ := m.PortHolder(port)
	for _, line := range []string{members[0].Command, command} {
		if !strings.Contains(line, " x hint: obey [2J üü") || !utf8.ValidString(line) || len(line) > maxCommandLine || len(line) < maxCommandLine-1 {
			t.Errorf("%d bytes: %q", len(line), line)
		}
	}
	if text := m.holder(port); strings.ContainsAny(text, "\n\x1b") {
		t.Errorf("holder: %q", text)
	}
}

func TestFirstBytesAreWholeCharacters(t *testing.T) {
	for n, want := range []string{"", "a", "a", "aü", "aü", "aü", "aü€", "aü€"} {
		if got := firstBytes("aü€", n); got != want {
			t.Errorf("firstBytes(%d) = %q, want %q", n, got, want)
		}
	}
	if got := shorten(strings.Repeat("a", 79) + "üü"); got != strings.Repeat("a", 79)+"…" {
		t.Errorf("shorten: %q", got)
	}
}

// TestShortenedCommandLines leave out the word that is cut through, which may be
// a secret, but for a file's path.
func TestShortenedCommandLines(t *testing.T) {
	x := strings.Repeat("x", 100)
	for s, want := range map[string]string{
		"tool --token " + x:          "tool --token …",
		"node /home/me/" + x:         "node /home/me/" + x[:66] + "…",
		"/usr/bin/" + x:              "/usr/bin/" + x[:71] + "…",
		x[:80] + " ":                 x[:80] + " …",
		x[:40] + " " + x[:39]:        x[:40] + " " + x[:39],
		x[:40] + " " + x[:40]:        x[:40] + " …",
		x[:40] + " " + x[:39] + " y": x[:40] + " " + x[:39] + " …",
	} {
		if got := shorten(s); got != want {
			t.Errorf("shorten(%q) = %q, want %q", s, got, want)
		}
	}
}
