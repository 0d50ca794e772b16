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

// An arena is a world in which tests kill sessions. It finds the processes that a killed
// session left through a cgroup, if one can be created, and through a file to which each
// process adds a line. It does not ask pmcp, and looks at environments only without a
// cgroup.
type arena struct {
	*world
	t      testing.TB
	group  *cgroup // nil if no cgroup can be created
	report string  // a file to which each started process adds a line
	stderr string  // a file with the standard error of all servers
}

// failedStderr is how much of standard error a failed test shows, in bytes.
const failedStderr = 8 << 10

// newArena returns an arena. At the end of the test no process may be left in the arena.
// The standard error of its servers must not contain anything that must never be logged,
// and must show that each session that was not killed has ended by itself.
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
			t.Logf("the last output of the servers:\n%s", content[max(0, len(content)-failedStderr):])
		}
		stderr := &record{b: content}
		(&session{stderr: stderr}).checkStderr(t)
		stderr.checkEnd(t)
	})
	return a
}

// treeScripts are shell programs, so that a tree is up within a few milliseconds and some
// faults hit trees that have not fully started.
var treeScripts = map[string]string{
	// Usage: member KIND REPORT. It adds a line to REPORT, then sleeps. The sleep replaces
	// the shell by exec, so that the process stays the same.
	"member": `read -r stat < /proc/$$/stat
echo "$1 $stat" >> "$2"
exec sleep 300
`,
	// Usage: tree KIND REPORT [leave]. It starts a process tree of that kind, whose leader
	// stays or, with leave, exits.
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

// treeKinds are the kinds of process trees. Trees of the kinds cleared and hidden have no
// variable of pmcp in their environment; hidden trees also have a session of their own.
var treeKinds = []string{"plain", "group", "session", "daemon", "stubborn", "burst", "cleared", "hidden"}

// tree returns the arguments of start_process for a process tree of that kind.
func (a *arena) tree(name, kind string, leave bool) args {
	arguments := []string{filepath.Join(a.home, "tree"), kind, a.report}
	if leave {
		arguments = append(arguments, "leave")
	}
	return args{"name": name, "command": "sh", "args": arguments}
}

// A member is a process of a tree that reported itself in the arena's file.
type member struct {
	kind  string
	pid   int
	start int // in clock ticks since boot
}

// reported returns the processes of all trees that have reported themselves so far.
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

// stat holds fields of /proc/PID/stat.
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

// alive reports whether the process exists and is not a zombie.
func (m member) alive() bool {
	s, ok := readStat(m.pid)
	return ok && s.start == m.start && s.state != 'Z'
}

// remains returns the processes, alive or zombies, that sessions left in this arena.
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
			p, _ := readProcess(pid)
			kind = commandOf(p)
		}
		left = append(left, fmt.Sprintf("%d %s", pid, kind))
	}
	if len(left) > 0 {
		return left // skip the slow scan of all processes below
	}
	for pid, kind := range kinds {
		left = append(left, fmt.Sprintf("%d %s, outside its cgroup", pid, kind))
	}
	for _, pid := range a.group.zombies() {
		left = append(left, fmt.Sprintf("%d zombie", pid))
	}
	return left
}

// killRemains kills the processes that a session left, so that the next test of a fault
// starts with an empty arena.
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

// command returns the command of pmcp, or of a stand-in client that starts pmcp, in the
// directories, environment and cgroup of the arena. The command has its own process group
// and writes standard error to the arena's file. The caller closes that file after the
// start.
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

// counts returns the number that an SQL query of the arena's database yields.
func (a *arena) counts(query string) (n int, err error) { return countIn(a.database, query) }

// countIn returns the number that an SQL query of a database yields, and opens the
// database read-only.
func countIn(database, query string) (n int, err error) {
	u := url.URL{Scheme: "file", Path: database, RawQuery: "mode=ro&_query_only=true&_busy_timeout=5000"}
	db, err := sql.Open("sqlite3", u.String())
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return n, db.QueryRow(query).Scan(&n)
}

// Each of these SQL queries of pmcp's database must yield 0.
const (
	damage       = `SELECT count(*) FROM pragma_integrity_check WHERE integrity_check != 'ok'`
	openRuns     = `SELECT count(*) FROM run WHERE sealed = 0`
	openSessions = `SELECT count(*) FROM session WHERE ended = 0`
)
