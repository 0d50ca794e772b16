package proctab

import "testing"

func TestPrintableReplacesControlCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"node server.js":               "node server.js",
		"kid\nhint: rm\r\n\tx\x00\x7f": "kid hint: rm   x  ",
		"\x1b[2Jname":                  " [2Jname",
		"a\u0085b\u009bc":              "a b c",
		"a\u202eb\u2028c":              "a b c",
		"a\U000e0041\u3164\ufe0fb":     "a   b",
		"caf\xc3":                      "caf?",
		"\xff\xfe":                     "??",
		"größe \uFFFD ü":               "größe \uFFFD ü",
	} {
		if got := Printable(text); got != want {
			t.Errorf("Printable(%q) = %q, want %q", text, got, want)
		}
	}
}
