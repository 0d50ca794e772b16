package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A listed is a package as go list prints it.
type listed struct {
	ImportPath, Doc string
	Imports         []string
}

// TestImportsMatchTable compares the imports between the packages of this module with a
// table, and checks that only certain packages import modules such as SQLite or mcp-go.
func TestImportsMatchTable(t *testing.T) {
	allowed := map[string][]string{
		"pmcp":                        {"pmcp/groups", "pmcp/health", "pmcp/logstore", "pmcp/logstore/db", "pmcp/logstore/mask", "pmcp/process", "pmcp/process/guard", "pmcp/registry", "pmcp/registry/guardian", "pmcp/server", "pmcp/server/cli", "pmcp/server/config", "pmcp/server/daemon", "pmcp/server/host", "pmcp/server/project", "pmcp/server/socket", "pmcp/server/upstream"},
		"pmcp/server":                 {"pmcp/groups", "pmcp/health", "pmcp/logstore", "pmcp/logstore/fault", "pmcp/logstore/line", "pmcp/logstore/mask", "pmcp/process", "pmcp/process/prose", "pmcp/registry", "pmcp/server/args", "pmcp/server/page", "pmcp/server/project", "pmcp/server/socket", "pmcp/server/sources", "pmcp/server/stdio", "pmcp/server/upstream", "pmcp/server/wake"},
		"pmcp/server/cli":             {"pmcp/groups", "pmcp/logstore", "pmcp/logstore/db", "pmcp/logstore/line", "pmcp/logstore/mask", "pmcp/process", "pmcp/process/guard", "pmcp/process/proctab", "pmcp/process/prose", "pmcp/registry", "pmcp/registry/doctor", "pmcp/server/args", "pmcp/server/config", "pmcp/server/daemon", "pmcp/server/page", "pmcp/server/project", "pmcp/server/socket", "pmcp/server/wake"},
		"pmcp/server/offered":         {},
		"pmcp/server/page":            {},
		"pmcp/server/config":          {"pmcp/process", "pmcp/process/command", "pmcp/registry", "pmcp/registry/doctor", "pmcp/server", "pmcp/server/args"},
		"pmcp/server/daemon":          {"pmcp/process/guard", "pmcp/process/proctab", "pmcp/process/sockets", "pmcp/registry", "pmcp/server/socket"},
		"pmcp/server/host":            {"pmcp/process/proctab", "pmcp/server/jsonrpc"},
		"pmcp/server/jsonrpc":         {"pmcp/process/prose"},
		"pmcp/server/socket":          {"pmcp/registry"},
		"pmcp/server/sources":         {"pmcp/server/worktree"},
		"pmcp/server/stdio":           {"pmcp/process/prose", "pmcp/server/jsonrpc"},
		"pmcp/server/stdio/stdiotest": {"pmcp/process/proctest"}, // used only by tests
		"pmcp/server/upstream":        {"pmcp/server/args", "pmcp/server/jsonrpc"},
		"pmcp/server/wake":            {"pmcp/logstore", "pmcp/process/prose"},
		"pmcp/server/watch":           {"pmcp/process", "pmcp/server/worktree"},
		"pmcp/server/worktree":        {},
		"pmcp/groups":                 {"pmcp/process", "pmcp/process/prose"},
		"pmcp/health":                 {"pmcp/process", "pmcp/process/feed", "pmcp/process/prose"},
		"pmcp/logstore":               {"pmcp/logstore/db", "pmcp/logstore/fault", "pmcp/logstore/line", "pmcp/logstore/mask", "pmcp/logstore/match", "pmcp/logstore/pack"},
		"pmcp/logstore/fault":         {},
		"pmcp/logstore/mask":          {},
		"pmcp/registry":               {"pmcp/process/proctab"},
		"pmcp/process":                {"pmcp/process/command", "pmcp/process/feed", "pmcp/process/proctab", "pmcp/process/prose", "pmcp/process/screen", "pmcp/process/sockets"},
		"pmcp/process/feed":           {},
		"pmcp/process/guard":          {"pmcp/process/proctab"},
		"pmcp/process/proctab":        {},
		"pmcp/process/proctest":       {}, // used only by tests
		"pmcp/logstore/match":         {},
		"pmcp/logstore/pack":          {},
		"pmcp/logstore/line":          {"pmcp/logstore/fault"},
		"pmcp/process/sockets":        {"pmcp/process/proctab"},
		"pmcp/process/ports":          {"pmcp/process/sockets"},
		"pmcp/process/prose":          {},
		"pmcp/process/screen":         {},
		"pmcp/process/command":        {"pmcp/process/proctab"},
		"pmcp/server/args":            {"pmcp/server/jsonrpc"},
		"pmcp/logstore/db":            {},
		"pmcp/registry/guardian":      {"pmcp/process/guard", "pmcp/registry"},
		"pmcp/registry/registrytest":  {"pmcp/process/proctab"}, // used only by tests
		"pmcp/registry/doctor":        {"pmcp/process/proctab", "pmcp/process/prose", "pmcp/registry"},
		"pmcp/server/project":         {"pmcp/groups", "pmcp/health", "pmcp/logstore", "pmcp/logstore/mask", "pmcp/process", "pmcp/process/command", "pmcp/process/ports", "pmcp/process/prose", "pmcp/process/screen", "pmcp/registry", "pmcp/server/args", "pmcp/server/offered", "pmcp/server/socket", "pmcp/server/sources", "pmcp/server/upstream", "pmcp/server/watch", "pmcp/server/worktree"},
		"pmcp/e2e":                    {},
	}
	borders := map[string][]string{
		"github.com/mark3labs/mcp-go":          {"pmcp/server", "pmcp/server/cli", "pmcp/server/stdio", "pmcp/server/stdio/stdiotest", "pmcp/server/upstream"},
		"github.com/mattn/go-sqlite3":          {"pmcp/logstore/db"},
		"database/sql":                         {"pmcp/logstore", "pmcp/logstore/db"},
		"github.com/kelseyhightower/envconfig": {"pmcp/server/config"},
		"github.com/spf13/cobra":               {"pmcp/server/cli"},
		"charm.land/bubbletea":                 {"pmcp/server/cli"},
		"github.com/charmbracelet/x/ansi":      {"pmcp/server/cli", "pmcp/process/screen"},
		"github.com/compose-spec/compose-go":   {"pmcp/server/project"},
		"github.com/sirupsen/logrus":           {"pmcp/server/project"},
		"github.com/klauspost/compress":        {"pmcp/logstore/pack"},
		"github.com/fsnotify/fsnotify":         {"pmcp/server/watch"},
		"github.com/bmatcuk/doublestar":        {"pmcp/server/offered", "pmcp/server/watch"},
		"github.com/tailscale/hujson":          {"pmcp/server/offered"},
		"go.yaml.in/yaml":                      {"pmcp/server/offered"},
		"github.com/shirou/gopsutil":           {"pmcp/process", "pmcp/server", "pmcp/process/sockets"},
		"github.com/modelcontextprotocol":      {}, // used only by tests
	}
	for _, p := range listPackages(t) {
		may, known := allowed[p.ImportPath]
		if !known {
			t.Errorf("the table lacks package %s", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			if (i == "pmcp" || strings.HasPrefix(i, "pmcp/")) && !slices.Contains(may, i) {
				t.Errorf("%s must not import %s", p.ImportPath, i)
			}
			for prefix, importers := range borders {
				if (i == prefix || strings.HasPrefix(i, prefix+"/")) && !slices.Contains(importers, p.ImportPath) {
					t.Errorf("%s must not import %s", p.ImportPath, i)
				}
			}
		}
	}
}

func listPackages(t testing.TB) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	check(t, err)
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		check(t, err)
		all = append(all, p)
	}
}
