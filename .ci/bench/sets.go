package main

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A figure is one number in a benchmark's line of output.
type figure struct {
	pkg  string // as an argument of go test
	name string // the full name without "Benchmark" and the number of cores
	unit string // as printed by package testing
}

func (f figure) String() string { return fmt.Sprintf("%s Benchmark%s %s", f.pkg, f.name, f.unit) }

// A set is the benchmarks to run in one package.
type set struct {
	pkg   string
	names []string
}

// sets returns each benchmark that the rows need once, by package in the order of the
// rows.
func sets(rows []row) (all []set) {
	for _, r := range rows {
		for _, f := range r.figures() {
			i := slices.IndexFunc(all, func(s set) bool { return s.pkg == f.pkg })
			if i < 0 {
				i = len(all)
				all = append(all, set{pkg: f.pkg})
			}
			if !slices.Contains(all[i].names, f.name) {
				all[i].names = append(all[i].names, f.name)
			}
		}
	}
	return all
}

// pattern returns the argument of -bench that selects exactly the benchmarks of the set.
func (s set) pattern() string {
	var all []string
	for _, name := range s.names {
		parts := strings.Split("Benchmark"+name, "/")
		for i, part := range parts {
			parts[i] = "^" + part + "$"
		}
		all = append(all, strings.Join(parts, "/"))
	}
	return strings.Join(all, "|")
}

// parse adds the figures in the output of go test to into.
func parse(pkg string, text []byte, into map[figure]float64) error {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if cores() > 1 {
			name = strings.TrimSuffix(name, "-"+strconv.Itoa(cores()))
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("%s: cannot read %q", pkg, lines.Text())
			}
			f := figure{pkg, name, fields[i+1]}
			if _, twice := into[f]; twice {
				return fmt.Errorf("%v was measured twice", f)
			}
			into[f] = value
		}
	}
	return nil
}
