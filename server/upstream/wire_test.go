package upstream

import (
	"testing"
	"unicode/utf8"

	"pmcp/server/jsonrpc"
)

// TestTooLargeCallIsNoResponse checks that a message that is too large is
// recognised as a request or notification, not as a response, by its start.
func TestTooLargeCallIsNoResponse(t *testing.T) {
	for text, want := range map[string]bool{
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"x":"`: true,
		` { "method" : "x"`: true,
		`{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"`: true,
		`{"id":"a-1","method":"x","params":`:                        true,
		`{"jsonrpc":"2.0","id":7,"result":{"method":"x"`:            false,
		`{"result":{"method":"x"`:                                   false,
		`{"jsonrpc":"2.0","id":{"method":1},"result":`:              false,
	} {
		if got := isCall(jsonrpc.Line{Head: []byte(text)}); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// FuzzParse checks that parse accepts only complete messages in UTF-8, whatever a
// server sends.
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
			t.Errorf("got %+v for %q, want it rejected", m, text)
		}
		if ok && !(utf8.Valid(m.ID) && utf8.ValidString(m.Method) && utf8.Valid(m.Params) && utf8.Valid(m.Result)) {
			t.Errorf("got %+v for %q, want UTF-8", m, text)
		}
		_ = number(m.ID)
		_ = number(jsonrpc.Line{Head: text, Tail: text}.ID())
	})
}
