package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// messages is the standard output of a run that Options.TakeStdio received. Once
// the first process has exited, Read returns the rest of what that process had
// written and then io.EOF, even if other processes still hold the pipe. The run
// counts as ended only after Close: then everything that was read has been
// processed.
type messages struct {
	*reader
	readAfterExit int // bytes read since the first process exited
	once          sync.Once
	closed        chan struct{}
}

func newMessages(file *os.File) *messages {
	return &messages{reader: newReader(file, false, nil), closed: make(chan struct{})}
}

// Read reads what the child wrote. It is not safe for concurrent use.
func (m *messages) Read(p []byte) (int, error) {
	for !m.leaderGone.Load() {
		n, err := m.file.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	<-m.leader // the deadline that leaderEnded sets must not interrupt the reading of the rest
	if m.readAfterExit >= pipeMax {
		return 0, io.EOF
	}
	_ = m.file.SetReadDeadline(time.Time{})
	n, err := receive(m.file, false, func() []byte { return p }, func() {})
	m.readAfterExit += n
	if errors.Is(err, errEmpty) {
		err = io.EOF
	}
	return n, err
}

// Close declares that the caller will read no more and has processed everything
// that it read. It is safe to call twice and concurrently with Read, which it
// ends.
func (m *messages) Close() error {
	err := m.file.Close()
	m.once.Do(func() { close(m.closed) })
	return err
}
