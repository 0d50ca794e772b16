package server

import (
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

const (
	// maxSubscribed is how many resources one client can be subscribed to:
	// each is looked at once a second.
	maxSubscribed = 1000
	// maxURI bounds the bytes of the URI of a subscription, which is kept.
	maxURI = 2048
)

var (
	_ mcpserver.SessionWithResourceSubscriptionsErr = (*requestSession)(nil)
	_ mcpserver.SessionWithResourceSubscriptionsErr = (*listenSession)(nil)
)

// SubscribeToResourceErr records a legacy subscription, within the bounds.
func (r *requestSession) SubscribeToResourceErr(uri string) error {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uris[uri] {
		return nil
	}
	if err := r.fits(uri); err != nil {
		return err
	}
	s.uris[uri] = true
	return nil
}

// UnsubscribeFromResource ends a legacy subscription.
func (s *session) UnsubscribeFromResource(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uris, uri)
}

// SubscribeToResourceErr counts a resource of the stream. Its filter holds the
// URI.
func (l *listenSession) SubscribeToResourceErr(uri string) error {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.fits(uri); err != nil {
		return err
	}
	s.listened++
	return nil
}

// UnsubscribeFromResource is called at the end of the stream for each resource
// that was counted.
func (l *listenSession) UnsubscribeFromResource(string) {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	l.listened--
}

// fits says whether the session may have one more subscription, to uri. The
// session is locked.
func (r *requestSession) fits(uri string) error {
	f := requestFailure{code: mcp.INVALID_PARAMS}
	switch n := len(r.uris) + r.listened; {
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

// SubscribeToResource is not called: SubscribeToResourceErr takes its place.
func (s *session) SubscribeToResource(string) {}

// SubscribedResources lists each URI that anything of this client wants to
// hear of, once, sorted.
func (s *session) SubscribedResources() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for uri := range s.uris {
		all = append(all, uri)
	}
	for _, l := range s.listens {
		all = append(all, l.filter.ResourceSubscriptions...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// IsSubscribedToResource tells whether an update of uri would reach the client.
func (s *session) IsSubscribedToResource(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uris[uri] || slices.ContainsFunc(s.listens, func(l *listenSession) bool {
		return slices.Contains(l.filter.ResourceSubscriptions, uri)
	})
}
