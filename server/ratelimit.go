package server

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rateLimits bounds the calls of each tool that changes something or that, like a
// health check on request, runs programs and opens connections. Tools that only
// read or wait are exempt.
type rateLimits struct {
	perSecond int // 0: no limit

	mu     sync.Mutex
	byTool map[string]*rate.Limiter // guarded by mu
}

// burst is how many calls a tool accepts at once after a pause, as a multiple of
// its calls per second.
const burst = 3

// allow returns an error if the tool has been called too often. The error has the
// time at which the next call is accepted.
func (l *rateLimits) allow(t *tool) error {
	if l.perSecond == 0 || t.hints.readOnly && !t.hints.openWorld {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock() // held throughout: of concurrent reservations only the last can be cancelled in full
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
