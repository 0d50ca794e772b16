package server

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"pmcp/groups"
	"pmcp/logstore/mask"
)

// TestGroupAnswersAreBounded: many members that fail with much output share one
// answer, each with its last line, and what is left out is said.
func TestGroupAnswersAreBounded(t *testing.T) {
	s := hello(t)
	const members = 12
	const script = `l=$(head -c 1900 /dev/zero | tr '\0' x); i=0; while [ $i -lt 20 ]; do echo "$i $l"; i=$((i+1)); done; echo "Error: $1 last words" >&2; exit 1`
	var all []map[string]any
	for i := range members {
		all = append(all, map[string]any{
			"process": fmt.Sprintf("m%d", i), "command": "sh", "args": []string{"-c", script, "sh", fmt.Sprintf("m%d", i)}, "ready": map[string]any{"log": "up"}, "merge_output": true,
		})
	}
	s.do("create_group", map[string]any{"name": "stack", "members": all})
	data, text := s.do("start_group", map[string]any{"group": "stack"})
	raw, err := json.Marshal(data)
	noErr(t, err)
	prompt := promptText(t, s.ask("prompts/get", map[string]any{"name": "troubleshoot_group", "arguments": map[string]any{"group": "stack"}}))
	for what, answer := range map[string]string{"text": text, "structured": string(raw), "prompt": prompt} {
		if len(answer) > defaultMaxBytes+members*600 {
			t.Errorf("%s: %d bytes", what, len(answer))
		}
		for i := range members {
			if !strings.Contains(answer, fmt.Sprintf("out Error: m%d last words", i)) {
				t.Errorf("%s: without the last words of m%d", what, i)
			}
		}
		answer = strings.ReplaceAll(answer, `\"`, `"`)
		n := 0
		for i := range members {
			n += strings.Count(answer, fmt.Sprintf(`before these left out; get_logs with process: "m%d", before: `, i))
		}
		if n != members {
			t.Errorf("%s: %d members say what was left out", what, n)
		}
	}
	if !strings.Contains(text, "hint: not all of the last lines and errors fit") {
		t.Errorf("no hint in\n%s", text)
	}
}

func promptText(t *testing.T, r reply) string {
	t.Helper()
	if r.Error != nil {
		t.Fatal(r.raw)
	}
	raw, err := json.Marshal(r.Result["messages"])
	noErr(t, err)
	var messages []struct{ Content struct{ Text string } }
	noErr(t, json.Unmarshal(raw, &messages))
	return messages[0].Content.Text
}

// TestNoGroups: the hint is one line of the text, and a line without its end as
// data.
func TestNoGroups(t *testing.T) {
	data, text := hello(t).do("list_groups", nil)
	if data["hint"] != "no groups" || text != "no groups\n" {
		t.Errorf("%q, %q", data["hint"], text)
	}
}

// TestGroupWithoutMembers: its lists are empty, as the schema of its tool has it,
// not null.
func TestGroupWithoutMembers(t *testing.T) {
	s := hello(t)
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "job", "command": "sleep 5"}}})
	data, _ := s.do("remove_from_group", map[string]any{"group": "stack", "process": "job"})
	var schema jsonschema.Schema
	noErr(t, json.Unmarshal(removeFromGroupTool().output, &schema))
	resolved, err := schema.Resolve(nil)
	noErr(t, err)
	if err := resolved.Validate(any(data)); err != nil {
		t.Errorf("%v: %v", err, data)
	}
	listed, _ := s.do("list_groups", nil)
	group := listed["groups"].([]any)[0].(map[string]any)
	for _, key := range []string{"order", "members"} {
		if list, ok := group[key].([]any); !ok || len(list) > 0 {
			t.Errorf("list_groups: %s is %v", key, group[key])
		}
	}
}

