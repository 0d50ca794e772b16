package server

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rateLimits bounds the calls of each tool that changes something. Tools that
// read or wait are exempt.
type rateLimits struct {
	perSecond int // 0: no limit

	mu     sync.Mutex
	byTool map[string]*rate.Limiter
}

// burst is how many calls a tool takes at once after a pause, as a multiple of
// its calls a second.
const burst = 3

// allow answers an error that says when to try again if the tool has been
// called too often.
func (l *rateLimits) allow(t *tool) error {
	if l.perSecond == 0 || t.hints.readOnly {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock() // of several reservations only the last could be given back whole
	if l.byTool == nil {
		l.byTool = make(map[string]*rate.Limiter)
	}
	limiter := l.byTool[t.name]
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Limit(l.perSecond), burst*l.perSecond)
		l.byTool[t.name] = limiter
	}
	now := time.Now()
	reservation := limiter.ReserveN(now, 1)
	delay := reservation.DelayFrom(now)
	if delay == 0 {
		return nil
	}
	reservation.CancelAt(now)
	return fmt.Errorf("called more than %d times a second (PM_RATE_LIMIT); try again in %d ms", l.perSecond, delay.Round(time.Millisecond).Milliseconds()+1)
}
