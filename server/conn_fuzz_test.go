package server

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"
)

// FuzzConn writes any bytes. They must not crash the server nor make it write
// anything but JSON-RPC messages, and a ping after them must be answered.
func FuzzConn(f *testing.F) {
	for _, seed := range []string{
		"", "\n\n", "{}", "[]", "null", "\x00", "\xff\xfe", `{"jsonrpc":"2.0"`, "\ufeff{}",
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"n","version":"v"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","arguments":{"text":"\u2028\ud800<"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"panic"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + modernMeta + `}}`,
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
		serveBytes(t, b.mcp, testWaits, data)
		for len(b.started) > 0 || len(b.ended) > 0 { // the tools are shared
			select {
			case <-b.started:
			case <-b.ended:
			}
		}
	})
}

// serveBytes has a connection read data and then a ping. The ping is answered,
// nothing comes but JSON-RPC messages, and the connection ends without an error.
func serveBytes(t *testing.T, s *mcpserver.MCPServer, waits func(method string, params json.RawMessage) bool, data []byte) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := newConn(s, connOptions{in: inR, out: outW, waits: waits, maxMessage: 64 << 10, drain: 100 * time.Millisecond})
	served := make(chan error, 1)
	go func() {
		err := c.serve(context.Background())
		outW.Close()
		served <- err
	}()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = inW.Write(data)
		_, _ = io.WriteString(inW, "\n"+`{"jsonrpc":"2.0","id":"after the fuzz","method":"ping"}`+"\n")
	}()
	out, checker := bufio.NewReader(outR), &rawClient{t: t}
	for answered := false; !answered; {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("no answer to the ping: %v", err)
		}
		r := checker.check(line)
		if len(r.ID) > 0 && !json.Valid(r.ID) {
			t.Errorf("id %q", r.ID)
		}
		answered = string(r.ID) == `"after the fuzz"` && r.Method == ""
	}
	<-written
	inW.Close()
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			break
		}
		checker.check(line)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}
