package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestBenchmarksExist holds the table to the benchmarks of the packages. What is
// below them is named when they run: bench -quick runs all.
func TestBenchmarksExist(t *testing.T) {
	for _, s := range sets(table) {
		have := benchmarks(t, s.pkg)
		for _, name := range s.names {
			if top, _, _ := strings.Cut(name, "/"); !have["Benchmark"+top] {
				t.Errorf("%s has no Benchmark%s", s.pkg, top)
			}
		}
	}
}

// benchmarks are the names of a package's functions in its tests.
func benchmarks(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}

// TestRowsCanBePrinted: each unit is known, and both sides of a row measure the
// same.
func TestRowsCanBePrinted(t *testing.T) {
	for _, r := range table {
		for _, f := range r.figures() {
			if u, ok := units[f.unit]; !ok || u.suffix != units[r.pmcp.unit].suffix {
				t.Errorf("%s: the unit of %v", r.what, f)
			}
		}
	}
}

const printed = `goos: linux
pkg: pmcp/logstore
BenchmarkIngest/rows-CORES    	       1	     155000 lines/s	      2500.0 cpu-ns/line
BenchmarkIngest/store-CORES   	       2	    1240000 lines/s	       500.0 cpu-ns/line
BenchmarkQuery/tail-100/rows-CORES 	    1000	    204000 ns/op
BenchmarkQuery/tail-100/store-CORES	   10000	    102000 ns/op
PASS
`

func TestMarkdown(t *testing.T) {
	rows := []row{
		{"ingest", store("Ingest/store", "lines/s"), store("Ingest/rows", "lines/s"), "rows", wish{factor: 10}},
		{"readers", store("Ingest/rows", "lines/s"), store("Ingest/store", "lines/s"), "none", wish{factor: 0.1}},
		{"CPU", store("Ingest/store", "cpu-ns/line"), figure{}, "", wish{}},
		{"tail", store("Query/tail-100/store", "ns/op"), store("Query/tail-100/rows", "ns/op"), "rows", wish{atMost: 0.2e6}},
	}
	all := sets(rows)
	const pattern = "^BenchmarkIngest$/^store$|^BenchmarkIngest$/^rows$|^BenchmarkQuery$/^tail-100$/^store$|^BenchmarkQuery$/^tail-100$/^rows$"
	if len(all) != 1 || all[0].pattern() != pattern {
		t.Fatalf("sets %+v", all)
	}
	suffix := "-" + strconv.Itoa(cores())
	if cores() == 1 {
		suffix = ""
	}
	measured := map[figure]float64{}
	text := []byte(strings.ReplaceAll(printed, "-CORES", suffix))
	if err := parse(logstore, text, measured); err != nil {
		t.Fatal(err)
	}
	got, err := markdown(rows, measured)
	if err != nil {
		t.Fatal(err)
	}
	const want = `| what | pmcp | baseline | ratio | wished |
|---|---:|---:|---:|---:|
| ingest | 1.24M lines/s | 155k lines/s (rows) | 8× faster | ≥ 10× faster **not met** |
| readers | 155k lines/s | 1.24M lines/s (none) | 8× slower | ≥ 10 % of it |
| CPU | 500 ns |  |  |  |
| tail | 102 µs | 204 µs (rows) | 2× faster | ≤ 200 µs |
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
	if err := parse(logstore, text, measured); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("measured twice: %v", err)
	}
	delete(measured, store("Query/tail-100/rows", "ns/op"))
	if _, err := markdown(rows, measured); err == nil || !strings.Contains(err.Error(), "Query/tail-100/rows ns/op") {
		t.Errorf("a figure is missing: %v", err)
	}
}
