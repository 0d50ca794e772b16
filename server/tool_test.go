package server

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pmcp/server/args"
	"pmcp/server/stdio/stdiotest"
)

var update = flag.Bool("update", false, "rewrite the golden files of the tools")

// generate returns t with schemas that are generated from its structs, as its golden file must
// hold them.
func generate(t *testing.T, tool tool) tool {
	t.Helper()
	var err error
	tool.input, err = inputSchema(tool.args)
	stdiotest.NoErr(t, err)
	tool.output = nil
	if result := args.Indirect(tool.result); result.Kind() != reflect.Interface {
		tool.output, err = outputSchema(result)
		stdiotest.NoErr(t, err)
	}
	return tool
}

// TestToolDefinitionsMatchGoldenFile compares every tool's definition, with the schemas of its
// structs, with a reviewed golden file, and checks that clients get what the file holds.
func TestToolDefinitionsMatchGoldenFile(t *testing.T) {
	seen := make(map[string]bool)
	for _, tool := range tools() {
		served, err := json.Marshal(tool.definition(true))
		stdiotest.NoErr(t, err)
		raw, err := json.Marshal(generate(t, tool).definition(true))
		if err != nil {
			t.Fatal(err)
		}
		if !*update && !bytes.Equal(served, raw) {
			t.Errorf("%s: clients get\n%s\nwant\n%s", tool.name, served, raw)
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, raw, "", "  "); err != nil {
			t.Fatal(err)
		}
		pretty.WriteByte('\n')
		file := filepath.Join("testdata", "tools", tool.name+".json")
		seen[filepath.Base(file)] = true
		if *update {
			if err := os.WriteFile(file, pretty.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("got %v, want a golden file; run go test ./server -run Golden -update and review the change", err)
		} else if !bytes.Equal(golden, pretty.Bytes()) {
			t.Errorf("%s: got\n%s\nwant its golden file; run go test ./server -run Golden -update and review the change", tool.name, &pretty)
		}
	}
	files, err := os.ReadDir(filepath.Join("testdata", "tools"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !seen[f.Name()] {
			t.Errorf("%s: got a golden file without a tool, want none", f.Name())
		}
	}
}

// orders matches words with which a description would command the model instead of
// describing the tool. Directories of MCP servers refuse such descriptions.
var orders = regexp.MustCompile(`(?i)\b(must|always|never|important|you should|do not|first call)\b`)

// mcpRelays are the tools whose results come from another MCP server.
var mcpRelays = []string{"call_mcp_tool", "read_mcp_resource", "get_mcp_prompt"}

func TestToolTableIsConsistent(t *testing.T) {
	names := make(map[string]bool)
	for _, tool := range tools() {
		if names[tool.name] {
			t.Errorf("%s: got it in the table twice, want it once", tool.name)
		}
		names[tool.name] = true
		if tool.title == "" || !slices.Contains(allToolsets(), tool.toolset) {
			t.Errorf("%s: got title %q and toolset %q, want a title and a known toolset", tool.name, tool.title, tool.toolset)
		}
		if tool.hints.readOnly && tool.hints.destructive {
			t.Errorf("%s: got hints readOnly and destructive, want at most one", tool.name)
		}
		if n := len(tool.description); n < 20 || n > 400 {
			t.Errorf("%s: got a description of %d bytes, want 20 to 400", tool.name, n)
		}
		if order := orders.FindString(tool.description); order != "" {
			t.Errorf("%s: got %q in the description, want no orders", tool.name, order)
		}
		if bytes.Contains(tool.input, []byte(`"null"`)) || bytes.Contains(tool.output, []byte(`"null"`)) {
			t.Errorf("%s: got a type union in a schema, want none", tool.name)
		}
		if tool.output == nil && slices.Contains(mcpRelays, tool.name) {
			continue // the result comes from another MCP server
		}
		var output struct {
			Type       string
			Properties map[string]any
		}
		if err := json.Unmarshal(tool.output, &output); err != nil {
			t.Fatal(err)
		}
		if output.Type != "object" || output.Properties["events"] == nil {
			t.Errorf("%s: got an output schema of type %q with events %v, want an object with events", tool.name, output.Type, output.Properties["events"])
		}
	}
}

// TestToolsListIsSmallEnough bounds the size of the answer to tools/list, which every
// session pays for.
func TestToolsListIsSmallEnough(t *testing.T) {
	size := func(structured bool) (n int) {
		for _, tool := range tools() {
			raw, err := json.Marshal(tool.definition(structured))
			stdiotest.NoErr(t, err)
			n += len(raw)
		}
		return n
	}
	plain, structured := size(false), size(true)
	t.Logf("tools/list: %d bytes, %d with output schemas", plain, structured)
	if plain > 11<<10 || structured > 28<<10 {
		t.Errorf("tools/list: got %d bytes, %d with output schemas; want at most 11 KiB and 28 KiB", plain, structured)
	}
}

// TestHintsAreSent checks that the annotations of each tool, with the defaults of the
// protocol for what they leave out, say what its hints say.
func TestHintsAreSent(t *testing.T) {
	for _, tool := range tools() {
		a := tool.definition(false).Annotations
		switch readOnly := a.ReadOnlyHint != nil && *a.ReadOnlyHint; {
		case readOnly != tool.hints.readOnly:
			t.Errorf("%s: got readOnlyHint %t, want %t", tool.name, readOnly, tool.hints.readOnly)
		case !readOnly && (a.DestructiveHint == nil || *a.DestructiveHint != tool.hints.destructive):
			t.Errorf("%s: got destructiveHint %v, want %t", tool.name, a.DestructiveHint, tool.hints.destructive)
		}
	}
}

// TestEveryArgumentIsNamed checks that each argument that a tool takes is in its definition:
// in the schema or, by name, in a description. Some tools refer to another one, and lines and
// max_bytes mean the same in all tools that show lines.
func TestEveryArgumentIsNamed(t *testing.T) {
	brief := 0
	for _, tool := range tools() {
		if tool.name == "restart_process" || slices.Contains(mcpRelays, tool.name) {
			continue
		}
		calls := []args.Given{{"qqqqqq": json.RawMessage("1")}}
		if tool.name == "start_process" {
			calls = append(calls, args.Given{"ready": json.RawMessage(`{"qqqqqq":1}`)})
		}
		for _, call := range calls {
			_, err := tool.call(t.Context(), nil, call)
			if err == nil || !strings.Contains(err.Error(), "qqqqqq: there are ") {
				t.Fatalf("%s %s: got the error %v, want one that lists the arguments", tool.name, call, err)
			}
			_, list, _ := strings.Cut(err.Error(), "qqqqqq: there are ")
			for name := range strings.SplitSeq(strings.TrimSpace(list), ", ") {
				if name == "none" || name == "lines" || name == "max_bytes" || bytes.Contains(tool.input, []byte(`"`+name+`":`)) {
					continue
				}
				brief++
				if !regexp.MustCompile(`\b` + name + `\b`).MatchString(tool.description + string(tool.input)) {
					t.Errorf("%s: got no word about the argument %s, want its name at least", tool.name, name)
				}
			}
		}
	}
	if brief < 10 {
		t.Errorf("got %d arguments that only a description names, want more: the test sees too little", brief)
	}
}

// TestBoundsOfLinesAreTheSameEverywhere checks that each tool that shows lines takes lines and
// max_bytes, and refuses the same values of them with the same words.
func TestBoundsOfLinesAreTheSameEverywhere(t *testing.T) {
	takes := make(map[string][]string) // the tools that take an argument
	for _, tool := range tools() {
		if slices.Contains(mcpRelays, tool.name) {
			continue // max_bytes bounds results that another server sends
		}
		for _, c := range []struct{ argument, value, want string }{
			{"lines", "0", "argument lines: want an integer from 1 to 10000, got 0"},
			{"lines", "-1", "argument lines: want an integer from 1 to 10000, got -1"},
			{"lines", "10001", "argument lines: want an integer from 1 to 10000, got 10001"},
			{"lines", `"few"`, `argument lines: want an integer from 1 to 10000, got "few"`},
			{"max_bytes", "1", "argument max_bytes: want an integer from 512 to 8388608, got 1"},
			{"max_bytes", "1000000000", "argument max_bytes: want an integer from 512 to 8388608, got 1000000000"},
		} {
			_, err := tool.call(t.Context(), nil, args.Given{c.argument: json.RawMessage(c.value)})
			switch {
			case err == nil:
				t.Errorf("%s with %s %s: got no error, want %q", tool.name, c.argument, c.value, c.want)
			case strings.HasPrefix(err.Error(), "unknown argument "+c.argument):
			case err.Error() != c.want:
				t.Errorf("%s: got the error %q, want %q", tool.name, err, c.want)
			case !slices.Contains(takes[c.argument], tool.name):
				takes[c.argument] = append(takes[c.argument], tool.name)
			}
		}
	}
	lines := []string{
		"get_logs", "get_process_info", "restart_process", "search_logs", "send_input", "start_group", "start_process", "stop_process", "tail_logs", "wait_for_process",
	}
	for argument, want := range map[string][]string{"lines": lines, "max_bytes": append(slices.Clone(lines), "get_errors")} {
		slices.Sort(takes[argument])
		slices.Sort(want)
		if !slices.Equal(takes[argument], want) {
			t.Errorf("%s: got it taken by %v, want by %v", argument, takes[argument], want)
		}
	}
}

func TestBriefFieldsAreAcceptedButNotListed(t *testing.T) {
	for _, tool := range tools() {
		if tool.name != "restart_process" {
			continue
		}
		var schema struct {
			Properties map[string]any
		}
		if err := json.Unmarshal(tool.input, &schema); err != nil {
			t.Fatal(err)
		}
		if len(schema.Properties) != 1 || bytes.Contains(tool.input, []byte("additionalProperties")) {
			t.Errorf("restart_process: got schema %s, want process alone and more allowed", tool.input)
		}
	}
	var a restartArgs
	if err := decode(`{"process":"web","command":"x","timeout_ms":5}`, &a); err != nil || a.Command != "x" || a.TimeoutMS == nil || *a.TimeoutMS != 5 {
		t.Errorf("got %+v, %v; want command x and timeout 5", a, err)
	}
	if err := decode(`{"process":"web","comand":"x"}`, &a); err == nil {
		t.Error("got no error for a misspelt argument of start_process, want one")
	}
	if err := decode(`{"process":"web","secret_env":["X"]}`, &a); err == nil {
		t.Error("got no error for an internal field, want one")
	}
}

// decode fills a from the JSON of a call's arguments.
func decode(raw string, a any) error {
	given, err := args.Parse(json.RawMessage(raw))
	if err != nil {
		return err
	}
	return given.Decode(a)
}
