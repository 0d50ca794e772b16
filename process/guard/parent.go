package guard

import (
	"os"
	"time"

	"pmcp/process/proctab"
)

// A parentWatch shows when to check whether the parent of this process has changed: once ended
// is closed and at each tick. One of the two is nil. Both are nil if the parent is outside our pid
// namespace, since its pid is 0 then, and so is that of the process that adopts us.
type parentWatch struct {
	pid   int // the parent; 0 if it has already ended
	ended chan struct{}
	tick  <-chan time.Time

	poll   time.Duration
	open   func(pid int) (*proctab.Handle, error)
	handle *proctab.Handle
	ticker *time.Ticker
}

// watchParent watches the parent pid. The kernel reports its end through a handle from open; if
// there is no handle, or pid is not our parent (any more), there is a tick each poll instead.
func watchParent(pid int, poll time.Duration, open func(pid int) (*proctab.Handle, error)) *parentWatch {
	w := &parentWatch{pid: pid, poll: poll, open: open}
	if os.Getppid() == 0 {
		return w
	}
	handle, err := open(pid)
	switch {
	case err != nil:
	case os.Getppid() != pid: // the handle may be that of another process that has the number by now
		handle.Close()
	default:
		w.handle, w.ended = handle, make(chan struct{})
		go func() {
			defer close(w.ended)
			_ = handle.AwaitExit() // after an error too, the parent is checked, and then polled
		}()
		return w
	}
	return w.byTicker()
}

func (w *parentWatch) byTicker() *parentWatch {
	w.ticker = time.NewTicker(w.poll)
	w.tick = w.ticker.C
	return w
}

// next returns the watch to use after a check has seen the parent now. It closes w if it returns
// another.
func (w *parentWatch) next(now int) *parentWatch {
	switch {
	case now != w.pid:
		w.close()
		return watchParent(now, w.poll, w.open)
	case w.ended != nil: // the kernel reported an end, but we still have this parent
		w.close()
		return (&parentWatch{pid: now, poll: w.poll, open: w.open}).byTicker()
	}
	return w
}

// close ends the watch and returns when its goroutine has ended.
func (w *parentWatch) close() {
	if w.handle != nil {
		w.handle.Close()
		<-w.ended
	}
	if w.ticker != nil {
		w.ticker.Stop()
	}
}
