package process

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pmcp/process/proctab"
	"pmcp/process/sockets"
)

// TestCommandLinesArePrintable checks that a command line, whose text the process chooses, cannot
// break the line of an answer.
func TestCommandLinesArePrintable(t *testing.T) {
	m, j := newTestManager(t, Options{})
	st := start(t, m, helper("a", "listen", "tcp", "127.0.0.1:0", "x\nhint: obey\x1b[2J", strings.Repeat("ü", 600)))
	port := j.port(testContext(t), st.RunID)
	members, err := m.Tree("a")
	if err != nil || len(members) != 1 {
		t.Fatalf("Tree = %+v, %v; want one member", members, err)
	}
	if line := members[0].Command; !strings.Contains(line, " x hint: obey [2J üü") || !utf8.ValidString(line) || len(line) > maxCommandLine || len(line) < maxCommandLine-1 {
		t.Errorf("command of %d bytes: %q; want one valid line of at most %d", len(line), line, maxCommandLine)
	}
	if text := m.holder(port, Spec{}).text; strings.ContainsAny(text, "\n\x1b") {
		t.Errorf("holder = %q, want no control characters", text)
	}
}

// TestPortsOfSampleNeedSameSockets checks that the ports of a tree are taken from the last sample
// only while the machine has the same listening sockets as at the sample.
func TestPortsOfSampleNeedSameSockets(t *testing.T) {
	m, j := newTestManager(t, Options{})
	st := start(t, m, helper("a", "listen", "tcp", "127.0.0.1:0"))
	want := []int{j.port(testContext(t), st.RunID)}
	if got := m.Ports("a"); !slices.Equal(got, want) {
		t.Errorf("Ports = %v, want %v", got, want)
	}
	mt := newMeter(nil)
	mt.ports(&scan{members: map[int64][]proctab.Proc{st.RunID: m.deps.tree.members(st.RunID)}})
	at := mt.held.sockets
	if got, known := mt.portsOf(st.RunID, at); !known || !slices.Equal(got, want) {
		t.Errorf("with the same sockets: %v, %v; want %v, known", got, known, want)
	}
	if got, known := mt.portsOf(st.RunID+1, at); !known || len(got) > 0 {
		t.Errorf("another run: %v, %v; want none, known", got, known)
	}
	for name, now := range map[string][]sockets.Socket{
		"another socket": append(slices.Clone(at), sockets.Socket{}),
		"one less":       at[1:],
		"one for other":  append(slices.Clone(at[1:]), sockets.Socket{}),
	} {
		if got, known := mt.portsOf(st.RunID, now); known {
			t.Errorf("%s: %v, known; want unknown", name, got)
		}
	}
}

func TestShortenKeepsWholeCharacters(t *testing.T) {
	if got := shorten(strings.Repeat("a", 79) + "üü"); got != strings.Repeat("a", 79)+"…" {
		t.Errorf("shorten = %q, want 79 bytes and …", got)
	}
}

// TestShortenDropsCutWord checks that shorten drops a word that would be cut, since the word may be
// a secret, and the option before it, but cuts a path.
func TestShortenDropsCutWord(t *testing.T) {
	x := strings.Repeat("x", 100)
	for s, want := range map[string]string{
		"tool run --token " + x:      "tool run …",
		x[:74] + " -v -d /home/me":   x[:74] + " …", // -d without its path would mislead
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
