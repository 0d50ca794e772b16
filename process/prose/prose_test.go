package prose

import "testing"

func TestHeadAndTailKeepWholeCharacters(t *testing.T) {
	heads := []string{"", "a", "a", "aü", "aü", "aü", "aü€", "aü€"}
	tails := []string{"", "", "", "€", "€", "ü€", "aü€", "aü€"}
	for n := range heads {
		if head, tail := Head("aü€", n), Tail("aü€", n); head != heads[n] || tail != tails[n] {
			t.Errorf("Head and Tail of %d bytes = %q, %q; want %q, %q", n, head, tail, heads[n], tails[n])
		}
	}
}

func TestCutMarksWhatIsMissing(t *testing.T) {
	for n, want := range map[int]string{2: "a…", 5: "aü…", 6: "aü€"} {
		if got := Cut("aü€", n); got != want {
			t.Errorf("Cut to %d bytes = %q, want %q", n, got, want)
		}
	}
}

func TestListsLeaveOutWhatIsEmpty(t *testing.T) {
	if got := Join("; ", "", "a", "", "b"); got != "a; b" {
		t.Errorf("Join = %q, want a; b", got)
	}
	if got := OrNone(nil); got != "none" {
		t.Errorf("OrNone of no names = %q, want none", got)
	}
}
