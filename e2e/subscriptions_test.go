package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestSubscriptionsAreBounded checks that a client can subscribe to 1,000 resources, and
// that the next subscription fails and names the limit.
func TestSubscriptionsAreBounded(t *testing.T) {
	const limit = "1000 subscribed resources are the limit"
	uris := make([]string, 1001)
	for i := range uris {
		uris[i] = fmt.Sprintf("logs://p%d", i)
	}
	refused := func(t *testing.T, m message) {
		t.Helper()
		if m.Error == nil || !strings.Contains(*m.Error.Message, limit) {
			t.Errorf("got %.500s, want the error %q", m.Raw, limit)
		}
	}
	t.Run("legacy", func(t *testing.T) {
		t.Parallel()
		s := newWorld(t).start(t)
		s.initialize(t)
		for _, uri := range uris[:1000] {
			if m := s.call(t, "resources/subscribe", args{"uri": uri}); m.Error != nil {
				t.Fatalf("got %s, want a result", m.Raw)
			}
		}
		refused(t, s.call(t, "resources/subscribe", args{"uri": uris[1000]}))
		s.call(t, "resources/unsubscribe", args{"uri": uris[0]})
		if m := s.call(t, "resources/subscribe", args{"uri": uris[1000]}); m.Error != nil {
			t.Errorf("got %s, want a result", m.Raw)
		}
	})
	t.Run("2026-07-28", func(t *testing.T) {
		t.Parallel()
		s := newWorld(t).start(t)
		s.modern = true
		listen := func(uris []string) args { return args{"notifications": args{"resourceSubscriptions": uris}} }
		refused(t, s.call(t, "subscriptions/listen", listen(uris)))
		id, answer := s.request(t, "subscriptions/listen", listen(uris[:1000]))
		s.note(t, "notifications/subscriptions/acknowledged", nil)
		refused(t, s.call(t, "subscriptions/listen", listen(uris[1000:])))
		s.cancel(t, id)
		s.must(t, "list_processes", args{}) // an answer to the cancelled request would come before the answer to this call
		if len(answer) > 0 {
			t.Errorf("got %s, want no answer to the cancelled request", (<-answer).Raw)
		}
		s.closeInput(t)
	})
}
