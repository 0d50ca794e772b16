package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestReaderSplitsStreamIntoBoundedLines checks lines just below and above the
// limit, in reads of any size. Of a line over the limit, only the two ends are
// kept.
func TestReaderSplitsStreamIntoBoundedLines(t *testing.T) {
	const max = 200_000 // more than one read buffer
	long := strings.Repeat("x", max)
	for name, tc := range map[string]struct {
		in   string
		want []string // "!" for a line that is too large
	}{
		"lines":                    {"a\nbb\n", []string{"a", "bb", ""}},
		"last line unfinished":     {"a\nbb", []string{"a", "bb"}},
		"windows":                  {"a\r\n\r\nb\r\n", []string{"a", "", "b", ""}},
		"exactly the bound":        {long + "\nb\n", []string{long, "b", ""}},
		"exactly, with CR":         {long + "\r\nb\n", []string{long, "b", ""}},
		"exactly, at the end":      {long, []string{long}},
		"one over":                 {long + "y\nb\n", []string{"!", "b", ""}},
		"two over":                 {long + "yy\nb\n", []string{"!", "b", ""}},
		"three over":               {long + "yyy\nb\n", []string{"!", "b", ""}},
		"far over, then far again": {long + long + "\n" + long + long + long + "\nb", []string{"!", "!", "b"}},
		"over at the end":          {"a\n" + long + long, []string{"a", "!"}},
		"nothing":                  {"", []string{""}},
	} {
		for readers, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "data with EOF": iotest.DataErrReader,
		} {
			t.Run(name+"/"+readers, func(t *testing.T) {
				r := NewReader(wrap(strings.NewReader(tc.in)), max)
				var got []string
				var size int64
				for {
					line, err := r.Next()
					size += line.Size
					text := string(line.Text)
					if line.TooLarge() {
						if line.Size <= max || len(text) > 0 || len(line.Head) > endBytes || len(line.Tail) > endBytes {
							t.Errorf("got a line of %d bytes with a text of %d, head of %d, tail of %d", line.Size, len(text), len(line.Head), len(line.Tail))
						}
						text = "!"
					}
					got = append(got, text)
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if strings.Join(got, "\n") != strings.Join(tc.want, "\n") || len(got) != len(tc.want) {
					t.Errorf("got %d lines, want %d", len(got), len(tc.want))
				}
				if want := len(strings.NewReplacer("\r\n", "", "\n", "").Replace(tc.in)); size != int64(want) {
					t.Errorf("got lines of %d bytes, want %d", size, want)
				}
			})
		}
	}
}

func TestReaderReturnsWhatPrecedesAnError(t *testing.T) {
	broken := errors.New("broken")
	r := NewReader(io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), 100)
	if line, err := r.Next(); string(line.Text) != "a" || err != nil {
		t.Fatalf("got %q, %v, want a", line.Text, err)
	}
	if line, err := r.Next(); string(line.Text) != "half" || !errors.Is(err, broken) {
		t.Fatalf("got %q, %v, want half and the reader's error", line.Text, err)
	}
}

// TestIDIsFoundInLineThatIsTooLarge checks that the id of a message over the limit
// is found at either end of its line, and that the id of a nested object is not
// taken for it.
func TestIDIsFoundInLineThatIsTooLarge(t *testing.T) {
	pad := strings.Repeat("p", 3*endBytes)
	for name, tc := range map[string]struct{ line, want string }{
		"first":                {`{"jsonrpc":"2.0","id":42,"method":"x","params":{"a":"` + pad + `"}}`, `42`},
		"first, spaced":        {` { "jsonrpc" : "2.0" , "id" : 7 , "result" : {"a":"` + pad + `"}}`, `7`},
		"first, string":        {`{"id":"a\"b","params":{"a":"` + pad + `"}}`, `"a\"b"`},
		"last":                 {`{"method":"x","params":{"a":"` + pad + `"},"jsonrpc":"2.0","id":-7}`, `-7`},
		"last, spaced":         {`{"params":{"a":"` + pad + `"} , "id" : "q" } `, `"q"`},
		"last, before version": {`{"result":{"a":"` + pad + `"},"id":9,"jsonrpc":"2.0"}`, `9`},
		"last, spaced version": {`{"result":{"a":"` + pad + `"},"id":9 , "jsonrpc" : "2.0" }`, `9`},
		"last, quoted quote":   {`{"params":{"a":"` + pad + `"},"id":"\\\"q"}`, `"\\\"q"`},
		"only nested":          {`{"params":{"id":5,"a":"` + pad + `","id":5},"method":"x"}`, ``},
		"nested at the end":    {`{"method":"x","params":{"a":"` + pad + `","id":5}}`, ``},
		"nested in a result":   {`{"result":{"id":1,"x":"` + pad + `"}}`, ``},
		"in a string":          {`{"method":"x","params":{"a":"` + pad + `,\"id\":5}"}}`, ``},
		"longer key":           {`{"params":{"a":"` + pad + `"},"x\"id":5}`, ``},
		"fraction":             {`{"id":1.5,"params":{"a":"` + pad + `"}}`, ``},
		"null":                 {`{"id":null,"params":{"a":"` + pad + `"}}`, ``},
		"not UTF-8":            {"{\"id\":\"\xff\",\"params\":{\"a\":\"" + pad + `"}}`, ``},
		"not UTF-8, last":      {`{"params":{"a":"` + pad + "\"},\"id\":\"\xff\"}", ``},
		"no JSON":              {pad, ``},
		"cut number":           {strings.Repeat(" ", endBytes-10) + `{"id":12345,"params":{"a":"` + pad + `"}}`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := NewReader(strings.NewReader(tc.line), 2*endBytes).Next()
			if !line.TooLarge() || !errors.Is(err, io.EOF) {
				t.Fatalf("got %+v, %v, want a line that is too large", line, err)
			}
			if got := line.ID(); string(got) != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestUnescapeHTMLReplacesOnlyHTMLEscapes checks that other JSON escapes stay as
// they are, as does an escaped backslash before the text of an HTML escape.
func TestUnescapeHTMLReplacesOnlyHTMLEscapes(t *testing.T) {
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
		if err := json.Unmarshal(escaped, &want); err != nil {
			t.Fatal(err)
		}
		plain := unescapeHTML(bytes.Clone(escaped))
		if err := json.Unmarshal(plain, &got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestIDKeyIdentifiesID checks that equal JSON-RPC ids have the same key and
// different ids different keys, and that a value that cannot be an id has no key.
func TestIDKeyIdentifiesID(t *testing.T) {
	same := [][2]string{{`"a"`, `"\u0061"`}, {`1`, `1`}}
	for _, p := range same {
		a, _ := IDKey(json.RawMessage(p[0]))
		b, _ := IDKey(json.RawMessage(p[1]))
		if a != b {
			t.Errorf("%s and %s: got keys %s and %s, want the same", p[0], p[1], a, b)
		}
	}
	different := [][2]string{{`1`, `"1"`}, {`9007199254740993`, `9007199254740992`}, {`""`, `0`}}
	for _, p := range different {
		a, okA := IDKey(json.RawMessage(p[0]))
		b, okB := IDKey(json.RawMessage(p[1]))
		if a == b || !okA || !okB {
			t.Errorf("%s and %s: got keys %s and %s, want two", p[0], p[1], a, b)
		}
	}
	for _, bad := range []string{``, `null`, `true`, `1.5`, `1e3`, `[]`, `{}`, `-`, `--1`} {
		if _, ok := IDKey(json.RawMessage(bad)); ok {
			t.Errorf("%s: got a key, want none", bad)
		}
	}
}
