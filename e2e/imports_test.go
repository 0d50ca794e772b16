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

// listed is what go list says of a package.
type listed struct {
	ImportPath string
	Imports    []string
}

// TestImports holds the packages apart: who may import which package of ours,
// and who may import the modules that stand for a border.
func TestImports(t *testing.T) {
	allowed := map[string][]string{
		"pmcp":                  {"pmcp/groups", "pmcp/health", "pmcp/logstore", "pmcp/logstore/mask", "pmcp/process", "pmcp/process/guard", "pmcp/registry", "pmcp/server", "pmcp/server/upstream"},
		"pmcp/server":           {"pmcp/groups", "pmcp/health", "pmcp/logstore", "pmcp/logstore/mask", "pmcp/process", "pmcp/registry", "pmcp/server/upstream"},
		"pmcp/server/upstream":  {},
		"pmcp/groups":           {"pmcp/process"},
		"pmcp/health":           {"pmcp/process", "pmcp/process/feed"},
		"pmcp/logstore":         {"pmcp/logstore/fault", "pmcp/logstore/mask"},
		"pmcp/logstore/fault":   {},
		"pmcp/logstore/mask":    {},
		"pmcp/registry":         {"pmcp/process/proctab"},
		"pmcp/process":          {"pmcp/process/feed", "pmcp/process/proctab"},
		"pmcp/process/feed":     {},
		"pmcp/process/guard":    {"pmcp/process/proctab"},
		"pmcp/process/proctab":  {},
		"pmcp/process/proctest": {}, // for tests
		"pmcp/e2e":              {},
	}
	borders := map[string][]string{
		"github.com/mark3labs/mcp-go":          {"pmcp/server"},
		"github.com/mattn/go-sqlite3":          {"pmcp/logstore"},
		"database/sql":                         {"pmcp/logstore"},
		"github.com/kelseyhightower/envconfig": {"pmcp"},
		"github.com/shirou/gopsutil":           {"pmcp/process", "pmcp/server"},
		"github.com/modelcontextprotocol":      {}, // tests only
	}
	for _, p := range listPackages(t) {
		may, known := allowed[p.ImportPath]
		if !known {
			t.Errorf("package %s is not in the table", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			if (i == "pmcp" || strings.HasPrefix(i, "pmcp/")) && !slices.Contains(may, i) {
				t.Errorf("%s must not import %s", p.ImportPath, i)
			}
			for prefix, who := range borders {
				if (i == prefix || strings.HasPrefix(i, prefix+"/")) && !slices.Contains(who, p.ImportPath) {
					t.Errorf("%s must not import %s", p.ImportPath, i)
				}
			}
		}
	}
}

func listPackages(t testing.TB) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
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
