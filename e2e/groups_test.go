package e2e

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
)

// stack returns the members of a typical stack: a database that takes a while to accept
// connections, a migration that runs once, an API that needs both, and a web server that
// needs a healthy API. If apiFails is set, the API prints a reason and exits.
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

// results returns the result of each member of a group, as an answer has it.
func (r result) results() map[string]string {
	found := make(map[string]string)
	for _, m := range list(r.Data["members"]) {
		member := m.(map[string]any)
		found[member["name"].(string)], _ = member["result"].(string)
	}
	return found
}

// TestGroupStartsInOrderAndStops checks that one call starts a real group in order, that
// start_group names why web does not start once the API fails, and that one call stops the
// whole group.
func TestGroupStartsInOrderAndStops(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "create_group", args{"name": "stack", "members": stack(t, false)}).says(t, "start order: db, migrate, api, web")
	up := c.ok(t, "start_group", args{"group": "stack"}).want(t, args{"state": "up"})
	if got := fmt.Sprint(up.results()); got != "map[api:ready db:ready migrate:done web:ready]" {
		t.Errorf("got results %s, want all up\n%s", got, up.Text)
	}
	started := make(map[string]string)
	for name := range up.results() {
		started[name] = c.ok(t, "get_process_info", args{"process": name}).str("started_at")
	}
	for _, order := range [][2]string{{"db", "migrate"}, {"migrate", "api"}, {"api", "web"}} {
		if started[order[0]] >= started[order[1]] {
			t.Errorf("%s started at %s, %s at %s, want it earlier", order[0], started[order[0]], order[1], started[order[1]])
		}
	}
	c.ok(t, "start_group", args{"group": "stack"}).says(t, "web: skipped", "migrate: skipped (exited 0 ", "rerun: true runs it")
	c.ok(t, "get_process_info", args{"process": "migrate"}).want(t, args{"run": 1.0})
	c.ok(t, "start_group", args{"group": "stack", "rerun": true}).says(t, "web: skipped", "migrate: done")
	c.ok(t, "get_process_info", args{"process": "migrate"}).want(t, args{"run": 2.0})
	down := c.ok(t, "stop_group", args{"group": "stack"}).want(t, args{"state": "down"})
	if web, db := strings.Index(down.Text, "\nweb:"), strings.Index(down.Text, "\ndb:"); web < 0 || db < web {
		t.Errorf("got db before web, want dependents first:\n%s", down.Text)
	}

	c.ok(t, "create_group", args{"name": "stack", "members": stack(t, true)})
	broken := c.ok(t, "start_group", args{"group": "stack"}).want(t, args{"state": "partial"}).
		says(t, "api: failed", "exit code 2", " no configuration", "web: skipped")
	if got := broken.results(); got["api"] != "failed" || got["web"] != "skipped" || got["db"] != "ready" {
		t.Errorf("got results %v, want api failed, web skipped and db ready", got)
	}
	c.ok(t, "list_groups", args{"group": "stack"}).says(t, "web: blocked", "api is not healthy: it ended with exit code 2")
	c.ok(t, "stop_group", args{"group": "stack", "strategy": "parallel"}).want(t, args{"state": "down"})
}

