package server

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// stderrQueue is how many messages wait for a stderr that nobody reads.
	stderrQueue = 1024
	// stderrDrain bounds how long Close waits for them to be written.
	stderrDrain = time.Second
)

// Stderr is a writer that never waits: what its reader does not take in time is
// dropped and counted. A blocked stderr (a client that does not read it) would
// otherwise stop whoever logs.
type Stderr struct {
	out   io.Writer
	queue chan []byte
	done  chan struct{}

	mu      sync.Mutex
	closed  bool
	dropped int
}

// NewStderr starts the one goroutine that writes to out.
func NewStderr(out io.Writer) *Stderr {
	s := &Stderr{out: out, queue: make(chan []byte, stderrQueue), done: make(chan struct{})}
	go s.run()
	return s
}

// Write queues one message. It never fails and never waits.
func (s *Stderr) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return len(p), nil
	}
	select {
	case s.queue <- append([]byte(nil), p...):
	default:
		s.dropped++
	}
	return len(p), nil
}

func (s *Stderr) run() {
	defer close(s.done)
	for p := range s.queue {
		_, _ = s.out.Write(p)
		if n := s.takeDropped(); n > 0 {
			fmt.Fprintf(s.out, "pmcp: %d messages dropped here, stderr was not read\n", n)
		}
	}
}

func (s *Stderr) takeDropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.dropped
	s.dropped = 0
	return n
}

// Close writes what is queued, for at most a second. The goroutine outlives it
// only if stderr blocks even then: a blocked write cannot be interrupted.
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
