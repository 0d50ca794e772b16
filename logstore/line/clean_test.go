package line

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// collected is a Sink that keeps the lines written to it.
type collected []string

func (c *collected) Line(text []byte, continuation, partial bool) {
	s := string(text)
	if continuation {
		s = "+" + s
	}
	if partial {
		s += "…"
	}
	*c = append(*c, s)
}

func cleanAll(parts ...string) []string {
	var c Cleaner
	got := collected{}
	for _, p := range parts {
		if p == "" {
			c.Flush(&got)
		}
		c.Feed([]byte(p), &got)
	}
	c.Finish(&got)
	return got
}

func TestCleanerStripsTerminalOutput(t *testing.T) {
	long := strings.Repeat("x", MaxLineBytes)
	for name, c := range map[string]struct {
		in   []string // an empty string is a pause of the stream
		want []string
	}{
		"plain":                         {[]string{"a\nb\n"}, []string{"a", "b"}},
		"empty lines":                   {[]string{"\n\na\n"}, []string{"", "", "a"}},
		"crlf":                          {[]string{"a\r\nb\r", "\nc\r\r\n"}, []string{"a", "b", "c"}},
		"no newline at the end":         {[]string{"a\nb"}, []string{"a", "b…"}},
		"prompt":                        {[]string{"Password: ", "", "ok\n"}, []string{"Password: …", "+ok"}},
		"prompt and only a newline":     {[]string{"Password: ", "", "\nnext\n"}, []string{"Password: …", "next"}},
		"silence without text":          {[]string{"a\n", "", "b\n"}, []string{"a", "b"}},
		"redraws":                       {[]string{"10%\r20%\r", "30%\n"}, []string{"30%"}},
		"redraw ending with a return":   {[]string{"10%\r20%\r\n"}, []string{"20%"}},
		"redraw after silence":          {[]string{"10%", "", "\r20%\n"}, []string{"10%…", "20%"}},
		"erased line":                   {[]string{"busy\r\x1b[K\nx\x1b[2Kdone\n"}, []string{"", "done"}},
		"column one":                    {[]string{"10%\x1b[1G20%\n"}, []string{"20%"}},
		"saved in column one":           {[]string{"\x1b710%\x1b8\x1b720%\x1b8\n\x1b[s30%\x1b[u40%\n"}, []string{"20%", "40%"}},
		"saved elsewhere":               {[]string{"at \x1b710%\x1b820%\n"}, []string{"at 10% 20%"}},
		"redraws after silence":         {[]string{"10%", "", "\r20%", "", "\r30%", "", "\r40%\n"}, []string{"10%…", "40%"}},
		"redraws until the end":         {[]string{"10%", "", "\r20%", "", "\r30%"}, []string{"10%…", "30%…"}},
		"last state again":              {[]string{"10%", "", "\r10%\nok\n"}, []string{"10%…", "ok"}},
		"erased after silence":          {[]string{"busy", "", "\r\x1b[Kdone\n"}, []string{"busy…", "done"}},
		"erased whole after silence":    {[]string{"busy", "", "\x1b[2Kdone\n"}, []string{"busy…", "done"}},
		"erased for good":               {[]string{"busy", "", "\r\x1b[K\nok\n"}, []string{"busy…", "ok"}},
		"erased part":                   {[]string{"step 1", "", "\x1b[D\x1b[K2\n"}, []string{"step 1…", "step 2"}},
		"prompt after a redraw":         {[]string{"10%\r20%\n", "Password: ", "", "\n"}, []string{"20%", "Password: …"}},
		"back at the start":             {[]string{"10%\r", "", "20%\r", "", "\x1b[Kok\n"}, []string{"ok"}},
		"spinner":                       {[]string{"wait |", "", "\b/", "", "\b-", "\b done\n"}, []string{"wait |…", "wait  done"}},
		"backspace":                     {[]string{"a\bb\n_\bx é\b \by\b\b\n"}, []string{"b", "x y"}},
		"removed characters":            {[]string{"abc\b \b\b \b\n"}, []string{"a"}},
		"columns":                       {[]string{"web:build\x1b[20GRUN\x1b[5Cok\x1b[30`\n\x1b[4Cin\n"}, []string{"web:build RUN ok", "in"}},
		"part of a line":                {[]string{"done 10% of it\x1b[6G20%\n"}, []string{"done 20%"}},
		"part after silence":            {[]string{"done 10%", "", "\r\x1b[5C20%\n"}, []string{"done 10%…", "done 20%"}},
		"rows":                          {[]string{"a\x1b[Bb\x1b[5;1Hc\x1b[2Ed\x1b[3de\x1bDf\n"}, []string{"a", "b", "c", "d", "e", "f"}},
		"clear":                         {[]string{"frame A\x1b[2J\x1b[HFound 2 errors\n\x1b[2J\x1b[Hnext\x1bc\n"}, []string{"frame A", "Found 2 errors", "next", ""}},
		"alternate screen":              {[]string{"\x1b[?1049hmenu\x1b[?1049lError: deploy failed\n"}, []string{"menu", "Error: deploy failed"}},
		"other sequences":               {[]string{"a\x1b[38;5;1mb\x1b[?2004hc\x1b[>4;1md\x1b[2 qe\x1b[?25hf\x1b[6n\n"}, []string{"abcdef"}},
		"frames":                        {[]string{"a 1\nb 1\n\x1b[2A\x1b[2Ka 2\n\x1b[2Kb 2\n\x1b[2A\x1b[2Ka 3\n\x1b[2Kb 3\nok\n"}, []string{"a 1", "b 1", "a 3", "b 3", "ok"}},
		"frames behind a hidden cursor": {[]string{"\x1b[?25la 1\nb 1\n\x1b[2A\x1b[Ja 2\nb 2\n\x1b[?25hok\n"}, []string{"a 2", "b 2", "ok"}},
		"one row of a frame":            {[]string{"\x1b[?25la\nb\nc\n\x1b[2A\x1b[2KB\x1b[2B\rok\n"}, []string{"a", "B", "c", "ok"}},
		"lines above a frame":           {[]string{"\x1b[?25la\n\x1b[1A\x1b[Jlog 1\na\n\x1b[1A\x1b[Jlog 2\nb\n"}, []string{"log 1", "log 2", "b"}},
		"frame that grows":              {[]string{"\x1b[?25la\n\x1b[1F\x1b[Ja\nb\n\x1b[2F\x1b[JA\nB\nC\n"}, []string{"A", "B", "C"}},
		"frame that shrinks":            {[]string{"\x1b[?25la\nb\nc\n\x1b[3A\x1b[Jall\nnext\n"}, []string{"all", "next"}},
		"frame erased row by row":       {[]string{"\x1b[?25la\nb\n\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[Gall\n\nnext\n"}, []string{"all", "", "next"}},
		"frame without a newline":       {[]string{"\x1b[?25la 1\nb 1", "", "\x1b[1A\ra 2\nb 2", "", "\n"}, []string{"a 2", "b 2"}},
		"frame and a clear":             {[]string{"\x1b[?25la\nb\x1b[2J\x1b[Hc\n"}, []string{"a", "b", "c"}},
		"colour":                        {[]string{"\x1b[1;31mred\x1b[0m text\n"}, []string{"red text"}},
		"colour split":                  {[]string{"a\x1b", "[3", "1mred\x1b[", "0m\n"}, []string{"ared"}},
		"title":                         {[]string{"\x1b]0;my title\x07a\x1b]8;;http://x\x1b", "\\link\x1b]8;;\x1b\\\n"}, []string{"alink"}},
		"title that never ends":         {[]string{"\x1b]0;title\nnext\n"}, []string{"", "next"}},
		"charset":                       {[]string{"\x1b(Ba\x1b=b\x1b>c\n"}, []string{"abc"}},
		"8-bit controls":                {[]string{"a\u009b31mb\u0085c\n"}, []string{"abc"}},
		"controls":                      {[]string{"a\x00b\x07c\x08d\te\x7f\n"}, []string{"abd\te"}},
		"rune split":                    {[]string{"h\xc3", "\xa9llo \xe2", "\x82", "\xac\n"}, []string{"héllo €"}},
		"bad bytes":                     {[]string{"a\xff\xfe\xfdb\xe2\x82c\n"}, []string{"a\uFFFDb\uFFFDc"}},
		"bidi and zero width":           {[]string{"a\u202eb\u2066c\u200bd\u200e\u061c\u2060\ufeff\u00ad\n"}, []string{`a\u202eb\u2066c\u200bd\u200e\u061c\u2060\ufeff\u00ad`}},
		"tags and selectors":            {[]string{"x\U000e0041\U000e007f\U000e0100é\ufe0f\ufe0f\n"}, []string{`x\U000e0041\U000e007f\U000e0100` + "é\ufe0f" + `\ufe0f`}},
		"joiner between ASCII":          {[]string{"ad\u200dm\ufe0fi\u200cn\n"}, []string{`ad\u200dm\ufe0fi\u200cn`}},
		"joined emoji":                  {[]string{"👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 می\u200cخواهم\n"}, []string{"👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 می\u200cخواهم"}},
		"rows of joiners":               {[]string{"é\u200d\u200c\u200d\n\u200dé\ufe0f\u200d\u200d\n"}, []string{"é\u200d" + `\u200c\u200d`, `\u200d` + "é\ufe0f\u200d" + `\u200d`}},
		"joiner after a return":         {[]string{"é\r\u200db\n"}, []string{`\u200db`}},
		"hidden rune split":             {[]string{"a\xe2\x80", "\xaeb\n"}, []string{`a\u202eb`}},
		"rune cut by the end":           {[]string{"a\xe2\x82"}, []string{"a\uFFFD…"}},
		"exactly the longest":           {[]string{long + "\n"}, []string{long}},
		"over the longest":              {[]string{long + "yz\n"}, []string{long, "+yz"}},
		"rune over the border":          {[]string{long[1:] + "é\n"}, []string{long[1:], "+é"}},
		"three pieces":                  {[]string{long, long, "z\n"}, []string{long, "+" + long, "+z"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cleanAll(c.in...); !slices.Equal(got, c.want) {
				t.Errorf("got %.200q, want %.200q", got, c.want)
			}
		})
	}
}

