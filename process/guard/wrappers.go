package guard

import (
	"errors"
	"sync"
	"time"

	"pmcp/process/proctab"
)

// A wrapperWatch reports the end of a process above our parent: of the wrappers between client
// and guardian, such as npx and the shell that it starts, and of the client. A wrapper that is
// killed leaves the wrappers below it, and so our parent, alive.
type wrapperWatch struct {
	ended   chan struct{} // closed when one of them has ended
	quit    chan struct{}
	handles []*proctab.Handle
	done    sync.WaitGroup
}

// watchWrappers watches processes. Where the kernel does not report their end through a handle
// from t.open, it polls each t.parentPoll.
func watchWrappers(above []proctab.ID, t timing) *wrapperWatch {
	w := &wrapperWatch{ended: make(chan struct{}), quit: make(chan struct{})}
	report := sync.OnceFunc(func() { close(w.ended) })
	var polled []proctab.ID
	for _, id := range above {
		handle, err := t.open(id.PID)
		if err != nil {
			polled = append(polled, id)
			continue
		}
		w.handles = append(w.handles, handle)
		if !lives(id) { // else the handle may be that of another process
			report()
			continue
		}
		w.done.Go(func() {
			if handle.AwaitExit() == nil {
				report()
			}
		})
	}
	if len(polled) > 0 {
		w.done.Go(func() { w.poll(polled, t.parentPoll, report) })
	}
	return w
}

func (w *wrapperWatch) poll(ids []proctab.ID, each time.Duration, report func()) {
	tick := time.NewTicker(each)
	defer tick.Stop()
	for {
		for _, id := range ids {
			if !lives(id) {
				report()
				return
			}
		}
		select {
		case <-tick.C:
		case <-w.quit:
			return
		}
	}
}

// lives reports whether the process has not ended. It is true if that cannot be read.
func lives(id proctab.ID) bool {
	now, err := proctab.Read(id.PID)
	return err != nil && !errors.Is(err, proctab.ErrGone) || err == nil && now.ID == id && !now.Zombie
}

func (w *wrapperWatch) close() {
	close(w.quit)
	for _, h := range w.handles {
		h.Close()
	}
	w.done.Wait()
}
