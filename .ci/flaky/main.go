// Command flaky prints the tests that failed and then passed when they ran again, with what they printed when they
// failed. Its arguments are files of test events, as go test -json and gotestsum write them, of runs with re-runs.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := report(path, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "flaky:", err)
			os.Exit(1)
		}
	}
}

func report(path string, out io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	flaky, err := read(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, t := range flaky {
		fmt.Fprintf(out, "FLAKY: %s\n%s", t.name, t.failure)
	}
	return nil
}

// A test is a top-level test with the output of its first run that failed.
type test struct {
	name    string // package.Test
	output  strings.Builder
	failure string
	passed  bool // the last run passed
}

// read returns the tests that failed first and passed last, in the order in which they ran.
func read(events io.Reader) (flaky []*test, err error) {
	var all []*test
	byName := map[string]*test{}
	for d := json.NewDecoder(events); ; {
		var e struct{ Action, Package, Test, Output string }
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		root, _, isSubtest := strings.Cut(e.Test, "/")
		if root == "" {
			continue // an event of the package
		}
		name := e.Package + "." + root
		t := byName[name]
		if t == nil {
			t = &test{name: name}
			all, byName[name] = append(all, t), t
		}
		switch {
		case e.Action == "output":
			t.output.WriteString(e.Output)
		case isSubtest:
		case e.Action == "run":
			t.output.Reset()
		case e.Action == "fail" && t.failure == "":
			t.failure, t.passed = t.output.String(), false
		case e.Action == "fail", e.Action == "pass":
			t.passed = e.Action == "pass"
		}
	}
	for _, t := range all {
		if t.passed && t.failure != "" {
			flaky = append(flaky, t)
		}
	}
	return flaky, nil
}
