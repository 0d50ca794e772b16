package server

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stderrQueue is how many messages are queued for a stderr that is not being
	// read.
	stderrQueue = 1024
	// stderrDrain bounds how long Close waits for queued messages to be written.
	stderrDrain = time.Second
)

// Stderr is a writer that never blocks: a message that cannot be written in time is
// dropped and counted. Otherwise a blocked stderr (of a client that does not read
// it) would stop every goroutine that logs.
type Stderr struct {
	out     io.Writer
	queue   chan []byte
	done    chan struct{}
	dropped atomic.Int64 // since the last message was written

	mu     sync.Mutex
	closed bool // guarded by mu
}

// NewStderr starts the one goroutine that writes to out.
func NewStderr(out io.Writer) *Stderr {
	s := &Stderr{out: out, queue: make(chan []byte, stderrQueue), done: make(chan struct{})}
	go s.run()
	return s
}

// Write queues one message. It never fails and never blocks.
func (s *Stderr) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return len(p), nil
	}
	select {
	case s.queue <- append([]byte(nil), p...):
	default:
		s.dropped.Add(1)
	}
	return len(p), nil
}

// run writes queued messages until the queue is closed.
func (s *Stderr) run() {
	defer close(s.done)
	for p := range s.queue {
		_, _ = s.out.Write(p)
		if n := s.dropped.Swap(0); n > 0 {
			fmt.Fprintf(s.out, "pmcp: %d messages dropped here, stderr was not read\n", n)
		}
	}
}

// Close waits until the queued messages are written, for at most a second. The
// writing goroutine outlives Close only if stderr still blocks then: a blocked
// write cannot be interrupted.
func (s *Stderr) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.queue)
	}
	s.mu.Unlock()
	select {
	case <-s.done:
	case <-time.After(stderrDrain):
	}
}
