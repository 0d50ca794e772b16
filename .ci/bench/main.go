// The command bench prints how fast pmcp is, each figure beside a baseline that
// is measured in the same run, as Markdown:
//
//	go run ./.ci/bench
//
// It runs benchmarks of the packages, each once, and fails if one of them does
// or if a figure is missing. A wish that is not met is marked and fails nothing:
// what is measured on a busy machine proves nothing.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"
)

func main() {
	quick := flag.Bool("quick", false, "run each benchmark once, with little data: says whether all work, prints no figures")
	flag.Parse()
	if err := run(os.Stdout, os.Stderr, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures everything and prints the table to out. Progress goes to notes.
func run(out, notes io.Writer, quick bool) error {
	begin := time.Now()
	machine := describeMachine()
	measured := map[figure]float64{}
	for _, s := range sets(table) {
		fmt.Fprintf(notes, "%4.0fs %s: %d benchmarks\n", time.Since(begin).Seconds(), s.pkg, len(s.names))
		text, err := s.run(quick)
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", s.pkg, err, text)
		}
		if err := parse(s.pkg, text, measured); err != nil {
			return err
		}
	}
	text, err := markdown(table, measured)
	if err != nil {
		return err
	}
	fmt.Fprintf(notes, "%4.0fs done\n", time.Since(begin).Seconds())
	if !quick {
		fmt.Fprintf(out, "%s\n\n%s", machine, text)
	}
	return nil
}

// cores is what the benchmarks run with: all there are. It is part of their names
// in the output.
func cores() int { return runtime.GOMAXPROCS(0) }

// run gives what go test prints.
func (s set) run(quick bool) ([]byte, error) {
	args := []string{"test", "-run", "^$", "-bench", s.pattern(), "-cpu", strconv.Itoa(cores()), "-timeout", "20m"}
	if quick {
		args = append(args, "-benchtime", "1x")
	}
	cmd := exec.Command("go", append(args, s.pkg)...)
	cmd.Env = os.Environ()
	if quick {
		cmd.Env = append(cmd.Env, "LOGSTORE_BENCH_LINES=20000")
	}
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	return text.Bytes(), err
}
