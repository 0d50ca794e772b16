package command

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMissingSuggestsSimilarNames checks that the error for a command that is not in PATH suggests
// similar names in a few words, and does not repeat PATH.
func TestMissingSuggestsSimilarNames(t *testing.T) {
	root := t.TempDir()
	bin, project := filepath.Join(root, "bin"), filepath.Join(root, "project")
	inner := filepath.Join(project, "packages", "web")
	for _, dir := range []string{filepath.Join(project, ".git"), inner} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"python3", "python3.12", "python3-config", "nodejs", "gofmt", "2to3"} {
		script(t, filepath.Join(bin, name), "")
	}
	symlink(t, bin, filepath.Join(root, "alias"))
	for _, file := range []string{"node_modules/.bin/vite", ".venv/bin/flask", "gradlew", "packages/web/serve", "packages/web/node_modules/.bin/next"} {
		script(t, filepath.Join(project, file), "")
	}
	script(t, filepath.Join(root, "outside"), "")
	for _, file := range []string{filepath.Join(bin, "pythons"), filepath.Join(inner, "app.py")} { // these files are not executable
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(root, "alias") + ":" + bin + ":" + filepath.Join(bin, "gofmt")
	for i := range 19 {
		path += ":" + filepath.Join(root, "a directory of PATH that is not there", strconv.Itoa(i))
	}
	for _, c := range []struct{ command, dir, want string }{
		{"pyhton", inner, "near it: python3, python3.12; else give an absolute path"},
		{"python", inner, "near it: python3, python3.12; else"},
		{"node", inner, "near it: nodejs; else"},
		{"vite", inner, "use " + filepath.Join(project, "node_modules/.bin/vite")},
		{"vite", project, "use ./node_modules/.bin/vite"},
		{"flask", project, "use ./.venv/bin/flask"},
		{"gradlew", inner, "use " + filepath.Join(project, "gradlew")},
		{"serve", inner, "use ./serve"},
		{"next", inner, "use ./node_modules/.bin/next"},
		{"app.py", inner, "./app.py is not executable: chmod +x it, or name its interpreter"},
		{"outside", inner, "searched: 22); give an absolute path, or PATH in env"},
		{"cargo", inner, "searched: 22); give an absolute path, or PATH in env"},
		{"npm run dev", inner, "searched: 22); with args, command is the program alone"},
		{strings.Repeat("x", 5000), inner, "searched: 22); give an absolute path"},
	} {
		_, err := lookup(c.command, c.dir, path)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20s in %s: %.500v; want %q in it", c.command, c.dir, err, c.want)
		}
		if err != nil && len(err.Error()) > 300+len(root) {
			t.Errorf("got %d bytes, want at most %d: %.500v", len(err.Error()), 300+len(root), err)
		}
	}
}

// TestMissingIgnoresDirectoriesOutsideProject checks that no similar names are looked for above the
// working directory if no directory above has a .git: such directories may belong to anyone, as in
// /tmp. The temporary directory of the test may itself be in a project, but beyond projectDepth.
func TestMissingIgnoresDirectoriesOutsideProject(t *testing.T) {
	root := filepath.Join(t.TempDir(), strings.Repeat("d/", projectDepth))
	inner := filepath.Join(root, "inner")
	script(t, filepath.Join(root, "planted"), "")
	script(t, filepath.Join(inner, "own"), "")
	for command, want := range map[string]string{"planted": "; give an absolute path", "own": "use ./own"} {
		if hint := missing(command, inner, nil).Error(); !strings.Contains(hint, want) {
			t.Errorf("%s: got %s, want %q in it", command, hint, want)
		}
	}
}

// TestNearestIsBounded checks that nearest reads no more directory entries than its limit.
func TestNearestIsBounded(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		script(t, filepath.Join(dir, "tool1"), "")
	}
	script(t, filepath.Join(dirs[1], "tool2"), "")
	if all := nearest("tool", dirs, 3); !slices.Equal(all, []string{"tool1", "tool2"}) {
		t.Errorf("with 3 entries: got %q, want tool1 and tool2", all)
	}
	if one := nearest("tool", dirs, 1); !slices.Equal(one, []string{"tool1"}) {
		t.Errorf("with 1 entry: got %q, want tool1", one)
	}
	if none := nearest("tool", dirs, 0); none != nil {
		t.Errorf("with 0 entries: got %q, want none", none)
	}
}
