package process

import "sync"

// tasks are goroutines with one owner that waits for them. The zero value is
// ready to use.
type tasks struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// Go runs f, or answers false if nothing may be started any more.
func (t *tasks) Go(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Go(f)
	return true
}

// Close lets nothing more start and returns when all have ended.
func (t *tasks) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}
