// Pack makes what a release page holds: static binaries in archives, npm packages and bundles,
// the entry for the MCP registry, a plugin, an SBOM and checksums. Two runs on one commit, with
// one Go and one C compiler, write the same bytes.
//
//	.ci/release [-quick] DIR
//
// The directory files has the texts of the packages, in which VERSION, LICENSE and CPU stand for
// those of a release. The registry's name for pmcp, in two of them, must be below the name of
// the owner who publishes.
package main

import (
	"crypto/sha256"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A static binary resolves names and users without glibc's plug-ins, and its SQLite loads no
// extensions. It does without HTTP/2, half a megabyte that health checks, pages and MCP servers do
// not need.
const (
	tags    = "netgo,osusergo,sqlite_omit_load_extension,nethttpomithttp2"
	ldflags = `-s -w -buildid= -linkmode external -extldflags "-static"`
)

const cyclonedx = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

// A platform is an architecture of Linux: Go's name, npm's name and the C compiler.
type platform struct{ arch, cpu, cc string }

func platforms() []platform {
	return []platform{{"amd64", "x64", "x86_64-linux-gnu-gcc"}, {"arm64", "arm64", "aarch64-linux-gnu-gcc"}}
}

//go:embed all:files
var files embed.FS

func main() {
	quick := flag.Bool("quick", false, "only the architecture of this machine, and no SBOM")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: .ci/release [-quick] DIR")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := release(flag.Arg(0), *quick); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// A releaser makes one release.
type releaser struct {
	dir     string // of the clean clone, "pmcp", and the binaries
	out     string
	version string
	license string    // as package managers write it
	at      time.Time // of the commit, and of every file
}

// release releases the repository in the current directory. It makes everything in the directory
// out, which must be empty or missing.
func release(out string, quick bool) (err error) {
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", out)
	}
	dir, err := os.MkdirTemp("", "pmcp-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &releaser{dir: dir, out: out}
	if err := r.clone(); err != nil {
		return err
	}
	built := platforms()
	if quick {
		built = slices.DeleteFunc(built, func(p platform) bool { return p.arch != runtime.GOARCH })
	}
	for _, p := range built {
		if err := r.build(p); err != nil {
			return fmt.Errorf("%s: %w", p.arch, err)
		}
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	all, err := r.artefacts(built)
	if err != nil {
		return err
	}
	for _, a := range all {
		if err := r.write(a); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	entry, err := r.texts("server.json", "")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "server.json"), entry[0].content, 0o644); err != nil {
		return err
	}
	if !quick {
		if err := r.sbom(); err != nil {
			return fmt.Errorf("SBOM: %w", err)
		}
	}
	return r.checksums()
}

// clone clones HEAD and reads what names, times and packages depend on.
func (r *releaser) clone() error {
	source := r.source()
	if err := run("", nil, "git", "clone", "--quiet", "--no-hardlinks", ".", source); err != nil {
		return err
	}
	committed, err := exec.Command("git", "-C", source, "log", "-1", "--format=%ct").Output()
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(committed)), 10, 64)
	if err != nil {
		return err
	}
	r.at = time.Unix(seconds, 0).UTC()
	text, err := os.ReadFile(filepath.Join(source, "main.go"))
	if err != nil {
		return err
	}
	m := regexp.MustCompile(`(?m)^const version = "(.+)"$`).FindSubmatch(text)
	if m == nil {
		return errors.New("main.go has no version")
	}
	r.version, r.license = string(m[1]), licenseOf(source)
	return nil
}

// licenseOf returns the license of a checkout as package managers write it.
func licenseOf(source string) string {
	if _, err := os.Stat(filepath.Join(source, "LICENSE")); err != nil {
		return "UNLICENSED"
	}
	return "SEE LICENSE IN LICENSE"
}

func (r *releaser) source() string { return filepath.Join(r.dir, "pmcp") }

func (r *releaser) binary(arch string) string { return filepath.Join(r.dir, "pmcp-"+arch) }

// build builds the binary of a platform.
func (r *releaser) build(p platform) error {
	cc := p.cc
	if p.arch == runtime.GOARCH {
		cc = "cc"
	}
	// What the environment adds to flags would be in the bytes, and so would what "go env -w" has
	// stored, which takes the place of an empty variable.
	env := []string{"GOOS=linux", "GOARCH=" + p.arch, "CGO_ENABLED=1", "CC=" + cc, "GOFLAGS=-trimpath", "CGO_CFLAGS=-O2 -g", "CGO_LDFLAGS=-O2 -g"}
	return run(r.source(), env, "go", "build", "-buildvcs=true", "-tags", tags, "-ldflags", ldflags, "-o", r.binary(p.arch), ".")
}

// sbom makes the SBOM: the Go modules in the binaries, with their licenses. It does not name the C
// library.
func (r *releaser) sbom() error {
	out, err := filepath.Abs(filepath.Join(r.out, "pmcp-"+r.version+".cdx.json"))
	if err != nil {
		return err
	}
	return run(r.source(), []string{"GOFLAGS=-tags=" + tags}, "go", "run", cyclonedx, "app", "-json", "-licenses", "-noserial", "-notimestamp", "-output", out, ".")
}

// checksums makes SHA256SUMS, for sha256sum -c.
func (r *releaser) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(b.String()), 0o644)
}

// run runs a command with more variables. Its output goes to stderr.
func run(dir string, env []string, name string, arguments ...string) error {
	cmd := exec.Command(name, arguments...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(arguments, " "), err)
	}
	return nil
}
