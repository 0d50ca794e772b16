package server

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
)

// awaitGo is the beginning of a script that goes on when fail says so.
const awaitGo = "until [ -e go ]; do sleep 0.01; done; "

// modernJob is a 2026-07-28 client with a process that crashes when fail says so.
func modernJob(t *testing.T) *surface {
	s := open(t)
	s.modern = true
	s.script("job", awaitGo+"exit 3")
	return s
}

// fail has the process job crash, without a call whose answer might tell of it,
// and waits for both events of that: the end, and the error that it is, which
// comes with the next flush.
func (s *surface) fail() {
	s.t.Helper()
	noErr(s.t, os.WriteFile(filepath.Join(s.manager.Project(), "go"), nil, 0o600))
	awaitCondition(s.t, "the event", func() bool {
		told := strings.Join(s.server.events.peek(), "\n")
		return strings.Contains(told, "job (run 1) crashed") && strings.Contains(told, "job (run 1): new error")
	})
}

// logged lists the log messages that came in so far.
func (s *surface) logged() (texts []string) {
	for _, n := range s.notes {
		if n.Method == methodLogMessage {
			texts = append(texts, fmt.Sprint(n.Params["level"], " ", n.Params["data"]))
		}
	}
	s.notes = nil
	return texts
}

// TestModernLogMessages stand before the answer of the call that asks for them,
// once, and nowhere else.
func TestModernLogMessages(t *testing.T) {
	s := modernJob(t)
	s.fail()
	s.logs = "info"
	s.ask("resources/list", nil) // only calls of tools get them
	if got := s.logged(); len(got) > 0 {
		t.Errorf("another request: %q", got)
	}
	s.do("list_processes", nil)
	if got := s.logged(); !slices.ContainsFunc(got, func(text string) bool {
		return strings.HasPrefix(text, "error ") && strings.Contains(text, "job (run 1) crashed")
	}) {
		t.Errorf("%q", got)
	}
	s.do("list_processes", nil)
	if got := s.logged(); len(got) > 0 {
		t.Errorf("again: %q", got)
	}
}

// TestModernLogLevel: what a call did not ask for is never sent, not with the
// next one either.
func TestModernLogLevel(t *testing.T) {
	for _, asked := range []string{"", "critical", "loud"} {
		s := modernJob(t)
		s.fail()
		s.logs = asked
		s.do("list_processes", nil)
		s.logs = "debug"
		s.do("list_processes", nil)
		if got := s.logged(); len(got) > 0 {
			t.Errorf("level %q: %q", asked, got)
		}
	}
}

// TestModernLogMessagesDuringACall come at once, to the oldest call that wants
// them.
func TestModernLogMessagesDuringACall(t *testing.T) {
	s := modernJob(t)
	s.script("sleeper", "exec sleep 100")
	s.logs = "emergency"
	deaf := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": map[string]any{"process": "sleeper", "until": "exit"}})
	s.logs = "error"
	waiting := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": map[string]any{"process": "sleeper", "until": "exit"}})
	awaitCondition(t, "both calls", func() bool { return s.server.messages.accompanied() == 2 })
	s.logs = ""
	s.fail()
	s.note(methodLogMessage, func(r reply) bool { return strings.Contains(r.raw, "job (run 1) crashed") })
	s.do("stop_process", map[string]any{"process": "sleeper"})
	for _, id := range []string{deaf, waiting} {
		if !slices.ContainsFunc(s.notes, func(r reply) bool { return string(r.ID) == id }) {
			s.wait(id)
		}
	}
	if got := s.logged(); len(got) > 0 {
		t.Errorf("again: %q", got)
	}
	if n := s.server.messages.accompanied(); n != 0 {
		t.Errorf("%d calls are left", n)
	}
}

// TestModernLogMessagesAfterACancelledCall go to the next.
func TestModernLogMessagesAfterACancelledCall(t *testing.T) {
	s := modernJob(t)
	s.logs = "error"
	id := s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": map[string]any{"process": "job", "until": "exit"}})
	awaitCondition(t, "the call", func() bool { return s.server.messages.accompanied() == 1 })
	s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id)
	awaitCondition(t, "its end", func() bool { return s.server.messages.accompanied() == 0 })
	s.logs = ""
	s.do("list_processes", nil)
	s.logs = "error"
	s.fail()
	s.do("list_processes", nil)
	if got := s.logged(); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

// TestModernLogMessagesAtTheEndOfACall: between the last that is sent for a call
// and its leaving nothing else is sent, which would count on it.
func TestModernLogMessagesAtTheEndOfACall(t *testing.T) {
	c := &conn{session: newSession(), out: newOutbox()}
	c.session.beginModern()
	for range outboxMessages { // there is no room for the last message
		noErr(t, c.out.put(outgoing{}, nil))
	}
	call := &requestSession{session: c.session, conn: c, req: &request{modern: true, logLevel: mcp.LoggingLevelDebug, ctx: t.Context(), gone: make(chan struct{})}}
	m := newMessages(c)
	m.calls = []*requestSession{call}
	m.add(event{level: mcp.LoggingLevelError, text: "the last"})
	left := make(chan bool, 1)
	go func() { m.leave(t.Context(), call); left <- true }()
	awaitCondition(t, "the wait for room", func() bool {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		return c.out.room != nil
	})
	m.mu.Lock() // it cannot leave yet
	c.out.next()
	awaitCondition(t, "the last message", func() bool {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		return len(c.out.items) == outboxMessages
	})
	for range 1000 {
		if m.sending.TryLock() {
			m.sending.Unlock()
			t.Error("another send can count on the call")
			break
		}
		runtime.Gosched()
	}
	m.mu.Unlock()
	awaitValue(t, left, "its leaving")
	if n := m.accompanied(); n != 0 {
		t.Errorf("%d calls are left", n)
	}
}

// accompanied counts the calls that get log messages.
func (m *messages) accompanied() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls)
}
