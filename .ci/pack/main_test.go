package main

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

var full = flag.Bool("full", false, "make releases with both architectures and an SBOM")

// TestMain runs the tests in the top directory, or is the client of a test. What they test is the
// last commit.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == clientMarker {
		os.Exit(runClient(os.Args[2:]))
	}
	if err := os.Chdir(filepath.Join("..", "..")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "pmcp-pack-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	made.dir = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// made is the release that the tests share.
var made struct {
	once sync.Once
	dir  string // of TestMain
	err  error
}

// theRelease returns the directory of the release that the tests share.
func theRelease(t *testing.T) string {
	t.Helper()
	made.once.Do(func() {
		if made.err = staticLibraries(made.dir); made.err == nil {
			made.err = release(filepath.Join(made.dir, "release"), !*full)
		}
	})
	if errors.Is(made.err, errNoStatic) {
		t.Skip(made.err)
	}
	check(t, made.err)
	return filepath.Join(made.dir, "release")
}

var errNoStatic = errors.New("there is no static C library")

// staticLibraries returns errNoStatic if a static program cannot be linked here.
func staticLibraries(dir string) error {
	source, program := filepath.Join(dir, "empty.c"), filepath.Join(dir, "empty")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o644); err != nil {
		return err
	}
	if out, err := exec.Command("cc", "-static", "-o", program, source).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %w: %s", errNoStatic, err, out)
	}
	return nil
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReleaseIsRepeatable makes a second release and compares its bytes with those of the first.
func TestReleaseIsRepeatable(t *testing.T) {
	first, second := theRelease(t), filepath.Join(t.TempDir(), "second")
	check(t, release(second, !*full))
	sums, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	check(t, err)
	again, err := os.ReadFile(filepath.Join(second, "SHA256SUMS"))
	check(t, err)
	if !bytes.Equal(sums, again) {
		t.Errorf("got the checksums\n%s\nand then\n%s\nwant the same", sums, again)
	}
	if err := release(first, true); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("into a full directory: got %v, want a refusal", err)
	}
}

