package stdio

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/jsonrpc"
)

// A requestTable holds the requests that are being handled, and admits further ones
// within the bounds of Options. Its methods may be called from any goroutine.
type requestTable struct {
	bounds Options
	freed  chan struct{} // holds one element if a request has ended

	mu           sync.Mutex          // guards the fields below
	closing      bool                // no further request is admitted
	admitted     map[*request]bool   // what is being handled, notifications too
	byID         map[string]*request // the requests that the client can cancel
	waiting      int                 // the number of waiting requests
	quick        int                 // the number of quick requests
	inFlight     int                 // the total size of the requests' messages, in bytes
	idle         chan struct{}       // made by close; closed when nothing is being handled
	refuseAtOnce bool                // StallTimeout has passed and no request has ended since then
	lastID       int64
}

func newRequestTable(bounds Options) *requestTable {
	return &requestTable{bounds: bounds, freed: make(chan struct{}, 1), admitted: map[*request]bool{}, byID: map[string]*request{}}
}

// admit adds r, so that the client can cancel it. Otherwise it returns why r is
// refused; full means that waiting may help.
func (t *requestTable) admit(r *request) (refusal *jsonrpc.Error, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	busy := func(format string, args ...any) *jsonrpc.Error {
		return &jsonrpc.Error{ID: r.ID, Code: codeBusy, Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case t.closing:
		return busy("The session is ending"), false
	case r.ID != nil && t.byID[r.Key] != nil:
		refused := duplicateID(r.ID)
		return &refused, false
	case r.inline: // the read loop handles one message at a time
	case r.waiting && t.waiting >= t.bounds.MaxWaiting:
		return busy("Server busy: %d waiting requests are the limit; wait until one ends, or cancel one", t.waiting), false
	case !r.waiting && t.quick >= t.bounds.MaxQuick+t.bounds.MaxBacklog:
		return busy("Server busy: %d requests are being handled or queued; try again when some are answered",
			t.quick), !t.refuseAtOnce
	case t.inFlight > 0 && t.inFlight+r.size > t.bounds.MaxInFlight:
		return busy("Server busy: the requests being handled have over %d bytes; try again when some are answered",
			t.bounds.MaxInFlight), !t.refuseAtOnce
	}
	t.lastID++
	r.num = t.lastID
	if r.ID != nil {
		t.byID[r.Key] = r
	}
	t.admitted[r] = true
	t.countLocked(r, 1)
	return nil, false
}

func duplicateID(id json.RawMessage) jsonrpc.Error {
	return jsonrpc.Error{ID: id, Code: mcp.INVALID_REQUEST,
		Text: "Invalid request: a request with this id is still being handled"}
}

func (t *requestTable) countLocked(r *request, n int) {
	if r.waiting {
		t.waiting += n
	} else {
		t.quick += n
	}
	t.inFlight += n * r.size
}

// stopWaiting makes admit report no request as full until a request has ended.
func (t *requestTable) stopWaiting() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuseAtOnce = true
}

// remove removes a request that has been handled.
func (t *requestTable) remove(r *request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.admitted, r)
	t.countLocked(r, -1)
	t.signalIdleLocked()
	if r.inline {
		return // it took no room
	}
	t.refuseAtOnce = false
	select {
	case t.freed <- struct{}{}:
	default:
	}
}

// releaseID makes the id of r available again. It returns false if the client has
// cancelled r.
func (t *requestTable) releaseID(r *request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[r.Key] != r {
		return false
	}
	delete(t.byID, r.Key)
	return true
}

// cancelByID cancels the request with that id for its client. After that, nothing is
// written for the request. The request may be unknown, because it was answered.
func (t *requestTable) cancelByID(key string) {
	t.mu.Lock()
	r := t.byID[key]
	if r != nil {
		delete(t.byID, key)
		close(r.cancelled)
	}
	t.mu.Unlock()
	if r != nil {
		r.cancel(errCancelledByClient)
	}
}

// close refuses new requests, cancels waiting requests, and returns a channel that is
// closed when no request is left.
func (t *requestTable) close() <-chan struct{} {
	t.mu.Lock()
	t.closing = true
	idle := make(chan struct{})
	t.idle = idle
	t.signalIdleLocked()
	t.mu.Unlock()
	t.cancel(func(r *request) bool { return r.waiting })
	return idle
}

func (t *requestTable) signalIdleLocked() {
	if t.idle != nil && len(t.admitted) == 0 {
		close(t.idle)
		t.idle = nil
	}
}

// cancel cancels the requests that which selects, because the session is ending.
func (t *requestTable) cancel(which func(*request) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r := range t.admitted {
		if which(r) {
			r.cancel(ErrSessionEnding)
		}
	}
}

// methods returns the methods of the requests that are being handled, sorted.
func (t *requestTable) methods() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var methods []string
	for r := range t.admitted {
		methods = append(methods, r.Method)
	}
	slices.Sort(methods)
	return methods
}
