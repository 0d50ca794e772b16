package feed

import (
	"context"
	"errors"
	"io"
	"testing"
)

func TestReadersFollowAtTheirOwnPace(t *testing.T) {
	f := New[int](4)
	f.Publish(-1) // published before there is a reader
	quick, slow := f.Reader(), f.Reader()
	for i := range 10 {
		f.Publish(i)
		if v, missed, err := quick.Next(t.Context()); v != i || missed != 0 || err != nil {
			t.Fatalf("quick reader got %d, missed %d, %v; want %d", v, missed, err, i)
		}
	}
	f.Close()
	for i := 6; i < 10; i++ {
		missed := 0
		if i == 6 {
			missed = 6
		}
		if v, m, err := slow.Next(t.Context()); v != i || m != missed || err != nil {
			t.Errorf("slow reader got %d, missed %d, %v; want %d, missed %d", v, m, err, i, missed)
		}
	}
	for range 2 {
		if _, _, err := slow.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("after the end: got %v, want EOF", err)
		}
	}
}

func TestNextWaitsForValue(t *testing.T) {
	f := New[int](1)
	r := f.Reader()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want context.Canceled", err)
	}
	go f.Publish(7)
	if v, _, err := r.Next(t.Context()); v != 7 || err != nil {
		t.Errorf("got %d, %v, want 7", v, err)
	}
}
