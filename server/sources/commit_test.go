package sources

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCommitIsThatOfTheWorkTree checks the commit at a start and the one of now, which are found in two ways: in repositories,
// linked work trees and submodules, with packed references, during a rebase that has stopped, and where there is none.
func TestCommitIsThatOfTheWorkTree(t *testing.T) {
	d := newTree(t)
	want := func(d tree, commit string) {
		t.Helper()
		if got := Commit(t.Context(), runGit, d.dir); got != commit {
			t.Errorf("got commit %q, want %q", got, commit)
		}
		if got, _, _ := strings.Cut(commit, " "); Head(d.dir) != got {
			t.Errorf("got HEAD %q, want %q", Head(d.dir), got)
		}
	}
	head := func(d tree, name string) string {
		t.Helper()
		out, err := runGit(t.Context(), d.dir, "rev-parse", name)
		if err != nil || !regexp.MustCompile(`^[0-9a-f]{40}\n$`).MatchString(out) {
			t.Fatalf("git rev-parse: %v, %q", err, out)
		}
		return out[:shortCommit]
	}
	want(d, "")
	d.git("init", "-q")
	want(d, "")
	d.write("a.py")
	d.git("add", ".")
	d.git("commit", "-qm", "one")
	one := head(d, "HEAD")
	want(d, one)
	d.write("new.py")
	want(d, one)
	below := tree{t, filepath.Join(d.dir, "sub")}
	below.write("s.py")
	want(below, one)
	d.write("a.py")
	want(d, one+" (dirty)")
	d.git("commit", "-qam", "two")
	d.git("worktree", "add", "-q", "-b", "side", "work", one)
	work := tree{t, filepath.Join(d.dir, "work")}
	want(work, one)
	work.write("a.py")
	work.git("commit", "-qam", "side")
	want(work, head(work, "side"))
	d.git("pack-refs", "--all")
	want(d, head(d, "main"))
	want(work, head(d, "side"))
	d.git("submodule", "-q", "add", "./.git", "module")
	want(tree{t, filepath.Join(d.dir, "module")}, head(d, "main"))
	if _, err := runGit(t.Context(), work.dir, "rebase", "main"); err == nil {
		t.Fatal("the rebase did not stop at the conflict")
	}
	want(work, head(d, "main")+" (dirty)")
	if err := os.RemoveAll(filepath.Join(work.dir, ".git")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work.dir, ".git"), []byte("gitdir: /nowhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(work, "")
}
