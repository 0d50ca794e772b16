package server

import (
	"errors"
	"testing"
)

// TestClientIsPingedOnceItCanBe: the parent changed before the client had said
// anything; as soon as it has, it is asked whether it lives.
func TestClientIsPingedOnceItCanBe(t *testing.T) {
	s := open(t)
	result := make(chan error, 1)
	go func() { result <- s.server.AwaitClientGone(t.Context()) }()
	s.initialize("2025-11-25")
	ping := s.recv()
	if ping.Method != "ping" {
		t.Fatalf("after initialize came %s", ping.raw)
	}
	s.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, ping.ID)
	if err := awaitValue(t, result, "the end of AwaitClientGone"); !errors.Is(err, ErrClientLives) {
		t.Errorf("a client that answers: %v", err)
	}
}

// TestSilentClientIsGone: it can be pinged and does not answer.
func TestSilentClientIsGone(t *testing.T) {
	s := hello(t)
	if err := s.server.AwaitClientGone(t.Context()); err != nil {
		t.Errorf("a client that does not answer: %v", err)
	}
	if ping := s.recv(); ping.Method != "ping" {
		t.Errorf("it was sent %s", ping.raw)
	}
}
