package fault

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// TestKeywords holds the matcher against the plain way to search.
func TestKeywords(t *testing.T) {
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
		t.Fatalf("%d words in %d lists", len(words)/2, len(keywords.lists))
	}
	for _, w := range words { // at every place, before and behind anything
		for before := range 9 {
			for after := range 9 {
				texts = append(texts, strings.Repeat("x", before)+w+strings.Repeat("y", after), strings.Repeat("x", before)+w[:len(w)-1]+strings.Repeat("y", after))
			}
		}
	}
	for _, s := range texts {
		want := slices.ContainsFunc(words, func(w string) bool { return strings.Contains(fold(s), fold(w)) })
		if got := keywords.in([]byte(s)); got != want {
			t.Errorf("%q: %v", s, got)
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

// FuzzOpen holds the bound on what is open at once, and on what awaits confirmation.
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
					t.Fatalf("%d open", len(r.streams[i].open))
				}
				for _, u := range r.streams[i].open {
					if h, ok := u.shape.(holder); ok && len(h.unclaimed()) > maxHeld {
						t.Fatalf("%d held", len(h.unclaimed()))
					}
				}
			}
		}
		r.End(1, "")
		for i := range r.streams {
			if len(r.streams[i].open) > 0 {
				t.Fatal("open after the end")
			}
		}
	})
}

// FuzzNormal holds that normalising is bounded and leaves nothing that changes from one occurrence to the next.
func FuzzNormal(f *testing.F) {
	f.Add("job 12 failed at 0x55 in /tmp/x/y.go:3")
	f.Fuzz(func(t *testing.T, s string) {
		if n := normal(s); len(n) > 4*len(s)+16 {
			t.Fatalf("%d bytes of %d", len(n), len(s))
		}
		position(s)
		header(s)
		mentioned(s)
		body(s)
		splitLane(s)
	})
}

// TestLowered holds that indexes in the lowered text fit the text: strings.ToLower makes some letters longer.
func TestLowered(t *testing.T) {
	for _, s := range []string{"", "abc", "ABC", "ȺȺȺ 3 ERRORS", "\xff\xfe 2 Errors", "İ x"} {
		if got := lowered(s); len(got) != len(s) || !strings.EqualFold(strings.ToValidUTF8(got, ""), strings.ToValidUTF8(s, "")) {
			t.Errorf("%q: %q", s, got)
		}
	}
	New(func(Fault) {}).Line(1, 1, 5, []byte("ȺȺȺȺȺȺȺȺȺȺ found 3 ERRORS"))
}
