// Bench prints how fast pmcp is as Markdown, each figure beside a baseline that is
// measured in the same run:
//
//	go run ./.ci/bench
//
// It runs benchmarks of the packages, each once, and fails if one of them fails or if a
// figure is missing. A missed target is marked but is not a failure: figures from a busy
// machine prove nothing.
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
	quick := flag.Bool("quick", false, "run each benchmark once, with little data, to check that all work; print no figures")
	flag.Parse()
	if err := run(os.Stdout, os.Stderr, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures everything and prints the table to out. It prints progress to progress.
func run(out, progress io.Writer, quick bool) error {
	start := time.Now()
	machine := describeMachine()
	measured := map[figure]float64{}
	for _, s := range sets(table) {
		fmt.Fprintf(progress, "%4.0fs %s: %d benchmarks\n", time.Since(start).Seconds(), s.pkg, len(s.names))
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
	fmt.Fprintf(progress, "%4.0fs done\n", time.Since(start).Seconds())
	if !quick {
		fmt.Fprintf(out, "%s\n\n%s", machine, text)
	}
	return nil
}

// cores returns the number of cores that the benchmarks use: all. It is part of their
// names in the output.
func cores() int { return runtime.GOMAXPROCS(0) }

// run runs the set and returns the output of go test.
func (s set) run(quick bool) ([]byte, error) {
	args := []string{"test", "-run", "^$", "-bench", s.pattern(), "-cpu", strconv.Itoa(cores()), "-timeout", "20m"}
	if quick {
		args = append(args, "-benchtime", "1x")
	}
	cmd := exec.Command("go", append(args, s.pkg)...)
	cmd.Env = append(os.Environ(), "LOGSTORE_BENCH_TENMILLION=1")
	if quick {
		cmd.Env = append(cmd.Env, "LOGSTORE_BENCH_LINES=20000")
	}
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	return text.Bytes(), err
}
