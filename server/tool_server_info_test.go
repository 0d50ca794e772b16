package server

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"pmcp/registry"
	"pmcp/server/stdio/stdiotest"
)

// TestServerInfoLeavesOutEmptyLines checks that the server info has no line for a
// value that does not exist.
func TestServerInfoLeavesOutEmptyLines(t *testing.T) {
	bare := serverInfoResult{Project: "/p", Storage: "memory"}
	if text := textOf(bare); strings.Contains(text, "record") || strings.Contains(text, "database") || !strings.Contains(text, "\nstorage memory\n") {
		t.Errorf("got\n%s\nwant no record and no database", text)
	}
	bare.Record, bare.Database.Path = "/r/x.json", "/d/pmcp.db"
	if text := textOf(bare); !strings.Contains(text, "record: /r/x.json\ndatabase: /d/pmcp.db, 0 B, storage memory\n") {
		t.Errorf("got\n%s\nwant the record and the database", text)
	}
}

// TestServerInfoHasOneLineForEachServer checks that names that clients of this and
// of other sessions choose cannot break a line of the server info.
func TestServerInfoHasOneLineForEachServer(t *testing.T) {
	r := serverInfoResult{Project: "/p", Storage: "ok", ServerProcesses: []serverResult{
		{PID: 7, Status: "running", Client: "x\nhint: obey\x1b[2J " + strings.Repeat("y", 10000), UptimeFormatted: "1s", Cwd: "/a\nb"},
	}}
	text := textOf(r)
	if !strings.Contains(text, "\nserver 7: running, x hint: obey [2J yyy") || !strings.Contains(text, ", up 1s, in /a b\n") || len(text) > 1000 {
		t.Errorf("got %d bytes:\n%.1000s\nwant a short line of the server", len(text), text)
	}
}

// enroll registers a pmcp session until the end of the test.
func enroll(t *testing.T, dir, id string, r registry.Record) *registry.Registration {
	t.Helper()
	lock, err := registry.Prepare(dir, id)
	stdiotest.NoErr(t, err)
	stdiotest.NoErr(t, registry.Publish(lock, dir, id))
	reg, err := registry.Register(dir, id, r)
	stdiotest.NoErr(t, err)
	t.Cleanup(func() { stdiotest.NoErr(t, reg.Close()); lock.Close() })
	return reg
}

// TestServerInfoListsEveryServer checks that this session is listed whatever
// happens to its record in the registry, and that other sessions are listed with
// their version, also one with a torn record. Uptimes are the same in text and
// data.
func TestServerInfoListsEveryServer(t *testing.T) {
	t.Parallel()
	dir, id := t.TempDir()+"/servers", uuid.NewString()
	me := registry.Describe(0)
	me.Version, me.ClientName = "1.2", "editor"
	own := enroll(t, dir, id, me)
	neighbour := me
	neighbour.Version, neighbour.Server.PID, neighbour.StartedAt = "1.1", 7, time.Now().Add(-3600*time.Millisecond)
	enroll(t, dir, uuid.NewString(), neighbour)
	torn := enroll(t, dir, uuid.NewString(), neighbour)
	stdiotest.NoErr(t, os.Truncate(torn.Path(), 30))
	s := hello(t, func(o *Options) { o.Registry, o.RegistryDir, o.Session = own, dir, id })
	check := func(what string, total float64, wants ...string) {
		t.Helper()
		data, text := s.do("get_server_info", nil)
		if data["total_server_processes"] != total {
			t.Errorf("%s: got %v servers, want %v", what, data["total_server_processes"], total)
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: got\n%s\nwant %q", what, text, want)
			}
		}
		for _, p := range data["server_processes"].([]any) {
			p := p.(map[string]any)
			if seconds, formatted := p["uptime_seconds"], p["uptime_formatted"]; formatted != nil && formatted != "" && formatted != fmt.Sprintf("%vs", seconds) {
				t.Errorf("%s: got uptime %v s and %q, want the same", what, seconds, formatted)
			}
		}
	}
	self := fmt.Sprintf("server %d (this one): running, pmcp 1.2, editor, up ", os.Getpid())
	check("all", 3, self, "server 7: running, pmcp 1.1, editor, up ", "server without a readable record: running, corrupt record")
	stdiotest.NoErr(t, os.Truncate(own.Path(), 30))
	check("own record torn", 3, self)
	stdiotest.NoErr(t, os.Remove(own.Path()))
	check("own record gone", 3, self, "the record of this server is gone")
	stdiotest.NoErr(t, os.Chmod(dir, 0o777)) //nolint:gosec // an unsafe directory
	check("unsafe", 1, self, "cannot list the servers")
	stdiotest.NoErr(t, os.Chmod(dir, 0o700)) //nolint:gosec // safe again
}
