package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// stack are the members of issue-sized stack: a database that takes a while to
// accept, a migration that runs once, an API that needs both, a web server that
// needs the API to be healthy. apiFails makes the API die with a reason.
func stack(t testing.TB, apiFails bool) []args {
	t.Helper()
	member := func(name string, definition args, needs ...args) args {
		return args{"process": name, "depends_on": needs}.with("command", definition["command"]).with("args", definition["args"])
	}
	after := func(process, condition string) args { return args{"process": process, "condition": condition} }
	slow := sh("db", fmt.Sprintf("sleep 1; exec '%s' %s http", self(t), programMarker))
	api := own(t, "api", "http")
	if apiFails {
		api = sh("api", "echo no configuration >&2; exit 2")
	}
	return []args{
		member("web", own(t, "web", "http"), after("api", "healthy"), after("migrate", "exited_ok")).with("ready", args{"http": "/"}),
		member("api", api, after("db", "ready"), after("migrate", "exited_ok")).
			with("ready", args{"http": "/up"}).with("health", args{"http": "/health"}),
		member("migrate", sh("migrate", "echo migrated"), after("db", "ready")),
		member("db", slow).with("ready", args{"port": 0}),
	}
}

// results are what became of each member of a group.
func (r result) results() map[string]string {
	found := make(map[string]string)
	for _, m := range list(r.Data["members"]) {
		member := m.(map[string]any)
		found[member["name"].(string)], _ = member["result"].(string)
	}
	return found
}

// TestGroupUpBrokenDown: a real stack comes up with one call, in order; then the
// API fails, and the answer says why web does not start; then all goes down.
func TestGroupUpBrokenDown(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "create_group", args{"name": "stack", "members": stack(t, false)}).says(t, "start order: db, migrate, api, web")
	up := c.ok(t, "start_group", args{"group": "stack"}).want(t, args{"state": "up"})
	if got := fmt.Sprint(up.results()); got != "map[api:ready db:ready migrate:started web:ready]" {
		t.Errorf("results %s\n%s", got, up.Text)
	}
	started := make(map[string]string)
	for name := range up.results() {
		started[name] = c.ok(t, "get_process_info", args{"process": name}).str("started_at")
	}
	for _, order := range [][2]string{{"db", "migrate"}, {"migrate", "api"}, {"api", "web"}} {
		if started[order[0]] >= started[order[1]] {
			t.Errorf("%s started at %s, %s at %s", order[0], started[order[0]], order[1], started[order[1]])
		}
	}
	c.ok(t, "start_group", args{"group": "stack"}).says(t, "web: skipped")
	down := c.ok(t, "stop_group", args{"group": "stack"}).want(t, args{"state": "down"})
	if web, db := strings.Index(down.Text, "\nweb:"), strings.Index(down.Text, "\ndb:"); web < 0 || db < web {
		t.Errorf("dependents do not come first:\n%s", down.Text)
	}

	c.ok(t, "create_group", args{"name": "stack", "members": stack(t, true)})
	broken := c.ok(t, "start_group", args{"group": "stack"}).want(t, args{"state": "partial"}).
		says(t, "api: failed", "exit code 2", "err no configuration", "web: skipped")
	if got := broken.results(); got["api"] != "failed" || got["web"] != "skipped" || got["db"] != "ready" {
		t.Errorf("results %v", got)
	}
	c.ok(t, "list_groups", args{"group": "stack"}).says(t, "web: blocked", "api is not ready")
	c.ok(t, "stop_group", args{"group": "stack", "strategy": "parallel"}).want(t, args{"state": "down"})
}

// TestGroupsOutliveTheSession: definitions and groups are there in the next one.
func TestGroupsOutliveTheSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	c.ok(t, "start_process", own(t, "one", "sleep").with("group", "pair"))
	c.ok(t, "start_process", own(t, "two", "sleep").with("group", "pair").with("depends_on", []args{{"process": "one"}}))
	c.closeInput(t)
	c.exit(t)
	c = w.open(t)
	c.ok(t, "list_groups", nil).says(t, "group pair: down, start order: one, two")
	c.ok(t, "start_group", args{"group": "pair"}).want(t, args{"state": "up"})
	c.ok(t, "remove_from_group", args{"group": "pair", "process": "two"}).says(t, "start order: one")
	c.refused(t, "remove_from_group", args{"group": "pair", "process": "two"}, "two")
	c.ok(t, "remove_from_group", args{"group": "pair"})
	c.refused(t, "start_group", args{"group": "pair"}, "no such group", "pair")
	c.ok(t, "get_process_info", args{"process": "one"}).want(t, args{"state": "running"})
}

