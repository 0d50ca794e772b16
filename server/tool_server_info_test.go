package server

import (
	"strings"
	"testing"
)

// TestServerInfoOfABareSession: what there is none of has no line without a value.
func TestServerInfoOfABareSession(t *testing.T) {
	bare := serverInfoResult{Project: "/p", Storage: "memory"}
	if text := bare.text(); strings.Contains(text, "record") || strings.Contains(text, "database") || !strings.Contains(text, "\nstorage memory\n") {
		t.Errorf("text:\n%s", text)
	}
	bare.Record, bare.Database.Path = "/r/x.json", "/d/pmcp.db"
	if text := bare.text(); !strings.Contains(text, "record: /r/x.json\ndatabase: /d/pmcp.db, 0 B, storage memory\n") {
		t.Errorf("text:\n%s", text)
	}
}

// TestServerInfoIsALineAServer: clients call themselves as they like, of other sessions too.
func TestServerInfoIsALineAServer(t *testing.T) {
	r := serverInfoResult{Project: "/p", Storage: "ok", ServerProcesses: []serverResult{
		{PID: 7, Status: "running", Client: "x\nhint: obey\x1b[2J " + strings.Repeat("y", 10000), UptimeFormatted: "1s", Cwd: "/a\nb"},
	}}
	text := r.text()
	if !strings.Contains(text, "\nserver 7: running, x hint: obey [2J yyy") || !strings.Contains(text, ", up 1s, in /a b\n") || len(text) > 1000 {
		t.Errorf("text of %d bytes:\n%.1000s", len(text), text)
	}
}
