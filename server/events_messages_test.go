package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/process/proctest"
	"pmcp/server/stdio"
	"pmcp/server/stdio/stdiotest"
)

// awaitGo begins a shell script that waits until the test calls fail.
const awaitGo = "until [ -e go ]; do sleep 0.01; done; "

// modernJob returns a client of MCP 2026-07-28 with a running process, job, that
// crashes when the test calls fail.
func modernJob(t *testing.T) *surface {
	s := open(t)
	s.modern = true
	s.script("job", awaitGo+"exit 3")
	return s
}

// fail makes the process job end badly while no call is running whose answer could
// report the end. fail then waits for both events: the end of the run, and the
// run's error, which arrives with the next flush.
func (s *surface) fail() {
	s.t.Helper()
	stdiotest.NoErr(s.t, os.WriteFile(filepath.Join(s.manager.Project(), "go"), nil, 0o600))
	proctest.Await(s.t, "the event", func() bool {
		events := strings.Join(s.server.events.peek(), "\n")
		return (strings.Contains(events, "job (run 1) failed: ") || strings.Contains(events, "job (run 1) crashed: ")) && strings.Contains(events, "job (run 1): new error")
	})
}

// logged returns and removes the log messages received so far.
func (s *surface) logged() (texts []string) {
	for _, n := range s.notes {
		if n.Method == stdio.MethodLogMessage {
			texts = append(texts, fmt.Sprint(n.Params["level"], " ", n.Params["data"]))
		}
	}
	s.notes = nil
	return texts
}

// TestModernLogMessagesPrecedeAnswer checks that log messages are sent once,
// before the answer of the call that asks for them, and at no other time.
func TestModernLogMessagesPrecedeAnswer(t *testing.T) {
	t.Parallel()
	s := modernJob(t)
	s.fail()
	s.logs = "info"
	s.ask("resources/list", nil) // only tool calls get log messages
	if got := s.logged(); len(got) > 0 {
		t.Errorf("another request: got %q, want no messages", got)
	}
	s.do("list_processes", nil)
	if got := s.logged(); !slices.ContainsFunc(got, func(text string) bool {
		return strings.HasPrefix(text, "error ") && strings.Contains(text, "job (run 1) failed")
	}) {
		t.Errorf("got %q, want the crash as an error", got)
	}
	s.do("list_processes", nil)
	if got := s.logged(); len(got) > 0 {
		t.Errorf("next call: got %q, want no messages", got)
	}
}

// TestModernLogLevelDropsOtherMessages checks that a message whose level a call
// did not ask for is never sent, not even with the next call.
func TestModernLogLevelDropsOtherMessages(t *testing.T) {
	t.Parallel()
	for _, asked := range []string{"", "critical", "loud"} {
		s := modernJob(t)
		s.fail()
		s.logs = asked
		s.do("list_processes", nil)
		s.logs = "debug"
		s.do("list_processes", nil)
		if got := s.logged(); len(got) > 0 {
			t.Errorf("level %q: got %q, want no messages", asked, got)
		}
	}
}

// TestModernLogMessagesAreSentDuringCall checks that a message that arises while
// calls are running is sent at once, to the oldest call that asks for log messages.
func TestModernLogMessagesAreSentDuringCall(t *testing.T) {
	t.Parallel()
	s := modernJob(t)
	s.script("sleeper", "exec sleep 100")
	s.logs = "emergency"
	deaf := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": map[string]any{"process": "sleeper", "until": "exit"}})
	s.logs = "error"
	waiting := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": map[string]any{"process": "sleeper", "until": "exit"}})
	proctest.Await(t, "both calls", func() bool { return s.server.served.Load().messages.accompanied() == 2 })
	s.logs = ""
	s.fail()
	s.note(stdio.MethodLogMessage, func(r stdiotest.Reply) bool { return strings.Contains(r.Raw, "job (run 1) failed") })
	s.do("stop_process", map[string]any{"process": "sleeper"})
	for _, id := range []string{deaf, waiting} {
		if !slices.ContainsFunc(s.notes, func(r stdiotest.Reply) bool { return string(r.ID) == id }) {
			s.wait(id)
		}
	}
	if got := s.logged(); len(got) > 0 {
		t.Errorf("at the end: got %q, want no messages", got)
	}
	if n := s.server.served.Load().messages.accompanied(); n != 0 {
		t.Errorf("got %d calls left, want none", n)
	}
}

// TestModernLogMessagesWaitAfterCancelledCall checks that messages that arise after
// a call was cancelled are sent with the next call that asks for log messages.
func TestModernLogMessagesWaitAfterCancelledCall(t *testing.T) {
	t.Parallel()
	s := modernJob(t)
	s.logs = "error"
	id := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": map[string]any{"process": "job", "until": "exit"}})
	proctest.Await(t, "the call", func() bool { return s.server.served.Load().messages.accompanied() == 1 })
	s.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id)
	proctest.Await(t, "its end", func() bool { return s.server.served.Load().messages.accompanied() == 0 })
	s.logs = ""
	s.do("list_processes", nil)
	s.logs = "error"
	s.fail()
	s.do("list_processes", nil)
	if got := s.logged(); len(got) != 1 {
		t.Errorf("got %q, want one message", got)
	}
}

// TestNoMessageIsSentWhileCallEnds checks that no other message can be sent
// between the last message of a call and the end of the call: the other sender
// would rely on a call that is about to end.
func TestNoMessageIsSentWhileCallEnds(t *testing.T) {
	call := &slowCall{sending: make(chan struct{}), room: make(chan struct{})}
	m := newMessageSender(modernClient{})
	m.calls = []logCall{call}
	m.add(event{level: mcp.LoggingLevelError, text: "the last"})
	left := make(chan bool, 1)
	go func() { m.send(t.Context(), call); left <- true }()
	stdiotest.AwaitValue(t, call.sending, "the wait for room")
	m.mu.Lock() // send needs mu, so the call cannot leave yet
	close(call.room)
	for range 1000 {
		if m.sending.TryLock() {
			m.sending.Unlock()
			t.Error("got the send lock free, want it held until the call has left")
			break
		}
		runtime.Gosched()
	}
	m.mu.Unlock()
	stdiotest.AwaitValue(t, left, "its leaving")
	if n := m.accompanied(); n != 0 {
		t.Errorf("got %d calls, want 0", n)
	}
}

// modernClient is a client of MCP 2026-07-28, which accepts messages only within
// calls.
type modernClient struct{}

func (modernClient) Modern() bool { return true }

func (modernClient) Notify(context.Context, string, map[string]any) error {
	return errors.New("outside a call")
}

// slowCall is a call whose Notify returns only when the test closes room.
type slowCall struct{ sending, room chan struct{} }

func (*slowCall) Answered() bool { return false }

func (*slowCall) LogLevel() mcp.LoggingLevel { return mcp.LoggingLevelDebug }

func (c *slowCall) Notify(string, any) error {
	close(c.sending)
	<-c.room
	return nil
}

// accompanied returns the number of calls that get log messages.
func (m *messageSender) accompanied() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls)
}
