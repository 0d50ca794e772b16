package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// TestSpecRejectsBadMessages checks that spec.validate finds messages that violate the MCP
// schemas.
func TestSpecRejectsBadMessages(t *testing.T) {
	for version, bad := range map[string][]string{
		"2024-11-05": {`{"content":"x"}`, `{}`, `{"content":[{"type":"text"}]}`},
		"2025-11-25": {`{}`, `{"content":[{"type":"text","text":7}]}`, `{"content":[],"structuredContent":[]}`},
		"2026-07-28": {`{"content":[]}`, `{"resultType":"complete"}`},
	} {
		for _, raw := range bad {
			var result map[string]any
			check(t, json.Unmarshal([]byte(raw), &result))
			if readSpec(t, version).validate("tools/call", result) == nil {
				t.Errorf("%s accepts %s, want an error", version, raw)
			}
		}
	}
	for method, raw := range map[string]string{ // only the schema of the MCP specification rejects these messages
		"resources/read":                  `{"resultType":"complete","contents":[]}`,
		"error":                           `{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":""}}`,
		"notifications/resources/updated": `{"method":"notifications/resources/updated","params":{"uri":"a://b"}}`,
	} {
		var content map[string]any
		check(t, json.Unmarshal([]byte(raw), &content))
		if readSpec(t, "2026-07-28").validate(method, content) == nil {
			t.Errorf("2026-07-28 accepts %s, want an error", raw)
		}
	}
}

// A spec holds the JSON schemas of one version of MCP: those of results and notifications,
// keyed by method, and those of errors under the key "error". For each key there is one
// schema from each source.
type spec map[string][]*jsonschema.Resolved

// rpcField is a field of every message that the SDK's schemas do not mention.
const rpcField = "jsonrpc"

func readSpec(t *testing.T, version string) spec {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "mcp-schema", version+"*.json"))
	check(t, err)
	if len(files) == 0 {
		t.Fatalf("got no schema of %s, want one", version)
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

// validate returns the first violation of the schemas for the method in content.
func (s spec) validate(method string, content any) error {
	for _, schema := range s[method] {
		if err := schema.Validate(content); err != nil {
			return err
		}
	}
	return nil
}

// check validates a message against its schemas and returns the kind of message.
func (s spec) check(t *testing.T, method string, m message) (kind string) {
	kind = method
	var content any = m.Result
	switch {
	case m.Error != nil:
		method, kind = "error", fmt.Sprintf("error %d", *m.Error.Code)
		var whole map[string]any
		check(t, json.Unmarshal([]byte(m.Raw), &whole))
		if whole["id"] == nil {
			delete(whole, "id") // if the id of a request is unknown, JSON-RPC 2.0 wants null and MCP no id
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
		t.Errorf("got a message that this revision does not have: %s", m.Raw)
	} else if err := s.validate(method, content); err != nil {
		t.Errorf("%s: %v\n%s", method, err, m.Raw)
	}
	return kind
}
