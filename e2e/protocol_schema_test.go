package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// TestSpecRefuses holds the check itself.
func TestSpecRefuses(t *testing.T) {
	for version, bad := range map[string][]string{
		"2024-11-05": {`{"content":"x"}`, `{}`, `{"content":[{"type":"text"}]}`},
		"2025-11-25": {`{}`, `{"content":[{"type":"text","text":7}]}`, `{"content":[],"structuredContent":[]}`},
		"2026-07-28": {`{"content":[]}`, `{"resultType":"complete"}`},
	} {
		for _, raw := range bad {
			var result map[string]any
			check(t, json.Unmarshal([]byte(raw), &result))
			if readSpec(t, version).validate("tools/call", result) == nil {
				t.Errorf("%s takes %s", version, raw)
			}
		}
	}
	for method, raw := range map[string]string{ // what only the specification's own schema says
		"resources/read":                  `{"resultType":"complete","contents":[]}`,
		"error":                           `{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":""}}`,
		"notifications/resources/updated": `{"method":"notifications/resources/updated","params":{"uri":"a://b"}}`,
	} {
		var content map[string]any
		check(t, json.Unmarshal([]byte(raw), &content))
		if readSpec(t, "2026-07-28").validate(method, content) == nil {
			t.Errorf("2026-07-28 takes %s", raw)
		}
	}
}

// spec holds the schemas of one revision by method, of results and of
// notifications, and of "error": each of them from every source that there is.
type spec map[string][]*jsonschema.Resolved

// rpcField is in each message; the schemas of the SDK are of what is beside it.
const rpcField = "jsonrpc"

func readSpec(t *testing.T, version string) spec {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "mcp-schema", version+"*.json"))
	check(t, err)
	if len(files) == 0 {
		t.Fatalf("no schema of %s", version)
	}
	s := spec{}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		check(t, err)
		var file struct {
			Results, Notifications map[string]*jsonschema.Schema
			Error                  *jsonschema.Schema
			Defs                   map[string]*jsonschema.Schema `json:"$defs"`
		}
		check(t, json.Unmarshal(raw, &file))
		add := func(method string, schema *jsonschema.Schema) {
			if file.Defs != nil {
				schema.Defs = file.Defs
			} else if schema.Properties["method"] != nil {
				schema.Properties[rpcField] = &jsonschema.Schema{}
			}
			resolved, err := schema.CloneSchemas().Resolve(nil)
			check(t, err)
			s[method] = append(s[method], resolved)
		}
		for _, kind := range []map[string]*jsonschema.Schema{file.Results, file.Notifications} {
			for method, schema := range kind {
				add(method, schema)
			}
		}
		if file.Error != nil {
			add("error", file.Error)
		}
	}
	return s
}

// validate gives the first objection to content as a message of the method.
func (s spec) validate(method string, content any) error {
	for _, schema := range s[method] {
		if err := schema.Validate(content); err != nil {
			return err
		}
	}
	return nil
}

// check holds a message against its schema and gives its kind.
func (s spec) check(t *testing.T, method string, m message) (kind string) {
	kind = method
	var content any = m.Result
	switch {
	case m.Error != nil:
		method, kind = "error", fmt.Sprintf("error %d", *m.Error.Code)
		var whole map[string]any
		check(t, json.Unmarshal([]byte(m.Raw), &whole))
		if whole["id"] == nil {
			delete(whole, "id") // JSON-RPC 2.0 has null where the id is not known, MCP nothing
		}
		content = whole
	case m.Method != "":
		method, kind = m.Method, m.Method
		whole := map[string]any{rpcField: m.JSON, "method": m.Method}
		if m.Params != nil {
			whole["params"] = m.Params
		}
		content = whole
	}
	if len(s[method]) == 0 && method != "error" {
		t.Errorf("no such message in this revision: %s", m.Raw)
	} else if err := s.validate(method, content); err != nil {
		t.Errorf("%s: %v\n%s", method, err, m.Raw)
	}
	return kind
}
