package project

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/registry"
	"pmcp/server/socket"
)

// TestSilentWindowIsNotAskedForAWhile checks that a window that gave no sign of life is asked again only
// ten seconds later, or once it has performed a call, and that windows of before are not remembered.
func TestSilentWindowIsNotAskedForAWhile(t *testing.T) {
	dir := t.TempDir()
	window := registry.NewID(dir)
	l, err := socket.Listen(dir, window, slog.New(slog.DiscardHandler)) // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	synctest.Test(t, func(t *testing.T) {
		s := NewStore(nil, "/p")
		s.ReachWindows(dir, time.Millisecond) // of real time: a socket knows no other
		s.silent["of before"] = time.Now()
		time.Sleep(time.Second)
		first := time.Now()
		asked := func() time.Time {
			s.askWindow(t.Context(), window)
			return s.silent[window]
		}
		if at := asked(); !at.Equal(first) {
			t.Fatalf("got a silence at %v, want one at %v", at, first)
		}
		time.Sleep(silentFor - 1)
		if at := asked(); !at.Equal(first) {
			t.Errorf("asked again after %v, want no question before %v", at.Sub(first), silentFor)
		}
		time.Sleep(time.Nanosecond)
		if at := asked(); at.Sub(first) != silentFor {
			t.Errorf("got the last silence %v after the first, want it asked again after %v", at.Sub(first), silentFor)
		}
		if len(s.silent) != 1 {
			t.Errorf("got %v remembered, want one window", s.silent)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			l.Serve(t.Context(), func(context.Context, string, json.RawMessage) (any, error) { return OwnerAnswer{}, nil })
		}()
		if err := s.callWindow(t.Context(), window, callMethod, OwnerCall{}, new(OwnerAnswer)); err != nil || s.isSilent(window) {
			t.Errorf("got the error %v and silent %v, want a window that is asked again", err, s.isSilent(window))
		}
	})
}
