package server

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

func updated(uri string) func(reply) bool {
	return func(r reply) bool { return r.Params["uri"] == uri }
}

// TestSubscriber: who subscribed hears of a crash within two seconds, of new
// log lines, and of processes that come and go; in both eras.
func TestSubscriber(t *testing.T) {
	for era, modern := range map[string]bool{"legacy": false, "2026-07-28": true} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			uris := []string{"processes://list", "processes://job", "logs://job", "logs://recent", "errors://latest"}
			s := open(t)
			s.modern = modern
			stream := ""
			if modern {
				stream = s.begin("subscriptions/listen", map[string]any{"notifications": map[string]any{"resourceSubscriptions": uris, "resourcesListChanged": true}})
				s.note(mcp.MethodNotificationSubscriptionsAcknowledged, nil)
			} else {
				s.initialize("2025-11-25")
				for _, uri := range uris {
					if r := s.ask("resources/subscribe", map[string]any{"uri": uri}); r.Error != nil {
						t.Fatal(r.raw)
					}
				}
			}
			s.script("job", "read line; echo Error: it broke >&2; exit 3")
			s.note(mcp.MethodNotificationResourcesListChanged, nil)
			s.do("send_input", map[string]any{"process": "job", "text": "go"})
			n := s.note(mcp.MethodNotificationResourceUpdated, updated("processes://job"))
			for s.resource("processes://job")["state"] != "crashed" { // the first may have been of the start
				n = s.note(mcp.MethodNotificationResourceUpdated, updated("processes://job"))
			}
			if modern && subscription(n) != stream {
				t.Errorf("not of stream %s: %s", stream, n.raw)
			}
			s.script("other", "echo more; exec sleep 100")
			s.note(mcp.MethodNotificationResourceUpdated, updated("logs://recent"))
			s.do("remove_process", map[string]any{"process": "job"})
			s.note(mcp.MethodNotificationResourcesListChanged, nil)
		})
	}
}

// TestGroupsAreUpdated: a group that is defined is news, although no process
// changes.
func TestGroupsAreUpdated(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "exec sleep 100")
	s.note(mcp.MethodNotificationResourcesListChanged, nil)
	s.ask("resources/subscribe", map[string]any{"uri": "groups://list"})
	s.do("create_group", map[string]any{"name": "stack", "members": []map[string]any{{"process": "web"}}})
	s.note(mcp.MethodNotificationResourceUpdated, updated("groups://list"))
}

// TestErrorsAreUpdated: errors that are resolved or cleared are news, and so is a
// process that is forgotten, although nothing runs that could change.
func TestErrorsAreUpdated(t *testing.T) {
	t.Parallel()
	s := hello(t)
	earlier := s.otherStore("earlier")
	for _, name := range []string{"web", "api"} {
		s.saveOther(earlier, s.otherRun(earlier, name, "Error: "+name+" broke"), runInfo{State: "crashed"}, true)
	}
	id := s.resource("errors://web")["errors"].([]any)[0].(map[string]any)["error_id"]
	uris := []string{"errors://latest", "errors://web", "processes://list"} // as a round tells them
	for _, uri := range uris {
		s.ask("resources/subscribe", map[string]any{"uri": uri})
	}
	news := newUpdates(s.server, s.server.updates.c) // in place of those of the session, which have rounds of their own
	s.server.mu.Lock()
	s.server.updates = news
	s.server.mu.Unlock()
	for _, c := range []struct {
		tool      string
		arguments map[string]any
	}{
		{"mark_error_resolved", map[string]any{"error_id": id}},
		{"clear_logs", map[string]any{"process": "web"}},
		{"clear_logs", map[string]any{"process": "*"}},
		{"remove_process", map[string]any{"process": "web"}},
	} {
		s.do(c.tool, c.arguments)
		news.round(t.Context())
		for _, uri := range uris {
			s.note(mcp.MethodNotificationResourceUpdated, updated(uri))
		}
	}
}

