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
	"pmcp/server/stdio/stdiotest"
)

// TestGroupAnswersAreBounded checks that an answer about many failed members with
// much output stays bounded: each member has its last line, and what is left out is
// counted.
func TestGroupAnswersAreBounded(t *testing.T) {
	t.Parallel()
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
	stdiotest.NoErr(t, err)
	prompt := promptText(t, s.ask("prompts/get", map[string]any{"name": "troubleshoot_group", "arguments": map[string]any{"group": "stack"}}))
	for what, answer := range map[string]string{"text": text, "structured": string(raw), "prompt": prompt} {
		most, shown := actionMaxBytes, 3
		switch what {
		case "prompt":
			most, shown = defaultMaxBytes+members*600, members
		case "structured": // what bounds the text bounds it, too
			most *= 2
		}
		if len(answer) > most {
			t.Errorf("%s: got %d bytes, want at most %d:\n%s", what, len(answer), most, answer)
		}
		for i := range members {
			if !strings.Contains(answer, fmt.Sprintf("m%d", i)) {
				t.Errorf("%s: got no report on m%d, want one", what, i)
			}
		}
		for i := range shown {
			if !strings.Contains(answer, fmt.Sprintf("Error: m%d last words", i)) {
				t.Errorf("%s: got no last words of m%d, want them:\n%s", what, i, answer)
			}
		}
	}
	if n := strings.Count(text, "omitted: 19 lines; get_logs with process: \"m"); n < 3 || n != strings.Count(string(raw), `"omitted":{"cursor":"`) {
		t.Errorf("got\n%s\nwant at least 3 members that count what is left out, in the data %s too", text, raw)
	}
	if !strings.Contains(text, "hint: "+memberCut) {
		t.Errorf("got\n%s\nwant a hint", text)
	}
}

// TestGroupAnswerWithChangesIsBounded checks that what a start_group has changed counts
// towards the bound of its answer, and that what is left out is counted.
func TestGroupAnswerWithChangesIsBounded(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "api", "command": "true"}}})
	changes := make([]string, 300)
	for i := range changes {
		changes[i] = fmt.Sprintf("changed m%d: env", i)
	}
	rep := groups.Report{Group: "stack", Members: []groups.Outcome{{Process: "api", Result: groups.WasStarted}}}
	r, err := groupReport(t.Context(), s.server.own, rep, changes, outputArgs{})
	stdiotest.NoErr(t, err)
	n := len(r.Changes) - 1
	if limit := (outputArgs{}).limit(); answerSize(r) > limit || n < 10 || r.Changes[n] != fmt.Sprintf("%d more changes", len(changes)-n) || len(r.Members) != 1 {
		t.Errorf("got %d bytes, want at most %d with some changes, the number of the others, and api:\n%s", answerSize(r), limit, textOf(r))
	}
}

func promptText(t *testing.T, r stdiotest.Reply) string {
	t.Helper()
	if r.Error != nil {
		t.Fatalf("got %s, want a prompt", r.Raw)
	}
	raw, err := json.Marshal(r.Result["messages"])
	stdiotest.NoErr(t, err)
	var messages []struct{ Content struct{ Text string } }
	stdiotest.NoErr(t, json.Unmarshal(raw, &messages))
	return messages[0].Content.Text
}

// TestListGroupsWithoutGroupsHasHint checks that list_groups in a project without groups
// has a hint, as one line of the text and as data without a newline.
func TestListGroupsWithoutGroupsHasHint(t *testing.T) {
	t.Parallel()
	data, text := hello(t).do("list_groups", nil)
	if data["hint"] != "no groups" || text != "no groups\n" {
		t.Errorf("got hint %q and text %q, want no groups", data["hint"], text)
	}
}

