package server

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pmcp/server/args"
	"pmcp/server/stdio/stdiotest"
)

// maxErrorBytes is the largest size of a tool's error, whatever the arguments
// are.
const maxErrorBytes = 2048

// argumentFields returns the paths of all arguments in the Go type of a tool's
// arguments, including the fields of objects and the arguments that the tool's
// schema does not list.
func argumentFields(prefix []string, typ reflect.Type) [][]string {
	var paths [][]string
	for _, f := range args.Fields(typ) {
		path := append(append([]string{}, prefix...), f.Name)
		paths = append(paths, path)
		if inner := args.Indirect(f.Type); inner.Kind() == reflect.Struct {
			paths = append(paths, argumentFields(path, inner)...)
		}
	}
	return paths
}

// TestErrorsQuoteLittleOfArguments passes long strings in several syntaxes as each
// argument of each tool, and checks that no error quotes a whole string.
func TestErrorsQuoteLittleOfArguments(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", "echo up; exec sleep 100")
	s.waitFor("job", "log", "pattern", "up")
	var longs []string
	for _, unit := range []string{"x", "a b ", "é\n\"(", "a,", "http://h:1/a%"} {
		longs = append(longs, strings.Repeat(unit, 20_000/len(unit)))
	}
	refused := 0
	// startArgs has all arguments of a definition, including those that schemas
	// leave out.
	paths := argumentFields(nil, reflect.TypeFor[startArgs]())
	for _, tool := range tools() {
		var schema struct {
			Properties map[string]any
			Required   []string
		}
		stdiotest.NoErr(t, json.Unmarshal(tool.input, &schema))
		all := [][]string{{"no_such_argument"}}
		for name := range schema.Properties {
			all = append(all, []string{name})
		}
		if tool.name == "start_process" || tool.name == "restart_process" {
			all = append(all, paths...)
		}
		for _, path := range all {
			for i, long := range longs {
				if i > 0 && len(path) > 1 {
					break // the others at the top level only
				}
				values := []any{long, []any{long}, map[string]any{long: long}}
				if i > 0 { // only the first string is also tried in a list and in an object
					values = values[:1]
				}
				for _, value := range values {
					arguments := map[string]any{}
					for _, required := range schema.Required {
						arguments[required] = "job"
					}
					for i := len(path) - 1; i > 0; i-- {
						value = map[string]any{path[i]: value}
					}
					if tool.name == "start_process" {
						arguments["name"], arguments["command"] = "other", "no such program"
					}
					arguments[path[0]] = value
					given, err := args.Give(arguments)
					stdiotest.NoErr(t, err)
					_, err = tool.call(t.Context(), s.server.ownCall(), given)
					if err == nil {
						continue
					}
					refused++
					if text := s.server.errorAnswer(err); len(text) > maxErrorBytes && !strings.Contains(text, outputNotice) {
						t.Errorf("%s, %s of %.12s…: got an error of %d bytes, want at most %d: %.300s", tool.name, strings.Join(path, "."), long, len(text), maxErrorBytes, text)
					}
				}
			}
		}
	}
	t.Logf("%d calls were refused", refused)
	if refused < 800 {
		t.Errorf("got %d calls refused, want at least 800", refused)
	}
	r := s.ask("tools/call", map[string]any{"name": "get_logs", "arguments": map[string]any{"since": strings.Repeat("x", 100_000)}})
	if r.Result["isError"] != true || len(r.Text()) > maxErrorBytes || !strings.Contains(r.Text(), `get_logs: argument since: `) || !strings.Contains(r.Text(), `xxx… [+`) {
		t.Errorf("got %s, want the argument and the beginning of the value", r.Raw)
	}
}

// TestInvalidArgumentIsNamed checks that arguments that no tool accepts are
// refused with a text that names the argument, or the number that no tool can hold.
func TestInvalidArgumentIsNamed(t *testing.T) {
	t.Parallel()
	s := hello(t)
	for call, want := range map[string]string{
		`"name":"get_logs","arguments":{"limit":1e400}`:                                            "cannot unmarshal number 1e400 into",
		`"name":"start_process","arguments":{"name":"a","ready":{"port":-1e999}}`:                  "cannot unmarshal number -1e999 into",
		`"name":"get_logs","arguments":{"x":[1,1e400]}`:                                            "cannot unmarshal number 1e400 into",
		`"name":"get_logs","arguments":{"":1}`:                                                     `get_logs: unknown argument "": there are process, run`,
		`"name":"get_logs","arguments":{"a\nb":1}`:                                                 `get_logs: unknown argument "a\nb": there are process, run`,
		`"name":"start_process","arguments":{"name":"a","command":"true","env":{"":"1"}}`:          `environment variable name "" is empty`,
		`"name":"start_process","arguments":{"name":"a","command":"true","env":{"X=1\nY":"1"}}`:    `environment variable name "X=1\nY" holds a = or a NUL byte`,
		`"name":"start_process","arguments":{"name":"a","command":"true","env":{"X\u0000Y":"1"}}`:  `environment variable name "X\x00Y" holds a = or a NUL byte`,
		`"name":"start_process","arguments":{"name":"a","command":"true","ready":{"hptt":"/"}}`:    "unknown argument ready.hptt: did you mean ready.http?",
		`"name":"start_process","arguments":{"name":"a","command":"true","ready":{"no such":"/"}}`: `unknown argument "ready.no such": `,
	} {
		s.lastID++
		s.Send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s}}`, s.lastID, call)
		r := s.wait(fmt.Sprint(s.lastID))
		got := r.Text()
		if r.Error != nil {
			got = r.Error.Message
		}
		if !strings.Contains(got, want) || r.Error == nil && r.Result["isError"] != true {
			t.Errorf("%s: got %s, want %q", call, r.Raw, want)
		}
	}
}

// TestTextsUseSingularForOne checks that texts that count one thing use the
// singular.
func TestTextsUseSingularForOne(t *testing.T) {
	for got, want := range map[string]string{
		textOf(getErrorsResult{Total: 1}):          "1 kind of errors\n",
		textOf(getErrorsResult{Total: 2}):          "2 kinds of errors\n",
		textOf(searchResult{Count: 1, Scanned: 1}): "1 match in 1 line\n",
		textOf(searchResult{Scanned: 2}):           "0 matches in 2 lines\n",
		usageResult{Processes: 1}.String() + "\n":  "0.0% of one core, 0 B, 1 process\n",
		usageResult{Processes: 10}.String() + "\n": "0.0% of one core, 0 B, 10 processes\n",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
