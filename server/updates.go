package server

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

const (
	// updatePeriod is the least time between two notifications of one resource.
	updatePeriod = time.Second
	// metricsPeriod is how often metrics://summary counts as changed.
	metricsPeriod = 10 * time.Second
)

// updates tells the client which of the resources that it subscribed to have
// changed, and when there are more or fewer of them. Changes are collected and
// told together, so that fifty noisy processes cost no more than one.
type updates struct {
	s *Server
	c *conn

	mu    sync.Mutex
	names map[string]bool // processes with news since the last round

	// Of the goroutine that runs the rounds.
	known     map[string]bool   // processes that there are, for list_changed
	logEnds   map[string]string // by subscribed URI, where its log ended when it was last looked at
	errors    map[string]int64  // by subscribed URI, how many errors there had been then
	metricsAt time.Time         // when metrics://summary was last told
}

func newUpdates(s *Server, c *conn) *updates {
	return &updates{s: s, c: c, names: make(map[string]bool), known: make(map[string]bool), logEnds: make(map[string]string), errors: make(map[string]int64)}
}

// changed notes that there is news of a process, or with "" of the groups. It
// never waits.
func (u *updates) changed(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names[name] = true
}

// run tells once a period, counted from the end of the last telling, until ctx
// ends.
func (u *updates) run(ctx context.Context) {
	timer := time.NewTimer(updatePeriod)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			u.round(ctx)
			timer.Reset(updatePeriod)
		case <-ctx.Done():
			return
		}
	}
}

// round tells what has changed since the last one. An error of the connection
// is none of its business: a client that is gone ends the connection.
func (u *updates) round(ctx context.Context) {
	u.mu.Lock()
	names := u.names
	u.names = make(map[string]bool)
	u.mu.Unlock()
	if u.comeOrGone(names) {
		_ = u.c.notify(ctx, mcp.MethodNotificationResourcesListChanged, nil)
	}
	wanted := u.c.session.SubscribedResources()
	u.forgetOthers(wanted)
	for _, uri := range wanted {
		if u.isNew(ctx, uri, names) {
			_ = u.c.notify(ctx, mcp.MethodNotificationResourceUpdated, map[string]any{"uri": uri})
		}
	}
}

// comeOrGone says whether one of names is new or forgotten: with it its
// resources come and go.
func (u *updates) comeOrGone(names map[string]bool) bool {
	changed := false
	for name := range names {
		_, err := u.s.o.Manager.Status(name)
		switch exists := err == nil; {
		case exists && !u.known[name]:
			u.known[name], changed = true, true
		case !exists && u.known[name]:
			delete(u.known, name)
			changed = true
		}
	}
	return changed
}

// forgetOthers keeps what is remembered of subscriptions to those that there
// are.
func (u *updates) forgetOthers(wanted []string) {
	subscribed := make(map[string]bool, len(wanted))
	for _, uri := range wanted {
		subscribed[uri] = true
	}
	for uri := range u.logEnds {
		if !subscribed[uri] {
			delete(u.logEnds, uri)
		}
	}
	for uri := range u.errors {
		if !subscribed[uri] {
			delete(u.errors, uri)
		}
	}
}

// isNew says whether a resource has changed since it was last told.
func (u *updates) isNew(ctx context.Context, uri string, names map[string]bool) bool {
	kind, name := splitURI(uri)
	switch {
	case uri == "metrics://summary":
		if time.Since(u.metricsAt) < metricsPeriod {
			return false
		}
		u.metricsAt = time.Now()
		return true
	case uri == "logs://recent":
		return u.logGrew(ctx, uri, nil)
	case kind == "logs":
		return u.logGrew(ctx, uri, []string{name})
	case uri == "errors://latest":
		return u.moreErrors(uri, "") || len(names) > 0
	case kind == "errors":
		return u.moreErrors(uri, name) || names[name]
	case uri == "processes://list", kind == "groups", kind == "health":
		return len(names) > 0
	default:
		return names[name]
	}
}

// splitURI takes kind://name?query apart; the name as it was before it was
// escaped for the URI.
func splitURI(uri string) (kind, name string) {
	kind, name, _ = strings.Cut(uri, "://")
	name, _, _ = strings.Cut(name, "?")
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	return kind, name
}

// moreErrors says whether errors of a process ("": of any) have been seen since
// the last look, be it of a kind that is known.
func (u *updates) moreErrors(uri, name string) bool {
	was := u.errors[uri]
	u.errors[uri] = u.s.o.Store.FaultsSeen(u.s.o.Manager.Project(), name)
	return was != u.errors[uri]
}

// logGrew says whether one of the processes (nil: all) has printed since the
// last look. At the first look, up to a period after the subscription, it may
// have: better an update too many than one that is lost.
func (u *updates) logGrew(ctx context.Context, uri string, names []string) bool {
	end, err := u.s.o.Store.End(ctx, u.s.o.Manager.Project(), names)
	if err != nil {
		return false
	}
	was, seen := u.logEnds[uri]
	u.logEnds[uri] = end
	return !seen || was != end
}
