package process

import "sync"

// tasks is a set of goroutines with one owner that waits for them. The zero
// value is ready to use.
type tasks struct {
	mu     sync.Mutex // guards closed and calls of wg.Go
	closed bool
	wg     sync.WaitGroup
}

// Go runs f in a goroutine. After Close it returns false and runs nothing.
func (t *tasks) Go(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Go(f)
	return true
}

// Close prevents further goroutines and blocks until all have ended.
func (t *tasks) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}
