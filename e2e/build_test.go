package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// build holds the path of the one pmcp binary of the test run.
var build struct {
	once sync.Once
	dir  string // set by TestMain
	path string
	err  error
}

// binary returns the path of pmcp, built once for all tests, with the race detector if the
// tests are built with it.
func binary(t testing.TB) string {
	t.Helper()
	build.once.Do(func() {
		build.path = filepath.Join(build.dir, "pmcp")
		arguments := []string{"build", "-ldflags", "-X pmcp/process/proctab.slowness=6", "-o", build.path} // see endsWithin
		if raceDetector {
			arguments = append(arguments, "-race")
		}
		cmd := exec.Command("go", append(arguments, ".")...)
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatalf("cannot build pmcp: %v", build.err)
	}
	return build.path
}
