package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// build holds the pmcp binary of the test run, and the one that otherBinary returns.
var build struct {
	built
	other built
	dir   string // set by TestMain
}

// A built is a program that is built once for all tests.
type built struct {
	once sync.Once
	path string
	err  error
}

// binary returns the path of pmcp, built once for all tests, with the race detector if the
// tests are built with it.
func binary(t testing.TB) string {
	t.Helper()
	return build.get(t, "pmcp", nil)
}

// otherVersion is the version of the program that otherBinary returns.
const otherVersion = "9.9.9"

// otherBinary returns the path of a pmcp of otherVersion, which is the same but for that.
func otherBinary(t testing.TB) string {
	t.Helper()
	return build.other.get(t, "pmcp-"+otherVersion, func(main []byte) []byte {
		return regexp.MustCompile(`(?m)^const version = ".*"$`).ReplaceAll(main, []byte(`const version = "`+otherVersion+`"`))
	})
}

// get returns the path of the program, which it builds with that name and main.go as changed.
func (b *built) get(t testing.TB, name string, change func(main []byte) []byte) string {
	t.Helper()
	b.once.Do(func() {
		b.path, b.err = filepath.Join(build.dir, name), buildProgram(filepath.Join(build.dir, name), change)
	})
	if b.err != nil {
		t.Fatalf("cannot build %s: %v", name, b.err)
	}
	return b.path
}

// buildProgram builds pmcp at path, with main.go as changed, unless change is nil.
func buildProgram(path string, change func(main []byte) []byte) error {
	if err := openSources(); err != nil {
		return err
	}
	arguments := []string{"build", "-o", path}
	if raceDetector {
		arguments = append(arguments, "-race")
	}
	if change != nil {
		original, err := filepath.Abs("../main.go")
		if err != nil {
			return err
		}
		text, err := os.ReadFile(original)
		if err != nil {
			return err
		}
		overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: path + ".go"}})
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(path+".go", change(text), 0o600), os.WriteFile(path+".json", overlay, 0o600)); err != nil {
			return err
		}
		arguments = append(arguments, "-overlay", path+".json")
	}
	cmd := exec.Command("go", append(arguments, ".")...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// openSources opens the directories of the program: go test runs a test again whose opened files and directories have
// changed, and otherwise answers from its cache.
func openSources() error {
	return filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != ".." {
			return filepath.SkipDir
		}
		return err
	})
}
