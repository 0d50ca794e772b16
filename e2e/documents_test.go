package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documentPaths are the documents for readers, in the order in which TestReadme tries them
// out. The paths begin at the root of the repository.
var documentPaths = []string{"README.md", "server/README.md", "logstore/README.md", "registry/README.md", ".ci/bench/README.md", ".ci/long.md", "e2e/README.md"}

// A document is a Markdown file for readers.
type document struct {
	path   string
	text   string
	stored string // the text of the file
}

func readDocuments(t testing.TB) []*document {
	t.Helper()
	var all []*document
	for _, name := range documentPaths {
		raw, err := os.ReadFile(filepath.Join("..", name))
		check(t, err)
		all = append(all, &document{path: name, text: string(raw), stored: string(raw)})
	}
	return all
}

// write writes the document's text to the file if the text has changed.
func (d *document) write(t testing.TB) {
	t.Helper()
	if d.text != d.stored {
		check(t, os.WriteFile(filepath.Join("..", d.path), []byte(d.text), 0o644))
		d.stored = d.text
	}
}

// blocks returns the fenced code blocks of the document.
func (d *document) blocks() []block {
	var blocks []block
	var section string
	var open *block
	for i, line := range strings.SplitAfter(d.text, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			open = &block{document: d, section: section, language: strings.TrimSpace(fence), line: i + 2}
		case isFence:
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.text += line
		case strings.HasPrefix(line, "#"):
			section = strings.Trim(line, "# \n")
		}
	}
	return blocks
}

// prose returns the lines of the document without fenced blocks. Lines keep their numbers.
func (d *document) prose() []string {
	lines := strings.Split(d.text, "\n")
	fenced := false
	for i, line := range lines {
		isFence := strings.HasPrefix(line, "```")
		if fenced || isFence {
			lines[i] = ""
		}
		fenced = fenced != isFence
	}
	return lines
}

// TestReadmeListsEveryPage checks that documentPaths lists every Markdown page of the
// repository, and that pages stay short.
func TestReadmeListsEveryPage(t *testing.T) {
	embedded := []string{"server/instructions.md", ".ci/pack/files/plugin/skills/pmcp/SKILL.md"}
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "testdata", "node_modules"}, entry.Name()):
			return fs.SkipDir
		case path.Ext(name) == ".md" && !slices.Contains(slices.Concat(documentPaths, embedded), name):
			t.Errorf("%s is not among documentPaths", name)
		}
		return nil
	})
	check(t, err)
	for name, most := range map[string]int64{"README.md": 16 << 10, "server/README.md": 24 << 10, "e2e/README.md": 18 << 10} {
		if info, err := fs.Stat(root, name); err != nil || info.Size() > most {
			t.Errorf("%s: got %v and %v, want at most %d bytes", name, info, err, most)
		}
	}
}

// TestReadmeLinksResolve checks that each relative link in a document leads to a file, and
// each anchor to a heading.
func TestReadmeLinksResolve(t *testing.T) {
	documents := readDocuments(t)
	anchors := map[string][]string{}
	for _, d := range documents {
		anchors[d.path] = d.anchors()
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, d := range documents {
		found := 0
		for i, line := range d.prose() {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				found++
				name, anchor, hasAnchor := strings.Cut(m[1], "#")
				target := d.path
				if name != "" {
					target = path.Join(path.Dir(d.path), name)
				}
				if _, err := os.Stat(filepath.Join("..", target)); err != nil {
					t.Errorf("%s:%d: the link %s leads to no file: %v", d.path, i+1, m[1], err)
				} else if hasAnchor && !slices.Contains(anchors[target], anchor) {
					t.Errorf("%s:%d: %s has no heading for %s, only %s", d.path, i+1, target, m[1], strings.Join(anchors[target], ", "))
				}
			}
		}
		if found == 0 {
			t.Errorf("%s links to no other page, want at least one link", d.path)
		}
	}
}

// anchors returns the anchors of a document's headings, as GitHub derives them.
func (d *document) anchors() []string {
	var all []string
	dropped := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for _, line := range d.prose() {
		if title := strings.TrimLeft(line, "#"); title != line {
			title = dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			all = append(all, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return all
}

// TestReadmeNamesExistingFiles checks that every source file and script that a document
// names exists.
func TestReadmeNamesExistingFiles(t *testing.T) {
	name := regexp.MustCompile("`([\\w.]+(?:/[\\w.]+)*\\.(?:go|sql|md|yml)|\\.ci/[\\w./]+)`")
	found := 0
	for _, d := range readDocuments(t) {
		for i, line := range d.prose() {
			for _, m := range name.FindAllStringSubmatch(line, -1) {
				found++
				if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
					t.Errorf("%s:%d: %v", d.path, i+1, err)
				}
			}
		}
	}
	if found == 0 {
		t.Error("found no file names in the documents, want some")
	}
}

// TestReadmeNamesExistingTests checks that every test and benchmark that a document names
// exists.
func TestReadmeNamesExistingTests(t *testing.T) {
	defined := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)[A-Z]\w*)\(`)
	root := os.DirFS("..")
	check(t, fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(root, name)
		for _, m := range function.FindAllSubmatch(source, -1) {
			defined[string(m[1])] = true
		}
		return err
	}))
	named := regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w*`)
	for _, d := range readDocuments(t) {
		for i, line := range strings.Split(d.text, "\n") {
			for _, name := range named.FindAllString(line, -1) {
				if !defined[name] {
					t.Errorf("%s:%d: there is no %s", d.path, i+1, name)
				}
			}
		}
	}
}

// TestReadmePackagesMatchCode checks that the table of packages in e2e/README.md has each
// package's doc comment and imports. TestImportsMatchTable checks which imports are
// allowed.
func TestReadmePackagesMatchCode(t *testing.T) {
	var want strings.Builder
	want.WriteString("| package | what it is | imports |\n|---|---|---|\n")
	for _, p := range listPackages(t) {
		if p.Doc == "" {
			t.Errorf("%s has no package comment, want one", p.ImportPath)
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", shortPath(p.ImportPath), p.summary(), p.ownImports())
	}
	documents := readDocuments(t)
	d := documents[slices.Index(documentPaths, "e2e/README.md")]
	table := regexp.MustCompile(`(?m)^\| package \|.*\n(\|.*\n)+`)
	got := table.FindString(d.text)
	if got == want.String() {
		return
	}
	if *updateReadme && got != "" {
		d.text = strings.Replace(d.text, got, want.String(), 1)
		d.write(t)
		return
	}
	t.Errorf("%s: got the table\n%s\nwant\n%s\ngo test ./e2e -run TestReadmePackagesMatchCode -update writes it", d.path, got, &want)
}

// shortPath returns the import path of a package of this module without the module's name.
func shortPath(importPath string) string {
	if importPath == "pmcp" {
		return "main.go"
	}
	return strings.TrimPrefix(importPath, "pmcp/")
}

// summary returns the first clause of a package's doc comment, without its opening words.
func (p listed) summary() string {
	words := strings.SplitN(p.Doc, " ", 3)
	if len(words) < 3 {
		return ""
	}
	summary, _, _ := strings.Cut(words[2], ": ")
	summary, _, _ = strings.Cut(summary, ", and ")
	return strings.TrimSuffix(strings.ReplaceAll(summary, "|", `\|`), ".")
}

// ownImports returns the packages of this module that package p imports.
func (p listed) ownImports() string {
	var own []string
	for _, i := range p.Imports {
		if strings.HasPrefix(i, "pmcp/") {
			own = append(own, "`"+shortPath(i)+"`")
		}
	}
	return strings.Join(own, ", ")
}
