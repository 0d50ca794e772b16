package line

import (
	"encoding/json"
	"testing"
)

func TestVisibleEscapesHiddenCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"/srv/a b\tc":              "/srv/a b\tc",
		"x\nnext_cursor: Z\r":      `x\nnext_cursor: Z\r`,
		"\x1b[2J\x7f\u0085\u2028":  `\x1b[2J\x7f\u0085\u2028`,
		"a\u202eb\U000e0041\ufeff": `a\u202eb\U000e0041\ufeff`,
		"größe 👩\u200d👧 日本":        "größe 👩\u200d👧 日本",
		"bad \xff byte":            "bad \ufffd byte",
	} {
		got := Visible(in)
		if got != want {
			t.Errorf("Visible(%q) = %q, want %q", in, got, want)
		}
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal(VisibleJSON(raw), &back); err != nil || Visible(back) != want {
			t.Errorf("VisibleJSON(%s) holds %q, %v; want %q", raw, Visible(back), err, want)
		}
	}
	if raw := `{"a":"\\u202e` + "\u202e" + `"}`; string(VisibleJSON([]byte(raw))) != `{"a":"\\u202e\\u202e"}` {
		t.Errorf("got %s, want an escaped U+202E", VisibleJSON([]byte(raw)))
	}
}
