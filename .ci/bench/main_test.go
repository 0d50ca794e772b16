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

// TestBenchmarksExist checks the table against the benchmarks of the packages. It cannot
// see sub-benchmarks, which get their names when they run: bench -quick runs them all.
func TestBenchmarksExist(t *testing.T) {
	for _, s := range sets(table) {
		have := benchmarks(t, s.pkg)
		for _, name := range s.names {
			if top, _, _ := strings.Cut(name, "/"); !have["Benchmark"+top] {
				t.Errorf("%s has no Benchmark%s, want one", s.pkg, top)
			}
		}
	}
}

// benchmarks returns the names of the functions in a package's test files.
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

// TestRowsCanBePrinted checks that each unit is known, and that both figures of a row
// have the same dimension.
func TestRowsCanBePrinted(t *testing.T) {
	for _, r := range table {
		for _, f := range r.figures() {
			if u, ok := units[f.unit]; !ok || u.suffix != units[r.pmcp.unit].suffix {
				t.Errorf("%s: got the unit of %v, want one like that of %v", r.what, f, r.pmcp)
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
		{"ingest", store("Ingest/store", "lines/s"), store("Ingest/rows", "lines/s"), "rows", target{factor: 10}},
		{"readers", store("Ingest/rows", "lines/s"), store("Ingest/store", "lines/s"), "none", target{factor: 0.1}},
		{"CPU", store("Ingest/store", "cpu-ns/line"), figure{}, "", target{}},
		{"tail", store("Query/tail-100/store", "ns/op"), store("Query/tail-100/rows", "ns/op"), "rows", target{atMost: 0.2e6}},
	}
	all := sets(rows)
	const pattern = "^BenchmarkIngest$/^store$|^BenchmarkIngest$/^rows$|^BenchmarkQuery$/^tail-100$/^store$|^BenchmarkQuery$/^tail-100$/^rows$"
	if len(all) != 1 || all[0].pattern() != pattern {
		t.Fatalf("got sets %+v, want one with the pattern %s", all, pattern)
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
	const want = `| what | pmcp | baseline | ratio | target |
|---|---:|---:|---:|---:|
| ingest | 1.24M lines/s | 155k lines/s (rows) | 8× faster | ≥ 10× faster **missed** |
| readers | 155k lines/s | 1.24M lines/s (none) | 8× slower | ≥ 10 % of it |
| CPU | 500 ns |  |  |  |
| tail | 102 µs | 204 µs (rows) | 2× faster | ≤ 200 µs |
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if err := parse(logstore, text, measured); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("measured twice: got %v, want an error", err)
	}
	delete(measured, store("Query/tail-100/rows", "ns/op"))
	if _, err := markdown(rows, measured); err == nil || !strings.Contains(err.Error(), "Query/tail-100/rows ns/op") {
		t.Errorf("a figure is missing: got %v, want an error that names it", err)
	}
}