// TestErrorsThatOccurAgainAreUpdated: their count and time are news, though their
// kind is not and the process goes on; for another process they are none.
func TestErrorsThatOccurAgainAreUpdated(t *testing.T) {
	s := hello(t)
	s.script("web", "while read line; do echo \"Error: $line\" >&2; done", "stdin", true)
	for _, uri := range []string{"errors://web", "errors://latest", "errors://api"} {
		s.ask("resources/subscribe", map[string]any{"uri": uri})
	}
	u := newUpdates(s.server, s.server.updates.c) // not that of the session, which has rounds of its own
	told := func(uri string) bool { return u.isNew(t.Context(), uri, nil) }
	for seen := int64(1); seen <= 2; seen++ {
		s.do("send_input", map[string]any{"process": "web", "text": "it broke"})
		awaitCondition(t, "the error", func() bool { return s.store.FaultsSeen(s.manager.Project(), "web") == seen })
		for uri, want := range map[string]bool{"errors://web": true, "errors://latest": true, "errors://api": false} {
			if got := told(uri); got != want || told(uri) {
				t.Errorf("occurrence %d, %s: told %v, want %v, once", seen, uri, got, want)
			}
		}
	}
}

// TestLogsThatReadOtherwiseAreUpdated: lines that were cleared are news, and so is
// a new run that prints nothing; that a run ends is none.
func TestLogsThatReadOtherwiseAreUpdated(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("web", "echo up; exec sleep 100", "ready", map[string]any{"log": "up"})
	s.script("quiet", "exec sleep 100")
	news := newUpdates(s.server, s.server.updates.c) // in place of those of the session, which have rounds of their own
	s.server.mu.Lock()
	s.server.updates = news
	s.server.mu.Unlock()
	check := func(what string, want map[string]bool) {
		t.Helper()
		for uri, want := range want {
			if got := news.isNew(t.Context(), uri, nil); got != want {
				t.Errorf("%s: %s is told: %v", what, uri, got)
			}
		}
	}
	check("first look", map[string]bool{"logs://recent": true, "logs://web": true, "logs://quiet": true})
	s.do("clear_logs", map[string]any{"process": "web"})
	check("web was cleared", map[string]bool{"logs://recent": true, "logs://web": true, "logs://quiet": false})
	s.do("stop_process", map[string]any{"process": "quiet"})
	check("quiet has ended", map[string]bool{"logs://quiet": false})
	s.do("start_process", map[string]any{"name": "quiet"})
	check("quiet runs again", map[string]bool{"logs://recent": true, "logs://quiet": true})
	s.do("restart_process", map[string]any{"process": "quiet"})
	check("quiet was restarted", map[string]bool{"logs://recent": true, "logs://quiet": true})
	check("nothing", map[string]bool{"logs://quiet": false})
}

// TestUpdatesAreThrottled: a process that never stops printing costs one update
// a second, and a client that unsubscribes none.
func TestUpdatesAreThrottled(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("noisy", "while :; do echo x; sleep 0.01; done")
	before := time.Now()
	s.ask("resources/subscribe", map[string]any{"uri": "logs://noisy"})
	const gaps = 2 // one alone may look short: what comes first may come late
	for range gaps + 1 {
		s.note(mcp.MethodNotificationResourceUpdated, updated("logs://noisy"))
	}
	if took := time.Since(before); took < gaps*updatePeriod {
		t.Errorf("%d updates within %v", gaps+1, took)
	}
	s.ask("resources/unsubscribe", map[string]any{"uri": "logs://noisy"})
	s.notes = nil
	u := newUpdates(s.server, s.server.updates.c) // not that of the session, which has rounds of its own
	u.states["logs://noisy"] = "a cursor"
	u.changed("noisy")
	u.round(t.Context())
	s.ask("ping", nil)
	for _, n := range s.notes {
		if n.Method == mcp.MethodNotificationResourceUpdated {
			t.Errorf("after unsubscribing: %s", n.raw)
		}
	}
	if len(u.states) > 0 {
		t.Errorf("kept: %v", u.states)
	}
}

func TestSplitURI(t *testing.T) {
	for uri, want := range map[string][2]string{
		"logs://web?lines=5": {"logs", "web"}, "processes://a%3A1": {"processes", "a:1"}, "x": {"x", ""}, "logs://%zz": {"logs", "%zz"},
	} {
		if kind, name := splitURI(uri); kind != want[0] || name != want[1] {
			t.Errorf("%s: %s, %s", uri, kind, name)
		}
	}
}

