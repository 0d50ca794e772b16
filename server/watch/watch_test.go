package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for a burst.
const patience = 20 * time.Second

// runGit is Options.Git.
func runGit(ctx context.Context, dir string, args ...string) ([]byte, int, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return output, exit.ExitCode(), nil
	}
	return output, 0, err
}

// write writes files, by their paths relative to dir, and makes their directories.
func write(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, name := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// repository returns a directory that is a repository, with these files; ignore is its .gitignore.
func repository(t *testing.T, ignore string, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	if output, code, err := runGit(t.Context(), dir, "init", "-q"); err != nil || code != 0 {
		t.Fatalf("git init: %v, %s", err, output)
	}
	write(t, dir, files...)
	if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(ignore), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// open watches paths below dir.
func open(t *testing.T, dir string, paths ...string) *Watcher {
	t.Helper()
	w, err := Open(t.Context(), Options{Dir: dir, Paths: paths, Git: runGit, Quiet: 150 * time.Millisecond, Skip: []string{filepath.Join(dir, "pm.db")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// next returns the files of the next burst.
func next(t *testing.T, w *Watcher) []string {
	t.Helper()
	select {
	case b, ok := <-w.Bursts():
		if !ok {
			t.Fatalf("watching has ended: %v", w.Err())
		}
		return b.Files
	case <-time.After(patience):
		t.Fatal("there was no burst")
	}
	return nil
}

// want fails unless the next bursts have exactly these files, in any order. A burst may be two on a slow machine.
func want(t *testing.T, w *Watcher, files ...string) {
	t.Helper()
	left := slices.Clone(files)
	for len(left) > 0 {
		got := next(t, w)
		for _, file := range got {
			i := slices.Index(left, file)
			if i < 0 && !slices.Contains(files, file) {
				t.Fatalf("got a burst of %q, want only %q", got, files)
			} else if i >= 0 {
				left = slices.Delete(left, i, i+1)
			}
		}
	}
}

func TestBurstHasWhatCounts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		paths  []string
		files  []string // there before
		ignore string   // .gitignore; "-": no repository
		do     func(t *testing.T, dir string)
		want   []string
	}{
		"write":       {paths: []string{"src"}, files: []string{"src/a.js", "b.js"}, do: func(t *testing.T, dir string) { write(t, dir, "b.js", "src/a.js") }, want: []string{"src/a.js"}},
		"removal":     {paths: []string{"src"}, files: []string{"src/a.js"}, do: func(t *testing.T, dir string) { must(t, os.Remove(dir+"/src/a.js")) }, want: []string{"src/a.js"}},
		"git ignores": {paths: []string{"."}, files: []string{"dist/x.js", "a.js"}, ignore: "*.log\ndist/\n", do: func(t *testing.T, dir string) { write(t, dir, "dist/x.js", "s.log", "a.js") }, want: []string{"a.js"}},
		"an ignored directory is made again": {paths: []string{"."}, files: []string{"dist/x.js"}, ignore: "dist/\n", do: func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir+"/dist"))
			write(t, dir, "dist/x.js", "a.js")
		}, want: []string{"a.js"}},
		"git ignores what is asked for": {paths: []string{"dist", ".env"}, files: []string{"dist/x.js", ".env"}, ignore: "dist/\n.env\n", do: func(t *testing.T, dir string) { write(t, dir, "dist/x.js", ".env") }, want: []string{"dist/x.js", ".env"}},
		"no repository":                 {paths: []string{"."}, files: []string{"dist/x.js", "a.js", "__pycache__/a.pyc"}, ignore: "-", do: func(t *testing.T, dir string) { write(t, dir, "dist/x.js", "__pycache__/a.pyc", "a.js") }, want: []string{"a.js"}},
		"own files":                     {paths: []string{"."}, files: []string{"a.js"}, do: func(t *testing.T, dir string) { write(t, dir, "pm.db", "pm.db-wal", "a.js") }, want: []string{"a.js"}},
		"a file":                        {paths: []string{"conf/a.toml"}, files: []string{"conf/a.toml"}, do: func(t *testing.T, dir string) { write(t, dir, "conf/b.toml", "conf/c/a.toml", "conf/a.toml") }, want: []string{"conf/a.toml"}},
		"a name by pattern":             {paths: []string{"*.env"}, files: []string{".env", "a/b/.env"}, ignore: ".env\n", do: func(t *testing.T, dir string) { write(t, dir, "a/x", ".env", "a/b/.env", "a/c/x.env") }, want: []string{".env", "a/b/.env", "a/c/x.env"}},
		"a path by pattern":             {paths: []string{"conf/**/*.{yml,yaml}"}, files: []string{"conf/a/b.yml"}, do: func(t *testing.T, dir string) { write(t, dir, "c.yml", "conf/c.yaml", "conf/a/b.yml", "conf/a/b.txt") }, want: []string{"conf/c.yaml", "conf/a/b.yml"}},
		"brackets in a name":            {paths: []string{"app/[id]"}, files: []string{"app/[id]/p.js"}, do: func(t *testing.T, dir string) { write(t, dir, "app/i/p.js", "app/[id]/p.js") }, want: []string{"app/[id]/p.js"}},
		"a new directory":               {paths: []string{"src"}, files: []string{"src/a.js"}, do: func(t *testing.T, dir string) { write(t, dir, "src/x/y/z.js") }, want: []string{"src/x/y/z.js"}},
		"a renamed directory":           {paths: []string{"src"}, files: []string{"src/a/b/c.js"}, do: func(t *testing.T, dir string) { must(t, os.Rename(dir+"/src/a", dir+"/src/d")) }, want: []string{"src/a", "src/d/b/c.js"}},
		"a directory made again": {paths: []string{"src"}, files: []string{"src/a.js"}, do: func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir+"/src"))
			write(t, dir, "src/b.js")
		}, want: []string{"src/a.js", "src/b.js"}},
		"names that git quotes": {paths: []string{"."}, files: []string{"a.js"}, ignore: "*.log\n", do: func(t *testing.T, dir string) { write(t, dir, "ü \"x\"\n.log", "é.js") }, want: []string{"é.js"}},
		"a submodule":           {paths: []string{"."}, files: []string{"sub/a.js"}, do: func(t *testing.T, dir string) { write(t, dir, "sub/x.tmp", "sub/a.js") }, want: []string{"sub/a.js"}},
		"saved by renaming over": {paths: []string{"src"}, files: []string{"src/a.js"}, do: func(t *testing.T, dir string) {
			write(t, dir, "src/a.js.tmp.123")
			must(t, os.Rename(dir+"/src/a.js.tmp.123", dir+"/src/a.js"))
		}, want: []string{"src/a.js"}},
		"saved by vim": {paths: []string{"src"}, files: []string{"src/a.js"}, do: func(t *testing.T, dir string) {
			output, err := exec.Command("vim", "-u", "NONE", "-N", "-es", "-c", "set backup backupcopy=no swapfile", "-c", "normal Ahello", "-c", "wq", dir+"/src/a.js").CombinedOutput()
			if err != nil {
				t.Fatalf("vim: %v: %s", err, output)
			}
		}, want: []string{"src/a.js"}},
		"attributes": {paths: []string{"src"}, files: []string{"src/a.js", "src/b.js"}, do: func(t *testing.T, dir string) {
			must(t, errors.Join(os.Chmod(dir+"/src/a.js", 0o600), os.Chtimes(dir+"/src/a.js", time.Now(), time.Now())))
			write(t, dir, "src/b.js")
		}, want: []string{"src/b.js"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := ""
			if test.ignore == "-" {
				dir = t.TempDir()
				write(t, dir, test.files...)
			} else {
				dir = repository(t, test.ignore, test.files...)
			}
			if name == "a submodule" {
				sub := repository(t, "*.tmp\n")
				must(t, os.Rename(sub+"/.git", dir+"/sub/.git"))
				must(t, os.Rename(sub+"/.gitignore", dir+"/sub/.gitignore"))
			}
			w := open(t, dir, test.paths...)
			test.do(t, dir)
			want(t, w, test.want...)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.js")
	home, err := os.UserHomeDir()
	must(t, err)
	for path, want := range map[string]string{
		"src":     `"src" does not exist in `,
		"src/*.x": `"src/*.x" does not exist in `,
		"~/x":     "~ is not replaced",
		"/":       "which is too much",
		home:      "which is too much",
		"x[":      "is no valid pattern",
	} {
		w, err := Open(t.Context(), Options{Dir: dir, Paths: []string{"a.js", path}})
		if err == nil {
			w.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open of %q: got the error %v, want one with %q", path, err, want)
		}
	}
}

func TestTooManyDirectoriesEndWatching(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{Dir: dir, Paths: []string{"."}, Quiet: 50 * time.Millisecond, maxDirs: 10}
	w, err := Open(t.Context(), o)
	must(t, err)
	defer w.Close()
	for i := range o.maxDirs {
		must(t, os.MkdirAll(fmt.Sprintf("%s/d%d/d%d", dir, i%3, i), 0o755))
	}
	for range w.Bursts() {
	}
	_, err = Open(t.Context(), o)
	for at, err := range map[string]error{"while it watches": w.Err(), "at the start": err} {
		if want := "more than 10 directories"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the error %v, want one with %q", at, err, want)
		}
	}
}

