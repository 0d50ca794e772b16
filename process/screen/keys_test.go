package screen

import "testing"

func TestKeysSendWhatXtermSends(t *testing.T) {
	for name, want := range map[string][2]string{ // without and with the application mode
		"up": {"\x1b[A", "\x1bOA"}, "Down": {"\x1b[B", "\x1bOB"}, "home": {"\x1b[H", "\x1bOH"}, "ArrowLeft": {"\x1b[D", "\x1bOD"},
		"shift-up": {"\x1b[1;2A", "\x1b[1;2A"}, "ctrl+right": {"\x1b[1;5C", "\x1b[1;5C"}, "ctrl-alt-end": {"\x1b[1;7F", "\x1b[1;7F"},
		"enter": {"\r", "\r"}, "return": {"\r", "\r"}, "tab": {"\t", "\t"}, "shift-tab": {"\x1b[Z", "\x1b[Z"}, "esc": {"\x1b", "\x1b"},
		"space": {" ", " "}, "ctrl-space": {"\x00", "\x00"}, "backspace": {"\x7f", "\x7f"}, "alt-backspace": {"\x1b\x7f", "\x1b\x7f"},
		"delete": {"\x1b[3~", "\x1b[3~"}, "page-up": {"\x1b[5~", "\x1b[5~"}, "PageDown": {"\x1b[6~", "\x1b[6~"}, "pgup": {"\x1b[5~", "\x1b[5~"},
		"f1": {"\x1bOP", "\x1bOP"}, "F4": {"\x1bOS", "\x1bOS"}, "f5": {"\x1b[15~", "\x1b[15~"}, "f12": {"\x1b[24~", "\x1b[24~"}, "shift-f1": {"\x1b[1;2P", "\x1b[1;2P"},
		"ctrl-c": {"\x03", "\x03"}, "Ctrl+Z": {"\x1a", "\x1a"}, "ctrl_[": {"\x1b", "\x1b"}, "alt-x": {"\x1bx", "\x1bx"}, "alt-X": {"\x1bX", "\x1bX"}, "ctrl-alt-a": {"\x1b\x01", "\x1b\x01"},
		"a": {"a", "a"}, "A": {"A", "A"}, "-": {"-", "-"}, "+": {"+", "+"}, "é": {"é", "é"}, ":": {":", ":"}, " ": {" ", " "}, "shift-a": {"A", "A"}, "alt--": {"\x1b-", "\x1b-"},
	} {
		for i, appKeys := range []bool{false, true} {
			if got, known := Key(name, appKeys); !known || got != want[i] {
				t.Errorf("%s, application mode %t: got %q, %t; want %q", name, appKeys, got, known, want[i])
			}
		}
	}
	for _, name := range []string{"", "dwon", "ctrl-", "ctrl-1", "ctrl-é", "f13", "f0", "alt-nope", "\x1b", "\x1b[A", "ab", "\xff"} {
		if got, known := Key(name, false); known {
			t.Errorf("%q: got %q, want it to be unknown", name, got)
		}
	}
	for _, name := range KeyNames() {
		if _, known := Key(name, false); !known {
			t.Errorf("%s: got an unknown key, want one that is known", name)
		}
	}
}