// TestGroupWithoutMembersHasEmptyLists checks that the lists of a group without
// members are empty, as the output schema requires, not null.
func TestGroupWithoutMembersHasEmptyLists(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "job", "command": "sleep 5"}}})
	data, _ := s.do("remove_from_group", map[string]any{"group": "stack", "process": "job"})
	var schema jsonschema.Schema
	stdiotest.NoErr(t, json.Unmarshal(removeFromGroupTool().output, &schema))
	resolved, err := schema.Resolve(nil)
	stdiotest.NoErr(t, err)
	if err := resolved.Validate(any(data)); err != nil {
		t.Errorf("got %v for %v, want data that the schema accepts", err, data)
	}
	listed, _ := s.do("list_groups", nil)
	group := listed["groups"].([]any)[0].(map[string]any)
	for _, key := range []string{"order", "members"} {
		if list, ok := group[key].([]any); !ok || len(list) > 0 {
			t.Errorf("list_groups: got %s %v, want an empty list", key, group[key])
		}
	}
}

// TestGroupTextHasUnusualSettings checks that the text about a group names the
// settings that differ from the defaults.
func TestGroupTextHasUnusualSettings(t *testing.T) {
	r := groupResult{Name: "g", Description: "a stack\nof two", State: "up", StopStrategy: "parallel", StartDelayMS: 500, Order: []string{"db", "api"}, Members: []groupMemberResult{
		{Name: "db", Phase: "up", State: "running", stateText: "running", PID: 7}, {Name: "api", Phase: "down"},
	}}
	const want = "group g: up, start order: db, api, 500 ms apart, stopped parallel\n  \"a stack\\nof two\"\n  db: up (running), pid 7\n  api: down\n"
	if got := textOf(r); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestGroupTimeoutHasCursor checks that the answer of a group start that timed out
// has a cursor from which the log of the members can be read on; for a member that
// has not run, from the start.
func TestGroupTimeoutHasCursor(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "echo up; read line; echo $line; exec sleep 100", "ready", map[string]any{"log": "^go$"}, "wait", "started")
	s.waitFor("web", "log", "pattern", "^up$")
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{
		{"process": "web"}, {"process": "job", "command": "sh", "args": []string{"-c", "echo first; sleep 100"}, "depends_on": []map[string]any{{"process": "web"}}},
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rep, err := s.server.o.Groups.Start(ctx, "stack", s.server.own, groups.StartOptions{Progress: func(groups.Progress) { cancel() }})
	stdiotest.NoErr(t, err)
	r, err := groupReport(t.Context(), s.server.own, rep, nil, outputArgs{})
	stdiotest.NoErr(t, err)
	cursor := r.NextCursor
	if !r.TimedOut || cursor == "" || !strings.Contains(textOf(r), "timed out; the operation continues, and the same call joins it\n") {
		t.Fatalf("got %s, want a timeout with a cursor", textOf(r))
	}
	data, text := s.do("start_group", map[string]any{"group": "stack", "timeout_ms": 0})
	if data["timed_out"] != nil || data["next_cursor"] == nil || strings.Contains(text, "timed out") || !strings.Contains(text, "the operation continues") || !strings.Contains(text, "job: pending") {
		t.Errorf("start_group with timeout_ms: 0: got %s, want a start that continues", text)
	}
	s.do("send_input", map[string]any{"process": "web", "text": "go"})
	if data, text := s.do("start_group", map[string]any{"group": "stack"}); data["timed_out"] != nil || data["next_cursor"] != nil {
		t.Errorf("start_group: got %s, want no timeout and no cursor", text)
	}
	s.waitFor("job", "log", "pattern", "^first$")
	if _, text := s.do("get_logs", map[string]any{"process": "web,job", "after": cursor}); strings.Contains(text, "out up") || !strings.Contains(text, "out go") || !strings.Contains(text, "out first") {
		t.Errorf("after the cursor: got %s, want go and first", text)
	}
}

// TestGroupMemberInOtherSessionCountsAsRunning checks that a group member that runs
// in another pmcp session counts as running, and that only that session can change
// the member.
func TestGroupMemberInOtherSessionCountsAsRunning(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "db", "command": "sleep 5"}}})
	s.otherRun(s.otherStore(neighbour), "db", "a line")
	for tool, want := range map[string]string{
		"list_groups": "group stack: up, start order: db\n  db: up (running), it runs in another pmcp server (pid 7 editor)",
		"stop_group":  "db: skipped (it runs in another pmcp server (pid 7 editor)), run 1\n",
		"start_group": "group stack: up\ndb: skipped (already running in another pmcp server (pid 7 editor)), run 1\n",
	} {
		if _, text := s.do(tool, map[string]any{"group": "stack"}); !strings.Contains(text, want) {
			t.Errorf("%s: got\n%s\nwant %q in it", tool, text, want)
		}
	}
	const refused = "db: failed (cannot start: db belongs to another pmcp server (pid 7 editor), which alone can change it"
	if _, text := s.do("start_group", map[string]any{"group": "stack", "skip_running": false}); !strings.Contains(text, refused) {
		t.Errorf("a restart: got %s, want a refusal", text)
	}
}

