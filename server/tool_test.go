package server

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files of the tools")

// TestToolsGolden holds every tool's definition to a file that a person has
// looked at.
func TestToolsGolden(t *testing.T) {
	seen := make(map[string]bool)
	for _, tool := range tools() {
		raw, err := json.Marshal(tool.definition())
		if err != nil {
			t.Fatal(err)
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
			t.Errorf("%v; run go test ./server -run Golden -update and look at the change", err)
		} else if !bytes.Equal(golden, pretty.Bytes()) {
			t.Errorf("%s differs from its golden file; run go test ./server -run Golden -update and look at the change", tool.name)
		}
	}
	files, err := os.ReadDir(filepath.Join("testdata", "tools"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !seen[f.Name()] {
			t.Errorf("%s is the golden file of no tool", f.Name())
		}
	}
}

// orders are words by which a description would command the model instead of
// saying what the tool does; directories of servers refuse them.
var orders = regexp.MustCompile(`(?i)\b(must|always|never|important|you should|do not|first call)\b`)

func TestToolInvariants(t *testing.T) {
	names := make(map[string]bool)
	for _, tool := range tools() {
		if names[tool.name] {
			t.Errorf("%s stands in the table twice", tool.name)
		}
		names[tool.name] = true
		if tool.title == "" || !slices.Contains(everyToolset(), tool.toolset) {
			t.Errorf("%s: title %q, toolset %q", tool.name, tool.title, tool.toolset)
		}
		if tool.hints.readOnly && tool.hints.destructive {
			t.Errorf("%s changes nothing and destroys something", tool.name)
		}
		if n := len(tool.description); n < 20 || n > 400 {
			t.Errorf("%s: description of %d bytes", tool.name, n)
		}
		if order := orders.FindString(tool.description); order != "" {
			t.Errorf("%s: description says %q", tool.name, order)
		}
		if bytes.Contains(tool.input, []byte(`"null"`)) || bytes.Contains(tool.output, []byte(`"null"`)) {
			t.Errorf("%s: a type union in a schema", tool.name)
		}
		if tool.output == nil && tool.name == "call_mcp_tool" {
			continue // its result is another server's
		}
		var output struct {
			Type       string
			Properties map[string]any
		}
		if err := json.Unmarshal(tool.output, &output); err != nil {
			t.Fatal(err)
		}
		if output.Type != "object" || output.Properties["events"] == nil {
			t.Errorf("%s: output schema of type %q, events %v", tool.name, output.Type, output.Properties["events"])
		}
	}
}

// TestToolsListBudget holds the price that every session pays.
func TestToolsListBudget(t *testing.T) {
	whole, withoutOutput := 0, 0
	for _, tool := range tools() {
		raw, err := json.Marshal(tool.definition())
		if err != nil {
			t.Fatal(err)
		}
		whole += len(raw)
		withoutOutput += len(raw) - len(tool.output)
	}
	t.Logf("tools/list: %d bytes, %d without output schemas", whole, withoutOutput)
	if whole > 32<<10 || withoutOutput > 16<<10 {
		t.Errorf("tools/list takes %d bytes, %d without output schemas; want at most 32 KiB and 16 KiB", whole, withoutOutput)
	}
}

type nested struct {
	Port *int `json:"port,omitempty" min:"0" max:"65535"`
}

type argsForTest struct {
	Name    string             `json:"name"`
	Process string             `json:"process,omitempty"`
	Mode    string             `json:"mode,omitempty" enum:"a|b"`
	Count   int                `json:"count,omitempty" min:"1" max:"10"`
	Words   []string           `json:"words,omitempty"`
	Env     map[string]*string `json:"env,omitempty"`
	Flag    *bool              `json:"flag,omitempty"`
	Inner   *nested            `json:"inner,omitempty"`
	List    []nested           `json:"list,omitempty"`
	Secret  string             `json:"secret,omitempty" schema:"internal"`
}

func TestDecodeArguments(t *testing.T) {
	var a argsForTest
	err := decodeArguments(json.RawMessage(`{"name":"n","mode":"","count":3.0,"words":[],"env":{"A":"1","B":null},"flag":false,"inner":{"port":0},"list":[{"port":1},{}]}`), &a)
	if err != nil {
		t.Fatal(err)
	}
	if a.Name != "n" || a.Count != 3 || a.Flag == nil || *a.Flag || *a.Env["A"] != "1" || a.Env["B"] != nil || *a.Inner.Port != 0 || len(a.List) != 2 || a.Words != nil {
		t.Errorf("decoded %+v", a)
	}
}

func TestDecodeArgumentsRefuses(t *testing.T) {
	for arguments, want := range map[string]string{
		`{}`:                            "missing argument: name",
		`{"name":null}`:                 "missing argument: name",
		`{"name":""}`:                   "missing argument: name",
		`[]`:                            "arguments: want an object, got []",
		`{"name":7}`:                    "argument name: want a string, got 7",
		`{"name":"n","cuont":1}`:        "unknown argument cuont: did you mean count?",
		`{"name":"n","Count":1}`:        "unknown argument Count: did you mean count?",
		`{"name":"n","secret":"s"}`:     "unknown argument secret",
		`{"name":"n","mode":"c"}`:       `argument mode: want one of a, b, got "c"`,
		`{"name":"n","count":11}`:       "argument count: want an integer from 1 to 10, got 11",
		`{"name":"n","count":"3"}`:      `argument count: want an integer from 1 to 10, got "3"`,
		`{"name":"n","count":1.5}`:      "argument count: want an integer from 1 to 10, got 1.5",
		`{"name":"n","words":"w"}`:      `argument words: want an array of strings, got "w"`,
		`{"name":"n","words":[null]}`:   `argument words: want an array of strings, got [null]`,
		`{"name":"n","env":{"A":1}}`:    "argument env: want an object with string values",
		`{"name":"n","flag":"yes"}`:     `argument flag: want true or false, got "yes"`,
		`{"name":"n","inner":{"p":1}}`:  "unknown argument inner.p: did you mean inner.port?",
		`{"name":"n","inner":[1]}`:      "argument inner: want an object, got [1]",
		`{"name":"n","list":[{"x":1}]}`: "unknown argument list[0].x",
	} {
		var a argsForTest
		if err := decodeArguments(json.RawMessage(arguments), &a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", arguments, err, want)
		}
	}
}

func TestNameStandsForProcess(t *testing.T) {
	var a struct {
		Process string `json:"process"`
	}
	if err := decodeArguments(json.RawMessage(`{"name":"web"}`), &a); err != nil || a.Process != "web" {
		t.Errorf("name for process: %+v, %v", a, err)
	}
	if err := decodeArguments(json.RawMessage(`{"name":"web","process":"api"}`), &a); err == nil {
		t.Error("name and process that differ were taken")
	}
}

func TestBriefFieldsAreTakenButNotListed(t *testing.T) {
	for _, tool := range tools() {
		if tool.name != "restart_process" {
			continue
		}
		var schema struct {
			Properties           map[string]any
			AdditionalProperties any
		}
		if err := json.Unmarshal(tool.input, &schema); err != nil {
			t.Fatal(err)
		}
		if len(schema.Properties) != 1 || schema.AdditionalProperties == false {
			t.Errorf("schema of restart_process: %s", tool.input)
		}
	}
	var a restartArgs
	if err := decodeArguments(json.RawMessage(`{"process":"web","command":"x","timeout_ms":5}`), &a); err != nil || a.Command != "x" || a.TimeoutMS != 5 {
		t.Errorf("decoded %+v, %v", a, err)
	}
	if err := decodeArguments(json.RawMessage(`{"process":"web","comand":"x"}`), &a); err == nil {
		t.Error("a misspelt argument of start_process was taken")
	}
	if err := decodeArguments(json.RawMessage(`{"process":"web","secret_env":["X"]}`), &a); err == nil {
		t.Error("an internal field was taken as an argument")
	}
}
