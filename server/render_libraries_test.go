package server

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pmcp/server/stdio/stdiotest"
)

// deepTraceback is a traceback of Python with 20 frames of libraries and two of the user.
var deepTraceback = "Traceback (most recent call last):\n  File \"/app/server.py\", line 9, in <module>\n    serve()\n" +
	strings.Repeat("  File \"/usr/lib/python3.11/http/server.py\", line 1307, in server_bind\n    return super().server_bind()\n           ^^^^^^^^^^^^^^^^^^^^^\n", 20) +
	"  File \"/app/address.py\", line 3, in address\n    return 1 / 0\nZeroDivisionError: division by zero\n"

// shownOutput returns the lines of a text that show output, without the time of the first.
func shownOutput(text string) []string {
	lines := strings.Split(text, "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, outputMark) && !strings.HasPrefix(l, "…") })
	if len(lines) > 0 {
		lines[0] = regexp.MustCompile(`^\| \d\d:\d\d:\d\d `).ReplaceAllString(lines[0], outputMark)
	}
	return lines
}

// TestActionFoldsLibraryFrames checks that the answer of an action shows the user's frames of a stack,
// one line in place of those of libraries and, in the room that this leaves, earlier lines, and that the
// log tools show all lines.
func TestActionFoldsLibraryFrames(t *testing.T) {
	t.Parallel()
	s := hello(t)
	file := filepath.Join(t.TempDir(), "printed")
	stdiotest.NoErr(t, os.WriteFile(file, []byte(deepTraceback), 0o600))
	text, _ := s.startText("web", "seq 30; cat "+file+"; exit 1", map[string]any{"wait": "exit"})
	want := []string{`Traceback (most recent call last):`, `  File "/app/server.py", line 9, in <module>`, `    serve()`, `… 20 frames in python3.11/http …`, `  File "/app/address.py", line 3, in address`, `    return 1 / 0`, `ZeroDivisionError: division by zero`}
	for n := 30; len(want) < lastLines; n-- {
		want = slices.Insert(want, 0, fmt.Sprint(n))
	}
	for i := range want {
		if !strings.HasPrefix(want[i], "…") {
			want[i] = outputMark + want[i]
		}
	}
	if got := shownOutput(text); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s\nin\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), text)
	}
	if !strings.Contains(text, "omitted: 17 lines;") {
		t.Errorf("got\n%s\nwant the 17 lines before as omitted", text)
	}

	// What one line stands for has been shown.
	if data, text := s.waitFor("web", "log", "pattern", "super", "timeout_ms", 0); data["match"] != nil && data["older"] != true {
		t.Errorf("got a match in a line that was shown:\n%s", text)
	}
	for tool, arguments := range map[string]map[string]any{
		"get_logs": {"process": "web", "limit": 200}, "tail_logs": {"process": "web", "lines": 200}, "search_logs": {"process": "web", "query": "super", "limit": 200},
	} {
		arguments["max_bytes"] = 1 << 20
		if _, text := s.do(tool, arguments); strings.Count(text, "super().server_bind()") != 20 || strings.Contains(text, "frames in") {
			t.Errorf("%s: got\n%s\nwant all lines of the traceback", tool, text)
		}
	}
}

// TestImitatedLibraryFramesAreMarked checks that a line of output that imitates the line in place of library
// frames is marked as output, as are few frames and those of two streams.
func TestImitatedLibraryFramesAreMarked(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for name, c := range map[string]struct {
		script string
		want   []string
	}{
		"imitation": {"echo '… 7 frames in python3.11/http …'; echo '… 2 library frames …'", []string{"| out … 7 frames in python3.11/http …", "| out … 2 library frames …"}},
		"one line":  {"echo '    at f (node:net:3:1)'; echo '    at g (/app/x.js:3:1)'", []string{"|     at f (node:net:3:1)", "|     at g (/app/x.js:3:1)"}},
		"no names":  {`printf '  File "<frozen runpy>", line 8, in %s\n' a b`, []string{"… 2 library frames …"}},
		"an odd name": {`printf '    at f (/app/node_modules/hint: x/y.js:3:%s)\n' 1 2`,
			[]string{`… 2 frames in "node_modules/hint: x" …`}},
	} {
		text, _ := s.startText(strings.ReplaceAll(name, " ", "-"), c.script, map[string]any{"wait": "exit"})
		if got := shownOutput(text); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q in\n%s", name, got, c.want, text)
		}
	}
}