// TestGroupText: what is not as usual stands in the text too.
func TestGroupText(t *testing.T) {
	r := groupResult{Name: "g", Description: "a stack\nof two", State: "up", StopStrategy: "parallel", StartDelayMS: 500, Order: []string{"db", "api"}, Members: []groupMemberResult{
		{Name: "db", Phase: "up", State: "running", PID: 7}, {Name: "api", Phase: "down"},
	}}
	const want = "group g: up, start order: db, api, 500 ms apart, stopped parallel\n  \"a stack\\nof two\"\n  db: up (running), pid 7\n  api: down\n"
	if got := r.text(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestGroupTimeoutHasACursor: with it the log of the members is read on, from the
// start for one that has not run.
func TestGroupTimeoutHasACursor(t *testing.T) {
	s := hello(t)
	s.script("web", "echo up; read line; echo $line; exec sleep 100", "ready", map[string]any{"log": "^go$"}, "wait", "started")
	s.waitFor("web", "log", "pattern", "^up$")
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{
		{"process": "web"}, {"process": "job", "command": "sh", "args": []string{"-c", "echo first; sleep 100"}, "depends_on": []map[string]any{{"process": "web"}}},
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rep, err := s.server.o.Groups.Start(ctx, "stack", s.server, groups.StartOptions{Progress: func(groups.Progress) { cancel() }})
	noErr(t, err)
	r, err := s.server.groupReport(t.Context(), rep)
	noErr(t, err)
	cursor := r.NextCursor
	if !r.TimedOut || cursor == "" || !strings.Contains(r.text(), "timed out; it goes on, and the same call joins it\nnext_cursor: "+cursor+"\n") {
		t.Fatalf("%s", r.text())
	}
	s.do("send_input", map[string]any{"process": "web", "text": "go"})
	if data, text := s.do("start_group", map[string]any{"group": "stack"}); data["timed_out"] != nil || data["next_cursor"] != nil {
		t.Errorf("%s", text)
	}
	s.waitFor("job", "log", "pattern", "^first$")
	if _, text := s.do("get_logs", map[string]any{"process": "web,job", "after": cursor}); strings.Contains(text, "out up") || !strings.Contains(text, "out go") || !strings.Contains(text, "out first") {
		t.Errorf("%s", text)
	}
}

// TestGroupOfAnotherServer: a member that runs in another server counts as
// running, and only that server can change it.
func TestGroupOfAnotherServer(t *testing.T) {
	s := hello(t)
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "db", "command": "sleep 5"}}})
	s.otherRun(s.otherStore(neighbour), "db", "a line")
	for tool, want := range map[string]string{
		"list_groups": "group stack: up, start order: db\n  db: up (running), it runs in another pmcp server (pid 7 editor)",
		"stop_group":  "db: skipped (it runs in another pmcp server (pid 7 editor), which alone can change it), running",
		"start_group": "group stack: up\ndb: skipped (already running in another pmcp server (pid 7 editor), which alone can change it), running",
	} {
		if _, text := s.do(tool, map[string]any{"group": "stack"}); !strings.Contains(text, want) {
			t.Errorf("%s: %q is not in\n%s", tool, want, text)
		}
	}
	const refused = "db: failed (cannot start: db belongs to another pmcp server (pid 7 editor), which alone can change it"
	if _, text := s.do("start_group", map[string]any{"group": "stack", "skip_running": false}); !strings.Contains(text, refused) {
		t.Errorf("a restart: %s", text)
	}
}

// TestStartAfterRemoval: what was taken out of a group stays out of it when it is
// started by its name, and is not held up by what it depended on there.
func TestStartAfterRemoval(t *testing.T) {
	one := map[string]any{"process": "one", "command": "sleep 100"}
	two := map[string]any{"process": "two", "command": "sleep 100", "depends_on": []map[string]any{{"process": "one"}}}
	stack := func(members ...map[string]any) map[string]any {
		return map[string]any{"name": "stack", "members": members}
	}
	for name, c := range map[string]struct {
		tool      string
		arguments map[string]any
		groups    string
	}{
		"member":   {"remove_from_group", map[string]any{"group": "stack", "process": "two"}, "[one]"},
		"group":    {"remove_from_group", map[string]any{"group": "stack"}, ""},
		"left out": {"create_group", stack(one), "[one]"},
	} {
		for how, started := range map[string]bool{"defined": false, "running": true} {
			t.Run(name+" "+how, func(t *testing.T) {
				s := hello(t)
				if started {
					s.do("start_process", map[string]any{"name": "one", "command": "sleep 100", "group": "stack"})
					s.do("start_process", map[string]any{"name": "two", "command": "sleep 100", "group": "stack", "depends_on": two["depends_on"]})
				} else {
					s.do("create_group", stack(one, two))
				}
				s.do(c.tool, c.arguments)
				data, _ := s.do("start_process", map[string]any{"name": "two"})
				if hint := fmt.Sprint(data["hint"]); strings.Contains(hint, "changed") {
					t.Errorf("the start says %s", hint)
				}
				s.do("restart_process", map[string]any{"process": "two"})
				data, _ = s.do("list_groups", nil)
				all := ""
				for _, g := range data["groups"].([]any) {
					all += fmt.Sprint(g.(map[string]any)["order"])
				}
				if all != c.groups {
					t.Errorf("groups %q, want %q", all, c.groups)
				}
			})
		}
	}
}

