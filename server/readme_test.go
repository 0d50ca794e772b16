package server

import (
	"os"
	"regexp"
	"testing"
)

// TestReadmeTablesMatchCode checks that README.md's tables of tools, resources
// and prompts list exactly those of the code.
func TestReadmeTablesMatchCode(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+_[a-z_]+|[a-z]+://[^`]+)` \\|").FindAllSubmatch(readme, -1) {
		documented[string(m[1])] = true
	}
	var names []string
	for _, tool := range tools() {
		names = append(names, tool.name)
	}
	names = append(names, dashboardURI)
	for _, r := range append(resources(), templates()...) {
		names = append(names, r.uri)
	}
	for _, p := range prompts() {
		names = append(names, p.name)
	}
	for _, name := range names {
		if !documented[name] {
			t.Errorf("%s is in the code but not in README.md", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is in README.md but not in the code", name)
	}
}