// TestReleaseIsWhole checks the names of what a release holds and the checksums, and that the
// binary is static, has at most 20 MB, and prints its version, commit and date.
func TestReleaseIsWhole(t *testing.T) {
	dir := theRelease(t)
	v := versionOf(t, dir)
	want := []string{"SHA256SUMS", "pmcp-" + v + "-claude-plugin.tar.gz", "pmcp-" + v + ".tgz", "server.json"}
	for _, p := range platforms() {
		if *full || p.arch == runtime.GOARCH {
			want = append(want, "pmcp-"+v+"-linux-"+p.arch+".mcpb", "pmcp-"+v+"-linux-"+p.arch+".tar.gz", "pmcp-linux-"+p.cpu+"-"+v+".tgz")
		}
	}
	if *full {
		want = append(want, "pmcp-"+v+".cdx.json")
	}
	slices.Sort(want)
	var got []string
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if out, err := command(dir, "sha256sum", "-c", "SHA256SUMS"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	head, err := command(".", "git", "log", "-1", "--format=commit %H, built %cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ")
	check(t, err)
	for _, p := range platforms() {
		if !slices.Contains(got, "pmcp-"+v+"-linux-"+p.arch+".mcpb") {
			continue
		}
		root := t.TempDir()
		unpack(t, dir, "pmcp-*-linux-"+p.arch+".tar.gz", root)
		checkBinary(t, filepath.Join(root, "bin", "pmcp"), "pmcp "+v+" ("+strings.TrimSpace(head)+",")
		for _, name := range []string{"share/bash-completion/completions/pmcp", "share/zsh/site-functions/_pmcp", "share/fish/vendor_completions.d/pmcp.fish", "share/doc/pmcp/README.md"} {
			if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Size() == 0 {
				t.Errorf("%s: got %v, want a file in the archive", name, err)
			}
		}
	}
}

// checkBinary checks a binary, which runs here or under qemu.
func checkBinary(t *testing.T, path, version string) {
	t.Helper()
	program, err := elf.Open(path)
	check(t, err)
	defer func() { _ = program.Close() }()
	if program.Section(".interp") != nil || program.Section(".dynamic") != nil {
		t.Errorf("%s: got a dynamic binary, want a static one", path)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 20e6 {
		t.Errorf("%s: got %d bytes, %v, want at most 20 MB", path, info.Size(), err)
	} else {
		t.Logf("%s: %d bytes", program.Machine, info.Size())
	}
	argv := []string{path, "--version"}
	if program.Machine == elf.EM_AARCH64 && runtime.GOARCH != "arm64" {
		argv = append([]string{"qemu-aarch64-static"}, argv...)
	}
	if out, err := command(".", argv...); err != nil || !strings.HasPrefix(out, version) {
		t.Errorf("%q: got %q, %v, want %q", argv, out, err, version)
	}
}

// TestLicenseIsPickedUp checks what package managers are told, and what packages hold, without and
// with a LICENSE.
func TestLicenseIsPickedUp(t *testing.T) {
	r := &releaser{dir: t.TempDir(), out: t.TempDir(), version: "1.2.3"}
	check(t, os.Mkdir(r.source(), 0o755))
	check(t, os.WriteFile(filepath.Join(r.source(), "README.md"), []byte("# pmcp\n"), 0o644))
	for _, want := range []string{"UNLICENSED", "SEE LICENSE IN LICENSE"} {
		r.license = licenseOf(r.source())
		documents, err := r.documents()
		check(t, err)
		check(t, r.write(artefact{name: "x.tgz", under: "package", texts: "npm-linux", cpu: "x64", more: documents}))
		root := t.TempDir()
		unpack(t, r.out, "x.tgz", root)
		metadata, err := os.ReadFile(filepath.Join(root, "package.json"))
		check(t, err)
		_, err = os.Stat(filepath.Join(root, "LICENSE"))
		if !strings.Contains(string(metadata), fmt.Sprintf("%q", want)) || (err == nil) != (want != "UNLICENSED") {
			t.Errorf("got %s and %v, want the license %q", metadata, err, want)
		}
		check(t, os.WriteFile(filepath.Join(r.source(), "LICENSE"), []byte("terms\n"), 0o644))
	}
}

// TestTextsAreValid checks that every JSON text is JSON with its words replaced, and that the
// skill has at most 40 lines.
func TestTextsAreValid(t *testing.T) {
	r := &releaser{version: "1.2.3", license: "none"}
	all, err := r.texts("", "x64")
	check(t, err)
	for _, f := range all {
		switch {
		case strings.HasSuffix(f.name, ".json") && !json.Valid(f.content):
			t.Errorf("%s: not JSON", f.name)
		case regexp.MustCompile(`VERSION|LICENSE|CPU`).Match(f.content):
			t.Errorf("%s: a word was not replaced:\n%s", f.name, f.content)
		case strings.HasSuffix(f.name, "SKILL.md") && bytes.Count(f.content, []byte("\n")) > 40:
			t.Errorf("%s: got %d lines, want at most 40", f.name, bytes.Count(f.content, []byte("\n")))
		}
	}
	if len(all) < 9 {
		t.Errorf("got %d texts, want all", len(all))
	}
	at := slices.IndexFunc(all, func(f file) bool { return f.name == "plugin/monitors/monitors.json" })
	if at < 0 {
		t.Fatal("the plugin has no monitor")
	}
	var monitors []struct{ Name, Command, Description string }
	check(t, json.Unmarshal(all[at].content, &monitors))
	if len(monitors) != 1 || monitors[0].Name == "" || monitors[0].Description == "" || monitors[0].Command != "npx -y pmcp@1.2.3 events -f --wake" {
		t.Errorf("got the monitors %+v, want one with name, command and description", monitors)
	}
}

// versionOf returns the version of a release.
func versionOf(t *testing.T, dir string) string {
	t.Helper()
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(find(t, dir, "pmcp-*-claude-plugin.tar.gz")), "pmcp-"), "-claude-plugin.tar.gz")
}

// find returns the path of the one file that matches a pattern.
func find(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: got %q, %v, want one file", pattern, found, err)
	}
	return found[0]
}

// unpack unpacks the one archive that matches a pattern; a tar without its top directory.
func unpack(t *testing.T, dir, pattern, to string) {
	t.Helper()
	archive := find(t, dir, pattern)
	check(t, os.MkdirAll(to, 0o755))
	if filepath.Ext(archive) == ".mcpb" {
		check(t, unzip(archive, to))
		return
	}
	if out, err := command(".", "tar", "xzf", archive, "--strip-components=1", "-C", to); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func unzip(archive, to string) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer func() { _ = z.Close() }()
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		path := filepath.Join(to, filepath.FromSlash(f.Name))
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, f.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// command runs a command and returns its output.
func command(dir string, argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TZ=UTC")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
