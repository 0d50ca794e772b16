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

	"pmcp/process/proctest"
)

var updateReadme = flag.Bool("update", false, "write pmcp's current answers into the README's sessions; review the difference before you commit it")

// A readme is the documents together with a user who follows them. The user has a
// home directory and projects that no other test uses.
type readme struct {
	documents []*document
	user      *world
	sessions  map[string]*readmeSession // keyed by section
}

// A block is a fenced code block of a document.
type block struct {
	document *document
	section  string // the last heading before the block
	language string
	text     string // without the fences, but with the last newline
	line     int    // number of its first line
}

// first returns the first line of a block, which identifies the block.
func (b block) first() string {
	line, _, _ := strings.Cut(b.text, "\n")
	return line
}

// String returns the position of the block: the document's path and the line.
func (b block) String() string { return fmt.Sprintf("%s:%d", b.document.path, b.line) }

// readmeBlocks maps the first line of each block that is not part of a session to the check
// of that block. A new block in a document needs an entry here.
var readmeBlocks = map[string]func(*readme, *testing.T, block){
	"mkdir -p ~/.local && tar xzf":                          (*readme).ofRelease,
	"(cd ~/.local && rm -rf":                                (*readme).ofRelease,
	"go build -o ~/.local/bin/pmcp .":                       (*readme).inCheckout,
	"claude mcp add --scope user pmcp -- ~/.local/bin/pmcp": (*readme).claudeLine, // does not run the command, which needs Claude Code
	`{"mcpServers"`:                                         (*readme).clientConfiguration,
	`{"servers"`:                                            (*readme).clientConfiguration,
	`"devtools": {`:                                         (*readme).guardConfiguration,
	"pmcp --doctor":                                         (*readme).atHome,
	"pmcp ps":                                               (*readme).commands,
	"sqlite3 ~/.local/state/pmcp/pmcp.db":                   (*readme).query,
	"go test ./...         # everything, with real processes and": (*readme).packagesExist, // does not run the commands, because this test is part of the first one and the others take minutes
}

// TestReadme follows the documents from top to bottom, README.md first, as a user would
// with a fresh clone of the repository, and checks that every code block works.
func TestReadme(t *testing.T) {
	t.Parallel()
	r := &readme{documents: readDocuments(t), user: newReadmeUser(t)}
	r.sessions = readmeSessions(t, r.user)
	known := map[string]bool{}
	for _, d := range r.documents {
		for _, b := range d.blocks() {
			t.Run(b.String(), func(t *testing.T) { r.checkBlock(t, b, known) })
		}
		if *updateReadme {
			d.write(t)
		}
	}
	for begins := range readmeBlocks {
		if !known[begins] {
			t.Errorf("no block of the documents begins with %q, want one", begins)
		}
	}
}

// checkBlock runs the check for a code block of a document.
func (r *readme) checkBlock(t *testing.T, b block, known map[string]bool) {
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
	t.Errorf("%v: no check for the block %q, want one in readmeBlocks", b, b.first())
}

// newReadmeUser returns a world in which pmcp uses its default settings, because README.md
// names the default path of the database.
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

// inCheckout runs a block in the checkout, with an empty input.
func (r *readme) inCheckout(t *testing.T, b block) { r.shell(t, b, "..") }

// ofRelease does not run a block, since there is no release here: a test in .ci/pack does.
func (r *readme) ofRelease(*testing.T, block) {}

// shell runs the text of a block as a shell script and returns the output. Every command
// must succeed.
func (r *readme) shell(t *testing.T, b block, dir string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", b.text)
	cmd.Dir, cmd.Env = dir, r.user.env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %v\n%s%s", b, err, out, &stderr)
	}
	return string(out)
}

// commands runs the commands of a block for all projects, without following. Each must know
// its arguments.
func (r *readme) commands(t *testing.T, b block) {
	for line := range strings.Lines(b.text) {
		command, _, _ := strings.Cut(strings.ReplaceAll(line, " -f", ""), "#")
		if strings.HasPrefix(command, "pmcp open") || strings.HasPrefix(command, "pmcp top") || strings.HasPrefix(command, "pmcp stop") { // TestPersonUsesPageInBrowser, TestPersonWatchesTop and TestPersonStopsAndRestarts run them
			continue
		}
		var out []byte
		if !poll(answersWithin, func() bool { // a server stores what it does a moment later
			cmd := exec.Command("sh", "-c", strings.TrimSpace(command)+" --all")
			cmd.Dir, cmd.Env = r.user.home, r.user.env
			out, _ = cmd.CombinedOutput()
			code := cmd.ProcessState.ExitCode()
			return code == 0 || code == 1 && !strings.HasPrefix(command, "pmcp ps")
		}) || strings.HasPrefix(command, "pmcp ps") && !strings.Contains(string(out), "web@") {
			t.Errorf("%v: %s: got\n%s", b, command, out)
		}
	}
}

