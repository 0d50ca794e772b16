package e2e

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"pmcp/process/proctest"
)

// TestMain runs the tests or, if the arguments name a helper program, that program; see
// programs_test.go.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == programMarker {
		os.Exit(runProgram(os.Args[2], os.Args[3:]))
	}
	dir, err := os.MkdirTemp("", "pmcp-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	build.dir = dir
	proctest.Interruptible()
	// Most tests wait most of the time: with one a core, all took twice as long (382 s to 169 s, at three a core,
	// on two cores). A flag on the command line overrides this.
	if err := flag.Set("test.parallel", fmt.Sprint(4*runtime.NumCPU())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