// TestRemovedMemberStaysOutOfGroup starts a process by name after its removal from
// a group, and checks that the process stays out of the group and does not wait for
// the dependencies it had there.
func TestRemovedMemberStaysOutOfGroup(t *testing.T) {
	t.Parallel()
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
					t.Errorf("got hint %s, want no change", hint)
				}
				s.do("restart_process", map[string]any{"process": "two", "timeout_ms": 0})
				data, _ = s.do("list_groups", nil)
				all := ""
				for _, g := range data["groups"].([]any) {
					all += fmt.Sprint(g.(map[string]any)["order"])
				}
				if all != c.groups {
					t.Errorf("got groups %q, want %q", all, c.groups)
				}
			})
		}
	}
}

// TestGroupInStoredDefinitionIsIgnored checks that the field group in a definition
// that an older pmcp stored is ignored, and that the names of groups are not masked
// in later sessions.
func TestGroupInStoredDefinitionIsIgnored(t *testing.T) {
	t.Parallel()
	s := hello(t, func(o *Options) { o.Mask = mask.New() })
	project := s.manager.Project()
	s.store.SaveDefinition(project, "old", []byte(`{"command":"sleep 100","group":"gone","depends_on":[{"process":"db"}]}`))
	s.do("start_process", map[string]any{"name": "old"})
	if data, _ := s.do("list_groups", nil); data["hint"] != "no groups" {
		t.Errorf("got groups %v, want none", data["groups"])
	}
	s.store.SaveGroup(project, "grafana-main", []byte(`{"name":"grafana-main","members":[]}`))
	s.server.own.SpareNames(t.Context())
	s.server.o.Mask.LearnEnv(map[string]string{"GF_PASSWORD": "grafana-main"})
	if _, text := s.do("list_groups", nil); !strings.Contains(text, "group grafana-main:") {
		t.Errorf("got %s, want the group's name unmasked", text)
	}
}

// TestBackgroundInStoredDefinitionIsIgnored checks that a definition that an older pmcp stored with the
// argument background, which was removed since, can be started and changed.
func TestBackgroundInStoredDefinitionIsIgnored(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.store.SaveDefinition(s.manager.Project(), "db", []byte(`{"command":"sleep 100","background":true}`))
	if data, text := s.do("start_process", map[string]any{"name": "db"}); data["state"] != "running" || data["ready"] != nil {
		t.Errorf("start_process: got %s, want it running, with no rule of readiness", text)
	}
	if data, text := s.do("restart_process", map[string]any{"process": "db", "env": map[string]any{"A": "1"}}); data["state"] != "running" || data["run"] != float64(2) {
		t.Errorf("restart_process: got %s, want run 2", text)
	}
	if raw, _, err := s.store.Definition(t.Context(), s.manager.Project(), "db"); err != nil || strings.Contains(string(raw), "background") || !strings.Contains(string(raw), "sleep 100") {
		t.Errorf("got the definition %s, error %v, want the command without background", raw, err)
	}
}

