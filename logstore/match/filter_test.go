package match

import (
	"strings"
	"testing"
)

func TestFilterHasNoFalseNegatives(t *testing.T) {
	var f FilterBuilder
	text := []byte("The quick brown Fox jumps over the lazy dog, 日本語 \x00\xff and more.\n")
	for n := range text {
		bits := f.Build(text[:n])
		for i := range n {
			for j := i; j < n; j++ {
				for _, word := range [][]byte{text[i:j], []byte(strings.ToUpper(string(text[i:j])))} {
					if IsASCII(string(word)) && !MayContain(bits, requiredBits(word)) {
						t.Fatalf("the filter of %q excludes %q, want it to contain it", text[:n], word)
					}
				}
			}
		}
	}
	full := f.Build([]byte(strings.Repeat("some words that fill it ", 10)))
	if MayContain(full, requiredBits([]byte("absent"))) {
		t.Error("got a filter that may contain an absent word, want one that excludes it")
	}
}
