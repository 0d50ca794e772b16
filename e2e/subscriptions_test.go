package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestSubscriptionsAreBounded: a client can be subscribed to 1,000 resources,
// and is told so at the next.
func TestSubscriptionsAreBounded(t *testing.T) {
	const limit = "1000 subscribed resources are the limit"
	uris := make([]string, 1001)
	for i := range uris {
		uris[i] = fmt.Sprintf("logs://p%d", i)
	}
	refused := func(t *testing.T, m message) {
		t.Helper()
		if m.Error == nil || !strings.Contains(*m.Error.Message, limit) {
			t.Errorf("not refused: %.500s", m.Raw)
		}
	}
	t.Run("legacy", func(t *testing.T) {
		t.Parallel()
		s := newWorld(t).start(t)
		s.initialize(t)
		for _, uri := range uris[:1000] {
			if m := s.call(t, "resources/subscribe", args{"uri": uri}); m.Error != nil {
				t.Fatal(m.Raw)
			}
		}
		refused(t, s.call(t, "resources/subscribe", args{"uri": uris[1000]}))
		s.call(t, "resources/unsubscribe", args{"uri": uris[0]})
		if m := s.call(t, "resources/subscribe", args{"uri": uris[1000]}); m.Error != nil {
			t.Error(m.Raw)
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
		s.must(t, "list_processes", args{}) // an answer would come before this one
		if len(answer) > 0 {
			t.Errorf("answered: %s", (<-answer).Raw)
		}
		s.closeInput(t)
	})
}
