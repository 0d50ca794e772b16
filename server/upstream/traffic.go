package upstream

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"pmcp/server/jsonrpc"
)

// Traffic counts the messages of a connection.
type Traffic struct {
	// Sent and Received count messages, SentBytes and ReceivedBytes their bytes.
	Sent, Received           int64
	SentBytes, ReceivedBytes int64
	// Errors counts the responses that are JSON-RPC errors.
	Errors int64
	// Refused counts messages over the size limit, Garbage lines that are not
	// messages, and Unexpected responses with an id that was never used.
	Refused, Garbage, Unexpected int64
	// LastActivity is the time of the last message in either direction; zero before
	// the first.
	LastActivity time.Time
	// LastGarbage is the start of the last line that is not a message.
	LastGarbage string
}

const (
	// maxShown is how much of a message is kept in the log, in bytes: with its
	// mark it is one stored line.
	maxShown = 15 << 10
	// maxGarbage is how much of a line that is not a message is quoted, in bytes.
	maxGarbage = 200
)

// Marks before a message in the log.
const (
	markSent     = "-> "
	markReceived = "<- "
	markGarbage  = "<! " // received, but not a message
)

// A traffic counts messages and writes them to the log of the run. Its methods are safe
// for concurrent use.
type traffic struct {
	run     int64
	capture func(run int64, at time.Time, line []byte)
	head    func(text []byte, whole bool, n int) []byte

	mu     sync.Mutex
	counts Traffic // guarded by mu
}

// record counts one message and writes it to the log. size is the size of the whole
// message.
func (t *traffic) record(mark string, text []byte, size int64, count func(*Traffic)) {
	at := time.Now()
	t.count(func(c *Traffic) {
		c.LastActivity = at
		count(c)
	})
	line := append([]byte(mark), bytes.TrimRight(t.head(text, size <= int64(len(text)), maxShown), "\r\n")...)
	if size > maxShown {
		line = fmt.Appendf(line, " … (%d bytes in all)", size)
	}
	t.capture(t.run, at, append(line, '\n')) // may wait for room, so mu is not held
}

func (t *traffic) sent(text []byte) {
	size := int64(len(text))
	t.record(markSent, text, size, func(c *Traffic) { c.Sent++; c.SentBytes += size })
}

func (t *traffic) received(l jsonrpc.Line) {
	t.record(markReceived, l.Text, l.Size, func(c *Traffic) { c.Received++; c.ReceivedBytes += l.Size })
}

func (t *traffic) garbage(l jsonrpc.Line) {
	start := string(t.head(l.Text, true, maxGarbage))
	t.record(markGarbage, l.Text, l.Size, func(c *Traffic) { c.Garbage++; c.ReceivedBytes += l.Size; c.LastGarbage = start })
}

func (t *traffic) tooLarge(l jsonrpc.Line) {
	start := l.Head[:min(len(l.Head), maxGarbage)]
	t.record(markGarbage, start, l.Size, func(c *Traffic) { c.Refused++; c.ReceivedBytes += l.Size })
}

func (t *traffic) count(change func(*Traffic)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.counts)
}

func (t *traffic) now() Traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}