// TestIgnoredDirectoriesAreNotWatched holds what a tree with node_modules costs.
func TestIgnoredDirectoriesAreNotWatched(t *testing.T) {
	t.Parallel()
	dir := repository(t, "vendored/\n", "src/a.js", "node_modules/a.js", "vendored/a.js")
	const files = 10_000
	for i := range files {
		name := fmt.Sprintf("%s/%s/p%d", dir, []string{"node_modules", "vendored"}[i%2], i%200)
		must(t, os.MkdirAll(name, 0o755))
		must(t, os.Link(dir+"/src/a.js", fmt.Sprintf("%s/%d.js", name, i)))
	}
	began := time.Now()
	w := open(t, dir, ".")
	took := time.Since(began)
	w.Close()
	if got := len(w.dirs); got != 2 {
		t.Errorf("got %d directories watched, want 2: the top and src", got)
	}
	t.Logf("Open took %s", took)
}

// TestEveryChangeIsInABurst changes files 1,000 times, in 50 bursts, while the reader of the bursts is slow.
func TestEveryChangeIsInABurst(t *testing.T) {
	t.Parallel()
	dir := repository(t, "*.log\n")
	w := open(t, dir, ".")
	bursts := 0
	for i := range 50 {
		var files []string
		for j := range 10 {
			files = append(files, fmt.Sprintf("src/%d/%d.js", i, j))
			write(t, dir, fmt.Sprintf("%d.log", j))
		}
		write(t, dir, files...)
		for len(files) > 0 {
			got := next(t, w)
			bursts++
			files = slices.DeleteFunc(files, func(file string) bool { return slices.Contains(got, file) })
		}
	}
	if bursts > 75 { // a slow machine may divide some
		t.Errorf("got %d bursts for 50, want one for each", bursts)
	}
}

