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
