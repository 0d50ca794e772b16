package fault

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// TestClassifyFindsFirstGroup checks that classify returns the category of the first group of which
// the text contains a word, for texts made of recorded lines and of the groups' words.
func TestClassifyFindsFirstGroup(t *testing.T) {
	want := func(text string, test bool) string {
		for _, s := range categorySigns {
			if test && (s.category == CategoryType || s.category == CategorySyntax && (strings.Contains(text, "expect(") || strings.Contains(text, " expected"))) {
				continue
			}
			for _, w := range s.words {
				if strings.Contains(text, w) && !(test && w == "timed out") {
					return s.category
				}
			}
		}
		return CategoryOther
	}
	var texts []string
	for group, s := range categorySigns {
		for _, w := range s.words {
			if len(w) < 3 || len(signs().lists) > 256 || w != lowerASCII(w) {
				t.Fatalf("group %d: got the word %q in %d lists, want at least 3 bytes in lower case, and at most 256 lists", group, w, len(signs().lists))
			}
			texts = append(texts, w, w[1:], w[:len(w)-1])
		}
	}
	files, err := filepath.Glob("testdata/corpus/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d recordings, %v", len(files), err)
	}
	for _, file := range files {
		for _, l := range readRecording(t, file) {
			texts = append(texts, l.text)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i, message := range texts {
		hint := texts[rnd.IntN(len(texts))]
		for _, test := range []bool{false, true} {
			text := lowerASCII("Kind: " + cut(message, 1024) + "\n" + cut(hint, 512))
			if got := classify("Kind", message, hint, test, ""); got != want(text, test) {
				t.Fatalf("text %d: %q, hint %q, test %v: got %s, want %s", i, message, hint, test, got, want(text, test))
			}
		}
	}
}