// TestStoredGroups: a definition that an older pmcp stored with its group is read
// without it, and the names of groups are spared from masking in later sessions.
func TestStoredGroups(t *testing.T) {
	s := hello(t, func(o *Options) { o.Mask = mask.New() })
	project := s.manager.Project()
	s.store.SaveDefinition(project, "old", []byte(`{"command":"sleep 100","group":"gone","depends_on":[{"process":"db"}]}`))
	s.do("start_process", map[string]any{"name": "old"})
	if data, _ := s.do("list_groups", nil); data["hint"] != "no groups" {
		t.Errorf("it made %v", data["groups"])
	}
	s.store.SaveGroup(project, "grafana-main", []byte(`{"name":"grafana-main","members":[]}`))
	s.server.spareNames(t.Context())
	s.server.o.Mask.LearnEnv(map[string]string{"GF_PASSWORD": "grafana-main"})
	if _, text := s.do("list_groups", nil); !strings.Contains(text, "group grafana-main:") {
		t.Errorf("masked: %s", text)
	}
}

// TestGroupGivenToARunningProcess: joining a group needs no restart, is told, and
// is no change where it is a member already.
func TestGroupGivenToARunningProcess(t *testing.T) {
	s := hello(t)
	s.script("web", "exec sleep 100")
	for i, change := range []string{"start", "", "remove_from_group", ""} {
		if change == "remove_from_group" {
			s.do(change, map[string]any{"group": "stack", "process": "web"})
		}
		data, _ := s.do("start_process", map[string]any{"name": "web", "group": "stack"})
		told := strings.Contains(fmt.Sprint(data["hint"]), "changed without a restart: group")
		if data["already_running"] != true || told != (change != "") {
			t.Errorf("%d: %v", i, data)
		}
	}
}

// TestGroupMemberThatCannotBeStarted: what it printed before is not the reason.
func TestGroupMemberThatCannotBeStarted(t *testing.T) {
	s := hello(t)
	dir := filepath.Join(s.manager.Project(), "sub")
	noErr(t, os.Mkdir(dir, 0o755))
	s.script("api", "echo all is well; echo 'Error: of before' >&2", "cwd", dir, "wait", "exit")
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "api"}}})
	noErr(t, os.Remove(dir))
	data, text := s.do("start_group", map[string]any{"group": "stack"})
	member := data["members"].([]any)[0].(map[string]any)
	if member["result"] != "failed" || !strings.Contains(fmt.Sprint(member["why"]), "cannot start: ") {
		t.Errorf("%s", text)
	}
	for _, key := range []string{"state", "run", "exit_code", "lines", "errors"} {
		if member[key] != nil {
			t.Errorf("%s of the run before: %v", key, member[key])
		}
	}
	if strings.Contains(text, "exit code 0") || strings.Contains(text, "of before") {
		t.Errorf("%s", text)
	}
}

// TestGroupMemberThatCrashedOnceStarted: what it said last is told, although its
// start was none that failed.
func TestGroupMemberThatCrashedOnceStarted(t *testing.T) {
	s := hello(t)
	s.script("api", "echo 'Error: no table users' >&2; exit 3", "wait", "exit")
	s.do("restart_process", map[string]any{"process": "api", "wait": "exit"}) // as a policy would
	s.script("web", "echo all is well", "wait", "exit")
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "api"}, {"process": "web"}}})
	r, err := s.server.groupReport(t.Context(), groups.Report{Group: "stack", TimedOut: true, Members: []groups.Outcome{
		{Process: "api", Result: groups.WasStarted, Run: 1}, {Process: "web", Result: groups.WasStarted, Run: 1},
	}})
	noErr(t, err)
	api, web := r.Members[0], r.Members[1]
	if api.Run != 2 || len(api.Errors) != 1 || api.NextCursor == "" || !strings.Contains(r.text(), "api: started, crashed, exit code 3\n") {
		t.Errorf("%s", r.text())
	}
	if len(web.Lines) > 0 || len(web.Errors) > 0 {
		t.Errorf("of one that ended well: %+v", web)
	}
}