// TestGroupsRefuse: what does not fit is refused when it is written, by name,
// and changes nothing.
func TestGroupsRefuse(t *testing.T) {
	t.Parallel()
	c := begin(t)
	needs := func(name string) []args { return []args{{"process": name}} }
	for name, row := range map[string]struct {
		members []args
		says    []string
	}{
		"cycle":          {[]args{{"process": "a", "command": "true", "depends_on": needs("b")}, {"process": "b", "command": "true", "depends_on": needs("a")}}, []string{"a → b → a"}},
		"itself":         {[]args{{"process": "a", "command": "true", "depends_on": needs("a")}}, []string{"a"}},
		"not a member":   {[]args{{"process": "a", "command": "true", "depends_on": needs("zzz")}}, []string{"zzz"}},
		"no definition":  {[]args{{"process": "nobody"}}, []string{"nobody"}},
		"bad definition": {[]args{{"process": "a", "command": "x && y"}}, []string{"a", "shell"}},
		"bad pattern":    {[]args{{"process": "a", "command": "true", "ready": args{"log": "("}}}, []string{"argument members: a: ", "ready.log"}},
		"bad URL":        {[]args{{"process": "a", "command": "true", "ready": args{"http": "localhost:3000"}}}, []string{"argument members: a: ", "ready.http"}},
		"bad signal":     {[]args{{"process": "a", "command": "true", "stop": args{"signal": "TREM"}}}, []string{"argument members: a: ", "TREM"}},
		"bad streams":    {[]args{{"process": "a", "command": "true", "stdio": "mcp", "pty": true}}, []string{"argument members: a: ", "pty"}},
		"rule for MCP":   {[]args{{"process": "a", "command": "true", "stdio": "mcp", "ready": args{"port": 0}}}, []string{"argument members: a: ", "ready"}},
		"misspelt":       {[]args{{"process": "a", "comand": "true"}}, []string{"members[0].comand", "members[0].command"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.refused(t, "create_group", args{"name": "g", "members": row.members}, row.says...)
		})
	}
	c.ok(t, "list_groups", nil).says(t, "no groups")

	// A start that cannot join its group does not happen.
	c.refused(t, "start_process", own(t, "lone", "sleep").with("group", "g").with("depends_on", needs("zzz")), "zzz")
	c.refused(t, "get_process_info", args{"process": "lone"}, "no such process")
}

// TestHealth: a process that answers, then does not, then is restarted for it.
func TestHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	c.ok(t, "start_process", own(t, "plain", "sleep"))
	c.ok(t, "check_process_health", args{"process": "plain"}).want(t, args{"health": "unchecked"}).says(t, "health")
	c.ok(t, "start_process", own(t, "web", "http").with("ready", args{"port": 0}).with("health", args{"http": "/health"}))
	c.ok(t, "check_process_health", args{"process": "web"}).says(t, "status 200")
	marker := w.project + "/broken"
	c.ok(t, "start_process", sh("sick", "echo up; sleep 1000", args{"restart": "on-failure", "max_restarts": 1, "health": args{
		"command": "test", "args": []string{"-e", marker}, "interval_ms": 100, "retries": 2, "start_period_ms": 1, "on_unhealthy": "restart",
	}}))
	c.ok(t, "wait_for_process", args{"process": "sick", "until": "exit", "timeout_ms": 20_000}).want(t, args{"ended_by": "health"})
	c.refused(t, "start_process", own(t, "bad", "sleep").with("health", args{"http": "/", "tcp": "1"}), "health", "http", "tcp")
}

// TestSearch: over running and ended processes, by text and pattern, with
// context and cursors that lead to the place.
func TestSearch(t *testing.T) {
	t.Parallel()
	c := begin(t)
	for _, name := range []string{"a", "b"} {
		c.ok(t, "start_process", sh(name, "for i in $(seq 300); do echo line $i of "+name+"; done; echo ERROR: disk full >&2",
			args{"wait": "exit", "merge_output": true})) // two pipes may be read in any order
	}
	c.ok(t, "search_logs", args{"query": "LINE 77 of", "context": 1}).want(t, args{"count": 2.0}).
		says(t, "line 76 of a", "> ", "line 77 of b", "line 78 of b")
	c.ok(t, "search_logs", args{"query": "LINE 77 of", "case_sensitive": true}).want(t, args{"count": 0.0})
	c.ok(t, "search_logs", args{"query": `line (7|8)\d of a$`, "regex": true, "count_only": true}).want(t, args{"count": 20.0})
	c.ok(t, "search_logs", args{"query": "disk", "process": "a", "level": "error"}).says(t, "disk full")
	c.refused(t, "search_logs", args{"query": "(", "regex": true}, "search_logs")

	// Page through all hits, newest first.
	seen, before := 0, ""
	for {
		r := c.ok(t, "search_logs", args{"query": "of b", "process": "b", "limit": 70, "before": before})
		for _, m := range list(r.Data["matches"]) {
			if want := fmt.Sprintf("line %d of b", 300-seen); !strings.HasSuffix(m.(map[string]any)["line"].(string), want) {
				t.Fatalf("hit %d is %v", seen, m)
			}
			seen++
		}
		if r.Data["more"] != true {
			break
		}
		before = r.str("next_cursor")
	}
	if seen != 300 {
		t.Errorf("%d hits", seen)
	}

	match := list(c.ok(t, "search_logs", args{"query": "line 5 of a"}).Data["matches"])[0].(map[string]any)
	around := c.ok(t, "get_logs", args{"process": "a", "before": match["cursor"], "limit": 2}).printed()
	if strings.Join(around, "|") != "line 4 of a|line 5 of a" {
		t.Errorf("the cursor leads to %q", around)
	}
	c.ok(t, "clear_logs", args{"process": "a"}).want(t, args{"lines": 301.0})
	c.ok(t, "search_logs", args{"query": "of a"}).want(t, args{"count": 0.0})
	c.ok(t, "search_logs", args{"query": "of b", "count_only": true}).want(t, args{"count": 300.0})
}