// TestStartGroupDefinesItsMembers checks that start_group with members creates the group
// and starts it, that what all members share is below what a member has itself and stays
// with the definition of each, that a second call changes only what differs, and that a
// refused call changes nothing.
func TestStartGroupDefinesItsMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.MkdirAll(w.project+"/shop/web", 0o755))
	check(t, os.WriteFile(w.project+"/shop/.env", []byte("FROM_FILE=file\n"), 0o600))
	c := w.open(t)
	const script = `echo "$PWD $WHO $FROM_FILE $PORT"; exec sleep 1000`
	member := func(name string, more args) args {
		m := args{"process": name, "command": "sh", "args": []string{"-c", script}, "ready": args{"log": "."}}
		maps.Copy(m, more)
		return m
	}
	members := []args{member("db", nil), member("web", args{"cwd": "shop/web", "env_files": []string{"../.env"}, "env": args{"PORT": "2"}, "depends_on": []string{"db"}})}
	shared := args{"group": "shop", "members": members, "cwd": "shop", "env": args{"WHO": "all", "PORT": "1"}, "env_files": []string{".env"}}
	printed := func(name string) string {
		return strings.Join(c.ok(t, "tail_logs", args{"process": name, "lines": 1}).printed(), "")
	}
	printsItsOwn := func() {
		t.Helper()
		for name, want := range map[string]string{"db": "/shop all file 1", "web": "/shop/web all file 2"} {
			if got := printed(name); !strings.HasSuffix(got, want) {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
	}
	c.ok(t, "start_group", shared).want(t, args{"state": "up"})
	printsItsOwn()
	c.ok(t, "stop_group", args{"group": "shop"})
	for _, name := range []string{"db", "web"} { // by its name a member starts as in the group
		c.ok(t, "start_process", args{"name": name})
	}
	printsItsOwn()

	again := c.ok(t, "start_group", shared.with("members", append(members, member("extra", nil))))
	again.says(t, "added extra", "web: skipped (already running)")
	if changes := list(again.Data["changes"]); len(changes) != 1 {
		t.Errorf("got the changes %v, want one", changes)
	}
	c.ok(t, "start_group", args{"group": "shop", "members": []args{{"process": "db"}, member("web", args{"env": args{"PORT": "3"}})}, "env": args{"WHO": "each"}}).
		says(t, "removed extra", "changed web: cwd, env, env_files (it runs as before until it is restarted)", "db keeps its own env WHO")
	c.ok(t, "start_group", args{"group": "shop", "skip_running": false})
	if got := printed("web"); !strings.HasSuffix(got, " each  3") {
		t.Errorf("got %q after a restart, want the new definition", got)
	}

	before := c.ok(t, "list_groups", nil).Text
	for name, arguments := range map[string]args{
		"cycle":         {"group": "shop", "members": []args{member("db", args{"depends_on": []args{{"process": "web"}}}), member("web", args{"depends_on": []args{{"process": "db"}}})}},
		"twice":         {"group": "shop", "members": []args{member("db", nil), member("db", nil)}},
		"db: argument":  {"group": "shop", "members": []args{member("db", nil)}, "env_files": []string{"none.env"}},
		"no definition": {"group": "shop", "members": []args{member("db", args{"command": "true"}), {"process": "nobody"}}},
		"members":       {"group": "shop", "env": args{"WHO": "x"}},
		"with members":  {"group": "nothing"},
	} {
		c.refused(t, "start_group", arguments, name)
	}
	if after := c.ok(t, "list_groups", nil).Text; after != before {
		t.Errorf("got\n%s\nafter refused calls, want\n%s", after, before)
	}
	if got := printed("db"); !strings.HasSuffix(got, " all file 1") {
		t.Errorf("got %q of db after refused calls, want it as it was", got)
	}

	var plain result
	for run := 1; run == 1 || run < 100 && !(strings.Contains(plain.Text, ", ports ") && strings.Contains(plain.Text, "failed")); run++ { // on a busy machine a program may listen or end after the second in which its start is watched
		c.ok(t, "stop_process", args{"process": "*"})
		plain = c.ok(t, "start_group", args{"group": "plain", "members": []args{own(t, "server", "http"), sh("broken", "echo no >&2; exit 3")}}).
			says(t, fmt.Sprintf("server: started, run %d, pid ", run))
	}
	plain.says(t, ", ports ", "broken: failed (it ended with exit code 3), run ", "| ")
	if again := c.ok(t, "tail_logs", args{"process": "broken", "after": "shown"}).printed(); len(again) > 0 {
		t.Errorf("got %q after an answer that showed it, want nothing", again)
	}
}

// TestGroupsOutliveTheSession checks that definitions and groups still exist in the next
// session.
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

// TestInvalidGroupsAreRejected checks that create_group rejects an invalid group, names
// the mistake and changes nothing. Packages groups and server know more mistakes.
func TestInvalidGroupsAreRejected(t *testing.T) {
	t.Parallel()
	c := begin(t)
	needs := func(name string) []args { return []args{{"process": name}} }
	for name, row := range map[string]struct {
		members []args
		says    []string
	}{
		"cycle":       {[]args{{"process": "a", "command": "true", "depends_on": needs("b")}, {"process": "b", "command": "true", "depends_on": needs("a")}}, []string{"a → b → a"}},
		"bad pattern": {[]args{{"process": "a", "command": "true", "ready": args{"log": "("}}}, []string{"argument members: a: ", "ready.log"}},
		"misspelt":    {[]args{{"process": "a", "comand": "true"}}, []string{"members[0].comand", "members[0].command"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.refused(t, "create_group", args{"name": "g", "members": row.members}, row.says...)
		})
	}
	c.ok(t, "list_groups", nil).says(t, "no groups")

	// A process that cannot join its group is not started.
	c.refused(t, "start_process", own(t, "lone", "sleep").with("group", "g").with("depends_on", needs("zzz")), "zzz")
	c.refused(t, "get_process_info", args{"process": "lone"}, "no such process")
}

// TestUnhealthyProcessIsRestarted checks the reported health of a process without a health
// check, of a healthy process, and of an unhealthy process, which must be restarted.
func TestUnhealthyProcessIsRestarted(t *testing.T) {
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
	c.ok(t, "wait_for_process", args{"process": "sick", "until": "exit", "timeout_ms": longWait}).want(t, args{"ended_by": "health"})
	c.refused(t, "start_process", own(t, "bad", "sleep").with("health", args{"http": "/", "tcp": "1"}), "health", "http", "tcp")
}

// TestSearchFindsTextAndPatterns searches the logs of several processes by text and by
// pattern, and checks the context of the matches, and that the matches' cursors lead to
// them.
func TestSearchFindsTextAndPatterns(t *testing.T) {
	t.Parallel()
	c := begin(t)
	for _, name := range []string{"a", "b"} {
		c.ok(t, "start_process", sh(name, "for i in $(seq 300); do echo line $i of "+name+"; done; echo ERROR: disk full >&2",
			args{"wait": "exit", "merge_output": true})) // merged, because two pipes may be read in any order
	}
	c.ok(t, "search_logs", args{"query": "LINE 77 of", "context": 1}).want(t, args{"count": 2.0}).
		says(t, "line 76 of a", "> ", "line 77 of b", "line 78 of b")
	c.ok(t, "search_logs", args{"query": "LINE 77 of", "case_sensitive": true}).want(t, args{"count": 0.0})
	c.ok(t, "search_logs", args{"query": `line (7|8)\d of a$`, "regex": true, "count_only": true}).want(t, args{"count": 20.0})
	c.ok(t, "search_logs", args{"query": "disk", "process": "a", "level": "error"}).says(t, "disk full")
	c.refused(t, "search_logs", args{"query": "(", "regex": true}, "search_logs")

	first := c.ok(t, "search_logs", args{"query": "of b", "process": "b", "limit": 70}).want(t, args{"more": true})
	next := list(c.ok(t, "search_logs", args{"query": "of b", "process": "b", "limit": 70, "before": first.str("next_cursor")}).Data["matches"])
	if len(next) != 70 || !strings.HasSuffix(next[0].(map[string]any)["line"].(string), "line 230 of b") {
		t.Errorf("the second page: got %v, want 70 hits from line 230 of b on", next)
	}

	match := list(c.ok(t, "search_logs", args{"query": "line 5 of a", "context": 1}).Data["matches"])[0].(map[string]any)
	around := c.ok(t, "get_logs", args{"process": "a", "before": match["cursor"], "limit": 2}).printed()
	if strings.Join(around, "|") != "line 4 of a|line 5 of a" {
		t.Errorf("the cursor leads to %q, want lines 4 and 5 of a", around)
	}
	c.ok(t, "clear_logs", args{"process": "a"}).want(t, args{"lines": 301.0})
	c.ok(t, "search_logs", args{"query": "of a"}).want(t, args{"count": 0.0})
	c.ok(t, "search_logs", args{"query": "of b", "count_only": true}).want(t, args{"count": 300.0})
}
