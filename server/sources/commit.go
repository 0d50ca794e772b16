package sources

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"pmcp/server/worktree"
)

// shortCommit is how much of the name of a commit is kept.
const shortCommit = 7

var changedEntry = newPattern(`^[12u] `) // of git status --porcelain=v2

var commitName = newPattern(`^[0-9a-f]{7,64}$`)

// Commit returns the beginning of the name of the commit at which the work tree around dir is, followed by " (dirty)" if
// tracked files differ from it, or "" if that is not known.
func Commit(ctx context.Context, git Git, dir string) string {
	if _, gitDir := worktree.Around(dir); gitDir == "" {
		return ""
	}
	out, err := git(ctx, dir, "status", "--porcelain=v2", "--branch", "--untracked-files=no", "-z")
	commit, dirty := "", ""
	if err != nil {
		return ""
	}
	for entry := range strings.SplitSeq(out, "\x00") {
		if name, ok := strings.CutPrefix(entry, "# branch.oid "); ok {
			commit = name
		} else if changedEntry().MatchString(entry) {
			dirty = " (dirty)"
		}
	}
	if commit = short(commit); commit == "" { // before the first one
		return ""
	}
	return commit + dirty
}

// Head returns the beginning of the name of the commit at which the work tree around dir is now, or "" if that is not known.
func Head(dir string) string {
	_, gitDir := worktree.Around(dir)
	head := firstLine(filepath.Join(gitDir, "HEAD"))
	ref, isRef := strings.CutPrefix(head, "ref: ")
	if gitDir == "" || !isRef {
		return short(head)
	}
	common := gitDir
	if path := firstLine(filepath.Join(gitDir, "commondir")); path != "" { // a linked work tree
		common = absolute(gitDir, path)
	}
	if name := short(firstLine(filepath.Join(common, ref))); name != "" {
		return name
	}
	packed, _ := os.ReadFile(filepath.Join(common, "packed-refs"))
	for line := range strings.Lines(string(packed)) {
		if name, of, _ := strings.Cut(strings.TrimSpace(line), " "); of == ref {
			return short(name)
		}
	}
	return ""
}

// firstLine returns the first line of a small file, or "" if it cannot be read.
func firstLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	text, _ := io.ReadAll(io.LimitReader(f, 4<<10))
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// short returns the beginning of the name of a commit, or "" if it is none.
func short(commit string) string {
	if !commitName().MatchString(commit) {
		return ""
	}
	return commit[:shortCommit]
}
