package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLineReader(t *testing.T) {
	const max = 200_000 // more than one read buffer
	long := strings.Repeat("x", max)
	for name, tc := range map[string]struct {
		in   string
		want []string // "!" for a line that was skipped
	}{
		"lines":                    {"a\nbb\n", []string{"a", "bb"}},
		"last line unfinished":     {"a\nbb", []string{"a", "bb"}},
		"windows":                  {"a\r\n\r\nb\r\n", []string{"a", "", "b"}},
		"exactly the bound":        {long + "\nb\n", []string{long, "b"}},
		"exactly, with CR":         {long + "\r\nb\n", []string{long, "b"}},
		"exactly, at the end":      {long, []string{long}},
		"one over":                 {long + "y\nb\n", []string{"!", "b"}},
		"two over":                 {long + "yy\nb\n", []string{"!", "b"}},
		"three over":               {long + "yyy\nb\n", []string{"!", "b"}},
		"far over, then far again": {long + long + "\n" + long + long + long + "\nb", []string{"!", "!", "b"}},
		"over at the end":          {"a\n" + long + long, []string{"a", "!"}},
		"nothing":                  {"", nil},
	} {
		for readers, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "data with EOF": iotest.DataErrReader,
		} {
			t.Run(name+"/"+readers, func(t *testing.T) {
				l := newLineReader(wrap(strings.NewReader(tc.in)), max)
				var got []string
				for {
					line, over, err := l.next()
					if err != nil {
						if !errors.Is(err, io.EOF) {
							t.Fatal(err)
						}
						break
					}
					if over != nil {
						if over.size <= max || len(over.head) > oversizeHead || len(over.tail) > oversizeTail {
							t.Errorf("oversize %d, head %d, tail %d", over.size, len(over.head), len(over.tail))
						}
						line = []byte("!")
					}
					got = append(got, string(line))
				}
				if strings.Join(got, "\n") != strings.Join(tc.want, "\n") || len(got) != len(tc.want) {
					t.Errorf("got %d lines, want %d", len(got), len(tc.want))
				}
			})
		}
	}
}

func TestLineReaderDropsHalfALineBeforeAnError(t *testing.T) {
	broken := errors.New("broken")
	l := newLineReader(io.MultiReader(strings.NewReader("a\n{\"half\":"), iotest.ErrReader(broken)), 100)
	if line, _, err := l.next(); string(line) != "a" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if line, _, err := l.next(); line != nil || !errors.Is(err, broken) {
		t.Fatalf("%q, %v", line, err)
	}
}

func TestOversizeID(t *testing.T) {
	pad := strings.Repeat("p", 3*oversizeHead)
	for name, tc := range map[string]struct{ line, want string }{
		"first":              {`{"jsonrpc":"2.0","id":42,"method":"x","params":{"a":"` + pad + `"}}`, `42`},
		"first, string":      {`{"id":"a\"b","params":{"a":"` + pad + `"}}`, `"a\"b"`},
		"last":               {`{"method":"x","params":{"a":"` + pad + `"},"jsonrpc":"2.0","id":-7}`, `-7`},
		"last, spaced":       {`{"params":{"a":"` + pad + `"} , "id" : "q" } `, `"q"`},
		"last, quoted quote": {`{"params":{"a":"` + pad + `"},"id":"\\\"q"}`, `"\\\"q"`},
		"only nested":        {`{"params":{"id":5,"a":"` + pad + `","id":5},"method":"x"}`, ``},
		"nested at the end":  {`{"method":"x","params":{"a":"` + pad + `","id":5}}`, ``},
		"in a string":        {`{"method":"x","params":{"a":"` + pad + `,\"id\":5}"}}`, ``},
		"longer key":         {`{"params":{"a":"` + pad + `"},"x\"id":5}`, ``},
		"fraction":           {`{"id":1.5,"params":{"a":"` + pad + `"}}`, ``},
		"null":               {`{"id":null,"params":{"a":"` + pad + `"}}`, ``},
		"not UTF-8":          {"{\"id\":\"\xff\",\"params\":{\"a\":\"" + pad + `"}}`, ``},
		"not UTF-8, last":    {`{"params":{"a":"` + pad + "\"},\"id\":\"\xff\"}", ``},
		"no JSON":            {pad, ``},
		"cut number":         {strings.Repeat(" ", oversizeHead-10) + `{"id":12345,"params":{"a":"` + pad + `"}}`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newOversize([]byte(tc.line), nil).id(); string(got) != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestUnescapeHTML(t *testing.T) {
	for in, want := range map[string]string{
		`"a \u003c b \u003E c \u0026"`: `"a < b > c &"`,
		`"\\u003c"`:                    `"\\u003c"`,
		`"\\\u003c"`:                   `"\\<"`,
		`"\\\\u003c"`:                  `"\\\\u003c"`,
		`"\u0000 \u003c"`:              `"\u0000 <"`,
		`"\u2028 \u0022 \u005c"`:       `"\u2028 \u0022 \u005c"`,
		`"\u00"`:                       `"\u00"`,
		`plain`:                        `plain`,
	} {
		if got := string(unescapeHTML([]byte(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func FuzzUnescapeHTML(f *testing.F) {
	f.Add("a<b>&c\\u003c\\\\ \u2028")
	f.Add(`\\\`)
	f.Fuzz(func(t *testing.T, s string) {
		escaped, err := json.Marshal(s)
		if err != nil {
			t.Skip()
		}
		var want, got string
		noErr(t, json.Unmarshal(escaped, &want))
		plain := unescapeHTML(bytes.Clone(escaped))
		noErr(t, json.Unmarshal(plain, &got))
		if got != want {
			t.Errorf("%q became %q", want, got)
		}
	})
}

func TestIDKey(t *testing.T) {
	same := [][2]string{{`"a"`, `"\u0061"`}, {`1`, `1`}}
	for _, p := range same {
		a, _ := idKey(json.RawMessage(p[0]))
		b, _ := idKey(json.RawMessage(p[1]))
		if a != b {
			t.Errorf("%s and %s differ", p[0], p[1])
		}
	}
	different := [][2]string{{`1`, `"1"`}, {`9007199254740993`, `9007199254740992`}, {`""`, `0`}}
	for _, p := range different {
		a, okA := idKey(json.RawMessage(p[0]))
		b, okB := idKey(json.RawMessage(p[1]))
		if a == b || !okA || !okB {
			t.Errorf("%s and %s are taken for the same", p[0], p[1])
		}
	}
	for _, bad := range []string{``, `null`, `true`, `1.5`, `1e3`, `[]`, `{}`, `-`, `--1`} {
		if _, ok := idKey(json.RawMessage(bad)); ok {
			t.Errorf("%s was taken", bad)
		}
	}
}
