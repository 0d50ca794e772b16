package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Progress is shown once work has taken progressAfter, and renewed every progressEach.
const (
	progressAfter = 500 * time.Millisecond
	progressEach  = 250 * time.Millisecond
)

// A Progress is a line on a terminal about work in progress. The methods do nothing on a nil
// Progress.
type Progress struct {
	width int // columns of the terminal
	what  func() string
	begin time.Time
	end   chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex
	w     io.Writer // guarded by mu
	shown bool      // guarded by mu; the line is on the terminal
}

// StartProgress shows what returns, with the time that has passed, until End is called. It
// returns nil if w is not a terminal. The line is removed before anything is written to Over.
func StartProgress(w io.Writer, what func() string) *Progress {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return nil
	}
	if t := newTerminal(f); t.width > 0 {
		return startProgress(f, t.width, what)
	}
	return nil
}

func startProgress(w io.Writer, width int, what func() string) *Progress {
	p := &Progress{width: width, what: what, begin: time.Now(), end: make(chan struct{}), w: w}
	p.ended.Go(p.run)
	return p
}

// run shows the line until the end.
func (p *Progress) run() {
	next := time.NewTimer(progressAfter)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			next.Reset(progressEach)
		case <-p.end:
			return
		}
		text := fmt.Sprintf("pmcp: %s, %.0f s", p.what(), time.Since(p.begin).Seconds())
		p.mu.Lock()
		_, _ = fmt.Fprint(p.w, "\r"+cut(text, max(1, p.width-1))+"\x1b[K")
		p.shown = true
		p.mu.Unlock()
	}
}

// End removes the line. It may be called more than once.
func (p *Progress) End() {
	if p == nil {
		return
	}
	select {
	case <-p.end:
	default:
		close(p.end)
	}
	p.ended.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eraseLocked()
}

func (p *Progress) eraseLocked() {
	if p.shown {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// Over returns a writer to w that removes the line first.
func (p *Progress) Over(w io.Writer) io.Writer {
	if p == nil {
		return w
	}
	return overProgress{p, w}
}

type overProgress struct {
	p *Progress
	w io.Writer
}

// Write removes the line and writes b, while the line cannot come back.
func (o overProgress) Write(b []byte) (int, error) {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	o.p.eraseLocked()
	return o.w.Write(b)
}