// FuzzCleanChunking checks that cleaned lines have no terminal sequences, and that they are the
// same however the input is cut into reads.
func FuzzCleanChunking(f *testing.F) {
	for _, s := range []string{"a\nb", "\x1b[31mred\x1b[0m\r\n", "10%\r20%\r\n", "é€\xff\n", "\x1b7a\x1b8b\x1b[sc\x1b[ud\n", "\x1b]0;t\x07x\n\x1b[2K\x1b(B", "\xc2\x9b1mA\n", "a\nb\n\x1b[2A\x1b[2KA\nB\bC\x1b[2Bc\n\x1b[1F\x1b[Jd\x1b[9Ge", "\x1b[?25la\nb\n\x1b[3A\x1b[5Cc\x1b[2Jd\x1b[K\r", strings.Repeat("longer than a piece ", 1000), "é\u200d\u200c\u202e\ufeff\U000e0041\n"} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		whole := cleanAll(string(in))
		rnd := rand.New(rand.NewPCG(seed, 1))
		var parts []string
		for rest := string(in); rest != ""; {
			n := 1 + rnd.IntN(min(len(rest), 1+rnd.IntN(9)))
			parts = append(parts, rest[:n])
			rest = rest[n:]
		}
		if cut := cleanAll(parts...); !slices.Equal(whole, cut) {
			t.Fatalf("cut as %q: got %q, want %q", parts, cut, whole)
		}
		for _, l := range whole {
			if !utf8.ValidString(l) || strings.ContainsFunc(l, func(r rune) bool {
				return r < 0x20 && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0xe0000 && r < 0xe1000
			}) {
				t.Fatalf("got %q, want a clean line", l)
			}
			if len(l) > MaxLineBytes+len("+…") {
				t.Fatalf("got a line of %d bytes, want at most %d", len(l), MaxLineBytes)
			}
		}
	})
}

