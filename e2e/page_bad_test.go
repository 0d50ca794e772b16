package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pmcp/process/proctest"
)

// TestPageBearsBadInput shows what nobody planned for: names and directories that do not fit or are markup, 200
// processes in 12 projects, a line of 1 MB, hostile output, sessions that end while their cards are shown, a clock that
// jumps, and addresses that mean nothing. Nothing breaks, nothing is executed, and nothing untrue is shown.
func TestPageBearsBadInput(t *testing.T) {
	proctest.Long(t, "browsers")
	t.Parallel()
	needs(t, "python3")
	chromium, modules := browserOf(t)
	w := newWorld(t)
	w.project = filepath.Join(w.home, "pro<img src=x onerror=alert(9)>ject")
	w.set("PM_PROJECT_DIR", w.project)
	check(t, os.MkdirAll(filepath.Join(w.project, ".git"), 0o755))
	s, killed, ended := w.start(t), w.startAs(t, "<b>killed</b>\u202e"), w.startAs(t, "ended")
	for p := range 11 {
		dir := filepath.Join(t.TempDir(), fmt.Sprint("project", p))
		check(t, os.MkdirAll(filepath.Join(dir, ".git"), 0o755))
		members := []args{{"process": "runs", "command": "sleep 1000"}}
		for m := range 17 {
			members = append(members, args{"process": fmt.Sprint("once", m), "command": "true"})
		}
		s.must(t, "start_group", args{"group": "all", "project": dir, "members": members, "timeout_ms": longWait})
	}
	file := filepath.Join(w.home, "hostile")
	check(t, os.WriteFile(file, []byte(strings.Repeat("y", 1<<20)+"\n"+hostileMarkup+strings.Join(hostileLines, "\n")+"\n"), 0o600))
	show := "import sys; print(open(sys.argv[1], errors='replace').read()); raise ValueError('<img src=x onerror=alert(8)>\u202e' + 'z' * 5000)"
	s.must(t, "start_process", args{"name": "hostile", "command": "python3", "args": []string{"-c", show, file, "\u202e<svg onload=alert(7)>\x1b[31m"}, "wait": "exit", "timeout_ms": longWait})
	wide := strings.Repeat("W", 64)
	s.must(t, "start_process", sh(wide, "echo the wide one; sleep 1000").with("ready", args{"log": "wide"}))
	killed.must(t, "start_process", args{"name": "orphan", "command": "python3 -m http.server 0 --bind 127.0.0.1", "ready": args{"port": 0}, "timeout_ms": longWait})
	ended.must(t, "start_process", args{"name": "follows", "command": "sleep 1000"})
	orphan := killed.must(t, "get_process_info", args{"process": "orphan"}).num("pid")

	address, _, end := w.openPage(t)
	var seen struct {
		Wrong, Elsewhere, Untrue, Wide []string
		Scripts, Cards, Lost           int
		Orphan, First, Counts, Follows string
		Time, Search                   string
		Colours                        []string
	}
	drivePage(t, "bad.cjs", modules, chromium, address, &seen, fmt.Sprint(killed.pid), fmt.Sprint(killed.serverPID(t)), fmt.Sprint(ended.pid), wide)
	end()
	for what, list := range map[string][]string{"errors of the page": seen.Wrong, "requests to elsewhere": seen.Elsewhere, "texts that mean nothing": seen.Untrue, "views that are too wide": seen.Wide} {
		if len(list) > 0 {
			t.Errorf("got %s %q, want none", what, list)
		}
	}
	if seen.Scripts != 1 {
		t.Errorf("got %d scripts and images, want the one script", seen.Scripts)
	}
	if seen.Cards < 200 {
		t.Errorf("got %d cards, want 200", seen.Cards)
	}
	for _, want := range []string{"lost", "nobody has owned it for", fmt.Sprintf("pid %d (python3)", orphan), ", port ", "--doctor"} {
		if !strings.Contains(seen.Orphan, want) {
			t.Errorf("got the card %q, want %q in it", seen.Orphan, want)
		}
	}
	if !strings.Contains(seen.Counts, "2 wrong") || strings.Contains(seen.Follows, "running") {
		t.Errorf("got %q and the card %q of the session that ended, want 2 wrong, and that it does not run", seen.Counts, seen.Follows)
	}
	if len(seen.Colours) != 3 {
		t.Errorf("got the colours %q of three clients, want three", seen.Colours)
	}
	if !strings.Contains(seen.Time, "no such time") || seen.Search == "" {
		t.Errorf("got %q for a time and %q for a pattern that are none, want what is wrong", seen.Time, seen.Search)
	}
	_, _, err := w.doctor("--cleanup-stale-records")
	check(t, err)
	killed.exit(t)
	ended.exit(t)
}

// serverPID returns the pid of the session's server.
func (s *session) serverPID(t testing.TB) int {
	t.Helper()
	return s.must(t, "get_server_info", args{}).num("current_pid")
}
