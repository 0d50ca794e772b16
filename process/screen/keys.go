package screen

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// cursorKeys are the keys that send CSI and a letter, or in the application mode SS3 and the letter.
var cursorKeys = map[string]byte{"up": 'A', "down": 'B', "right": 'C', "left": 'D', "home": 'H', "end": 'F'}

// numberKeys are the keys that send CSI, a number and a tilde.
var numberKeys = map[string]int{
	"insert": 2, "delete": 3, "page-up": 5, "page-down": 6,
	"f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24,
}

// plainKeys are the keys that always send the same.
var plainKeys = map[string]string{"enter": "\r", "tab": "\t", "esc": "\x1b", "space": " ", "backspace": "\x7f", "shift-tab": "\x1b[Z"}

// KeyNames returns the names of the keys, without those of single characters and with modifiers.
func KeyNames() []string {
	return []string{
		"enter", "tab", "shift-tab", "esc", "space", "backspace", "delete", "insert", "up", "down", "left", "right",
		"home", "end", "page-up", "page-down", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "f10", "f11", "f12",
	}
}

// keySynonyms are other words for keys.
var keySynonyms = map[string]string{
	"return": "enter", "escape": "esc", "del": "delete", "ins": "insert", "pageup": "page-up", "pagedown": "page-down", "pgup": "page-up", "pgdn": "page-down",
	"pgdown": "page-down", "arrow-up": "up", "arrow-down": "down", "arrow-left": "left", "arrow-right": "right", "arrowup": "up", "arrowdown": "down",
	"arrowleft": "left", "arrowright": "right", "backtab": "shift-tab",
}

// modifiers are what the names of keys may begin with, and their bits in a sequence of xterm.
var modifiers = []struct {
	name string
	bit  int
}{{"shift", 1}, {"alt", 2}, {"meta", 2}, {"ctrl", 4}, {"control", 4}}

// Key returns what a key sends: one of KeyNames or a single character, which may follow modifiers, as in
// ctrl-c, alt-x or shift-up. appKeys is View.AppKeys. It returns false for an unknown key.
func Key(name string, appKeys bool) (sequence string, known bool) {
	if isCharacter(name) {
		return name, true
	}
	base, bits := name, 0
	for again := true; again; {
		again = false
		for _, m := range modifiers {
			if n := len(m.name); len(base) > n+1 && strings.EqualFold(base[:n], m.name) && strings.IndexByte("-+_", base[n]) >= 0 {
				base, bits, again = base[n+1:], bits|m.bit, true
			}
		}
	}
	if isCharacter(base) {
		return modified(base, bits)
	}
	base = strings.ReplaceAll(strings.ToLower(base), "_", "-")
	if other, found := keySynonyms[base]; found {
		base = other
	}
	if bits == 1 && base == "tab" {
		base, bits = "shift-tab", 0
	}
	return named(base, bits, appKeys)
}

func isCharacter(name string) bool {
	r, size := utf8.DecodeRuneInString(name)
	return size == len(name) && size > 0 && r >= ' ' && r != 0x7f && r != utf8.RuneError
}

// modified returns what a character with modifiers sends.
func modified(character string, bits int) (sequence string, known bool) {
	if bits&1 != 0 {
		character = strings.ToUpper(character)
	}
	if bits&4 != 0 {
		c := strings.ToUpper(character)[0]
		if len(character) > 1 || c < '@' && c != ' ' || c > '_' {
			return "", false
		}
		character = string(rune(c & 0x1f))
	}
	if bits&2 != 0 {
		character = "\x1b" + character
	}
	return character, true
}

// named returns what a key with a name sends.
func named(name string, bits int, appKeys bool) (sequence string, known bool) {
	letter, isCursor := cursorKeys[name]
	number, isNumber := numberKeys[name]
	plain, isPlain := plainKeys[name]
	intro := "\x1bO"
	if len(name) == 2 && name[0] == 'f' && name[1] >= '1' && name[1] <= '4' {
		letter = 'P' + name[1] - '1'
	} else if isCursor && !appKeys {
		intro = "\x1b["
	}
	switch {
	case letter != 0 && bits == 0:
		return intro + string(rune(letter)), true
	case letter != 0:
		return fmt.Sprintf("\x1b[1;%d%c", bits+1, letter), true
	case isNumber && bits == 0:
		return "\x1b[" + strconv.Itoa(number) + "~", true
	case isNumber:
		return fmt.Sprintf("\x1b[%d;%d~", number, bits+1), true
	case isPlain && name == "space" && bits&4 != 0:
		return modified(" ", bits)
	case isPlain && bits&2 != 0: // the other modifiers change nothing
		return "\x1b" + plain, true
	}
	return plain, isPlain
}
