package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Signals receives the signals that ask a session to end: TERM, INT and HUP. One goroutine at a
// time may wait for them.
type Signals struct {
	ch    chan os.Signal
	count int // the TERM and INT that were received
}

// ReceiveSignals starts to receive signals. It also makes a write to a closed stdout return EPIPE
// instead of killing this process.
func ReceiveSignals() *Signals {
	s := receiveSignals()
	signal.Notify(s.ch, syscall.SIGHUP)
	return s
}

// ReceiveDaemonSignals is ReceiveSignals for a daemon, which a hangup does not end.
func ReceiveDaemonSignals() *Signals {
	s := receiveSignals()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	return s
}

func receiveSignals() *Signals {
	s := &Signals{ch: make(chan os.Signal, 4)}
	signal.Notify(s.ch, syscall.SIGTERM, syscall.SIGINT)
	// SIGPIPE is notified but never read: with signal.Ignore, children would inherit the ignored
	// signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

// Stop restores what TERM, INT and HUP do by default.
func (s *Signals) Stop() { signal.Stop(s.ch) }

// Wait returns the next signal, or nil when quit is closed.
func (s *Signals) Wait(quit <-chan struct{}) os.Signal {
	select {
	case got := <-s.ch:
		if got != syscall.SIGHUP {
			s.count++
		}
		return got
	case <-quit:
		return nil
	}
}

// WaitForSecond returns when the second TERM or INT has been received. The first does not count:
// clients that close stdin send one as a matter of course.
func (s *Signals) WaitForSecond() {
	for s.count < 2 {
		s.Wait(nil)
	}
}

// Serving returns a context that ends with ctx, at a signal, or when the guardian is dead, with that
// as its cause. life is nil without a guardian. The goroutines, which end with the context, are
// added to watchers.
func Serving(ctx context.Context, watchers *sync.WaitGroup, signals *Signals, life *Lifeline) (context.Context, context.CancelCauseFunc) {
	serving, end := context.WithCancelCause(ctx)
	watchers.Go(func() {
		if got := signals.Wait(serving.Done()); got != nil {
			end(fmt.Errorf("signal: %s", got))
		}
	})
	if life != nil {
		watchers.Go(func() {
			select {
			case <-life.Gone():
				end(errors.New("the guardian is dead"))
			case <-serving.Done():
			}
		})
	}
	return serving, end
}
