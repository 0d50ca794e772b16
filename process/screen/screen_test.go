package screen

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// show returns what a screen of 4 rows and 10 columns shows after input, and what of the input is
// not on the alternate screen.
func show(t *testing.T, input string) (v View, main string) {
	t.Helper()
	s := New(4, 10)
	var out []byte
	kept, _ := s.Write([]byte(input))
	out = append(out, kept...)
	v = s.View()
	bytewise, each := New(4, 10), []byte(nil)
	for i := range len(input) {
		kept, _ := bytewise.Write([]byte{input[i]})
		bytewise.View() // draws at once
		each = append(each, kept...)
	}
	w := bytewise.View()
	if w.Changed = v.Changed; !reflect.DeepEqual(v, w) || !bytes.Equal(out, each) {
		t.Errorf("%q byte by byte: got %q and %q, want %q and %q as in one write", input, w.Rows, each, v.Rows, out)
	}
	return v, string(out)
}

func TestScreenShowsWhatAPersonSees(t *testing.T) {
	for _, c := range []struct{ input, want string }{
		{"", ""},
		{"a\r\nb", "a|b"},
		{"a\nb", "a| b"},
		{"1\r\n2\r\n3\r\n4\r\n5", "2|3|4|5"},
		{"0123456789abc", "0123456789|abc"},
		{"0123456789\r\nab", "0123456789|ab"},
		{"0123456789\bX", "01234567X9"},
		{"\x1b[?7l0123456789abc", "012345678c"},
		{"50%\r100%", "100%"},
		{"ab\b\bX", "Xb"},
		{"a\tb", "a       b"},
		{"ab\x1b[1@X", "abX"},
		{"abc\x1b[3D\x1b[1@X", "Xabc"},
		{"abcdef\r\x1b[2P", "cdef"},
		{"abcdef\r\x1b[2X", "  cdef"},
		{"abc\x1b[4h\r12\x1b[4l\r3", "32abc"},
		{"one\r\ntwo\r\nthree\x1b[2A\x1b[2K\rX", "X|two|three"},
		{"\x1b[2;3HX\x1b[HY", "Y|  X"},
		{"\x1b[99;99HX", "|||         X"},
		{"a\r\nb\r\nc\x1b[2;1H\x1b[J", "a"},
		{"a\r\nb\r\nc\x1b[2;1H\x1b[1J", "||c"},
		{"a\x1b[2J\x1b[HX", "X"},
		{"1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nX", "1|3|X|4"},
		{"1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[2;1H\x1bMX", "1|X|2|4"},
		{"1\r\n2\r\n3\r\n4\x1b[2;1H\x1b[L", "1||2|3"},
		{"1\r\n2\r\n3\r\n4\x1b[2;1H\x1b[2M", "1|4"},
		{"1\r\n2\r\n3\r\n4\x1b[S", "2|3|4"},
		{"1\r\n2\x1b[T", "|1|2"},
		{"a\x1b7\x1b[3;3Hb\x1b8c", "ac||  b"},
		{"-\x1b[9b", "----------"},
		{"\x1b(0lqk\x1b(B q", "┌─┐ q"},
		{"\x1b)0\x0eqq\x0fq", "──q"},
		{"日本", "日本"},
		{"日本\r\x1b[Cx", " x本"},
		{"012345678日", "012345678|日"},
		{"e\u0301a", "e\u0301a"},
		{"\x1b[31;1mred\x1b[0m", "red"},
		{"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"},
		{"\x1bP+q544e\x1b\\a\x1b_x\x1b\\b", "ab"},
		{"\x1b]0;cut\x1b[2;2HX", "| X"},
		{"\x1b[38;2;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18mx", "x"},
		{"a\xffb\xe6\x97", "a\uFFFDb"},
		{"main\x1b[?1049h\x1b[HALT", "ALT"},
		{"main\x1b[?1049h\x1b[HALT\x1b[?1049lx", "mainx"},
		{"main\x1b[?47h\x1b[?47h!\x1b[?47l", "main"},
		{"abc\x1bcX", "X"},
		{"\x1b[5;2r\x1b[0;0fX", "X"},
		{"\x1b[3;999r\x1b[99;1H\n\n\nX", "|||X"},
	} {
		v, _ := show(t, c.input)
		if got := strings.TrimRight(strings.Join(v.Rows, "|"), "|"); got != c.want {
			t.Errorf("%q: got %q, want %q", c.input, got, c.want)
		}
	}
}

func TestWriteReturnsWhatMayBecomeLines(t *testing.T) {
	for input, want := range map[string]string{
		"a\x1b[?1049hb":                                    "a\x1b[?1049h",
		"a\x1b[?1049hb\x1b[?1049lc":                        "a\x1b[?1049hc",
		"a\x1b[?47hb\x1b[?47lc\x1b[?1047hd\x1b[?1ce":       "a\x1b[?47hc\x1b[?1047h",
		"a\x1b[?1049h\x1bcb":                               "a\x1b[?1049hb",
		"\x1b[?25la\x1b[2J\x1b[Hb":                         "\x1b[?25la\x1b[2J\x1b[Hb",
		"a\x1b[?1h\x1b[Hb\x1b[?1lc":                        "a\x1b[?1h\x1b[Hc",
		"\x1b[?1ha\r\nb":                                   "\x1b[?1ha\r\nb",
		"a\x1b[?1h\x1b[H\x1b[?1049hb\x1b[?1049lc\x1b[?1ld": "a\x1b[?1h\x1b[Hd",
	} {
		if _, got := show(t, input); got != want {
			t.Errorf("%q: got %q, want %q", input, got, want)
		}
	}
}