// TestRunningProcessJoinsGroupWithoutRestart checks that a running process can join
// a group without a restart, and that the answer reports this unless the process is
// a member already.
func TestRunningProcessJoinsGroupWithoutRestart(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "exec sleep 100")
	for i, change := range []string{"start", "", "remove_from_group", ""} {
		if change == "remove_from_group" {
			s.do(change, map[string]any{"group": "stack", "process": "web"})
		}
		data, _ := s.do("start_process", map[string]any{"name": "web", "group": "stack"})
		reported := strings.Contains(fmt.Sprint(data["hint"]), "changed without a restart: group")
		if data["already_running"] != true || reported != (change != "") {
			t.Errorf("start %d: got %v, want the process running and the change reported %v", i, data, change != "")
		}
	}
}

// TestFailedMemberHasNoEarlierOutput checks that output of an earlier run of a
// group member is not shown as the reason that the member cannot start now.
func TestFailedMemberHasNoEarlierOutput(t *testing.T) {
	t.Parallel()
	s := hello(t)
	dir := filepath.Join(s.manager.Project(), "sub")
	stdiotest.NoErr(t, os.Mkdir(dir, 0o755))
	s.script("api", "echo all is well; echo 'Error: of before' >&2", "cwd", dir, "wait", "exit")
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "api"}}})
	stdiotest.NoErr(t, os.Remove(dir))
	data, text := s.do("start_group", map[string]any{"group": "stack"})
	member := data["members"].([]any)[0].(map[string]any)
	if member["result"] != "failed" || !strings.Contains(fmt.Sprint(member["why"]), "cannot start: ") {
		t.Errorf("got %s, want the member failed with a reason", text)
	}
	for _, key := range []string{"state", "run", "exit_code", "lines", "errors"} {
		if member[key] != nil {
			t.Errorf("got %s %v of the run before, want none", key, member[key])
		}
	}
	if strings.Contains(text, "exit code 0") || strings.Contains(text, "of before") {
		t.Errorf("got %s, want nothing of the run before", text)
	}
}

// TestMemberThatCrashedAfterStartHasItsOutput checks that a group's answer shows
// the last output of a member that crashed after a successful start.
func TestMemberThatCrashedAfterStartHasItsOutput(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("api", "echo 'Error: no table users' >&2; exit 3", "wait", "exit")
	s.do("restart_process", map[string]any{"process": "api", "wait": "exit"}) // as the restart policy would do
	s.script("web", "echo all is well", "wait", "exit")
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "api"}, {"process": "web"}}})
	r, err := groupReport(t.Context(), s.server.own, groups.Report{Group: "stack", TimedOut: true, Members: []groups.Outcome{
		{Process: "api", Result: groups.WasStarted, Run: 1}, {Process: "web", Result: groups.WasStarted, Run: 1},
	}}, nil, outputArgs{})
	stdiotest.NoErr(t, err)
	api, web := r.Members[0], r.Members[1]
	if api.Run != 2 || len(api.Errors) != 1 || api.NextCursor == "" || !strings.Contains(textOf(r), "api: started, failed, run 2, exit code 3\n") {
		t.Errorf("got %s, want run 2 of api with its error", textOf(r))
	}
	if len(web.Lines) > 0 || len(web.Errors) > 0 {
		t.Errorf("a good end: got %+v, want no lines and no errors", web)
	}
}

// TestGroupReportNamesWhatMemberWaitsFor checks that the report of a group names
// what a member that is not up yet waits for, also if the member's start was
// skipped.
func TestGroupReportNamesWhatMemberWaitsFor(t *testing.T) {
	t.Parallel()
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
		r, err := groupReport(t.Context(), s.server.own, groups.Report{Group: "stack", TimedOut: true, Members: []groups.Outcome{o}}, nil, outputArgs{})
		stdiotest.NoErr(t, err)
		if !strings.Contains(textOf(r), want) {
			t.Errorf("%s: got %s, want %q in it", result, textOf(r), want)
		}
	}
}

