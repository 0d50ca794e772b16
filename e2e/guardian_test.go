package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestGuardianInitialisesLittle checks that the launched process becomes the guardian before the
// packages of the server are initialised, by the runtime's list of what was. The guardian ends at
// once here, because its registry directory is not safe, so the server adds nothing to the list.
func TestGuardianInitialisesLittle(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Chmod(dir, 0o777))
	cmd := exec.Command(binary(t))
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1", "PM_REGISTRY_DIR="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(stderr.String(), "unsafe registry directory") {
		t.Fatalf("got %v and %s, want exit code 2 and a refusal of the directory", err, &stderr)
	}
	const most = 256 << 10 // 2026-11-23: 110 KiB; all packages together 2.7 MiB
	allocated := 0
	for _, init := range regexp.MustCompile(`(?m)^init (\S+) .* (\d+) bytes`).FindAllStringSubmatch(stderr.String(), -1) {
		n, err := strconv.Atoi(init[2])
		check(t, err)
		allocated += n
		for _, heavy := range []string{"net/http", "github.com/mark3labs/", "github.com/santhosh-tekuri/", "pmcp/logstore/mask", "pmcp/server/project"} {
			if strings.HasPrefix(init[1], heavy) {
				t.Errorf("the guardian initialises %s, want only what it needs", init[1])
			}
		}
	}
	t.Logf("%d bytes", allocated)
	if allocated == 0 || allocated > most {
		t.Errorf("the packages of the guardian allocate %d bytes before it starts, want at most %d:\n%s", allocated, most, &stderr)
	}
}

// TestServerInheritsNoLeakedDescriptor checks that the server has none of the descriptors that the client
// leaks to the launched process, also if that has other children or no stderr.
func TestServerInheritsNoLeakedDescriptor(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the descriptors of a process")
	}
	for _, script := range []string{`exec 7</dev/zero; exec "$0"`, `sleep 300 >&- 2>&- & exec 7</dev/zero; exec "$0"`, `exec 7</dev/zero 2>&-; exec "$0"`} {
		w := newWorld(t)
		c := w.launch(t, "/bin/sh", "-c", script, binary(t))
		c.initialize(t)
		server := c.must(t, "get_server_info", nil).num("current_pid")
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", server))
		check(t, err)
		for _, fd := range open {
			if target, _ := os.Readlink(fd); target == "/dev/zero" {
				t.Errorf("%s: the server has %s open, which the client leaks", script, fd)
			}
		}
		c.closeInput(t)
		c.exit(t)
		w.killRest(t)
	}
}
