package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pmcp/process/proctest"
)

// TestNoisyProcessesCauseOneUpdateASecond checks that fifty processes that never stop
// printing cause only one update a second for each subscribed resource.
func TestNoisyProcessesCauseOneUpdateASecond(t *testing.T) {
	proctest.Long(t, "load")
	s := newWorld(t).start(t)
	var mu sync.Mutex
	came := map[string][]time.Time{}
	s.spy = func(_ string, m message) {
		if m.Method == "notifications/resources/updated" {
			mu.Lock()
			defer mu.Unlock()
			came[m.Params["uri"].(string)] = append(came[m.Params["uri"].(string)], time.Now())
		}
	}
	s.initialize(t)
	for i := range 50 {
		s.must(t, "start_process", own(t, fmt.Sprintf("noisy-%d", i), "noisy"))
	}
	uris := []string{"logs://recent", "logs://noisy-7", "logs://noisy-7?lines=5"}
	before := time.Now()
	for _, uri := range uris {
		s.call(t, "resources/subscribe", args{"uri": uri})
	}
	for _, uri := range uris {
		for range 3 {
			s.note(t, "notifications/resources/updated", func(m message) bool { return m.Params["uri"] == uri })
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, uri := range uris {
		at := came[uri]
		for i := range at { // measured from the first update: a single gap may look short after a late update
			if took := at[i].Sub(before); took < time.Duration(i)*time.Second {
				t.Errorf("%s: got %d updates within %v, want at most one a second", uri, i+1, took)
			}
		}
	}
}

// The bounds of answers, in bytes, with the events.
const ofAction, ofLogTool = 4608, 9216

// bounded calls a tool, whose answer is at most most bytes long as text and as JSON.
func (c *caller) bounded(t *testing.T, tool string, most int, arguments args) result {
	t.Helper()
	r := c.do(t, tool, arguments)
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	check(t, encoder.Encode(r.Data))
	if len(r.Text) > most || b.Len() > 2*most { // what bounds the text bounds the JSON, too
		short := fmt.Sprintf("%.300s", fmt.Sprint(arguments))
		t.Errorf("%s %v: got %d bytes of text and %d of JSON, want at most %d and twice that:\n%.1500s", tool, short, len(r.Text), b.Len(), most, r.Text)
	}
	return r
}

// TestAnswersAreBounded prints every recording of the corpus, in batches, and 200,000
// lines of a build, and checks that no answer without max_bytes exceeds its bound.
func TestAnswersAreBounded(t *testing.T) {
	proctest.Long(t, "load")
	t.Parallel()
	w := newWorld(t)
	w.set("PM_RATE_LIMIT", "0")
	c := w.open(t)
	bounded := func(tool string, most int, arguments args) { t.Helper(); c.bounded(t, tool, most, arguments) }
	all := func(name string) {
		t.Helper()
		bounded("wait_for_process", ofAction, args{"process": name, "until": "exit", "after": "start"})
		bounded("get_logs", ofLogTool, args{"process": name, "after": "start", "limit": 10_000})
		bounded("get_logs", ofLogTool, args{"process": name, "limit": 10_000, "times": "ms"})
		bounded("tail_logs", ofLogTool, args{"process": name, "lines": 10_000, "times": "none"})
		bounded("search_logs", ofLogTool, args{"process": name, "query": "e", "limit": 1000, "context": 2})
		bounded("get_errors", ofLogTool, args{"process": name})
		bounded("get_latest_errors", ofLogTool, args{"limit": 1000})
	}
	testdata, err := filepath.Abs("../logstore/fault/testdata")
	check(t, err)
	recordings, err := filepath.Glob(filepath.Join(testdata, "*", "*.txt"))
	check(t, err)
	if len(recordings) < 436 {
		t.Fatalf("got %d recordings, want all of the corpus", len(recordings))
	}
	const batch = 40
	for i := 0; i < len(recordings); i += batch {
		name := fmt.Sprint("corpus-", i)
		files := recordings[i:min(i+batch, len(recordings))]
		bounded("start_process", ofAction, sh(name, `cat "$@" >&2; echo done; exit 1`, args{"wait": "exit", "args": append([]string{"-c", `cat "$@" >&2; echo done; exit 1`, "sh"}, files...)}))
		all(name)
	}
	for exit := range 2 {
		name := fmt.Sprint("build-", exit)
		bounded("start_process", ofAction, args{"name": name, "command": "sh", "wait": "exit", "timeout_ms": longWait, "args": []string{"-c",
			fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= 200000; i++) printf "[%%d/200000] CC \"src/part%%d.o\"\n", i, i }'; exit %d`, exit)}})
		all(name)
	}
	var members []args
	for i := range 60 {
		members = append(members, args{"process": fmt.Sprint("member-", i), "command": "sh", "args": []string{"-c", `cat "$@" >&2; exit 1`, "sh", recordings[i]}, "ready": args{"log": "never printed"}})
	}
	bounded("start_group", ofAction, args{"group": "many", "members": members, "timeout_ms": longWait})
	bounded("stop_group", ofAction, args{"group": "many"})
	bounded("stop_process", ofAction, args{"process": "*"})
}

// TestAnswersAboutManyAreBounded checks that answers about many processes, with long names,
// long reasons and many survivors, are bounded too and say how many they leave out.
func TestAnswersAboutManyAreBounded(t *testing.T) {
	proctest.Long(t, "load")
	w := newWorld(t)
	w.set("PM_RATE_LIMIT", "0")
	w.set("PM_MAX_PROCESSES", "1000")
	c := w.open(t)
	long := strings.Repeat("n", 50)
	group := func(count int, script string) (members []args) {
		for i := range count {
			members = append(members, args{"process": fmt.Sprint("m", i, long), "command": "sh", "args": []string{"-c", script}})
		}
		return members
	}
	idle := group(99, "exec sleep 1000")
	c.bounded(t, "create_group", ofAction, args{"name": "many", "description": long, "members": idle})
	c.bounded(t, "start_group", ofAction, args{"group": "many", "members": group(99, "exec sleep 2000"), "timeout_ms": longWait})
	for i := range 20 {
		c.bounded(t, "create_group", ofAction, args{"name": fmt.Sprint("g", i, long), "members": idle[:i+1]})
	}
	const leaves = `for i in $(seq 250); do sleep 1000 & done; `
	left := sh("left"+long, leaves+"exit 1")
	for _, wait := range []string{"ready", "exit", "started"} {
		left["wait"], left["if_running"] = wait, "restart"
		c.bounded(t, "start_process", ofAction, left)
	}
	c.bounded(t, "start_process", ofAction, sh("tree", leaves+"echo grown; wait", args{"ready": args{"log": "^grown$"}, "timeout_ms": longWait}))
	for _, call := range []struct {
		tool string
		most int
		args args
		says string
	}{
		{"list_processes", ofLogTool, args{}, "more: true"},
		{"list_processes", ofLogTool, args{"group": "many"}, "more: true"},
		{"list_groups", ofLogTool, args{}, "more"},
		{"list_groups", ofLogTool, args{"group": "many"}, "others: "},
		{"get_process_info", ofLogTool, args{"process": "left" + long}, ""},
		{"get_process_info", ofLogTool, args{"process": "tree"}, "more processes of its tree"},
		{"get_server_info", ofLogTool, args{}, ""},
		{"get_system_stats", ofAction, args{}, ""},
		{"restart_process", ofAction, args{"process": "tree"}, ""},
		{"restart_process", ofAction, args{"process": "left" + long, "wait": "ready"}, ""},
		{"wait_for_process", ofAction, args{"process": "left" + long, "until": "ready"}, ""},
		{"send_input", ofAction, args{"process": "left" + long, "text": "x"}, ""},
		{"add_to_group", ofAction, args{"group": "many", "process": "tree"}, "others: "},
		{"remove_from_group", ofAction, args{"group": "many", "process": "tree"}, "others: "},
		{"stop_process", ofAction, args{"process": "left" + long}, ""},
		{"stop_group", ofAction, args{"group": "many"}, "others: "},
		{"start_group", ofAction, args{"group": "many"}, ""},
		{"kill_process", ofAction, args{"process": "*"}, "more processes"},
		{"stop_process", ofAction, args{"process": strings.Join(processNames(idle), ",")}, "more processes"},
		{"remove_process", ofAction, args{"process": strings.Join(processNames(idle), ",")}, "more"},
	} {
		if r := c.bounded(t, call.tool, call.most, call.args); !strings.Contains(r.Text, call.says) {
			t.Errorf("%s %.100s: got\n%.1500s\nwant %q in it", call.tool, fmt.Sprint(call.args), r.Text, call.says)
		}
	}
}

// processNames returns the names of the members of a group.
func processNames(members []args) (names []string) {
	for _, m := range members {
		names = append(names, m["process"].(string))
	}
	return names
}
