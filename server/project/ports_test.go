package project

import (
	"fmt"
	"strings"
	"testing"

	"pmcp/logstore"
)

// TestPortsInUseAreRead checks that the port is read from what programs print when they
// cannot listen.
func TestPortsInUseAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"Error: listen EADDRINUSE: address already in use 127.0.0.1:8077\n    at Server.setupListenHandle (node:net:1817:16)": "[8077] true",
		"Error: listen EADDRINUSE: address already in use :::3000":                                                            "[3000] true",
		"  code: 'EADDRINUSE',\n  syscall: 'listen',\n  address: '::1',\n  port: 8077":                                        "[8077] true",
		"OSError: [Errno 98] Address already in use":                                                                          "[] true",
		"ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use":          "[8000] true",
		"Address already in use\nPort 5000 is in use by another program. Either identify and stop that program":               "[5000 5000] true",
		"2026/01/02 12:01:02 main.go:12: listen tcp :8080: bind: address already in use":                                      "[8080 12] true",
		"listen tcp [::1]:8080: bind: address already in use":                                                                 "[8080] true",
		"Error: Port 5173 is already in use":                                                                                  "[5173] true",
		"Web server failed to start. Port 8080 was already in use.":                                                           "[8080] true",
		"Failed to bind to address http://127.0.0.1:5000: address already in use.":                                            "[5000] true",
		`Address already in use - bind(2) for "127.0.0.1" port 3000 (Errno::EADDRINUSE)`:                                      "[3000] true",
		"nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)":                                             "[80] true",
		"Bind for 0.0.0.0:8080 failed: port is already allocated":                                                             "[8080] true",
		"error: Uncaught (in promise) AddrInUse: Address already in use (os error 98)":                                        "[] true",
		"listening on 127.0.0.1:3000\nError: no config":                                                                       "[] false",
	} {
		var lines []logstore.Line
		for l := range strings.SplitSeq(text, "\n") {
			lines = append(lines, logstore.Line{Text: l})
		}
		ports, failed := portsInUse(lines)
		if got := fmt.Sprint(ports, failed); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
