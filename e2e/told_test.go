package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// startAs starts a session for a client of that name.
func (w *world) startAs(t testing.TB, name string) *session {
	t.Helper()
	s := w.start(t)
	if m := s.call(t, "initialize", args{"protocolVersion": "2025-11-25", "capabilities": args{}, "clientInfo": args{"name": name, "version": "1"}}); m.Error != nil {
		t.Fatalf("initialize: got %s, want a result", m.Raw)
	}
	s.send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

// askPage calls a tool, or reads, as the page at address does, and returns the answer.
func askPage(t testing.TB, address, tool string, arguments args) []byte {
	t.Helper()
	at, token, _ := strings.Cut(address, "#")
	body, err := json.Marshal(arguments)
	check(t, err)
	request, err := http.NewRequest(http.MethodPost, at+"call/"+tool, bytes.NewReader(body))
	check(t, err)
	request.Header.Set("X-Pmcp-Token", token)
	r, err := http.DefaultClient.Do(request)
	check(t, err)
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK || r.Header.Get("X-Pmcp-Error") != "" {
		t.Fatalf("the page calls %s: got %s %.300s %v, want an answer", tool, r.Status, answer, err)
	}
	return answer
}

// closePage opens the page at address and closes it: pmcp open then ends.
func closePage(t testing.TB, address string) {
	t.Helper()
	at, token, _ := strings.Cut(address, "#")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"alive", nil)
	check(t, err)
	request.Header.Set("X-Pmcp-Token", token)
	if r, err := http.DefaultClient.Do(request); err == nil {
		r.Body.Close()
		t.Errorf("the open page: got the answer %s, want none", r.Status)
	}
}

// TestWhatSomebodyDoesIsAnEvent checks that each start, restart (of what has ended, too), stop and input is stored as one
// event with the one who did it, and that the agent whose process it is is told once what others did, and never what it did itself.
func TestWhatSomebodyDoesIsAnEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s, other := w.startAs(t, "claude\n-code"), w.startAs(t, "cursor")
	var told []string
	do := func(tool string, arguments args) {
		t.Helper()
		for _, e := range list(s.must(t, tool, arguments).Data["events"]) {
			_, text, _ := strings.Cut(fmt.Sprint(e), " ") // the time
			told = append(told, text)
		}
	}

	do("start_process", own(t, "web", "echo"))
	do("send_input", args{"process": "web", "text": "a secret text"})
	do("restart_process", args{"process": "web"})
	var members []args
	for i := range 3 {
		m := own(t, "", "sleep")
		members = append(members, args{"process": fmt.Sprint("m", i), "command": m["command"], "args": m["args"]})
	}
	do("start_group", args{"group": "stack", "members": members})
	do("stop_group", args{"group": "stack"})
	do("kill_process", args{"process": "web"})
	do("restart_process", args{"process": "web"})
	w.wantCommand(t, 0, []string{"restart", "web"}, "web: running")
	w.wantCommand(t, 0, []string{"stop", "web"}, "web: stopped")
	stopped := s.note(t, "notifications/message", func(m message) bool { return strings.Contains(fmt.Sprint(m.Params), "was stopped") })
	if !strings.Contains(fmt.Sprint(stopped.Params), "web (run 4) was stopped by the person at the terminal") {
		t.Errorf("got the log message %s, want the stop of the person", stopped.Raw)
	}
	do("start_process", args{"name": "web"})
	address, _, end := w.openPage(t)
	askPage(t, address, "restart_process", args{"process": "web"})
	askPage(t, address, "stop_process", args{"process": "web"})
	var shown struct{ Runs []map[string]any }
	proctest.Await(t, "who started run 6", func() bool { // stored a moment after the answer
		shown.Runs = nil
		check(t, json.Unmarshal(askPage(t, address, "runs", args{"processes": []string{"web"}}), &shown))
		return shown.Runs[0]["by"] != nil
	})
	closePage(t, address)
	end()
	do("start_process", args{"name": "web"})
	other.must(t, "send_input", args{"process": "web", "text": "x"})
	if r := other.must(t, "stop_process", args{"process": "web"}); r.Data["events"] != nil {
		t.Errorf("the other agent was told %v, want nothing: it did that itself", r.Data["events"])
	}
	do("list_processes", args{})
	do("list_processes", args{})
	want := []string{
		"web (run 4) was restarted by the person at the terminal", "web (run 4) was stopped by the person at the terminal",
		"web (run 6) was restarted by the person on the page", "web (run 6) was stopped by the person on the page",
		"web (run 7) was sent 2 bytes by cursor", "web (run 7) was stopped by cursor",
	}
	if !slices.Equal(told, want) {
		t.Errorf("the agent was told %q, want %q", told, want)
	}

	var stored []string
	out := w.wantCommand(t, 0, []string{"events", "--json"})
	for line := range strings.Lines(out) {
		var e struct{ Process, Kind, By string }
		check(t, json.Unmarshal([]byte(line), &e))
		stored = append(stored, fmt.Sprintf("%s %s %s", e.Process, e.Kind, e.By))
	}
	const agent, terminal, page = ` claude\n-code`, " the person at the terminal", " the person on the page"
	all := []string{
		"web started" + agent, "web input" + agent, "web restarted" + agent, "web stopped" + agent, "web restarted" + agent,
		"web restarted" + terminal, "web stopped" + terminal, "web started" + agent, "web restarted" + page, "web stopped" + page,
		"web started" + agent, "web input cursor", "web stopped cursor",
	}
	for i := range 3 {
		all = append(all, fmt.Sprintf("m%d started%s", i, agent), fmt.Sprintf("m%d stopped%s", i, agent))
	}
	if slices.Sort(stored); !slices.Equal(stored, slices.Sorted(slices.Values(all))) {
		t.Errorf("got the events %q, want %q", stored, all)
	}
	const client, person = `claude\n-code`, "the person at the terminal"
	by := []any{client, "the person on the page", client, person, client, client, client} // the latest run first
	info := s.must(t, "get_process_info", args{"process": "web"})
	for what, runs := range map[string][]map[string]any{"get_process_info": objects(info.Data["history"]), "the page": shown.Runs} {
		var got []any
		for _, run := range runs {
			got = append(got, run["by"])
		}
		if want := by[len(by)-min(len(by), len(got)):]; len(got) < 6 || !slices.Equal(got, want) {
			t.Errorf("%s says that the runs were started by %q, want %q", what, got, want)
		}
	}
	if !strings.Contains(info.Text, " by "+person) {
		t.Errorf("got %s, want who has started each run", info.Text)
	}
	if strings.Contains(out, "secret text") {
		t.Errorf("got %s, want no text of the input", out)
	}
}

