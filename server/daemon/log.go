package daemon

import (
	"bytes"
	"fmt"
	"os"
	"sync"
)

// maxLog is how large a daemon's log grows, in bytes.
const maxLog = 1 << 20

// A Log is the file of a daemon's log, open for appending and reading. When a message would
// make it larger than 1 MiB, it loses its older half. The sessions of the daemon write to the
// file themselves; for them the daemon calls Bound every ten seconds.
type Log struct {
	limit int64

	mu   sync.Mutex
	file *os.File // guarded by mu
}

// NewLog returns a Log that writes to file.
func NewLog(file *os.File) *Log { return &Log{file: file, limit: maxLog} }

// Write appends a message.
func (l *Log) Write(message []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boundLocked(int64(len(message)))
	return l.file.Write(message)
}

// Bound drops the older half of a log that others, the sessions, have made too large.
func (l *Log) Bound() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boundLocked(0)
}

func (l *Log) boundLocked(more int64) {
	if info, err := l.file.Stat(); err == nil && info.Mode().IsRegular() && info.Size()+more > l.limit {
		l.shortenLocked(info.Size())
	}
}

// shortenLocked drops the older half of the log. What another process writes at the same moment
// may be lost.
func (l *Log) shortenLocked(size int64) {
	half := make([]byte, l.limit/2)
	n, _ := l.file.ReadAt(half, max(0, size-l.limit/2))
	if l.file.Truncate(0) != nil {
		return
	}
	_, whole, _ := bytes.Cut(half[:n], []byte{'\n'})
	fmt.Fprintln(l.file, "pmcp: older messages are dropped")
	_, _ = l.file.Write(whole)
}