func TestTerminalAnswersQuestions(t *testing.T) {
	for question, want := range map[string]string{
		"ab\r\n\x1b[6n": "\x1b[2;1R", "\x1b[5n": "\x1b[0n", "\x1b[c": "\x1b[?62c", "\x1b[>c": "\x1b[>1;10;0c",
		"\x1b[18t": "\x1b[8;4;10t", "\x1b]11;?\x07": "\x1b]11;rgb:0000/0000/0000\x1b\\", "\x1b]10;?\x1b\\": "\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
		"\x1b[?2026$p": "\x1b[?2026;0$y", "\x1b[?7$p": "\x1b[?7;1$y", "\x1b[?25l\x1b[?25$p": "\x1b[?25;2$y",
		"\x1b]11;rgb:0/0/0\x07": "", "\x1b[?u": "", "text": "",
	} {
		if _, got := New(4, 10).Write([]byte(question)); string(got) != want {
			t.Errorf("%q: got %q, want %q", question, got, want)
		}
	}
	if _, got := New(4, 10).Write(bytes.Repeat([]byte("\x1b[6n"), 1<<16)); len(got) == 0 || len(got) > maxReply {
		t.Errorf("got an answer of %d bytes, want at most %d", len(got), maxReply)
	}
}

func TestViewHasCursorAndModes(t *testing.T) {
	v, _ := show(t, "\x1b[?1049h\x1b[2;3H\x1b[?1h\x1b[?25l")
	if v.Row != 1 || v.Col != 2 || !v.Full || !v.AppKeys || !v.Hidden || v.Cols != 10 || v.Changed.IsZero() {
		t.Errorf("got %+v, want the cursor in row 1, column 2, and every mode", v)
	}
	v, _ = show(t, "0123456789ab")
	if !reflect.DeepEqual(v.Joined, []bool{true, false, false, false}) {
		t.Errorf("got joined rows %v, want the first", v.Joined)
	}
}

// pieces are what FuzzScreen and TestRandomInputIsShown compose input of.
var pieces = []string{
	"a", "word ", "\r", "\n", "\b", "\t", "日", "e\u0301", "\u200d", "\x1b", "\x1b[", "?", ";", "0", "1", "7", "99", "1049", "h", "l", "H", "J", "K", "r", "m",
	"A", "B", "C", "D", "L", "M", "P", "@", "X", "S", "T", "b", "6n", "\x1b[?1049h", "\x1b[?1049l", "\x1b7", "\x1b8", "\x1bM", "\x1bc", "\x1b]0;", "\x07", "\x1b\\", "\x1b(0", "\x1b(B",
	"\x0e", "\x0f", "\xff", "\xe6", "\x9b", "\x18", "\x1b[4h", "\x1b[?6h", "\x1b[?7l", "\x1b[2;3r", "999999999999999999999",
}

func compose(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		if r.IntN(20) == 0 {
			b.WriteByte(byte(r.IntN(256)))
		} else {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
	}
	return b.String()
}

func TestRandomInputIsShown(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		show(t, compose(r, 1+r.IntN(40)))
	}
}

// TestMuchOutputIsShown checks that what scrolls off undrawn leaves what it would leave if it was drawn.
func TestMuchOutputIsShown(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 8 {
		late, atOnce := New(1+r.IntN(5), 10), (*Screen)(nil)
		atOnce = New(late.rows, 10)
		most := []int{30, 5000}[r.IntN(2)]
		for range 1 + r.IntN(6) {
			input := compose(r, 5) + "\x1b[H"
			for range r.IntN(4000) {
				input += strings.Repeat("x", r.IntN(25)) + pieces[r.IntN(6)] + "\x1b[1m\r\n"
			}
			input += compose(r, r.IntN(5))
			for len(input) > 0 {
				n := min(len(input), 1+r.IntN(most))
				before := len(late.pending)
				late.Write([]byte(input[:n]))
				atOnce.Write([]byte(input[:n]))
				atOnce.View()
				if input = input[n:]; len(late.pending) >= before && len(input) > 0 {
					continue
				}
				if got, want := late.View(), atOnce.View(); !reflect.DeepEqual(got.Rows, want.Rows) || got.Row != want.Row || got.Col != want.Col {
					t.Fatalf("got %q with the cursor at %d, %d, want %q, %d, %d", got.Rows, got.Row, got.Col, want.Rows, want.Row, want.Col)
				}
			}
		}
		if len(late.pending) > maxPending+5000 {
			t.Errorf("got %d bytes pending, want a bound", len(late.pending))
		}
	}
}

func FuzzScreen(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		f.Add(compose(r, 20))
	}
	f.Fuzz(func(t *testing.T, input string) {
		v, _ := show(t, input)
		for _, row := range v.Rows {
			if strings.ContainsAny(row, "\x1b\r\n\a") {
				t.Errorf("%q: got %q, want no control characters", input, row)
			}
		}
		one := New(1, 1)
		one.Write([]byte(input))
		one.View()
	})
}

func BenchmarkWrite(b *testing.B) {
	for name, text := range map[string]string{
		"yes":   "y\r\n",
		"lines": "2026-11-28 12:00:00 INFO request handled path=/api/users status=200 in 12ms\r\n",
		"color": "\x1b[32mINFO\x1b[0m \x1b[1;34mrequest\x1b[0m handled path=\x1b[36m/api/users\x1b[0m status=200 in 12ms\r\n",
		"wide":  "日本語のログ\r\n",
		"clear": "\x1b[2J\x1b[H\x1b[99b",
	} {
		b.Run(name, func(b *testing.B) {
			s, p := New(40, 120), []byte(strings.Repeat(text, 4096/len(text)))
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for range b.N {
				s.Write(p)
			}
		})
	}
}
