package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPersonActsOnGroups checks that commands take the name of a group for its members: while a
// session runs it, which carries out what changes, and without one, when the daemon does.
func TestPersonActsOnGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s := w.start(t)
	member := func(name, needs string, definition args) args {
		return args{"process": name, "depends_on": needs}.with("command", definition["command"]).with("args", definition["args"])
	}
	s.must(t, "start_group", args{"group": "stack", "members": []args{
		member("db", "", own(t, "db", "http")).with("ready", args{"port": 0}),
		member("api", "db", sh("api", "echo no configuration; test -f fixed && exec sleep 1000")).with("ready", args{"log": "."}),
		member("web", "api", own(t, "web", "echo")),
	}})
	s.must(t, "start_process", own(t, "alone", "echo"))
	text := w.awaitCommand(t, []string{"ps", "stack"}, "GROUP", "stack  partial  api failed 1; web never started: needs api; db up")
	if strings.Contains(text, "alone") {
		t.Errorf("ps stack: got %s, want the members only", text)
	}
	w.wantCommand(t, 0, []string{"ps", "--json"}, `{"group":"stack","project":"`+w.project+`","state":"partial","members":[{"name":"db","state":"up"}`)
	w.wantCommand(t, 0, []string{"logs", "stack"}, "no configuration")
	w.wantCommand(t, 2, []string{"stop", "stakc"}, "did you mean stack?", "groups: stack")
	if out, _, _ := w.command(t, w.project, "__complete", "stop", ""); !strings.Contains(out, "\nstack\n") {
		t.Errorf("completion: got %q, want stack", out)
	}
	w.wantCommand(t, 0, []string{"stop", "stack"}, "group stack: down", "db: stopped")
	w.wantCommand(t, 1, []string{"stop", "stack"}, "nothing of group stack is running")
	w.wantCommand(t, 2, []string{"start", "stack"}, "group stack: api failed")
	fill(t, w.project, map[string]string{"fixed": ""})
	w.wantCommand(t, 0, []string{"start", "stack"}, "group stack: up", "db: skipped (already running)", "api: ready", "web: started")
	w.wantCommand(t, 0, []string{"restart", "stack"}, "group stack: up", "db: ready", "api: ready", "web: started")
	w.wantCommand(t, 0, []string{"events", "stack"}, "db (run 2) was started by the person at the terminal", "db (run 3) was restarted by the person at the terminal")
	for name, run := range map[string]int{"db": 3, "api": 4, "web": 2} {
		if got := s.must(t, "get_process_info", args{"process": name}); got.num("run") != run || got.Data["owner"] != nil || got.str("state") != "running" {
			t.Errorf("got %s, want run %d of this session", got.Text, run)
		}
	}
	w.wantCommand(t, 0, []string{"stop", "stack"}, "group stack: down")
	s.must(t, "start_process", own(t, "stack", "echo"))
	s.must(t, "stop_process", args{"process": "stack"})
	w.awaitOutput(t, []string{"stop", "stack"}, "that a process comes first", func(_, said string, code int) bool {
		return code == 1 && strings.Contains(said, "it comes before the group of that name; name the members instead: db, api, web")
	})
	s.must(t, "remove_process", args{"process": "stack"})
	s.closeInput(t)
	s.exit(t)

	fill(t, w.project, map[string]string{"Procfile": "worker: exec sleep 1000\n"})
	w.wantCommand(t, 0, []string{"start", "stack", "--keep", "5d"}, "group stack: up", "db: ready", "api: ready", "web: started")
	w.awaitCommand(t, []string{"ps", "stack"}, "stack  up     db up; api up; web up")
	w.awaitOutput(t, []string{"ps", "web"}, "web kept for 5 days", func(out, _ string, _ int) bool {
		return strings.Contains(out, "kept for 5d 0h") || strings.Contains(out, "kept for 4d 23h")
	})
	w.wantCommand(t, 1, []string{"start", "stack"}, "group stack is up already")
	w.wantCommand(t, 0, []string{"restart", "stack"}, "group stack: up", "web: started")
	w.wantCommand(t, 0, []string{"stop", "stack"}, "group stack: down", "web: stopped")

	w.wantCommand(t, 2, []string{"start", "wroker"}, "did you mean worker?", "offered: worker")
	if out, _, _ := w.command(t, w.project, "__complete", "start", ""); !strings.Contains(out, "\nworker\n") {
		t.Errorf("completion: got %q, want worker, which is offered", out)
	}
	w.wantCommand(t, 0, []string{"start", "worker"}, "worker: running, run 1", "kept for")
	w.wantCommand(t, 0, []string{"stop", "worker"}, "worker: stopped")
	w.wantCommand(t, 0, []string{"start", "Procfile"}, "group Procfile: up")
	w.wantCommand(t, 0, []string{"stop", "Procfile"}, "group Procfile: down")
	w.set("PM_DAEMON_MODE", "never")
	w.wantCommand(t, 2, []string{"start", "stack"}, "PM_DAEMON_MODE=never")
}
