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
// make it larger than 1 MiB, it loses its older half.
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
	if info, err := l.file.Stat(); err == nil && info.Mode().IsRegular() && info.Size()+int64(len(message)) > l.limit {
		l.shortenLocked(info.Size())
	}
	return l.file.Write(message)
}

// shortenLocked drops the older half of the log. What the guardian writes at the same moment
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
