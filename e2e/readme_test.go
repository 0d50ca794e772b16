package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var updateReadme = flag.Bool("update", false, "write what pmcp answers today into the README's sessions; look at the difference before you commit it")

const readmeFile = "../README.md"

// readme is README.md with the user who tries it: a home of their own, with
// projects in it, and nothing of the other tests.
type readme struct {
	blocks   []block
	text     string
	user     *world
	sessions map[string]*readmeSession // by section
}

// block is what stands between two fences.
type block struct {
	section  string // the last heading before it
	language string
	text     string // without the fences, with the last newline
	line     int    // of its first line
}

// first is the first line, by which a block is known.
func (b block) first() string {
	line, _, _ := strings.Cut(b.text, "\n")
	return line
}

// readmeBlocks says of each block that is no session what is done with it. A
// new block in the README is a line here.
var readmeBlocks = map[string]func(*readme, *testing.T, block){
	"go build -o ~/.local/bin/pmcp .": (*readme).inCheckout,
	"go run .":                        (*readme).inCheckout,
	"claude mcp add --scope user pmcp -- ~/.local/bin/pmcp": (*readme).claudeLine, // not run: it needs Claude Code
	`{"mcpServers"`:                       (*readme).clientConfiguration,
	`{"servers"`:                          (*readme).clientConfiguration,
	"pmcp --doctor":                       (*readme).atHome,
	"sqlite3 ~/.local/state/pmcp/pmcp.db": (*readme).query,
	"go test ./...         # everything, with real processes and": (*readme).packagesExist, // not run: this is part of it, and the rest takes minutes
}

// TestReadme does what README.md says, in its order, as somebody would who has
// just cloned the repository.
func TestReadme(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(readmeFile)
	check(t, err)
	r := &readme{text: string(raw), blocks: blocksOf(string(raw))}
	r.user = newReadmeUser(t)
	r.sessions = readmeSessions(t, r.user)
	known := map[string]bool{}
	for _, b := range r.blocks {
		t.Run(fmt.Sprintf("line %d", b.line), func(t *testing.T) { r.hold(t, b, known) })
	}
	for begins := range readmeBlocks {
		if !known[begins] {
			t.Errorf("no block of the README begins with %q any more", begins)
		}
	}
	if *updateReadme && r.text != string(raw) {
		check(t, os.WriteFile(readmeFile, []byte(r.text), 0o644))
	}
}

// hold does with a block what is to be done with it.
func (r *readme) hold(t *testing.T, b block, known map[string]bool) {
	if s := r.sessions[b.section]; s != nil && b.language == "" {
		r.play(t, s, b)
		return
	}
	head := strings.ReplaceAll(strings.Join(strings.Fields(b.text), " "), "{ ", "{")
	for begins, do := range readmeBlocks {
		if strings.HasPrefix(head, strings.Join(strings.Fields(begins), " ")) {
			known[begins] = true
			do(r, t, b)
			return
		}
	}
	t.Errorf("README.md:%d: a block that no test knows: %q", b.line, b.first())
}

// blocksOf finds the fenced blocks of a Markdown text.
func blocksOf(text string) []block {
	var blocks []block
	var section string
	var open *block
	for i, line := range strings.SplitAfter(text, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			open = &block{section: section, language: strings.TrimSpace(fence), line: i + 2}
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

// newReadmeUser gives a world with the defaults of pmcp: the README names the
// database's path.
func newReadmeUser(t *testing.T) *world {
	w := newWorld(t)
	w.goEnvironment(t)
	w.set("PM_DATABASE_PATH", "")
	w.set("PM_PROJECT_DIR", "")
	w.set("GOFLAGS", os.Getenv("GOFLAGS"))
	w.set("PATH", filepath.Join(w.home, ".local", "bin")+":"+os.Getenv("PATH"))
	return w
}

// atHome runs a block in the user's home directory.
func (r *readme) atHome(t *testing.T, b block) { r.shell(t, b, r.user.home) }

// inCheckout runs a block in the checkout; what it starts sees the end of its
// input at once.
func (r *readme) inCheckout(t *testing.T, b block) { r.shell(t, b, "..") }

// shell runs a block as it stands. Its last command must succeed, and so must
// those before.
func (r *readme) shell(t *testing.T, b block, dir string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", b.text)
	cmd.Dir, cmd.Env = dir, r.user.env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("README.md:%d: %v\n%s%s", b.line, err, out, &stderr)
	}
	return string(out)
}

// query runs the query of the database; what it must find was printed in the
// first session.
func (r *readme) query(t *testing.T, b block) {
	needs(t, "sqlite3")
	needs(t, "python3")
	var out string
	if !poll(answersWithin, func() bool { out = r.shell(t, b, r.user.home); return out != "" || t.Failed() }) {
		t.Errorf("README.md:%d: nothing was found", b.line)
	}
	if !strings.Contains(out, "GET / HTTP/1.1") {
		t.Errorf("README.md:%d: %q", b.line, out)
	}
}

// claudeLine holds the command that adds pmcp to Claude Code to its syntax,
// `claude mcp add [options] NAME -- COMMAND [ARGUMENT…]`, and to the path of
// the installation.
func (r *readme) claudeLine(t *testing.T, b block) {
	m := regexp.MustCompile(`^claude mcp add --scope (local|user|project) [a-z]+ -- (\S+)\n$`).FindStringSubmatch(b.text)
	if m == nil || !strings.Contains(r.text, "go build -o "+m[2]+" .") {
		t.Errorf("README.md:%d: %q", b.line, b.text)
	}
}

// clientConfiguration holds what is pasted into a client's file to the keys that
// the client reads, and starts the server as the client would.
func (r *readme) clientConfiguration(t *testing.T, b block) {
	var file map[string]map[string]struct {
		Type    string            `json:"type"`
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
	}
	decoder := json.NewDecoder(strings.NewReader(b.text))
	decoder.DisallowUnknownFields()
	check(t, decoder.Decode(&file))
	// Cursor and Claude Desktop read mcpServers, where stdio is what a command
	// means; VS Code reads servers and writes the type.
	for key, servers := range file {
		server := servers["pmcp"]
		if len(file) != 1 || len(servers) != 1 || (key == "servers") != (server.Type == "stdio") || !slices.Contains([]string{"servers", "mcpServers"}, key) {
			t.Errorf("README.md:%d: %s", b.line, b.text)
		}
		w := *r.user
		w.env = slices.Clone(w.env)
		for name, value := range server.Env {
			w.set(name, strings.NewReplacer(readmeHome, r.user.home, "${workspaceFolder}", r.user.project).Replace(value))
		}
		if !filepath.IsAbs(server.Command) {
			t.Errorf("README.md:%d: %q is not an absolute path", b.line, server.Command)
		}
		s := w.launch(t, strings.ReplaceAll(server.Command, readmeHome, r.user.home), server.Args...)
		s.initialize(t)
		s.must(t, "list_processes", args{})
	}
}

// packagesExist holds the packages and scripts that a block names to the
// checkout.
func (r *readme) packagesExist(t *testing.T, b block) {
	for _, word := range regexp.MustCompile(`\./[\w/.]+|\.ci/\w+`).FindAllString(b.text, -1) {
		if script, ok := strings.CutPrefix(word, ".ci/"); ok {
			info, err := os.Stat(filepath.Join("..", ".ci", script))
			if err != nil || info.Mode()&0o100 == 0 {
				t.Errorf("README.md:%d: %s: %v", b.line, word, err)
			}
			continue
		}
		cmd := exec.Command("go", "list", word)
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("README.md:%d: %s: %v: %s", b.line, word, err, out)
		}
	}
}
