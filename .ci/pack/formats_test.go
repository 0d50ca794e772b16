package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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

// TestSBOM checks that the SBOM names the modules, with their versions, that the linker recorded in
// each binary, and no other.
func TestSBOM(t *testing.T) {
	if !*full {
		t.Skip("needs -full: a quick release has no SBOM")
	}
	dir := theRelease(t)
	text, err := os.ReadFile(find(t, dir, "pmcp-*.cdx.json"))
	check(t, err)
	var bom struct {
		BOMFormat  string
		Components []struct{ PURL string }
	}
	check(t, json.Unmarshal(text, &bom))
	var named []string
	for _, c := range bom.Components {
		purl, _, _ := strings.Cut(c.PURL, "?")
		named = append(named, purl)
	}
	slices.Sort(named)
	for _, arch := range []string{"amd64", "arm64"} {
		unpacked := t.TempDir()
		unpack(t, dir, "pmcp-*-linux-"+arch+".tar.gz", unpacked)
		built, err := buildinfo.ReadFile(filepath.Join(unpacked, "bin", "pmcp"))
		check(t, err)
		var linked []string
		for _, m := range built.Deps {
			linked = append(linked, "pkg:golang/"+m.Path+"@"+m.Version)
		}
		slices.Sort(linked)
		if bom.BOMFormat != "CycloneDX" || len(linked) == 0 || !slices.Equal(named, linked) {
			t.Errorf("the SBOM (%s) names %q; %s links %q", bom.BOMFormat, named, arch, linked)
		}
	}
}
