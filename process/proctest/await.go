package proctest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

// Patience is how long a test waits for what must come: far longer than it takes.
const Patience = 30 * time.Second

// Await polls ok, for a condition that nothing announces, until ok returns true. After Patience it
// ends the test, and shows the goroutines.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for pause := 100 * time.Microsecond; !ok(); pause = min(2*pause, 10*time.Millisecond) {
		if time.Now().After(deadline) {
			TimedOut(t, "for: "+what)
		}
		time.Sleep(pause)
	}
}

// TimedOut fails a test whose wait has lasted for Patience, and shows the goroutines.
func TimedOut(t testing.TB, what string) {
	t.Helper()
	t.Fatalf("waited %v %s\n%s", Patience, what, goroutines())
}

// Context returns a context that ends with the test, or after Patience: then it shows the goroutines.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	shown := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(shown)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Logf("waited %v; the goroutines were\n%s", Patience, goroutines())
		}
	})
	t.Cleanup(func() {
		if !stop() {
			<-shown
		}
		cancel()
	})
	return ctx
}

// goroutines returns the stacks of all goroutines, at most 1 MiB.
func goroutines() []byte {
	b := make([]byte, 1<<20)
	return b[:runtime.Stack(b, true)]
}
