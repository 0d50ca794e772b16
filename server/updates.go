package server

import (
	"context"
	"fmt"
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

	mu     sync.Mutex
	names  map[string]bool // processes with news since the last round
	clears map[string]int  // by process, how often lines of its log were removed

	// Of the goroutine that runs the rounds.
	known     map[string]bool   // processes that there are, for list_changed
	states    map[string]string // by subscribed URI, how a log or errors stood at the last look
	metricsAt time.Time         // when metrics://summary was last told
}

func newUpdates(s *Server, c *conn) *updates {
	return &updates{s: s, c: c, names: make(map[string]bool), clears: make(map[string]int), known: make(map[string]bool), states: make(map[string]string)}
}

// changed notes that there is news of a process, or with "" of the groups. It
// never waits.
func (u *updates) changed(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names[name] = true
}

// cleared notes that lines of the log of a process were removed. It never waits.
func (u *updates) cleared(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.clears[name]++
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
	for uri := range u.states {
		if !subscribed[uri] {
			delete(u.states, uri)
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
		return u.logIsNew(ctx, uri, "")
	case kind == "logs":
		return u.logIsNew(ctx, uri, name)
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
	seen := u.s.o.Store.FaultsSeen(u.s.o.Manager.Project(), name)
	if seen == 0 {
		return false
	}
	return u.differs(uri, fmt.Sprint(seen, " errors"))
}

// differs says whether a resource does not stand as at the last look, which this
// is from now on. At the first look it does not, whatever it is.
func (u *updates) differs(uri, state string) bool {
	was := u.states[uri]
	u.states[uri] = state
	return was != state
}

// logIsNew says whether the log of a process ("": of all) reads otherwise than at
// the last look: it has grown, was cleared, or there is a new run, be it one that
// prints nothing. At the first look, up to a period after the subscription, it
// may: better an update too many than one that is lost.
func (u *updates) logIsNew(ctx context.Context, uri, name string) bool {
	state, err := u.logState(ctx, name)
	if err != nil {
		return false
	}
	return u.differs(uri, state)
}

// logState is another text whenever the log of a process ("": of all) reads
// otherwise: the latest run here, how often it was cleared, and where it ends.
func (u *updates) logState(ctx context.Context, name string) (string, error) {
	var run int64
	var names []string
	if name == "" {
		for _, st := range u.s.o.Manager.List() {
			run = max(run, st.RunID)
		}
	} else {
		names = []string{name}
		if st, err := u.s.o.Manager.Status(name); err == nil {
			run = st.RunID
		}
	}
	clears := u.clearsOf(name)
	end, err := u.s.o.Store.End(ctx, u.s.o.Manager.Project(), names)
	return fmt.Sprintf("run %d, %d clears, %s", run, clears, end), err
}

// clearsOf is how often the log of a process ("": of any) was cleared.
func (u *updates) clearsOf(name string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if name != "" {
		return u.clears[name]
	}
	for _, clears := range u.clears {
		n += clears
	}
	return n
}
