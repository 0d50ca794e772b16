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
			t.Errorf("%s after %v", params, last)
		}
		last = p.Progress
		n++
	})
	if err != nil || n != 50 || last != 49 {
		t.Errorf("%d of 50, the last %v, %v", n, last, err)
	}
}

// TestProgressThatWasNotAskedFor is not kept, and the call gets its result.
func TestProgressThatWasNotAskedFor(t *testing.T) {
	c := connected(t, "plain", Options{})
	ctx := testContext(t)
	p, err := c.begin(ctx, "tools/call", map[string]any{"name": "naive 3"}, false)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		t.Fatal("no answer")
	}
	if notes := p.takeNotes(); len(notes) > 0 || p.err != nil {
		t.Errorf("%s, %v", notes, p.err)
	}
	if got, err := callTool(ctx, c, "naive 50", "", nil); err != nil || got != `{"naive":true}` {
		t.Errorf("%s, %v", got, err)
	}
}

// TestPanicInACall leaves nothing in flight.
func TestPanicInACall(t *testing.T) {
	c := connected(t, "plain", Options{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = callTool(testContext(t), c, "stuck", "", func(json.RawMessage) { panic("deliberate") })
	}()
	if n := c.Status().InFlight; n != 0 {
		t.Errorf("%d in flight", n)
	}
}
