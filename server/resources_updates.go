package server

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/stdio"
)

const (
	// updatePeriod is the minimum time between two notifications about one
	// resource.
	updatePeriod = time.Second
	// metricsPeriod is how often metrics://summary is reported as changed.
	metricsPeriod = 10 * time.Second
)

// resourceUpdates notifies the client when a resource that the client subscribed to
// has changed, and when the list of resources has changed. It collects changes and
// reports them together, so that fifty noisy processes cost no more than one.
type resourceUpdates struct {
	s    *Server
	c    *stdio.Conn
	wake chan struct{} // one slot: there may be something to do

	mu    sync.Mutex
	names map[string]bool // guarded by mu; processes that changed since the last round, and whether lines of their logs were removed

	// The fields below are used only by the goroutine of run.
	known     map[string]bool   // names of the processes of the last round, for list_changed
	states    map[string]string // state of a log or of errors in the last round, keyed by subscribed URI
	metricsAt time.Time         // when metrics://summary was last reported
}

// newResourceUpdates returns a resourceUpdates for the connection c. The caller
// must start its run method.
func newResourceUpdates(s *Server, c *stdio.Conn) *resourceUpdates {
	return &resourceUpdates{s: s, c: c, wake: make(chan struct{}, 1), names: make(map[string]bool), known: make(map[string]bool), states: make(map[string]string)}
}

// addChange records that a process has changed or, if name is "", that a group has.
// cleared reports whether lines were removed from the log of the process. addChange
// never blocks.
func (u *resourceUpdates) addChange(name string, cleared bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names[name] = u.names[name] || cleared
	wake(u.wake)
}

// run sends notifications once per period until ctx ends. The period begins at the
// end of the previous round or, if there were neither subscriptions nor changes
// then, with the first of these.
func (u *resourceUpdates) run(ctx context.Context) {
	for {
		if len(u.c.SubscribedResources()) == 0 {
			select {
			case <-u.wake:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-time.After(updatePeriod):
		case <-ctx.Done():
			return
		}
		u.notifyChanges(ctx)
	}
}

// notifyChanges reports what has changed since the last round. It ignores errors of
// the connection: if the client is gone, the connection ends itself.
func (u *resourceUpdates) notifyChanges(ctx context.Context) {
	u.mu.Lock()
	names := u.names
	u.names = make(map[string]bool)
	u.mu.Unlock()
	if u.listChanged(names) {
		_ = u.c.Notify(ctx, mcp.MethodNotificationResourcesListChanged, nil)
	}
	wanted := u.c.SubscribedResources()
	u.pruneStates(wanted)
	for _, uri := range wanted {
		if u.hasChanged(ctx, uri, names) {
			_ = u.c.Notify(ctx, mcp.MethodNotificationResourceUpdated, map[string]any{"uri": uri})
		}
	}
}

// listChanged reports whether one of names is a new or a removed process: the
// resources of that process are then added or removed as well.
func (u *resourceUpdates) listChanged(names map[string]bool) bool {
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

func (u *resourceUpdates) pruneStates(wanted []string) {
	subscribed := make(map[string]bool, len(wanted))
	for _, uri := range wanted {
		subscribed[uri] = true
	}
	maps.DeleteFunc(u.states, func(uri, _ string) bool { return !subscribed[uri] })
}

// hasChanged reports whether a resource has changed since it was last reported. A
// resource of all processes changes with each of them.
func (u *resourceUpdates) hasChanged(ctx context.Context, uri string, names map[string]bool) bool {
	kind, name := splitURI(uri)
	cleared, changed := names[name]
	if slices.Contains(uris(resources()), uri) {
		name, changed = "", len(names) > 0
		cleared = slices.Contains(slices.Collect(maps.Values(names)), true)
	}
	switch kind {
	case "metrics":
		if time.Since(u.metricsAt) < metricsPeriod {
			return false
		}
		u.metricsAt = time.Now()
		return true
	case "logs":
		return u.logChanged(ctx, uri, name) || cleared
	case "errors":
		return u.errorsChanged(uri, name) || changed
	default:
		return changed
	}
}

// splitURI splits a URI of the form kind://name?query. It returns the name
// unescaped.
func splitURI(uri string) (kind, name string) {
	kind, name, _ = strings.Cut(uri, "://")
	name, _, _ = strings.Cut(name, "?")
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	return kind, name
}

// errorsChanged reports whether errors of a process have been seen since the last
// round, including repeats of a known error. The name "" stands for all processes.
func (u *resourceUpdates) errorsChanged(uri, name string) bool {
	seen := u.s.o.Store.FaultsSeen(u.s.o.Manager.Project(), name)
	if seen == 0 {
		return false
	}
	return u.stateChanged(uri, fmt.Sprint(seen, " errors"))
}

// stateChanged records the state of a resource and reports whether the state
// differs from the one last recorded. The first state always differs.
func (u *resourceUpdates) stateChanged(uri, state string) bool {
	previous := u.states[uri]
	u.states[uri] = state
	return previous != state
}

// logChanged reports whether the log of a process has grown since the last round,
// or there is a new run, even a run that prints nothing. The name "" stands for all
// processes. In the first round, which is up to one period after the subscription,
// logChanged returns true: a superfluous update is better than a lost update.
func (u *resourceUpdates) logChanged(ctx context.Context, uri, name string) bool {
	var run int64 // id of the latest run in this session
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
	end, err := u.s.o.Store.End(ctx, u.s.o.Manager.Project(), names)
	return err == nil && u.stateChanged(uri, fmt.Sprintf("run %d, %s", run, end))
}
