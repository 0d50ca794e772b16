package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the entry of the helper programs: see programs_test.go.
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
	// Most tests wait for other processes: more of them at once than there are
	// cores. The command line still decides.
	if err := flag.Set("test.parallel", "8"); err != nil {
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