// query runs the block that queries the database, which must find output of the first
// session in README.md.
func (r *readme) query(t *testing.T, b block) {
	needs(t, "sqlite3")
	needs(t, "python3")
	var out string
	if !poll(answersWithin, func() bool { out = r.shell(t, b, r.user.home); return out != "" || t.Failed() }) {
		t.Errorf("%v: the query found nothing", b)
	}
	if !strings.Contains(out, "web|1|") {
		t.Errorf("%v: got %q, want the run of the first session", b, out)
	}
}

// claudeLine checks the command that adds pmcp to Claude Code. Its syntax must be `claude
// mcp add [options] NAME -- COMMAND [ARGUMENT…]`, and COMMAND must be the path where pmcp
// is installed.
func (r *readme) claudeLine(t *testing.T, b block) {
	m := regexp.MustCompile(`^claude mcp add --scope (local|user|project) [a-z]+ -- (\S+)\n$`).FindStringSubmatch(b.text)
	if m == nil || !strings.Contains(b.document.text, "go build -o "+m[2]+" .") {
		t.Errorf("%v: got %q, want the syntax and path of claude mcp add", b, b.text)
	}
}

// clientConfiguration checks that a client's configuration in a document has the keys that
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
	// Cursor and Claude Desktop read mcpServers, where a command implies stdio. VS Code
	// reads servers and needs the type.
	for key, servers := range file {
		server := servers["pmcp"]
		if len(file) != 1 || len(servers) != 1 || (key == "servers") != (server.Type == "stdio") || !slices.Contains([]string{"servers", "mcpServers"}, key) {
			t.Errorf("%v: got %s, want one server called pmcp under a known key", b, b.text)
		}
		w := *r.user
		w.env = slices.Clone(w.env)
		for name, value := range server.Env {
			w.set(name, strings.NewReplacer(readmeHome, r.user.home, "${workspaceFolder}", r.user.project).Replace(value))
		}
		if !filepath.IsAbs(server.Command) {
			t.Errorf("%v: got %q, want an absolute path", b, server.Command)
		}
		s := w.launch(t, strings.ReplaceAll(server.Command, readmeHome, r.user.home), server.Args...)
		s.initialize(t)
		s.must(t, "list_processes", args{})
	}
}

// guardConfiguration starts servers that are configured below pmcp guard, with a stand-in for npx
// that prints its arguments.
func (r *readme) guardConfiguration(t *testing.T, b block) {
	var servers map[string]struct {
		Command string
		Args    []string
	}
	check(t, json.Unmarshal([]byte("{"+b.text+"}"), &servers))
	npx := filepath.Join(r.user.home, ".local", "bin", "npx")
	proctest.WriteProgram(t, npx, []byte("#!/bin/sh\necho \"$@\"\n"), 0o755)
	defer func() { check(t, os.Remove(npx)) }()
	for name, server := range servers {
		cmd := exec.Command(strings.ReplaceAll(server.Command, readmeHome, r.user.home), server.Args...)
		cmd.Env = r.user.env
		out, err := cmd.Output()
		if got, want := string(out), strings.Join(server.Args[3:], " ")+"\n"; got != want || err != nil {
			t.Errorf("%v: %s: got %q and %v, want %q", b, name, got, err, want)
		}
	}
}

// packagesExist checks that the packages and scripts in a block exist in the checkout.
func (r *readme) packagesExist(t *testing.T, b block) {
	for _, word := range regexp.MustCompile(`\./[\w/.]+|\.ci/\w+`).FindAllString(b.text, -1) {
		if script, ok := strings.CutPrefix(word, ".ci/"); ok {
			info, err := os.Stat(filepath.Join("..", ".ci", script))
			if err != nil || info.Mode()&0o100 == 0 {
				t.Errorf("%v: %s: got %v, want an executable script", b, word, err)
			}
			continue
		}
		cmd := exec.Command("go", "list", word)
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s: %v: %s", b, word, err, out)
		}
	}
}
