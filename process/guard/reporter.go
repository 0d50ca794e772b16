package guard

import "time"

// The reporter keeps at most this many reports, and waits so long at the end
// for the last ones to be written.
const (
	reportsKept = 16
	reportDrain = time.Second
)

// reporter hands reports to a function that may block, such as a write to a
// stderr that the client does not read: nothing may keep the guardian from
// cleaning up.
type reporter struct {
	queue chan func()
	done  chan struct{}
	sink  func(format string, args ...any)
}

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

// logf hands over one report, or drops it if too many wait. It never blocks.
func (r *reporter) logf(format string, args ...any) {
	select {
	case r.queue <- func() { r.sink(format, args...) }:
	default:
	}
}

// close waits until the reports are written, but no longer than reportDrain:
// the writing goroutine may be stuck in a write that nothing can interrupt, and
// ends with the process.
func (r *reporter) close() {
	close(r.queue)
	select {
	case <-r.done:
	case <-time.After(reportDrain):
	}
}
