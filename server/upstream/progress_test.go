package upstream

import (
	"encoding/json"
	"sync"
	"testing"
)

func TestProgressIsRelayedInOrder(t *testing.T) {
	c := connected(t, "plain", Options{})
	var mu sync.Mutex
	last, n := -1.0, 0
	_, err := callTool(testContext(t), c, "progress 50", "", func(params json.RawMessage) {
		var p struct{ Progress float64 }
		mu.Lock()
		defer mu.Unlock()
		if json.Unmarshal(params, &p) != nil || p.Progress <= last {
			t.Errorf("got %s after %v, want increasing progress", params, last)
		}
		last = p.Progress
		n++
	})
	if err != nil || n != 50 || last != 49 {
		t.Errorf("got %d updates, the last %v, %v, want 50, the last 49", n, last, err)
	}
}

// TestUnrequestedProgressIsDropped checks that progress for a call that did not ask
// for progress is not queued, and that the call still gets its result.
func TestUnrequestedProgressIsDropped(t *testing.T) {
	c := connected(t, "plain", Options{})
	ctx := testContext(t)
	p, err := c.start(ctx, "tools/call", map[string]any{"name": "naive 3"}, false)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		t.Fatal("got no response, want one")
	}
	if len(p.updates) > 0 || p.err != nil {
		t.Errorf("got %d updates, %v, want none", len(p.updates), p.err)
	}
	if got, err := callTool(ctx, c, "naive 50", "", nil); err != nil || got != `{"naive":true}` {
		t.Errorf("got %s, %v, want the result", got, err)
	}
}

// TestPanicOfOnProgressEndsItsCall checks that a call whose onProgress panics does
// not stay in flight.
func TestPanicOfOnProgressEndsItsCall(t *testing.T) {
	c := connected(t, "plain", Options{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("got no panic, want one")
			}
		}()
		_, _ = callTool(testContext(t), c, "stuck", "", func(json.RawMessage) { panic("deliberate") })
	}()
	if n := c.Status().InFlight; n != 0 {
		t.Errorf("got %d calls in flight, want 0", n)
	}
}