// TestGroupReportHasMembersOfRemovedGroup checks that the report of a group start has the
// members although the group was removed during the call.
func TestGroupReportHasMembersOfRemovedGroup(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("api", "exec sleep 100")
	r, err := groupReport(t.Context(), s.server.own, groups.Report{Group: "gone", Members: []groups.Outcome{{Process: "api", Result: groups.WasStarted, Run: 1}}}, nil, outputArgs{})
	stdiotest.NoErr(t, err)
	if text := textOf(r); !strings.Contains(text, "group gone: forgotten\napi: started, run 1, pid ") || !strings.Contains(text, "hint: the group has been forgotten") {
		t.Errorf("got %s, want the members and a hint", text)
	}
}

// TestMemberOfOtherGroupIsRefused checks that create_group refuses a member whose
// arguments name another group, and does not ignore the name.
func TestMemberOfOtherGroupIsRefused(t *testing.T) {
	t.Parallel()
	s := hello(t)
	r := s.ask("tools/call", map[string]any{"name": "create_group", "arguments": map[string]any{
		"name": "stack", "members": []map[string]any{{"process": "db", "command": "sleep 5", "group": "other"}}}})
	if r.Result["isError"] != true || !strings.Contains(r.Text(), "db: group") {
		t.Errorf("got %s, want a refusal that names the group", r.Raw)
	}
	if data, _ := s.do("list_groups", nil); data["hint"] != "no groups" {
		t.Errorf("got groups %v, want none", data["groups"])
	}
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "db", "command": "sleep 5", "group": "stack"}}})
}

// TestMemberWithoutDefinitionIsNamed checks that the answer of create_group names
// the member that has no definition.
func TestMemberWithoutDefinitionIsNamed(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "db", "command": "sleep 5"}}})
	s.do("remove_process", map[string]any{"process": "db"})
	for _, tool := range []string{"start_group", "list_groups"} {
		data, text := s.do(tool, map[string]any{"group": "stack"})
		if want := "cannot start: db has no definition"; !strings.Contains(text, want) || !strings.Contains(fmt.Sprint(data), want) {
			t.Errorf("%s: got %v, want %q in it", tool, data, want)
		}
	}
}

// TestCreateGroupReportsChangedDefinitions checks that create_group applies the
// arguments of a member without a command to the member's stored definition, and
// reports what changed.
func TestCreateGroupReportsChangedDefinitions(t *testing.T) {
	t.Parallel()
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
		{member("pty", false, "merge_output", false), nil},
		{member("command", "sleep 101"), []any{"changed web: args, command, env, restart (it runs as before until it is restarted)"}},
		{member("depends_on", []map[string]any{{"process": "job"}}), []any{"web depends on job (was: nothing)"}},
	} {
		data, text := s.do("create_group", c.arguments)
		if fmt.Sprint(data["changes"]) != fmt.Sprint(c.want) {
			t.Errorf("%v: got changes %v, want %v", c.arguments, data["changes"], c.want)
		}
		if same := strings.Contains(text, "already defined this way"); same && c.want != nil {
			t.Errorf("%v: got %s, want the changes", c.arguments, text)
		}
	}
	s.do("restart_process", map[string]any{"process": "web"})
	_, text := s.do("get_process_info", map[string]any{"process": "web"})
	if !strings.Contains(text, "sleep 101\n") {
		t.Errorf("restart: got\n%s\nwant the new definition", text)
	}
}

// TestGroupStartReportsEachStepOnce checks that a group start signals each step of
// its progress once, with the numbers of members.
func TestGroupStartReportsEachStepOnce(t *testing.T) {
	news := newGroupProgress()
	news.set(groups.Progress{Done: 1, Total: 2, Outcome: groups.Outcome{Process: "db", Result: groups.BecameReady}})
	select {
	case <-news.updated:
	default:
		t.Error("got no signal of the news")
	}
	if got := news.text(); !strings.Contains(got, "1 of 2 done; db ready") {
		t.Errorf("got %q, want 1 of 2 done; db ready", got)
	}
}
