package stdio

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

const (
	// maxSubscribed is the maximum number of resources that one client can be
	// subscribed to. Each of these is checked once a second.
	maxSubscribed = 1000
	// maxURI is the maximum length in bytes of the URI of a subscription, which
	// stays in memory.
	maxURI = 2048
)

var (
	_ mcpserver.SessionWithResourceSubscriptionsErr = (*RequestSession)(nil)
	_ mcpserver.SessionWithResourceSubscriptionsErr = (*listenSession)(nil)
)

// SubscribeToResourceErr records a legacy subscription, within the bounds.
func (r *RequestSession) SubscribeToResourceErr(uri string) error {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uris[uri] {
		return nil
	}
	if r.conn.RefuseSubscription != nil {
		if why := r.conn.RefuseSubscription(uri); why != "" {
			return ResourceNotFound(r.req.ctx, uri, why)
		}
	}
	if err := r.checkSubscriptionLocked(uri); err != nil {
		return err
	}
	s.uris[uri] = true
	r.conn.subscribed()
	return nil
}

// UnsubscribeFromResource ends a legacy subscription.
func (s *session) UnsubscribeFromResource(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uris, uri)
}

// SubscribeToResourceErr counts a resource of the stream. The URI is in the
// stream's filter.
func (l *listenSession) SubscribeToResourceErr(uri string) error {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.checkSubscriptionLocked(uri); err != nil {
		return err
	}
	s.streamResources++
	return nil
}

// UnsubscribeFromResource is called by mcp-go for each counted resource when the
// stream ends.
func (l *listenSession) UnsubscribeFromResource(string) {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	l.streamResources--
}

// subscribed calls OnSubscribe.
func (c *Conn) subscribed() {
	if c.OnSubscribe != nil {
		c.OnSubscribe()
	}
}

// checkSubscriptionLocked returns an error if the session may not also subscribe
// to uri. The caller holds the lock of the session.
func (r *RequestSession) checkSubscriptionLocked(uri string) error {
	f := requestFailure{code: mcp.INVALID_PARAMS}
	switch n := len(r.uris) + r.streamResources; {
	case len(uri) > maxURI:
		f.text = fmt.Sprintf("the URI has %d bytes; %d are the limit", len(uri), maxURI)
	case n >= maxSubscribed:
		f.code = codeBusy
		f.text = fmt.Sprintf("%d subscribed resources are the limit of a session; end a subscription before the next", maxSubscribed)
	default:
		return nil
	}
	return r.fail(f)
}

// SubscribeToResource is never called: mcp-go calls SubscribeToResourceErr
// instead.
func (s *session) SubscribeToResource(string) {}

// SubscribedResources returns the URIs of all subscriptions of the client, sorted
// and without duplicates.
func (s *session) SubscribedResources() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Keys(s.uris))
	for _, l := range s.streams {
		all = append(all, l.filter.ResourceSubscriptions...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// IsSubscribedToResource reports whether an update of uri would reach the client.
func (s *session) IsSubscribedToResource(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uris[uri] || slices.ContainsFunc(s.streams, func(l *listenSession) bool {
		return slices.Contains(l.filter.ResourceSubscriptions, uri)
	})
}