// TestPersonActsInMCPApp checks that each event of what a person does by the MCP App names the person, not the client
// that shows the App: in the session that runs the process and in another one, for a process and for a group.
func TestPersonActsInMCPApp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s, other := w.startAs(t, "claude-code"), w.startAs(t, "cursor")
	app := func(c *session, tool string, arguments args) {
		t.Helper()
		r := c.call(t, "tools/call", args{"name": tool, "arguments": arguments, "_meta": args{"pmcp/app": true}})
		if r.Error != nil || r.Result["isError"] == true {
			t.Fatalf("%s: got %s, want success", tool, r.Raw)
		}
	}
	web, stack := args{"process": "web"}, args{"group": "stack"}
	s.must(t, "create_group", args{"name": "stack", "members": []args{own(t, "", "sleep").with("process", "db")}})
	app(s, "start_process", own(t, "web", "echo"))
	s.must(t, "start_process", args{"name": "bad", "command": `echo "KeyError: 'x'" >&2; exit 1`, "wait": "exit"})
	found := objects(s.must(t, "get_errors", args{"process": "bad"}).Data["errors"])
	bad := args{"error_id": found[len(found)-1]["error_id"]}
	for _, c := range []*session{s, other} {
		app(s, "start_group", stack)
		app(c, "send_input", web.with("text", "x"))
		app(c, "restart_process", web)
		app(c, "stop_group", stack)
	}
	app(s, "mark_error_resolved", bad)
	app(other, "mark_error_resolved", bad.with("undo", true))
	app(other, "stop_process", web)
	s.must(t, "start_process", args{"name": "web"})
	app(s, "stop_process", web)
	want := map[string]int{
		"db started": 2, "db stopped": 2, "web started": 1, "web input": 2, "web restarted": 2, "web stopped": 2,
		"bad resolved": 1, "bad reopened": 1,
	}
	var got map[string]int
	w.awaitOutput(t, []string{"events", "--json"}, "the events of the person", func(out, _ string, _ int) bool {
		got = map[string]int{}
		for line := range strings.Lines(out) {
			var e struct{ Process, Kind, By string }
			check(t, json.Unmarshal([]byte(line), &e))
			if e.By == "the person on the page" {
				got[e.Process+" "+e.Kind]++
			}
		}
		return maps.Equal(got, want)
	})
}

// TestPersonStartsInSessionThatRanIt checks that `pmcp start`, and a restart on the page, of what has ended is done by the
// live session that ran it last, as its agent's own start would be, and that the answer says who runs it.
func TestPersonStartsInSessionThatRanIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s := w.startAs(t, "claude-code")
	s.must(t, "start_process", own(t, "api", "sleep"))
	s.must(t, "start_group", args{"group": "stack", "members": []args{{"process": "api"}}})
	w.wantCommand(t, 0, []string{"stop", "api"}, "api: stopped")
	w.wantCommand(t, 0, []string{"start", "api"}, "api: running, run 2", "owned by the pmcp server ", " claude-code 1")
	s.must(t, "get_process_info", args{"process": "api"}).want(t, args{"state": "running", "run": 2, "owner": nil, "kept_for": nil})
	s.must(t, "stop_process", args{"process": "api"})
	address, _, end := w.openPage(t)
	askPage(t, address, "restart_process", args{"process": "api"})
	closePage(t, address)
	end()
	s.must(t, "get_process_info", args{"process": "api"}).want(t, args{"state": "running", "run": 3, "owner": nil, "kept_for": nil})
	s.must(t, "stop_process", args{"process": "api"})
	w.wantCommand(t, 0, []string{"start", "--keep", "1h", "api"}, "api: running, run 4", "kept for ")
	w.wantCommand(t, 0, []string{"stop", "api"}, "api: stopped")
}

