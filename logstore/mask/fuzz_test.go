package mask

import (
	"regexp"
	"strings"
	"testing"
)

// maskText matches what stands in place of a secret.
var maskText = regexp.MustCompile(`\[masked [A-Za-z0-9_. -]+\]|\*+`)

// FuzzText: a value that was learned is in no masked text, and a text without anything to mask is
// not changed; neither is the number of its lines.
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
				t.Errorf("%q became %q: other lines", given, got)
			}
			for _, value := range learned {
				for _, rest := range maskText.Split(got, -1) {
					if strings.Contains(rest, value) {
						t.Errorf("%q became %q, which holds %q", given, got, value)
					}
				}
			}
			if got == given {
				continue
			}
			if kept := maskText.FindString(got); kept == "" {
				t.Errorf("%q became %q", given, got)
			}
		}
		if len(learned) == 0 && m.Text(text) != plain {
			t.Errorf("%q became %q", text, m.Text(text))
		}
		m.JSON([]byte(text))
		m.Clipped(text)
		m.LearnArgs(text, secret)
	})
}
