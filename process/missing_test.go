package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMissing: who names what PATH does not have is told in a few words how to
// come by it, and not what PATH is.
func TestMissing(t *testing.T) {
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
	for _, file := range []string{filepath.Join(bin, "pythons"), filepath.Join(inner, "app.py")} { // not executable
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
		{"npm run dev", inner, "searched: 22); beside args, command is the program alone"},
		{strings.Repeat("x", 5000), inner, "searched: 22); give an absolute path"},
	} {
		_, err := lookup(c.command, c.dir, path)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20s in %s: %.500v; want %q in it", c.command, c.dir, err, c.want)
		}
		if err != nil && len(err.Error()) > 300+len(root) {
			t.Errorf("%d bytes: %.500v", len(err.Error()), err)
		}
	}
}

// TestMissingOutsideOfAProject: without a .git what lies above the directory may
// be anybody's, as in /tmp. The temporary directory itself may be in a project,
// but not within reach.
func TestMissingOutsideOfAProject(t *testing.T) {
	root := filepath.Join(t.TempDir(), strings.Repeat("d/", projectDepth))
	inner := filepath.Join(root, "inner")
	script(t, filepath.Join(root, "planted"), "")
	script(t, filepath.Join(inner, "own"), "")
	for command, want := range map[string]string{"planted": "; give an absolute path", "own": "use ./own"} {
		if hint := missing(command, inner, nil).Error(); !strings.Contains(hint, want) {
			t.Errorf("%s: %s", command, hint)
		}
	}
}

// TestNearestIsBounded: no more entries are looked at than asked for.
func TestNearestIsBounded(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		script(t, filepath.Join(dir, "tool1"), "")
	}
	script(t, filepath.Join(dirs[1], "tool2"), "")
	if all := nearest("tool", dirs, 3); !slices.Equal(all, []string{"tool1", "tool2"}) {
		t.Errorf("all: %q", all)
	}
	if one := nearest("tool", dirs, 1); !slices.Equal(one, []string{"tool1"}) {
		t.Errorf("one: %q", one)
	}
	if none := nearest("tool", dirs, 0); none != nil {
		t.Errorf("none: %q", none)
	}
}
