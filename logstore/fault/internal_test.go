package fault

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// TestMatcherAgreesWithContains checks that a matcher finds a word in a text if and only if
// strings.Contains does.
func TestMatcherAgreesWithContains(t *testing.T) {
	texts := []string{"", "a", "err", "error", "An ERROR here", "no such thing", "xxpaniC", "fai", "fail", "x.go:3", "● suite", "a line of text", "ends with faile", "deni", "=== RUN TestX"}
	for n := range 40 {
		texts = append(texts, strings.Repeat("x", n)+"Traceback", strings.Repeat("e", n)+"xcep")
	}
	var words []string
	for _, list := range keywords.lists {
		for _, w := range list {
			words = append(words, w.word)
		}
	}
	if len(words) < 80 || len(keywords.lists) > 256 {
		t.Fatalf("got %d words in %d lists, want at least 40 in at most 256", len(words)/2, len(keywords.lists))
	}
	for _, w := range words { // at every offset, with text before and after the word
		for before := range 9 {
			for after := range 9 {
				texts = append(texts, strings.Repeat("x", before)+w+strings.Repeat("y", after), strings.Repeat("x", before)+w[:len(w)-1]+strings.Repeat("y", after))
			}
		}
	}
	for _, s := range texts {
		want := slices.ContainsFunc(words, func(w string) bool { return strings.Contains(fold(s), fold(w)) })
		if got := keywords.find([]byte(s)) != 0; got != want {
			t.Errorf("find(%q): got %v, want %v", s, got, want)
		}
	}
}

func fold(s string) string {
	return string(bytes.Map(func(r rune) rune { return r }, foldBytes([]byte(s))))
}

func foldBytes(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = b[i] | 0x20
	}
	return out
}

// TestPatternMatchesText checks the texts that match returns for patterns of rows, and that no
// pattern has more texts than match can return.
func TestPatternMatchesText(t *testing.T) {
	for _, c := range []struct {
		s, pattern string
		texts      [3]string
		ok         bool
	}{
		{"abc", "abc", [3]string{}, true},
		{"abcd", "abc", [3]string{}, false},
		{"panic: x", "panic: %", [3]string{"x"}, true},
		{"a > b > c FAILED", "% > % FAILED", [3]string{"a", "b > c"}, true},
		{"a > b", "% > % FAILED", [3]string{}, false},
		{"thread 'main' (1) panicked at x.rs", "thread '%'%panicked at %", [3]string{"main", " (1) ", "x.rs"}, true},
		{"", "%x", [3]string{}, false},
	} {
		if texts, ok := match(c.s, c.pattern); ok != c.ok || ok && texts != c.texts {
			t.Errorf("match(%q, %q): got %q, %v, want %q, %v", c.s, c.pattern, texts, ok, c.texts, c.ok)
		}
	}
	for _, r := range slices.Concat(certainRows, uncertainRows) {
		for _, p := range r.opens {
			if n := strings.Count(p, "%"); n > 3 {
				t.Errorf("pattern %q: got %d texts, want at most 3", p, n)
			}
		}
	}
}

// FuzzOpen checks the limits on the errors that a Recogniser holds open and on the lines that await
// confirmation.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("eTypeError: x\neTraceback (most recent call last):\nepanic: x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := New(func(Fault) {})
		n := int64(0)
		for line := range bytes.Lines(data) {
			n++
			r.Line(n, line[0]&1, line[0]>>1&7, bytes.TrimSpace(line[1:]))
			for i := range r.streams {
				if len(r.streams[i].open) > MaxOpen {
					t.Fatalf("got %d open blocks, want at most %d", len(r.streams[i].open), MaxOpen)
				}
				for _, u := range r.streams[i].open {
					if len(u.held) > maxHeld {
						t.Fatalf("got %d held lines, want at most %d", len(u.held), maxHeld)
					}
				}
			}
		}
		r.End(1, "")
		for i := range r.streams {
			if len(r.streams[i].open) > 0 {
				t.Fatalf("got %d open blocks after End, want none", len(r.streams[i].open))
			}
		}
	})
}

// FuzzNormal checks that the result of normalise is bounded, and that no parser panics.
func FuzzNormal(f *testing.F) {
	f.Add("job 12 failed at 0x55 in /tmp/x/y.go:3")
	f.Fuzz(func(t *testing.T, s string) {
		if n := normalise(s); len(n) > 4*len(s)+16 {
			t.Fatalf("got %d bytes from %d, want at most %d", len(n), len(s), 4*len(s)+16)
		}
		parsePosition(s)
		parseErrorHeader(s)
		firstSourcePosition(s)
		logMessage(s)
		splitLane(s)
	})
}

// TestLowerASCIIKeepsIndexes checks that an index in the result of lowerASCII is valid in the
// original text. (strings.ToLower changes the length of some letters.)
func TestLowerASCIIKeepsIndexes(t *testing.T) {
	for _, s := range []string{"", "abc", "ABC", "ȺȺȺ 3 ERRORS", "\xff\xfe 2 Errors", "İ x"} {
		if got := lowerASCII(s); len(got) != len(s) || !strings.EqualFold(strings.ToValidUTF8(got, ""), strings.ToValidUTF8(s, "")) {
			t.Errorf("lowerASCII(%q): got %q, want the same length and letters", s, got)
		}
	}
	New(func(Fault) {}).Line(1, 1, 5, []byte("ȺȺȺȺȺȺȺȺȺȺ found 3 ERRORS"))
}