// TestMoreChangesThanFit changes more files at once than a burst keeps, of which most are ignored.
func TestMoreChangesThanFit(t *testing.T) {
	t.Parallel()
	dir := repository(t, "*.log\n")
	w := open(t, dir, ".")
	for i := range 2 * maxFiles {
		write(t, dir, fmt.Sprintf("%d.log", i))
	}
	write(t, dir, "a.js")
	want(t, w, "a.js")
	for i := range 2 * maxFiles {
		write(t, dir, fmt.Sprintf("%d.js", i))
	}
	for b := range w.Bursts() {
		if b.More {
			return
		}
	}
	t.Errorf("watching has ended: %v", w.Err())
}

// TestConstantIgnoredChangesDelayNoBurst holds that a log that git ignores does not keep a burst open.
func TestConstantIgnoredChangesDelayNoBurst(t *testing.T) {
	t.Parallel()
	dir := repository(t, "*.log\n")
	w := open(t, dir, ".")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = os.WriteFile(dir+"/s.log", []byte("x"), 0o644)
			<-time.After(w.o.Quiet / 10)
		}
	}()
	write(t, dir, "a.js")
	want(t, w, "a.js")
	stop()
	<-ended
}

func TestWaitingBurstTakesInLaterOnes(t *testing.T) {
	b := Burst{Files: []string{"a", "b"}}.with(Burst{Files: []string{"b", "c"}, More: true, Last: time.Unix(1, 0)})
	if want := []string{"a", "b", "c"}; !slices.Equal(b.Files, want) || !b.More || b.Last.Unix() != 1 {
		t.Errorf("got %+v, want the files %q, more, and the later time", b, want)
	}
}
