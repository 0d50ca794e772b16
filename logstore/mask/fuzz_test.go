package mask

import (
	"regexp"
	"strings"
	"testing"
)

// maskText matches a mask, named or made of stars.
var maskText = regexp.MustCompile(`\[masked [A-Za-z0-9_. -]+\]|\*+`)

// FuzzText checks that no masked text contains a learned value, that a text with nothing to mask is
// unchanged, and that the number of lines never changes.
func FuzzText(f *testing.F) {
	f.Add("hunter2-hunter2", "a hunter2-hunter2 b\nhunter2-hunter2")
	f.Add("AKIAIOSFODNN7EXAMPLE", "xAKIAIOSFODNN7EXAMPLEx eyJ.eyJ. -----BEGIN PRIVATE KEY-----")
	f.Add("two\nsecret lines", "://a:b@ two\nsecret lines Authorization: Bearer ")
	f.Add("a@b://c:d", "a@b://c:d@x")
	f.Fuzz(func(t *testing.T, secret, text string) {
		m := New()
		plain := m.Text(text)
		m.LearnEnv(map[string]string{"FUZZ_TOKEN": secret})
		learned := make([]string, 0, 4)
		for value := range m.known {
			learned = append(learned, value)
		}
		for _, given := range []string{text, text + secret, secret + text, text + secret + secret + text} {
			got := m.Text(given)
			if strings.Count(got, "\n") != strings.Count(given, "\n") {
				t.Errorf("%q: got %q, want as many lines", given, got)
			}
			for _, value := range learned {
				for _, rest := range maskText.Split(got, -1) {
					if strings.Contains(rest, value) {
						t.Errorf("%q: got %q, want it without %q", given, got, value)
					}
				}
			}
			if got == given {
				continue
			}
			if kept := maskText.FindString(got); kept == "" {
				t.Errorf("%q: got %q, want a mask for what was changed", given, got)
			}
		}
		if len(learned) == 0 && m.Text(text) != plain {
			t.Errorf("%q: got %q, want %q as before", text, m.Text(text), plain)
		}
		m.JSON([]byte(text))
		m.Clipped(text)
		m.LearnArgs(text, secret)
	})
}
