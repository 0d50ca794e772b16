package stdio

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

// uriList returns n URIs of resources.
func uriList(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("logs://p%d", i)
	}
	return list
}

func wantRefusal(t *testing.T, r stdiotest.Reply, code int, text string) {
	t.Helper()
	if r.Error == nil || r.Error.Code != code || !strings.Contains(r.Error.Message, text) || len(r.Error.Message) > 200 {
		t.Errorf("got %.500s, want error %d with %q", r.Raw, code, text)
	}
}

func TestLegacySubscriptionsAreBounded(t *testing.T) {
	c := dial(t, newToolbox())
	c.Initialize("2025-11-25")
	subscribe := func(method, uri string) stdiotest.Reply {
		return c.Call(`1`, "resources/"+method, fmt.Sprintf(`{"uri":%q}`, uri))
	}
	all := uriList(maxSubscribed)
	for _, uri := range all {
		if r := subscribe("subscribe", uri); r.Error != nil {
			t.Fatal(r.Raw)
		}
	}
	wantRefusal(t, subscribe("subscribe", "logs://more"), codeBusy, "1000 subscribed resources are the limit")
	if r := subscribe("subscribe", all[0]); r.Error != nil { // already subscribed, so no room is needed
		t.Error(r.Raw)
	}
	subscribe("unsubscribe", all[0])
	wantRefusal(t, subscribe("subscribe", "logs://"+strings.Repeat("x", maxURI)), mcp.INVALID_PARAMS, "2048 are the limit")
	if r := subscribe("subscribe", "logs://more"); r.Error != nil {
		t.Error(r.Raw)
	}
	if n := len(c.conn.session.SubscribedResources()); n != maxSubscribed {
		t.Errorf("got %d subscriptions, want %d", n, maxSubscribed)
	}
}

func TestModernSubscriptionsAreBounded(t *testing.T) {
	c := dial(t, newToolbox())
	listen := func(id int, uris []string) stdiotest.Reply {
		quoted := `"` + strings.Join(uris, `","`) + `"`
		c.Send(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[%s]},%s}}`, id, quoted, stdiotest.ModernMeta)
		return c.Recv()
	}
	wantRefusal(t, listen(1, uriList(maxSubscribed+1)), codeBusy, "1000 subscribed resources are the limit")
	wantRefusal(t, listen(2, []string{"logs://" + strings.Repeat("x", maxURI)}), mcp.INVALID_PARAMS, "2048 are the limit")
	if r := listen(3, uriList(maxSubscribed-1)); r.Method != mcp.MethodNotificationSubscriptionsAcknowledged {
		t.Fatalf("%.500s", r.Raw)
	}
	wantRefusal(t, listen(4, uriList(2)), codeBusy, "1000 subscribed resources are the limit")
	c.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	proctest.Await(t, "the end of the stream", func() bool {
		c.conn.session.mu.Lock()
		defer c.conn.session.mu.Unlock()
		return c.conn.session.streamResources == 0
	})
	if r := listen(5, uriList(maxSubscribed)); r.Method != mcp.MethodNotificationSubscriptionsAcknowledged {
		t.Errorf("%.500s", r.Raw)
	}
}

// TestAcknowledgedStreamIsOpen checks that a client misses no update that follows
// the acknowledgement of its stream.
func TestAcknowledgedStreamIsOpen(t *testing.T) {
	c := dial(t, newToolbox())
	for id := range 300 {
		uri := fmt.Sprintf("test://%d", id)
		c.Send(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[%q]},%s}}`, id, uri, stdiotest.ModernMeta)
		c.Recv()
		if !c.conn.session.IsSubscribedToResource(uri) {
			t.Fatalf("the stream of %s is acknowledged but not open", uri)
		}
	}
}
