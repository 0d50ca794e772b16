package guard

import "time"

// A reporter queues at most reportsKept reports. When it is closed, it waits at most
// reportDrain until the last reports are written.
const (
	reportsKept = 16
	reportDrain = time.Second
)

// A reporter passes reports to a function that may block, such as a write to a stderr that
// the client does not read, so that it cannot keep the guardian from cleaning up.
type reporter struct {
	queue chan func()
	done  chan struct{}
	sink  func(format string, args ...any)
}

// newReporter returns a reporter that writes to sink, or drops the reports if sink is nil.
func newReporter(sink func(format string, args ...any)) *reporter {
	r := &reporter{queue: make(chan func(), reportsKept), done: make(chan struct{}), sink: sink}
	if sink == nil {
		r.sink = func(string, ...any) {}
	}
	go func() {
		defer close(r.done)
		for write := range r.queue {
			write()
		}
	}()
	return r
}

// logf queues one report, or drops it if the queue is full. It never blocks.
func (r *reporter) logf(format string, args ...any) {
	select {
	case r.queue <- func() { r.sink(format, args...) }:
	default:
	}
}

// close waits until the reports are written, at most reportDrain: the writing goroutine may be
// stuck in a write that cannot be interrupted. The stuck goroutine then ends with the process.
func (r *reporter) close() {
	close(r.queue)
	select {
	case <-r.done:
	case <-time.After(reportDrain):
	}
}
