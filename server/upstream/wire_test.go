package upstream

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func TestLineReader(t *testing.T) {
	const most = 100
	fit, large := strings.Repeat("f", most), strings.Repeat("l", most+1)
	huge := "{\"id\":7," + strings.Repeat("h", 3*readSize) + "}"
	for _, source := range []func(io.Reader) io.Reader{
		func(r io.Reader) io.Reader { return r }, iotest.HalfReader, iotest.OneByteReader, iotest.DataErrReader,
	} {
		l := newLineReader(source(strings.NewReader("a\r\n\n"+fit+"\n"+large+"\nb\n"+huge+"\nunfinished")), most)
		for _, want := range []string{"a", "", fit, "", "b", "", "unfinished"} {
			got, err := l.next()
			if last := want == "unfinished"; string(got.text) != want || errors.Is(err, io.EOF) != last {
				t.Errorf("%q, %v; want %q", got.text, err, want)
			}
			switch got.size {
			case most + 2:
				if !got.tooLarge() || got.id() != 0 {
					t.Errorf("%+v", got)
				}
			case int64(len(huge)) + 1:
				if !got.tooLarge() || got.id() != 7 || len(got.head) > edge || len(got.tail) > edge || !bytes.HasSuffix(got.tail, []byte("h}")) {
					t.Errorf("id %d, head of %d, tail of %d bytes", got.id(), len(got.head), len(got.tail))
				}
			default:
				if got.tooLarge() {
					t.Errorf("%d bytes are too large", got.size)
				}
			}
		}
	}
}

// TestIDOfWhatIsTooLarge: the id is found at either end, and what only looks
// like one is not taken.
func TestIDOfWhatIsTooLarge(t *testing.T) {
	for text, want := range map[string]int64{
		`{"id":5,"result":{"x":"`:                              5,
		`{"jsonrpc":"2.0","id":6,"result":{`:                   6,
		` { "jsonrpc" : "2.0" , "id" : 7 , "result"`:           7,
		`…"}]},"jsonrpc":"2.0","id":8}`:                        8,
		`…"}]},"id":9,"jsonrpc":"2.0"}`:                        9,
		`{"result":{"id":1,"x":"`:                              0,
		`…{"id":1}}`:                                           0,
		`…,"id":1}}`:                                           0,
		`…,\"id\":1}"}`:                                        0,
		`{"jsonrpc":"2.0","id":"6","result":{`:                 0,
		`{"jsonrpc":"2.0","method":"x","params":{"id":1,"y":"`: 0,
	} {
		if got := (line{head: []byte(text), tail: []byte(text)}).id(); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// TestCallThatIsTooLarge is none that answers something.
func TestCallThatIsTooLarge(t *testing.T) {
	for text, want := range map[string]bool{
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"x":"`: true,
		` { "method" : "x"`: true,
		`{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"`: true,
		`{"id":"a-1","method":"x","params":`:                        true,
		`{"jsonrpc":"2.0","id":7,"result":{"method":"x"`:            false,
		`{"result":{"method":"x"`:                                   false,
		`{"jsonrpc":"2.0","id":{"method":1},"result":`:              false,
	} {
		if got := (line{head: []byte(text)}).isCall(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// FuzzParse: whatever a server sends, it is taken for a message or not, and
// what is taken has what a message needs.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"id":null,"method":"m"}`, `{"id":1,"error":{"code":1e3}}`, `[]`, `{"id":{},"result":null}`, "\x00",
		"{\"id\":1,\"result\":{\"a\":\"\xff\"}}", "{\"id\":\"\xff\",\"method\":\"\xff\",\"params\":{\"\xff\":1}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, ok := parse(text)
		if ok && m.Method == "" && (m.ID == nil || m.Result == nil && m.Error == nil) {
			t.Errorf("%q was taken: %+v", text, m)
		}
		if ok && !(utf8.Valid(m.ID) && utf8.ValidString(m.Method) && utf8.Valid(m.Params) && utf8.Valid(m.Result)) {
			t.Errorf("%q was taken, and is not UTF-8: %+v", text, m)
		}
		_ = number(m.ID)
		_ = line{head: text, tail: text}.id()
	})
}
