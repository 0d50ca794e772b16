package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const installsWithin = 3 * time.Minute

// npm holds the errors of failed installations, so that each installation is tried only
// once in a run of the tests, and none after one that ran out of time: together they could
// take longer than go test allows.
var npm struct {
	sync.Mutex
	failed map[string]error
	silent error // of the installation that ran out of time
}

// npmPackages returns a node_modules directory with the given packages, each of the form
// NAME@VERSION. It installs the packages once for all runs of the tests, without running
// their scripts.
func npmPackages(packages ...string) (modules string, err error) {
	npm.Lock()
	defer npm.Unlock()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	name := strings.NewReplacer("@", "-", "/", "-").Replace(strings.Join(packages, "+"))
	dir := filepath.Join(cache, "pmcp-e2e", name)
	modules = filepath.Join(dir, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
	}
	if err, tried := npm.failed[name]; tried || npm.silent != nil {
		return "", cmp.Or(err, npm.silent)
	}
	err = installFromNPM(dir, packages)
	if errors.Is(err, context.DeadlineExceeded) {
		npm.silent = err
	}
	if npm.failed == nil {
		npm.failed = map[string]error{}
	}
	npm.failed[name] = err
	return modules, err
}

// installFromNPM creates dir with all packages. If one cannot be installed, dir is not
// created.
func installFromNPM(dir string, packages []string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "installing-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	ctx, cancel := context.WithTimeout(context.Background(), installsWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", append([]string{"install", "--prefix", fresh, "--no-audit", "--no-fund", "--no-update-notifier",
		"--ignore-scripts", "--prefer-offline", "--fetch-retries=0"}, packages...)...)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install: %w: %.500s", errors.Join(ctx.Err(), err), out)
	}
	if err := os.Rename(fresh, dir); err != nil && !os.IsExist(err) {
		if _, there := os.Stat(dir); there != nil { // if dir exists now, another run of the tests was faster
			return err
		}
	}
	return nil
}
