package upstream

import (
	"fmt"
	"sync"
	"time"
)

// Traffic counts what went over a connection.
type Traffic struct {
	// Sent and Received are messages, SentBytes and ReceivedBytes their size.
	Sent, Received           int64
	SentBytes, ReceivedBytes int64
	// Errors are answers of the server that are JSON-RPC errors.
	Errors int64
	// Refused are messages over the bound, Garbage lines that are no message,
	// Unexpected answers to what was never asked.
	Refused, Garbage, Unexpected int64
	// LastActivity is when the last message went either way; zero before.
	LastActivity time.Time
	// LastGarbage is the beginning of the last line that is no message.
	LastGarbage string
}

const (
	// maxShown is how much of a message is kept in the log, in bytes: with its
	// mark it is one stored line.
	maxShown = 15 << 10
	// maxGarbage is how much of a line that is no message is quoted.
	maxGarbage = 200
)

// Marks before a message in the log.
const (
	markSent     = "-> "
	markReceived = "<- "
	markGarbage  = "<! " // what came and is no message
)

// traffic counts messages and writes them to the log of the run.
type traffic struct {
	run     int64
	capture func(run int64, at time.Time, line []byte)
	head    func(text []byte, whole bool, n int) []byte

	mu     sync.Mutex
	counts Traffic
	line   []byte
}

// show captures one message. Called with t.mu held, so that lines stay whole.
func (t *traffic) show(at time.Time, mark string, text []byte, size int64) {
	t.counts.LastActivity = at
	shown := t.head(text, size <= int64(len(text)+len("\r\n")), maxShown)
	t.line = append(append(t.line[:0], mark...), trimLine(shown)...)
	if size > maxShown {
		t.line = fmt.Appendf(t.line, " … (%d bytes in all)", size)
	}
	t.line = append(t.line, '\n')
	t.capture(t.run, at, t.line)
}

func (t *traffic) sent(text []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Sent++
	t.counts.SentBytes += int64(len(text))
	t.show(time.Now(), markSent, text, int64(len(text)))
}

func (t *traffic) received(l line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Received++
	t.counts.ReceivedBytes += l.size
	t.show(time.Now(), markReceived, l.text, l.size)
}

func (t *traffic) garbage(l line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Garbage++
	t.counts.ReceivedBytes += l.size
	t.counts.LastGarbage = string(t.head(l.text, true, maxGarbage))
	t.show(time.Now(), markGarbage, l.text, l.size)
}

func (t *traffic) refused(l line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Refused++
	t.counts.ReceivedBytes += l.size
	t.show(time.Now(), markGarbage, l.head, l.size)
}

// count adds one to a counter.
func (t *traffic) count(which func(*Traffic) *int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*which(&t.counts)++
}

func (t *traffic) now() Traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}
