package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// TestFormats checks server.json with the schema of the MCP registry, and the bundle's manifest with
// the validator of its format. It needs the Go module proxy and the npm registry.
func TestFormats(t *testing.T) {
	if !*full {
		t.Skip("needs -full: it downloads the schema and the validator")
	}
	dir := theRelease(t)
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/modelcontextprotocol/registry@v1.8.8").Output()
	check(t, err)
	var module struct{ Dir string }
	check(t, json.Unmarshal(out, &module))
	var schema jsonschema.Schema
	var entry any
	for path, value := range map[string]any{
		filepath.Join(module.Dir, "docs", "reference", "server-json", "draft", "server.schema.json"): &schema,
		filepath.Join(dir, "server.json"): &entry,
	} {
		text, err := os.ReadFile(path)
		check(t, err)
		check(t, json.Unmarshal(text, value))
	}
	resolved, err := schema.Resolve(nil)
	check(t, err)
	check(t, resolved.Validate(entry))
	delete(entry.(map[string]any), "version")
	if resolved.Validate(entry) == nil {
		t.Error("an entry without a version is valid, so the schema checks nothing")
	}
	bundle := t.TempDir()
	unpack(t, dir, "pmcp-*-linux-amd64.mcpb", bundle)
	if out, err := command(bundle, "npx", "-y", "@anthropic-ai/mcpb@2.1.2", "validate", "manifest.json"); err != nil {
		t.Errorf("mcpb validate: %v: %s", err, out)
	}
}
