package doctor

import (
	"errors"
	"strings"
	"testing"

	"pmcp/registry"
)

// TestDaemonHasNoClient checks that the report shows what a daemon dies with, and does not count a daemon
// whose parent has ended as one that has lost its client.
func TestDaemonHasNoClient(t *testing.T) {
	dir := t.TempDir()
	record := registry.Describe(0)
	record.Transport, record.DiesWith = registry.TransportDaemon, "process 77 (outer)"
	record.Parent = registry.Process{PID: 1 << 30, Start: 1}
	lock, reg, err := register(dir, registry.NewID(dir), record)
	must(t, err)
	defer func() { must(t, errors.Join(reg.Close(), lock.Close())) }()
	text, code := examine(Options{Dir: dir})
	for _, want := range []string{"transport=daemon", `dies_with="process 77 (outer)"`, "stale_client=false"} {
		if code != exitClean || !strings.Contains(text, want) {
			t.Errorf("got exit code %d and no %s in:\n%s", code, want, text)
		}
	}
}
