package project

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pmcp/server/stdio/stdiotest"
)

// git runs git in a directory, which it makes.
func git(t *testing.T, dir string, arguments ...string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	stdiotest.NoErr(t, os.MkdirAll(dir, 0o755))
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"}, arguments...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", arguments, err, out)
	}
}

// TestProjectOfDirectory checks to which project directories belong, in repositories that git made.
func TestProjectOfDirectory(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	stdiotest.NoErr(t, err)
	at := func(path string) string { return filepath.Join(root, path) }
	git(t, at("lib"), "init", "-q")
	git(t, at("lib"), "commit", "-q", "--allow-empty", "-m", "lib")
	git(t, at("shop"), "init", "-q")
	git(t, at("shop"), "submodule", "--quiet", "add", at("lib"), "sub")
	git(t, at("shop"), "commit", "-q", "-m", "shop")
	git(t, at("shop"), "worktree", "add", "-q", at("feature"))
	git(t, at("shop"), "worktree", "add", "-q", at("shop/.trees/nested"))
	git(t, at("feature"), "submodule", "--quiet", "update", "--init")
	git(t, at("shop/sub"), "worktree", "add", "-q", at("shop/subtree"))
	git(t, at("shop/vendor/repo"), "init", "-q")
	git(t, at("shop/.trees/nested/vendor/repo"), "init", "-q")
	git(t, root, "clone", "-q", "--bare", at("shop"), at("bare"))
	git(t, at("bare"), "worktree", "add", "-q", at("bare/one"), "main")
	git(t, at("shop"), "worktree", "add", "-q", at("moved"))
	stdiotest.NoErr(t, os.RemoveAll(at("shop/.git/worktrees/moved")))
	for _, dir := range []string{"shop/src/deep", "feature/src", "plain/src", "shop/.trees/nested/src", "odd", "shop/loop/src"} {
		stdiotest.NoErr(t, os.MkdirAll(at(dir), 0o755))
	}
	stdiotest.NoErr(t, os.Symlink(at("feature"), at("link")))
	stdiotest.NoErr(t, os.Symlink(".git", at("shop/loop/.git")))
	stdiotest.NoErr(t, os.WriteFile(at("odd/.git"), []byte("neither a path nor a directory"), 0o600))
	relative, err := filepath.Rel(at("relative"), at("shop/.git/worktrees/feature"))
	stdiotest.NoErr(t, err)
	stdiotest.NoErr(t, os.Mkdir(at("relative"), 0o755))
	stdiotest.NoErr(t, os.WriteFile(at("relative/.git"), []byte("gitdir: "+relative+"\n"), 0o600))

	for _, test := range []struct{ own, dir, want string }{
		{"shop", "shop", "shop"},
		{"shop", "shop/src/deep", "shop"},
		{"shop", "shop/sub", "shop"},
		{"shop", "shop/loop/src", "shop"},
		{"feature", "shop/loop", "shop"},
		{"shop", "shop/subtree", "shop/subtree"},
		{"shop", "shop/vendor/repo", "shop"},
		{"shop", "feature", "feature"},
		{"shop", "feature/src", "feature"},
		{"shop", "feature/sub", "feature"},
		{"shop", "link/src", "feature"},
		{"shop", "shop/.trees/nested/src", "shop/.trees/nested"},
		{"shop", "shop/.trees/nested/vendor/repo", "shop/.trees/nested"},
		{"shop", "shop/.trees/gone/src", "shop"},
		{"shop", "feature/gone/src", "feature"},
		{"shop", "moved", "moved"},
		{"shop", "relative", "relative"},
		{"shop", "odd", "odd"},
		{"shop", "plain/src", "shop"},
		{"shop", "lib", "lib"},
		{"shop", "bare/one", "bare/one"},
		{"bare", "bare/one", "bare/one"},
		{"bare", "bare/refs", "bare"},
		{"shop/src", "shop/src/deep", "shop/src"},
		{"shop/src", "shop/vendor", "shop"},
		{"feature", "feature/src", "feature"},
		{"feature", "shop/src", "shop"},
		{"link", "feature/src", "link"},
		{"plain", "plain/src", "plain"},
		{"gone", "feature", "feature"},
		{"shop", "shop/.git/HEAD/file", "shop"},
	} {
		if got, err := projectOf(at(test.own), at(test.dir)); err != nil || got != at(test.want) {
			t.Errorf("project of %s in a session of %s: got %s and error %v, want %s", test.dir, test.own, strings.TrimPrefix(got, root), err, test.want)
		}
	}
	if got, err := projectOf("/", at("shop/src")); err != nil || got != at("shop") {
		t.Errorf("in a session of /: got %s and error %v, want the repository", got, err)
	}
}

// TestProjectOfUnreadableDirectory checks the errors for a .git that cannot be read.
func TestProjectOfUnreadableDirectory(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	stdiotest.NoErr(t, err)
	at := func(path string) string { return filepath.Join(root, path) }
	for _, dir := range []string{"own", "closed/src"} {
		stdiotest.NoErr(t, os.MkdirAll(at(dir), 0o755))
	}
	stdiotest.NoErr(t, os.Symlink("circle", at("circle")))
	stdiotest.NoErr(t, os.WriteFile(at("closed/.git"), nil, 0))
	tests := map[string]string{"circle": "too many links"}
	if os.Getuid() != 0 {
		tests["closed/src"] = "permission denied"
	}
	for dir, want := range tests {
		if got, err := projectOf(at("own"), at(dir)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "cannot find the project of "+root) {
			t.Errorf("%s: got %q and error %v, want an error with %q", dir, got, err, want)
		}
	}
}
