package e2e

import (
	"fmt"
	"os"
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
	proctest.Overlap() // with one test a core, all took twice as long: 382 s, and 169 s at three a core, on two cores
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
