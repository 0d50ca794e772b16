package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// messages is the standard output of a run that Options.TakeStdio was given.
// Once the first process has ended, Read gives what that had written and then
// io.EOF, whoever else still holds the pipe. The run counts as ended only when
// Close was called: everything that came has been dealt with then.
type messages struct {
	reader *reader
	after  int // bytes read since the first process has ended
	once   sync.Once
	closed chan struct{}
}

func newMessages(file *os.File) *messages {
	return &messages{reader: newReader(file, false, nil), closed: make(chan struct{})}
}

// Read reads what the child wrote. For one goroutine.
func (m *messages) Read(p []byte) (int, error) {
	for !m.reader.leaderGone.Load() {
		n, err := m.reader.file.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	<-m.reader.leader // its deadline must not come while what is left is read
	if m.after >= pipeMax {
		return 0, io.EOF
	}
	n, err := m.reader.readAvailable(p, 0)
	m.after += n
	if errors.Is(err, errEmpty) {
		err = io.EOF
	}
	return n, err
}

// Close says that nothing more will be read and that everything read has been
// dealt with. Safe to call twice and beside Read, which it ends.
func (m *messages) Close() error {
	err := m.reader.file.Close()
	m.once.Do(func() { close(m.closed) })
	return err
}

// leaderEnded wakes Read so that it finds the end.
func (m *messages) leaderEnded() { m.reader.leaderEnded() }

// cut ends Read although somebody still holds the other end.
func (m *messages) cut() { m.reader.cut() }

// SetReady says whether run, the current run of name, is ready: a run whose
// Stdio is "mcp" is so once it answers, which only the taker of its streams
// knows. why says what is waited for where it is not. It waits for the end of
// the spawn (so TakeStdio itself must not call it), and does nothing for a run
// that is not current, does not run, or is no MCP server.
func (m *Manager) SetReady(name string, run int64, ready bool, why string) {
	m.mu.Lock()
	e := m.entries[name]
	if e == nil || e.spawn == nil {
		m.mu.Unlock()
		return
	}
	spawned := e.spawn.done
	m.mu.Unlock()
	<-spawned
	m.mu.Lock()
	defer m.mu.Unlock()
	st := &e.status
	if st.RunID != run || st.State != Running || !st.Spec.mcp() {
		return
	}
	st.Ready, st.NotReady, st.ReadyAt = &ready, why, time.Time{}
	if ready {
		st.NotReady, st.ReadyAt = "", time.Now()
	}
	m.publish(e, st.State)
}
