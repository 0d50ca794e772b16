package e2e

import (
	"fmt"
	"slices"
	"testing"
)

// eras runs a test once for each era of MCP (before 2026-07-28, and since), with a server
// of its own each time.
func eras(t *testing.T, test func(t *testing.T, s *session, modern bool)) {
	for _, name := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWorld(t).start(t)
			if s.modern = name == "2026-07-28"; !s.modern {
				s.initialize(t)
			}
			test(t, s, s.modern)
		})
	}
}

// TestUnknownResourceErrorFitsProtocolEra checks that the error for an unknown resource
// has the code that the client's MCP version wants, and names the URI.
func TestUnknownResourceErrorFitsProtocolEra(t *testing.T) {
	eras(t, func(t *testing.T, s *session, modern bool) {
		want := map[bool]int{false: -32002, true: -32602}[modern]
		for _, uri := range []string{"no://such", "processes://nobody", "logs://nobody?lines=5", "errors://nobody"} {
			m := s.call(t, "resources/read", args{"uri": uri})
			if m.Error == nil || *m.Error.Code != want || string(m.Error.Data) != fmt.Sprintf(`{"uri":%q}`, uri) {
				t.Errorf("%s: got %s, want code %d and the URI", uri, m.Raw, want)
			}
		}
	})
}

// TestResultsFitProtocolEra checks that results in MCP 2026-07-28 state that they are
// complete and which server they are from, and that cacheable results state how long
// clients may cache them. Results in earlier versions must state none of this.
func TestResultsFitProtocolEra(t *testing.T) {
	fixed := map[string]float64{"tools/list": 300_000, "prompts/list": 300_000, "resources/templates/list": 300_000, "resources/list": 0}
	eras(t, func(t *testing.T, s *session, modern bool) {
		for method, ttl := range fixed {
			r := s.call(t, method, nil).Result
			if modern && (r["ttlMs"] != ttl || r["cacheScope"] != "private") || !modern && (r["ttlMs"] != nil || r["cacheScope"] != nil) {
				t.Errorf("%s: got ttlMs %v, cacheScope %v, want %v and private if modern (%v), else none", method, r["ttlMs"], r["cacheScope"], ttl, modern)
			}
			meta, _ := r["_meta"].(map[string]any)
			info, _ := meta["io.modelcontextprotocol/serverInfo"].(map[string]any)
			if modern != (r["resultType"] == "complete") || modern != (info["name"] == "pmcp") {
				t.Errorf("%s: got resultType %v, _meta %v, want both if modern (%v), else none", method, r["resultType"], meta, modern)
			}
		}
	})
}

// TestListsHaveStableOrder checks that each MCP list has the same order every time and
// fits on one page, and that tools and prompts are sorted by name.
func TestListsHaveStableOrder(t *testing.T) {
	eras(t, func(t *testing.T, s *session, _ bool) {
		for _, name := range []string{"b", "c", "a"} {
			s.must(t, "start_process", own(t, name, "sleep"))
		}
		for method, key := range map[string]string{"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"} {
			first := s.call(t, method, nil)
			var names []string
			for _, item := range objects(first.Result[key]) {
				names = append(names, fmt.Sprint(item["name"]))
			}
			if len(names) == 0 || first.Result["nextCursor"] != nil || (key == "tools" || key == "prompts") && !slices.IsSorted(names) {
				t.Errorf("%s: got %v, next page %v, want a sorted list on one page", method, names, first.Result["nextCursor"])
			}
			for range 5 {
				if again := s.call(t, method, nil); fmt.Sprint(again.Result) != fmt.Sprint(first.Result) {
					t.Errorf("%s: got %s, want %s as before", method, again.Raw, first.Raw)
				}
			}
		}
	})
}

// TestNotificationsHaveSubscriptionID checks that, in MCP 2026-07-28, each message of a
// subscription's stream and the end of the stream have the subscription's id. Earlier
// versions have no streams.
func TestNotificationsHaveSubscriptionID(t *testing.T) {
	id := func(m map[string]any) any {
		meta, _ := m["_meta"].(map[string]any)
		return meta["io.modelcontextprotocol/subscriptionId"]
	}
	eras(t, func(t *testing.T, s *session, modern bool) {
		var want any
		var end <-chan message
		if modern {
			var stream string
			stream, end = s.request(t, "subscriptions/listen", args{"notifications": args{"resourceSubscriptions": []string{"processes://a"}, "resourcesListChanged": true}})
			want = float64(s.number(t, stream))
			if m := s.note(t, "notifications/subscriptions/acknowledged", nil); id(m.Params) != want {
				t.Errorf("got %s, want the id %v", m.Raw, want)
			}
		} else {
			s.call(t, "resources/subscribe", args{"uri": "processes://a"})
		}
		s.must(t, "start_process", own(t, "a", "sleep"))
		for _, method := range []string{"notifications/resources/updated", "notifications/resources/list_changed"} {
			if m := s.note(t, method, nil); id(m.Params) != want {
				t.Errorf("got %s, want the id %v", m.Raw, want)
			}
		}
		if modern {
			s.closeInput(t)
			if m := s.wait(t, "subscriptions/listen", end); m.Error != nil || id(m.Result) != want {
				t.Errorf("the end: got %s, want the id %v", m.Raw, want)
			}
		}
	})
}

// number returns a request's id as a number.
func (s *session) number(t *testing.T, id string) (n int) {
	t.Helper()
	_, err := fmt.Sscan(id, &n)
	check(t, err)
	return n
}

// TestNoMessagesForACancelledRequest checks that the server sends no answer, no progress
// and no log message for a request after its cancellation.
func TestNoMessagesForACancelledRequest(t *testing.T) {
	eras(t, func(t *testing.T, s *session, modern bool) {
		s.must(t, "start_process", own(t, "sleeper", "sleep"))
		s.must(t, "start_process", sh("job", "read line; exit 3"))
		params := args{"name": "wait_for_process", "arguments": args{"process": "sleeper", "until": "exit"}}
		meta := map[string]any{}
		if modern {
			meta = withMeta(nil)["_meta"].(map[string]any)
			meta["io.modelcontextprotocol/logLevel"] = "debug"
		}
		params["_meta"] = meta
		var ids []string
		var answers []<-chan message
		for i := range 20 {
			meta["progressToken"] = i
			id, answer := s.request(t, "tools/call", params)
			ids, answers = append(ids, id), append(answers, answer)
		}
		s.note(t, "notifications/progress", nil) // progress proves that the calls are waiting
		for _, id := range ids {
			s.cancel(t, id)
		}
		s.must(t, "list_processes", args{}) // the server handles this call after the cancellations
		s.mu.Lock()
		s.notes = nil
		s.mu.Unlock()
		s.must(t, "send_input", args{"process": "job", "text": "go", "wait_ms": 0})
		s.must(t, "wait_for_process", args{"process": "job", "until": "exit"})
		s.must(t, "stop_process", args{"process": "sleeper"}) // would end the cancelled calls if they still waited
		s.must(t, "list_processes", args{})
		for i, answer := range answers {
			if len(answer) > 0 {
				t.Errorf("request %s: got %s, want no answer", ids[i], (<-answer).Raw)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, n := range s.notes {
			if n.Method == "notifications/progress" || modern {
				t.Errorf("got %s, want no notification", n.Raw)
			}
		}
	})
}
