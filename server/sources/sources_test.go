package sources

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// runGit is a Git for tests.
func runGit(ctx context.Context, dir string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"}, arguments...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_LITERAL_PATHSPECS=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.Output()
	return string(out), err
}

// A tree is a directory with files, of git if it was asked for.
type tree struct {
	*testing.T
	dir string
}

func newTree(t *testing.T) tree {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return tree{t, dir}
}

func (d tree) git(arguments ...string) {
	d.Helper()
	if out, err := runGit(d.Context(), d.dir, arguments...); err != nil {
		d.Fatalf("git %v: %v: %s", arguments, err, out)
	}
}

// write writes files, each with another content than before.
func (d tree) write(names ...string) {
	d.Helper()
	for _, name := range names {
		path := filepath.Join(d.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			d.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, "// %d\n", time.Now().UnixNano()), 0o644); err != nil {
			d.Fatal(err)
		}
	}
}

// now returns a time that is after those of all files that were written, and before those of all that will be.
func (d tree) now() time.Time {
	d.Helper()
	begin := time.Now()
	for path := filepath.Join(d.TempDir(), "clock"); ; {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			d.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.ModTime().After(begin) {
			begin = info.ModTime()
			for { // the clock of files has advanced again
				if err := os.WriteFile(path, nil, 0o644); err != nil {
					d.Fatal(err)
				}
				if info, err = os.Stat(path); err != nil || info.ModTime().After(begin) {
					return begin
				}
			}
		}
	}
}

// look looks at a run of commands that started at since.
func (d tree) look(since time.Time, commands ...string) Changed {
	d.Helper()
	run := Run{Executable: filepath.Join(d.dir, strings.Fields(commands[0])[0])}
	for _, c := range commands {
		run.Programs = append(run.Programs, Program{Command: c, Dir: d.dir, Started: since})
	}
	return Look(d.Context(), runGit, []Run{run})[0]
}

func (d tree) want(since time.Time, command string, files ...string) {
	d.Helper()
	got := d.look(since, command)
	slices.Sort(got.Files)
	if got.Count != len(files) || !slices.Equal(got.Files, files) {
		d.Errorf("%s: got %v, want %v", command, got, files)
	}
}

