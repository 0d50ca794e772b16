package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
)

// uriList is n URIs of resources.
func uriList(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("logs://p%d", i)
	}
	return list
}

func refusedWith(t *testing.T, r reply, code int, text string) {
	t.Helper()
	if r.Error == nil || r.Error.Code != code || !strings.Contains(r.Error.Message, text) || len(r.Error.Message) > 200 {
		t.Errorf("want error %d %q: %.500s", code, text, r.raw)
	}
}

func TestLegacySubscriptionsAreBounded(t *testing.T) {
	c := dial(t, newToolbox())
	c.initialize("2025-11-25")
	subscribe := func(method, uri string) reply {
		return c.call(`1`, "resources/"+method, fmt.Sprintf(`{"uri":%q}`, uri))
	}
	all := uriList(maxSubscribed)
	for _, uri := range all {
		if r := subscribe("subscribe", uri); r.Error != nil {
			t.Fatal(r.raw)
		}
	}
	refusedWith(t, subscribe("subscribe", "logs://more"), codeBusy, "1000 subscribed resources are the limit")
	if r := subscribe("subscribe", all[0]); r.Error != nil { // is there
		t.Error(r.raw)
	}
	subscribe("unsubscribe", all[0])
	refusedWith(t, subscribe("subscribe", "logs://"+strings.Repeat("x", maxURI)), mcp.INVALID_PARAMS, "2048 are the limit")
	if r := subscribe("subscribe", "logs://more"); r.Error != nil {
		t.Error(r.raw)
	}
	if n := len(c.conn.session.SubscribedResources()); n != maxSubscribed {
		t.Errorf("%d", n)
	}
}

func TestModernSubscriptionsAreBounded(t *testing.T) {
	c := dial(t, newToolbox())
	listen := func(id int, uris []string) reply {
		quoted := `"` + strings.Join(uris, `","`) + `"`
		c.send(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[%s]},%s}}`, id, quoted, modernMeta)
		return c.recv()
	}
	refusedWith(t, listen(1, uriList(maxSubscribed+1)), codeBusy, "1000 subscribed resources are the limit")
	refusedWith(t, listen(2, []string{"logs://" + strings.Repeat("x", maxURI)}), mcp.INVALID_PARAMS, "2048 are the limit")
	if r := listen(3, uriList(maxSubscribed-1)); r.Method != mcp.MethodNotificationSubscriptionsAcknowledged {
		t.Fatalf("%.500s", r.raw)
	}
	refusedWith(t, listen(4, uriList(2)), codeBusy, "1000 subscribed resources are the limit")
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	awaitCondition(t, "the end of the stream", func() bool {
		c.conn.session.mu.Lock()
		defer c.conn.session.mu.Unlock()
		return c.conn.session.listened == 0
	})
	if r := listen(5, uriList(maxSubscribed)); r.Method != mcp.MethodNotificationSubscriptionsAcknowledged {
		t.Errorf("%.500s", r.raw)
	}
}

// TestAcknowledgedIsOpen: who has seen the acknowledgement misses nothing.
func TestAcknowledgedIsOpen(t *testing.T) {
	c := dial(t, newToolbox())
	for id := range 300 {
		uri := fmt.Sprintf("test://%d", id)
		c.send(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[%q]},%s}}`, id, uri, modernMeta)
		c.recv()
		if !c.conn.session.IsSubscribedToResource(uri) {
			t.Fatalf("%s is acknowledged and not open", uri)
		}
	}
}