// TestAgentIsToldWhoStoppedKeptProcess checks that an agent is told once what a person does to a process that the daemon
// keeps for it.
func TestAgentIsToldWhoStoppedKeptProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s := w.startAs(t, "claude-code")
	s.must(t, "start_process", own(t, "web", "sleep").with("keep", "1h"))
	s.must(t, "restart_process", args{"process": "web"})
	w.wantCommand(t, 0, []string{"restart", "web"}, "web: running, run 3")
	w.wantCommand(t, 0, []string{"stop", "web"}, "web: stopped")
	stopped := func(m message) bool { return strings.Contains(fmt.Sprint(m.Params), "was stopped") }
	s.note(t, "notifications/message", stopped)
	told := fmt.Sprint(s.must(t, "list_processes", args{}).Data["events"], s.must(t, "list_processes", args{}).Data["events"])
	for _, want := range []string{"web (run 3) was restarted by the person at the terminal", "web (run 3) was stopped by the person at the terminal"} {
		if strings.Count(told, want) != 1 || strings.Contains(told, "claude-code") {
			t.Errorf("the agent was told %s, want %q once, and nothing that it did itself", told, want)
		}
	}
}

// TestWhoResolvedErrorIsAnEvent checks that each change of an error to resolved or open is stored as one event with the one
// who did it, that the agent whose process it is is told once what others did, and that nothing is told of a call that
// changes nothing. Of a kept process every agent that has started it is told.
func TestWhoResolvedErrorIsAnEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.endDaemon(t) })
	check(t, os.Mkdir(filepath.Join(w.project, ".git"), 0o755))
	s, other := w.startAs(t, "claude-code"), w.startAs(t, "cursor")
	told := make(map[string][]string) // of acts, by process
	do := func(tool string, arguments args) result {
		t.Helper()
		r := s.must(t, tool, arguments)
		for _, e := range list(r.Data["events"]) {
			_, text, _ := strings.Cut(fmt.Sprint(e), " ") // the time
			if name, _, _ := strings.Cut(text, " "); !strings.Contains(text, "new error") {
				told[name] = append(told[name], text)
			}
		}
		return r
	}
	for _, start := range []args{{"name": "web"}, {"name": "kept", "keep": "1h"}} {
		do("start_process", start.with("command", `echo "KeyError: 'latest'" >&2; exec sleep 1000`).with("ready", args{"log": "KeyError"}))
	}
	ids := make(map[string]string)
	proctest.Await(t, "two errors", func() bool {
		for _, e := range objects(do("get_errors", args{}).Data["errors"]) {
			ids[fmt.Sprint(e["name"])] = fmt.Sprint(e["error_id"])
		}
		return len(ids) == 2
	})
	address, _, end := w.openPage(t)
	for _, name := range []string{"web", "kept"} {
		id := ids[name]
		do("mark_error_resolved", args{"error_id": id})
		other.must(t, "mark_error_resolved", args{"error_id": id})
		other.must(t, "mark_error_resolved", args{"error_id": id, "undo": true})
		other.must(t, "mark_error_resolved", args{"error_id": id, "undo": true})
		askPage(t, address, "mark_error_resolved", args{"error_id": id})
		other.must(t, "mark_error_resolved", args{"error_id": id, "undo": true})
		if r := other.must(t, "mark_error_resolved", args{"error_id": id, "note": "the cache is filled"}); r.Data["events"] != nil {
			t.Errorf("%s: the other agent was told %v, want nothing: it did that itself", name, r.Data["events"])
		}
	}
	closePage(t, address)
	end()
	for _, name := range []string{"web", "kept"} {
		begin := name + " (run 1): error " + ids[name] + " was "
		want := []string{begin + "reopened by cursor", begin + "resolved by the person on the page", begin + "reopened by cursor", begin + `resolved by cursor, with the note "the cache is filled"`}
		for i := range want {
			want[i] += `; "KeyError: 'latest'"`
		}
		proctest.Await(t, name+": the last event", func() bool {
			do("list_processes", args{})
			return len(told[name]) >= len(want)
		})
		do("list_processes", args{})
		if name == "kept" { // what two windows have stored may be read, and told, in any order
			slices.Sort(told[name])
			slices.Sort(want)
		}
		if !slices.Equal(told[name], want) {
			t.Errorf("the agent was told %q, want %q", told[name], want)
		}
		var stored []string
		for line := range strings.Lines(w.wantCommand(t, 0, []string{"events", name, "--json"})) {
			var e struct{ Kind, By string }
			check(t, json.Unmarshal([]byte(line), &e))
			if e.Kind == "resolved" || e.Kind == "reopened" {
				stored = append(stored, e.Kind+" "+e.By)
			}
		}
		if all := []string{"resolved claude-code", "reopened cursor", "resolved the person on the page", "reopened cursor", "resolved cursor"}; !slices.Equal(stored, all) {
			t.Errorf("%s: got the events %q, want %q", name, stored, all)
		}
	}
}