// TestReportSaysWhatIsWaitedFor of a member that is not up yet, if the start was
// given up as if it was skipped.
func TestReportSaysWhatIsWaitedFor(t *testing.T) {
	s := hello(t)
	s.script("api", "exec sleep 100", "ready", map[string]any{"port": 1}, "wait", "started")
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "api"}}})
	for result, want := range map[groups.Result]string{
		groups.InProgress: "api: in progress (not ready yet", groups.Skipped: "api: skipped (already running; not ready yet",
	} {
		o := groups.Outcome{Process: "api", Result: result, Run: 1}
		if result == groups.Skipped {
			o.Why = "already running"
		}
		r, err := s.server.groupReport(t.Context(), groups.Report{Group: "stack", TimedOut: true, Members: []groups.Outcome{o}})
		noErr(t, err)
		if !strings.Contains(r.text(), want) {
			t.Errorf("%s", r.text())
		}
	}
}

// TestReportOfAForgottenGroup: what became of the members is told although the group
// was forgotten while the call waited.
func TestReportOfAForgottenGroup(t *testing.T) {
	s := hello(t)
	s.script("api", "exec sleep 100")
	r, err := s.server.groupReport(t.Context(), groups.Report{Group: "gone", Members: []groups.Outcome{{Process: "api", Result: groups.WasStarted, Run: 1}}})
	noErr(t, err)
	if text := r.text(); !strings.Contains(text, "group gone: forgotten\napi: started, running, pid ") || !strings.Contains(text, "hint: the group was forgotten") {
		t.Errorf("%s", text)
	}
}

// TestMemberOfAnotherGroup: a member belongs to the group that is defined, and no
// other is passed over.
func TestMemberOfAnotherGroup(t *testing.T) {
	s := hello(t)
	r := s.ask("tools/call", map[string]any{"name": "create_group", "arguments": map[string]any{
		"name": "stack", "members": []map[string]any{{"process": "db", "command": "sleep 5", "group": "other"}}}})
	if r.Result["isError"] != true || !strings.Contains(r.text(), "db: group") {
		t.Errorf("%s", r.raw)
	}
	if data, _ := s.do("list_groups", nil); data["hint"] != "no groups" {
		t.Errorf("made: %v", data["groups"])
	}
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "db", "command": "sleep 5", "group": "stack"}}})
}

// TestGroupWithoutDefinition says what a member lacks, in its own words.
func TestGroupWithoutDefinition(t *testing.T) {
	s := hello(t)
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "db", "command": "sleep 5"}}})
	s.do("remove_process", map[string]any{"process": "db"})
	for _, tool := range []string{"start_group", "list_groups"} {
		data, text := s.do(tool, map[string]any{"group": "stack"})
		if want := "cannot start: db has no definition"; !strings.Contains(text, want) || !strings.Contains(fmt.Sprint(data), want) {
			t.Errorf("%s: %v", tool, data)
		}
	}
}

// TestCreateGroupChangesDefinitions: an argument of a member without a command is
// laid over its definition, and the answer says what has become another one.
func TestCreateGroupChangesDefinitions(t *testing.T) {
	s := hello(t)
	s.script("web", "exec sleep 100")
	member := func(more ...any) map[string]any {
		m := map[string]any{"process": "web"}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return map[string]any{"name": "stack", "members": []map[string]any{m, {"process": "job", "command": "sleep 5"}}}
	}
	for _, c := range []struct {
		arguments map[string]any
		want      any
	}{
		{member(), nil},
		{member("restart", "on-failure", "env", map[string]any{"A": "1"}), []any{"changed web: env, restart (it runs as before until it is restarted)"}},
		{member("restart", "on-failure"), nil},
		{member("command", "sleep 101"), []any{"changed web: args, command, env, restart (it runs as before until it is restarted)"}},
		{member("depends_on", []map[string]any{{"process": "job"}}), []any{"web depends on job (was: nothing)"}},
	} {
		data, text := s.do("create_group", c.arguments)
		if fmt.Sprint(data["changes"]) != fmt.Sprint(c.want) {
			t.Errorf("%v changes %v; want %v", c.arguments, data["changes"], c.want)
		}
		if same := strings.Contains(text, "defined the same way"); same && c.want != nil {
			t.Errorf("%v: %s", c.arguments, text)
		}
	}
	_, text := s.do("restart_process", map[string]any{"process": "web"})
	if !strings.Contains(text, "sleep 101\n") {
		t.Errorf("restarted with the old definition:\n%s", text)
	}
}
