package server

import (
	"errors"
	"testing"

	"pmcp/server/stdio"
	"pmcp/server/stdio/stdiotest"
)

// TestClientIsPingedAfterInitialize checks that a client whose parent process
// changed before the client initialized is pinged as soon as the client has
// initialized.
func TestClientIsPingedAfterInitialize(t *testing.T) {
	t.Parallel()
	s := open(t)
	result := make(chan error, 1)
	go func() { result <- s.server.AwaitClientGone(t.Context()) }()
	s.Initialize("2025-11-25")
	ping := s.Recv()
	if ping.Method != "ping" {
		t.Fatalf("after initialize: got %s, want a ping", ping.Raw)
	}
	s.Send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, ping.ID)
	if err := stdiotest.AwaitValue(t, result, "the end of AwaitClientGone"); !errors.Is(err, ErrClientLives) {
		t.Errorf("a client that answers: got %v, want ErrClientLives", err)
	}
}

// TestClientThatDoesNotAnswerPingsIsGone checks that a client that does not
// answer pings is considered gone.
func TestClientThatDoesNotAnswerPingsIsGone(t *testing.T) {
	t.Parallel()
	s := hello(t)
	if err := s.server.AwaitClientGone(t.Context()); err != nil {
		t.Errorf("got error %v, want none", err)
	}
	if ping := s.Recv(); ping.Method != "ping" {
		t.Errorf("got %s, want a ping", ping.Raw)
	}
}

// TestSilentClientThatMayNotBePingedIsGone checks that a client that may not be pinged is considered gone once it
// has been silent for long, and not before.
func TestSilentClientThatMayNotBePingedIsGone(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.modern = true
	s.do("list_processes", nil)
	if err := s.server.probeClient(t.Context()); !errors.Is(err, stdio.ErrPingImpossible) {
		t.Errorf("right after a message: got %v, want ErrPingImpossible", err)
	}
	s.server.silence = 0
	if err := s.server.AwaitClientGone(t.Context()); err != nil {
		t.Errorf("after the silence: got %v, want nil", err)
	}
}
