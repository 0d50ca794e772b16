package e2e

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	_ "github.com/mattn/go-sqlite3"
)

// arena is a world in which sessions die. What they left is told by a cgroup
// where one can be made, and by what the trees that ran in it reported of
// themselves: nothing here asks pmcp, and the environment counts only where
// there is no cgroup.
type arena struct {
	*world
	t      testing.TB
	group  *cgroup // nil where none can be made
	report string  // each process of a tree adds a line
	stderr string  // of all servers
}

// failedStderr is how much of standard error a failed test shows, in bytes.
const failedStderr = 8 << 10

// newArena makes one. Like every world it must be empty at the end of the test;
// its servers' standard error must hold nothing that must never be logged, and
// each session that could has ended by itself.
func newArena(t testing.TB) *arena {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("finds processes through /proc")
	}
	w := newWorld(t)
	a := &arena{world: w, t: t, group: newCgroup(t), report: filepath.Join(w.home, "report"), stderr: filepath.Join(w.home, "stderr")}
	for name, text := range treeScripts {
		check(t, os.WriteFile(filepath.Join(w.home, name), []byte(text), 0o644))
	}
	t.Cleanup(func() {
		content, _ := os.ReadFile(a.stderr)
		if t.Failed() {
			t.Logf("what the servers said last:\n%s", content[max(0, len(content)-failedStderr):])
		}
		said := &record{b: content}
		(&session{stderr: said}).checkStderr(t)
		said.checkEnd(t)
	})
	return a
}

// treeScripts are shell programs, so that a tree is there within a few
// milliseconds and the fault finds some half grown.
var treeScripts = map[string]string{
	// member KIND REPORT: says who it is, and stays. Under exec it remains the
	// same process.
	"member": `read -r stat < /proc/$$/stat
echo "$1 $stat" >> "$2"
exec sleep 300
`,
	// tree KIND REPORT [leave]: a tree of that kind, and a leader that stays or leaves.
	"tree": `d=${0%/*}
case $1 in
plain)    sh "$d/member" plain "$2" & ;;
group)    bash -c 'set -m; sh "$0/member" group "$1" &' "$d" "$2" ;;
session)  setsid sh "$d/member" session "$2" & ;;
daemon)   (setsid sh "$d/member" daemon "$2" &) ;;
stubborn) trap '' TERM INT HUP; sh "$d/member" stubborn "$2" & ;;
burst)    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do (setsid sh "$d/member" burst "$2" &); done ;;
cleared)  (env -i PATH="$PATH" sh "$d/member" cleared "$2" &) ;;
hidden)   (env -i PATH="$PATH" setsid sh "$d/member" hidden "$2" &) ;;
esac
[ "$3" = leave ] || exec sh "$d/member" leader "$2"
`,
}

// treeKinds are what a session is given to start. cleared and hidden are without
// any mark in their environment, hidden in a session of its own too.
var treeKinds = []string{"plain", "group", "session", "daemon", "stubborn", "burst", "cleared", "hidden"}

// tree gives the arguments of start_process for a tree of that kind.
func (a *arena) tree(name, kind string, leave bool) args {
	arguments := []string{filepath.Join(a.home, "tree"), kind, a.report}
	if leave {
		arguments = append(arguments, "leave")
	}
	return args{"name": name, "command": "sh", "args": arguments}
}

// member is a process that a tree reported.
type member struct {
	kind  string
	pid   int
	start int // in clock ticks since boot
}

// reported are the processes of all trees so far.
func (a *arena) reported() []member {
	content, err := os.ReadFile(a.report)
	if err != nil {
		return nil
	}
	var all []member
	for line := range strings.Lines(string(content)) {
		kind, stat, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if s, ok := parseStat(stat); ok {
			all = append(all, member{kind: kind, pid: s.pid, start: s.start})
		}
	}
	return all
}

// stat is what the kernel says of a process.
type stat struct {
	pid, parent, session, start int
	state                       byte
}

func parseStat(text string) (s stat, ok bool) {
	open, end := strings.IndexByte(text, '('), strings.LastIndex(text, ") ")
	if open < 0 || end < 0 {
		return s, false
	}
	fields := strings.Fields(text[end+2:])
	if len(fields) < 20 {
		return s, false
	}
	s.state = fields[0][0]
	ok = true
	number := func(field string) (n int) {
		n, err := strconv.Atoi(field)
		ok = ok && err == nil
		return n
	}
	s.pid, s.parent = number(strings.TrimSpace(text[:open])), number(fields[1])
	s.session, s.start = number(fields[3]), number(fields[19])
	return s, ok
}

func readStat(pid int) (stat, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, false
	}
	return parseStat(string(text))
}

// alive says whether the process is there and has not ended.
func (m member) alive() bool {
	s, ok := readStat(m.pid)
	return ok && s.start == m.start && s.state != 'Z'
}

// remains are the processes, alive or zombies, that sessions left in this arena.
func (a *arena) remains() []string {
	kinds := map[int]string{}
	var left []string
	for _, m := range a.reported() {
		if m.alive() {
			kinds[m.pid] = m.kind
		}
	}
	if a.group == nil {
		for _, p := range a.processes(a.t) {
			left = append(left, p.String())
		}
		for pid, kind := range kinds {
			left = append(left, fmt.Sprintf("%d %s", pid, kind))
		}
		return left
	}
	for _, pid := range a.group.members() {
		kind := kinds[pid]
		delete(kinds, pid)
		if kind == "" {
			p, _ := readProcess(fmt.Sprintf("/proc/%d", pid))
			kind = p.command
		}
		left = append(left, fmt.Sprintf("%d %s", pid, kind))
	}
	if len(left) > 0 {
		return left // the rest costs a look at all processes
	}
	for pid, kind := range kinds {
		left = append(left, fmt.Sprintf("%d %s, outside its cgroup", pid, kind))
	}
	for _, pid := range a.group.zombies() {
		left = append(left, fmt.Sprintf("%d zombie", pid))
	}
	return left
}

// killRemains ends what a fault left, so that the next begins with nothing.
func (a *arena) killRemains() {
	if a.group != nil {
		a.group.kill()
	}
	for _, m := range a.reported() {
		if m.alive() {
			_ = syscall.Kill(m.pid, syscall.SIGKILL)
		}
	}
	a.killRest(a.t)
}

// command is pmcp, or a stand-in client around it, with the directories, the
// environment and the cgroup of the arena, its own process group and its
// standard error in the arena's file. Whoever starts it closes what that file
// is.
func (a *arena) command(argv []string, more ...string) (*exec.Cmd, *os.File, error) {
	argv = append(argv, a.group.enter(append([]string{build.path}, more...))...)
	stderr, err := os.OpenFile(a.stderr, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stderr = a.project, a.env, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, stderr, nil
}

// counts answers a query of one number about the database.
func (a *arena) counts(query string) (n int, err error) { return countIn(a.database, query) }

// countIn answers a query of one number about a database, which it cannot
// change.
func countIn(database, query string) (n int, err error) {
	u := url.URL{Scheme: "file", Path: database, RawQuery: "mode=ro&_query_only=true&_busy_timeout=5000"}
	db, err := sql.Open("sqlite3", u.String())
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return n, db.QueryRow(query).Scan(&n)
}

// The questions about the database that have to be answered with 0.
const (
	damage       = `SELECT count(*) FROM pragma_integrity_check WHERE integrity_check != 'ok'`
	openRuns     = `SELECT count(*) FROM run WHERE sealed = 0`
	openSessions = `SELECT count(*) FROM session WHERE ended = 0`
)