// FuzzCleanPlain checks that the fast path for plain text yields the same lines as the slow path.
func FuzzCleanPlain(f *testing.F) {
	f.Add([]byte("GET / 200\r\n\tindented é\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		fast := cleanAll(string(in))
		var slow Cleaner
		got := collected{}
		for rest := in; len(rest) > 0; {
			rest = rest[slow.feedLine(rest, &got):]
		}
		slow.Finish(&got)
		if !slices.Equal(fast, got) {
			t.Fatalf("got %q on the fast path, want %q as on the slow one", fast, got)
		}
	})
}

func TestPlainPrefixStopsAtFirstSpecialByte(t *testing.T) {
	for b := range 256 {
		for at := range 20 {
			p := []byte(strings.Repeat("a", 20))
			p[at] = byte(b)
			want := at
			if b >= 0x20 && b < 0x7f || b == '\t' {
				want = 20
			}
			if got := plainPrefix(p); got != want {
				t.Fatalf("byte %#x at %d: got %d, want %d", b, at, got, want)
			}
		}
	}
}

func TestGuessLevelRecognisesUsualForms(t *testing.T) {
	for text, want := range map[string]Level{
		"2026-01-05 10:00:00 ERROR something":                     LevelError,
		"[warn] careful":                                          LevelWarn,
		"error: cannot find x":                                    LevelError,
		"error[E0308]: mismatched types":                          LevelError,
		"src/main.c:10:5: warning: unused":                        LevelWarn,
		`{"level":"info","msg":"x"}`:                              LevelInfo,
		`{"level":50,"time":1,"msg":"x"}`:                         LevelError,
		`{"time":1,"msg":"x","severity":"WARNING"}`:               LevelWarn,
		`time=2026 level=debug msg="error: no"`:                   LevelDebug,
		"I0102 15:04:05.000000 1 main.go:1] hello":                LevelInfo,
		"E0102 15:04:05.000000 1 main.go:1] hello":                LevelError,
		"panic: runtime error: invalid memory address":            LevelFatal,
		"TypeError: x is not a function":                          LevelError,
		"java.lang.IllegalStateException: no":                     LevelError,
		"Traceback (most recent call last):":                      LevelError,
		"10:00AM INF started":                                     LevelInfo,
		"npm ERR! code ENOENT":                                    LevelError,
		"npm warn deprecated":                                     LevelWarn,
		"fatal: not a git repository":                             LevelFatal,
		"GET /error/info 200":                                     LevelNone,
		"0 errors, 2 warnings":                                    LevelNone,
		"compiled information page in 30 ms":                      LevelNone,
		"INFO: error: nested":                                     LevelInfo,
		"loaded error-handler.js":                                 LevelNone,
		"2026/01/05 [error] 10#10: *1 open() failed":              LevelError,
		"error.log: 12 lines":                                     LevelNone,
		"error.log: error: no space left":                         LevelError,
		"Error. The rest is silence":                              LevelError,
		"panic.rs":                                                LevelNone,
		"error.c: In function 'main':":                            LevelNone,
		"error.c:3:7: error: expected ';'":                        LevelError,
		"Exception handling is on":                                LevelNone,
		"Exception in thread \"main\" java.lang.Error":            LevelError,
		"Exception: no such thing":                                LevelError,
		"panic({0x51e2a0?, 0xc000012345?})":                       LevelNone,
		"panic(0x51e2a0)":                                         LevelNone,
		"ERROR(3): no such thing":                                 LevelError,
		"Error(s) found: 0":                                       LevelNone,
		`[2026-01-05 10:00:00] local.ERROR: boom {"id":3}`:        LevelError,
		"[2026-01-05 10:00:00,123: ERROR/MainProcess] no broker":  LevelError,
		"[2026-01-05 10:00:00,123: INFO/MainProcess] ERROR pages": LevelInfo,
		"see: ERROR/README":                                       LevelNone,
		"[2026-01-05 10:00:00] local.EMERGENCY: boom":             LevelFatal,
		"[2026-01-05 10:00:00] local.INFO: an ERROR: handled":     LevelInfo,
		"see log.ERROR for more":                                  LevelNone,
		"config.error: off":                                       LevelNone,
		"10:00AM ERR cannot connect":                              LevelError,
		"2026-11-22 14:00:00 [error    ] payment declined":        LevelError,
		"2026-11-22 14:00:00 [info     ] ERROR pages":             LevelInfo,
		"2026-11-22 14:00:00 [error in x] nothing":                LevelNone,
		`api-1  | {"level":"error","msg":"db down"}`:              LevelError,
		`api-1  | {"level":"info","msg":"error: none"}`:           LevelInfo,
		`[api] {"time":1,"level":50,"msg":"x"}`:                   LevelError,
		`web:dev: {"severity":"WARNING","msg":"x"}`:               LevelWarn,
		`14:00:00 web.1   | {"level":60,"msg":"x"}`:               LevelFatal,
		`api-1  | {"msg":"an ERROR: of old"}`:                     LevelNone,
		`[ERROR] {"level":"info"}`:                                LevelError,
		`ERROR | {"level":"info"}`:                                LevelError,
		`[api] got {"level":"error"}`:                             LevelNone,
		`[api] {"level":"error"} was sent`:                        LevelNone,
		"just some words that come to nothing at all whatever":    LevelNone,
	} {
		if got := GuessLevel([]byte(text), false); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"error.log", "panic.rs", "error.c: In function", "Exception handling is on", "panic({0x51e2a0, 0xc0})"} {
		if got := GuessLevel([]byte(text), true); got != LevelNone {
			t.Errorf("%q on standard error: got %s, want none", text, got)
		}
	}
	if got := GuessLevel([]byte("could not connect: connection failed"), true); got != LevelError {
		t.Errorf("a hint on standard error: got %s, want %s", got, LevelError)
	}
	for l := LevelNone; l < LevelCount; l++ {
		if got, ok := ParseLevel(l.String()); !ok || got != l {
			t.Errorf("ParseLevel(%q) = %s, %t, want %s", l.String(), got, ok, l)
		}
	}
}