// TestLookFindsWhatALanguageReads checks that each program is told of the files of its own language that git tracks or
// would track, and of no others.
func TestLookFindsWhatALanguageReads(t *testing.T) {
	d := newTree(t)
	tracked := strings.Fields("app.py app.js lib/util.ts go.mod main.go App.java app.rb work.php src/main.rs README.md logo.png config.json db.json package-lock.json tests/test_app.py app.test.js main_test.go " +
		"dist/app.js target/App.class tool.pl server")
	d.write("../v/env/bin/flask", "../v/app.py", "node_modules/.bin/ts-node", "node_modules/.bin/eslint")
	d.write(append(tracked, "new.py", "ignored/gen.py", "out.json", "app.log", "node_modules/x/index.js", ".venv/lib/a.py", "env/pyvenv.cfg", "env/b.py")...)
	if err := os.WriteFile(filepath.Join(d.dir, ".gitignore"), []byte("ignored/\n*.log\nnode_modules/\nenv/\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.git("init", "-q")
	d.git(append([]string{"add"}, tracked...)...)
	since := d.now()
	commands := map[string][]string{
		"python3 app.py": {"app.py", "new.py"}, "/usr/bin/python3.11 -m uvicorn app:app": {"app.py", "new.py"}, "gunicorn -w 4 app:app": {"app.py", "new.py"},
		"python3 tests/test_app.py": {"app.py", "new.py", "tests/test_app.py"}, "node app.js": {"app.js", "config.json", "lib/util.ts"}, "node ./node_modules/.bin/ts-node app.js": {"app.js", "config.json", "lib/util.ts"},
		"deno run -A app.js": {"app.js", "config.json", "lib/util.ts"}, "bun app.js": {"app.js", "config.json", "lib/util.ts"},
		"go run .": {"go.mod", "main.go"}, "java App.java": {"App.java"}, "mvn spring-boot:run": {"App.java"}, "java -cp target Main": {"target/App.class"},
		"ruby app.rb": {"app.rb"}, "puma 6.4 (tcp://localhost:3000) [shop]": {"app.rb"}, "php work.php": {"work.php"}, "cargo run": {"src/main.rs"},
		"node dist/app.js": {"dist/app.js"}, "swipl tool.pl": nil, "./server": {"server"}, "node": nil, "docker run node app.js": nil, "vim app.py": nil, "python3 -c import(app)": nil, "node -e 1": nil, "python3 /usr/bin/env": nil, "python3 ../v/env/bin/flask run": {"app.py", "new.py"}, "python3 ../v/app.py": nil, "node ./node_modules/.bin/eslint app.js": nil, "psql -h localhost": nil, "sh -c ./server": nil, "npm start": nil,
	}
	for command := range commands {
		d.want(since, command)
	}
	d.write(append(tracked, "new.py", "ignored/gen.py", "out.json", "app.log", "node_modules/x/index.js", ".venv/lib/a.py", "env/b.py")...)
	for command, files := range commands {
		if command == "swipl tool.pl" { // in no language
			if got := d.look(since, command); got.Count < 10 {
				t.Errorf("%s: got %v, want files of all languages", command, got)
			}
			continue
		}
		d.want(since, command, files...)
	}
	d.want(since, "python3 ignored/gen.py", "ignored/gen.py")
	d.want(d.now(), "python3 app.py")
	if got := d.look(d.now(), "python3 app.py"); !got.Current {
		t.Errorf("got %v, want that the code is current", got)
	}
}

// TestLookFollowsTheLatestStart checks that a worker that was started after a change has read it, and that the latest changes
// are named first.
func TestLookFollowsTheLatestStart(t *testing.T) {
	d := newTree(t)
	d.git("init", "-q")
	d.write("a.py", "b.py", "c.py", "d.py", "e.py")
	since := d.now()
	for _, name := range []string{"a.py", "b.py", "c.py", "d.py"} {
		d.write(name)
		d.now()
	}
	if got := d.look(since, "python3 a.py"); got.Count != 4 || !slices.Equal(got.Files, []string{"d.py", "c.py", "b.py"}) {
		t.Errorf("got %v, want the latest three of four", got)
	}
	later := d.now()
	run := Run{Programs: []Program{{"sh loop.sh", d.dir, since}, {"python3 a.py", d.dir, since}, {"python3 a.py", d.dir, later}}}
	if got := Look(t.Context(), runGit, []Run{run})[0]; got.Count != 0 {
		t.Errorf("after a worker was started again: got %v, want nothing", got)
	}
}

// TestLookNeedsNoGit checks that without a repository only the script counts.
func TestLookNeedsNoGit(t *testing.T) {
	d := newTree(t)
	d.write("app.py", "other.py")
	since := d.now()
	d.want(since, "python3 app.py")
	d.write("app.py", "other.py")
	d.want(since, "python3 app.py", "app.py")
	d.want(since, "python3 -m app")
}

// TestLookCrossesRepositories checks that the files of submodules count, and those of other work trees and repositories below
// do not, also if the run is in a linked work tree.
func TestLookCrossesRepositories(t *testing.T) {
	library := newTree(t)
	library.git("init", "-q")
	library.write("lib.py")
	library.git("add", ".")
	library.git("commit", "-qm", "lib")
	main := newTree(t)
	main.git("init", "-q")
	main.write("app.py")
	main.git("submodule", "-q", "add", library.dir, "vendored")
	main.git("add", ".")
	main.git("commit", "-qm", "app")
	main.git("worktree", "add", "-q", "work")
	main.git("init", "-q", "nested")
	work := tree{t, filepath.Join(main.dir, "work")}
	main.write("nested/n.py")
	since := main.now()
	main.write("app.py", "vendored/lib.py", "vendored/new.py", "work/app.py", "nested/n.py")
	main.want(since, "python3 app.py", "app.py", "vendored/lib.py", "vendored/new.py")
	work.want(since, "python3 app.py", "app.py")
}

// TestRebaseChangesOnlyWhatDiffers checks that files which git has written again with their content of before are no changes, if
// that is known.
func TestRebaseChangesOnlyWhatDiffers(t *testing.T) {
	d := newTree(t)
	d.git("init", "-q")
	d.write("app.py", "b.py")
	d.git("add", ".")
	d.git("commit", "-qm", "one")
	d.git("checkout", "-qb", "side")
	d.write("app.py", "c.py")
	d.git("add", ".")
	d.git("commit", "-qm", "two")
	commit := Commit(t.Context(), runGit, d.dir)
	since := d.now()
	d.git("checkout", "-q", "main")
	d.write("b.py", "new.py")
	d.git("add", ".")
	d.git("commit", "-qm", "three")
	d.git("checkout", "-q", "side")
	d.git("rebase", "-q", "main")
	for start, want := range map[string][]string{commit: {"b.py", "new.py"}, commit + " (dirty)": {"app.py", "b.py", "c.py", "new.py"}, "": {"app.py", "b.py", "c.py", "new.py"}, "0000000": {"app.py", "b.py", "c.py", "new.py"}} {
		run := Run{Programs: []Program{{"python3 app.py", d.dir, since}}, Commit: start}
		got := Look(t.Context(), runGit, []Run{run})[0]
		if got.Count != len(want) || len(want) <= maxNamed && !slices.Equal(slices.Sorted(slices.Values(got.Files)), want) {
			t.Errorf("started at %q: got %v, want %v", start, got, want)
		}
	}
}

// TestLookIgnoresOddTimes checks that a time in the future is no change, now or later, and neither is one of before.
func TestLookIgnoresOddTimes(t *testing.T) {
	d := newTree(t)
	d.git("init", "-q")
	d.write("app.py", "b.py", "c.py")
	set := func(name string, at time.Time) {
		if err := os.Chtimes(filepath.Join(d.dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	set("b.py", time.Now().Add(20*time.Millisecond))
	since := d.now()
	for !time.Now().After(since.Add(30 * time.Millisecond)) {
		d.now()
	}
	d.want(since, "python3 app.py")
	set("app.py", time.Now().Add(time.Hour))
	set("c.py", time.Now().Add(-time.Hour))
	d.want(since, "python3 app.py")
}

// TestLookKeepsItsBounds checks that nothing is said of a directory with more files than a look reads, or out of time.
func TestLookKeepsItsBounds(t *testing.T) {
	d := newTree(t)
	d.git("init", "-q")
	d.write("app.py")
	since := d.now()
	d.write("app.py")
	d.want(since, "python3 app.py", "app.py")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	run := Run{Programs: []Program{{"python3 -m app", d.dir, since}}}
	if got := Look(over, runGit, []Run{run})[0]; got.Count != 0 || got.Current {
		t.Errorf("out of time: got %v, want nothing", got)
	}
	for most, complete := range map[int]bool{1: false, 2: true} { // .git and app.py
		if got := list(t.Context(), d.dir, since, most); got.complete != complete {
			t.Errorf("at most %d files: got complete %v, want %v", most, got.complete, complete)
		}
	}
}

// many makes n files in directories of 100, half of them in Python.
func many(t testing.TB, dir string, n int) {
	for i := range n {
		if i%100 == 0 {
			if err := os.MkdirAll(filepath.Join(dir, "p", fmt.Sprint(i/100)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "p", fmt.Sprint(i/100), fmt.Sprint(i, []string{".py", ".md"}[i%2])), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkLook(b *testing.B) {
	for _, n := range []int{100, 2_000, 19_000} {
		for _, changed := range []bool{false, true} {
			b.Run(fmt.Sprintf("files=%d/changed=%v", n, changed), func(b *testing.B) {
				dir := b.TempDir()
				many(b, dir, n)
				for _, arguments := range [][]string{{"init", "-q"}, {"add", "."}} {
					if out, err := runGit(b.Context(), dir, arguments...); err != nil {
						b.Fatal(err, out)
					}
				}
				run := Run{Programs: []Program{{"python3 -m app", dir, time.Now()}}}
				if changed {
					if err := os.WriteFile(filepath.Join(dir, "p/0/0.py"), []byte("x"), 0o644); err != nil {
						b.Fatal(err)
					}
					run.Programs[0].Started = run.Programs[0].Started.Add(-10 * time.Millisecond)
				}
				for b.Loop() {
					Look(b.Context(), runGit, []Run{run})
				}
			})
		}
	}
}
