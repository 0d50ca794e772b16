package groups

import (
	"context"
	"slices"
	"sync"
	"time"
)

// turns keeps the starts of the members of a group apart, in order among those that wait.
type turns struct {
	mu      sync.Mutex // guards the fields below
	waiting []int      // positions in the order, ascending
	next    time.Time  // when the next member may start
	changed chan struct{}
}

// join adds the i-th member to those that wait. It does nothing if the member waits already.
func (t *turns) join(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, found := slices.BinarySearch(t.waiting, i); !found {
		t.waiting = slices.Insert(t.waiting, at, i)
	}
}

// await waits until it is the turn of the i-th member, delay after that of the one before. It reports whether it is:
// false if ctx has ended.
func (t *turns) await(ctx context.Context, i int, delay time.Duration) bool {
	t.join(i)
	defer t.leave(i)
	for {
		t.mu.Lock()
		changed, pause := t.changed, time.Until(t.next)
		var due <-chan time.Time
		if t.waiting[0] == i {
			if pause <= 0 {
				t.next = time.Now().Add(delay)
				t.mu.Unlock()
				return ctx.Err() == nil
			}
			due = time.After(pause)
		}
		t.mu.Unlock()
		select {
		case <-due:
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (t *turns) leave(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, _ := slices.BinarySearch(t.waiting, i)
	t.waiting = slices.Delete(t.waiting, at, at+1)
	close(t.changed)
	t.changed = make(chan struct{})
}