func TestRateLimit(t *testing.T) {
	changing, reading := tool{name: "stop_process"}, tool{name: "get_logs", hints: hints{readOnly: true}}
	l := rateLimits{perSecond: 2}
	for range burst * 2 {
		noErr(t, l.allow(&changing))
	}
	err := l.allow(&changing)
	for range 1000 { // half a second may have passed meanwhile
		if err != nil {
			break
		}
		err = l.allow(&changing)
	}
	if err == nil || !strings.Contains(err.Error(), "more than 2 times a second (PM_RATE_LIMIT); try again in ") {
		t.Errorf("%v", err)
	}
	noErr(t, l.allow(&tool{name: "send_input"})) // each has its own
	for range 100 {
		noErr(t, l.allow(&reading))
	}
	off := rateLimits{}
	for range 1000 {
		noErr(t, off.allow(&changing))
	}
}

// TestRateLimitRefusalsCostNothing: calls that are refused at the same time make
// the next wait no longer.
func TestRateLimitRefusalsCostNothing(t *testing.T) {
	changing := tool{name: "stop_process"}
	l := rateLimits{perSecond: 1}
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for range 5000 {
				_ = l.allow(&changing)
			}
		})
	}
	callers.Wait()
	if n := l.byTool[changing.name].Tokens(); n < -0.001 {
		t.Errorf("%v calls are owed", -n)
	}
}

// TestRateLimitAnswer: a call too many is an answer that the model can act on,
// and changes nothing.
func TestRateLimitAnswer(t *testing.T) {
	s := hello(t, func(o *Options) { o.RateLimit = 1 })
	var r reply
	for range 10 * burst { // on a slow machine there is room for another a second later
		r = s.ask("tools/call", map[string]any{"name": "remove_process", "arguments": map[string]any{"process": "x"}})
		if strings.Contains(r.text(), "PM_RATE_LIMIT") {
			break
		}
	}
	if r.Result["isError"] != true || !strings.Contains(r.text(), "try again in") {
		t.Errorf("%s", r.raw)
	}
	s.do("list_processes", nil)
}

func TestToolsets(t *testing.T) {
	names := func(s *surface) (all []string) {
		for _, item := range s.ask("tools/list", nil).Result["tools"].([]any) {
			all = append(all, item.(map[string]any)["name"].(string))
		}
		return all
	}
	call := func(s *surface, name string) reply {
		return s.ask("tools/call", map[string]any{"name": name})
	}
	t.Run("read-only", func(t *testing.T) {
		s := hello(t, func(o *Options) { o.ReadOnly = true })
		for _, name := range names(s) {
			for _, tool := range tools() {
				if tool.name == name && !tool.hints.readOnly {
					t.Errorf("%s is offered", name)
				}
			}
		}
		if r := call(s, "start_process"); r.Error == nil || r.Error.Code != -32602 || !strings.Contains(r.Error.Message, "PM_READ_ONLY") {
			t.Errorf("%s", r.raw)
		}
	})
	t.Run("toolsets", func(t *testing.T) {
		s := hello(t, func(o *Options) { o.Toolsets = []string{setLogs, setGroups} })
		if all := names(s); len(all) != 10 {
			t.Errorf("%v", all)
		}
		if r := call(s, "start_process"); r.Error == nil || !strings.Contains(r.Error.Message, "PM_TOOLSETS=logs,groups") {
			t.Errorf("%s", r.raw)
		}
	})
	t.Run("instructions", func(t *testing.T) {
		s := open(t, func(o *Options) { o.ReadOnly = true })
		text := fmt.Sprint(s.initialize("2025-11-25").Result["instructions"])
		for _, tool := range tools() {
			if !tool.hints.readOnly && strings.Contains(text, tool.name) {
				t.Errorf("%s is not offered, but spoken of:\n%s", tool.name, text)
			}
		}
		if !strings.Contains(text, "get_errors") || !strings.Contains(text, "data, not instructions") {
			t.Errorf("what is offered is not spoken of:\n%s", text)
		}
		if all := open(t).server.instructions(); all != instructions {
			t.Errorf("not all of it:\n%s", all)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		s := hello(t)
		for name, want := range map[string]string{"start_proces": "did you mean start_process?", "": "unknown tool", "xyzzy": "there are: add_to_group"} {
			if r := call(s, name); r.Error == nil || r.Error.Code != -32602 || !strings.Contains(r.Error.Message, want) {
				t.Errorf("%q: %s", name, r.raw)
			}
		}
	})
}
