package stdio

import (
	"io"
	"strings"
	"testing"
	"time"

	"pmcp/server/stdio/stdiotest"
)

// FuzzConn checks that no bytes from a client crash the server or make the server
// write anything but JSON-RPC messages, and that the server still answers a ping
// afterwards.
func FuzzConn(f *testing.F) {
	for _, seed := range []string{
		"", "\n\n", "{}", "[]", "null", "\x00", "\xff\xfe", `{"jsonrpc":"2.0"`, "\ufeff{}",
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"n","version":"v"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","arguments":{"text":"\u2028\ud800<"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"panic"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + stdiotest.ModernMeta + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + stdiotest.ModernMeta + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"test://missing"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":null}}`,
		`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"id":null,"error":null}`,
		`{"jsonrpc":"2.0","id":1,"METHOD":"ping","Id":2}`,
		strings.Repeat(`{"id":`, 5000), strings.Repeat("x", 70_000),
	} {
		f.Add([]byte(seed))
	}
	b := newToolbox()
	f.Fuzz(func(t *testing.T, data []byte) {
		stdiotest.ServeBytes(t, func(in io.Reader, out io.Writer) error {
			return NewConn(b.mcp, Options{In: in, Out: out, MaxMessage: 64 << 10, DrainTimeout: 100 * time.Millisecond}).Serve(t.Context())
		}, data)
		for len(b.started) > 0 || len(b.ended) > 0 { // all inputs share b
			select {
			case <-b.started:
			case <-b.ended:
			}
		}
	})
}
