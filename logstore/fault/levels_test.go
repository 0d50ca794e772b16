package fault

import (
	"strings"
	"testing"
)

// TestLevelOfKnowsEachWordInAnyCase checks that each of the levelWords is found, and that parts of
// them and other words are not.
func TestLevelOfKnowsEachWordInAnyCase(t *testing.T) {
	for level, words := range levelWords {
		for _, w := range strings.Fields(words) {
			for _, spelled := range []string{w, strings.ToUpper(w), strings.ToUpper(w[:1]) + w[1:]} {
				if got := LevelOf([]byte(spelled)); int(got) != level {
					t.Errorf("LevelOf(%q): got %d, want %d", spelled, got, level)
				}
			}
			if got := LevelOf([]byte(w + "s")); got != 0 {
				t.Errorf("LevelOf(%q): got %d, want 0", w+"s", got)
			}
		}
	}
	for _, w := range []string{"", "e", "er", "log", "config", "fine", "failed", "errors", "warni", "informations"} {
		if got := LevelOf([]byte(w)); got != 0 {
			t.Errorf("LevelOf(%q): got %d, want 0", w, got)
		}
	}
}

// TestKlogLevelReadsLetterBeforeDate checks the four letters of klog and words that only look alike.
func TestKlogLevelReadsLetterBeforeDate(t *testing.T) {
	for w, want := range map[string]uint8{"I0102": levelInfo, "W0102": levelWarn, "E0102": levelError, "F0102": levelFatal, "D0102": 0, "E010": 0, "E01a2": 0, "E01020": 0} {
		if got := KlogLevel([]byte(w)); got != want {
			t.Errorf("KlogLevel(%q): got %d, want %d", w, got, want)
		}
	}
}
