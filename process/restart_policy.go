package process

import (
	"fmt"
	"time"
)

// Figures of the restart policy, from research on systemd, pm2, supervisord
// and Kubernetes: quick for a developer, and never an endless loop.
const (
	firstDelay    = 500 * time.Millisecond
	maxDelay      = 30 * time.Second
	stableAfter   = 10 * time.Second
	jitter        = 0.2
	unstableLimit = 5 // consecutive unstable runs
	windowLimit   = 10
	window        = 10 * time.Minute
)

// RestartPolicy selects when the Manager restarts a process.
type RestartPolicy string

// The policies. The zero value is RestartNever.
const (
	RestartNever     RestartPolicy = ""
	RestartOnFailure RestartPolicy = "on-failure"
	RestartAlways    RestartPolicy = "always"
)

func (p RestartPolicy) check() error {
	switch p {
	case RestartNever, RestartOnFailure, RestartAlways:
		return nil
	default:
		return fmt.Errorf("%w: restart %q: want never, on-failure or always", ErrInvalid, string(p))
	}
}

// retries decides for one entry whether and when the next run begins. A start
// by the caller resets it to the zero value, which is ready to use.
type retries struct {
	unstable    int         // consecutive runs that were not stable
	endedByPmcp bool        // whether pmcp ended one of these runs for its health or its limits
	recent      []time.Time // times of the ends within window
}

// decide returns what follows the end of a run that lived for lived: the event,
// the delay of evRetry, and the reason of evGaveUp. maxRestarts is
// Spec.MaxRestarts, random is in [0, 1).
func (r *retries) decide(policy RestartPolicy, maxRestarts int, exit Exit, lived time.Duration, now time.Time, random float64) (ev event, delay time.Duration, reason string) {
	ended := evCrashed
	if exit.Clean() {
		ended = evExited
	}
	if policy == RestartNever || policy == RestartOnFailure && exit.Clean() {
		return ended, 0, ""
	}
	if exit.Code == 126 || exit.Code == 127 { // the file is not executable or not found: a retry cannot help
		return evGaveUp, 0, fmt.Sprintf("not restarted: exit code %d means that a command could not be run", exit.Code)
	}
	// A run that pmcp ended for its health or limits counts as unstable, however
	// long pmcp took to notice the fault, unless the run lived for window.
	wasEnded := exit.By == ByHealth || exit.By == ByLimit
	if r.unstable++; lived >= stableAfter && !wasEnded || lived >= window {
		r.unstable, r.endedByPmcp = 0, false
	} else {
		r.endedByPmcp = r.endedByPmcp || wasEnded
	}
	r.recent = append(r.recent, now)
	for now.Sub(r.recent[0]) > window {
		r.recent = r.recent[1:]
	}
	if reason := r.limitReached(maxRestarts); reason != "" {
		return evGaveUp, 0, reason
	}
	const enough = 10 // doublings; maxDelay is reached long before
	delay = min(firstDelay<<min(max(r.unstable-1, 0), enough), maxDelay)
	delay += time.Duration(float64(delay) * jitter * (2*random - 1))
	return evRetry, delay, ""
}

// limitReached returns the reason why there is no further restart, or "".
func (r *retries) limitReached(maxRestarts int) string {
	switch {
	case maxRestarts < 0 && r.unstable > 0:
		return "gave up: max_restarts is 0, and a run " + r.describeUnstable()
	case maxRestarts > 0 && r.unstable > maxRestarts:
		return fmt.Sprintf("gave up: max_restarts is %d, and %d runs in a row %s", maxRestarts, r.unstable, r.describeUnstable())
	case maxRestarts == 0 && r.unstable >= unstableLimit:
		return fmt.Sprintf("gave up: %d runs in a row %s", r.unstable, r.describeUnstable())
	case len(r.recent) >= max(windowLimit, maxRestarts+1): // this bound also limits the length of recent
		return fmt.Sprintf("gave up: %d ends within %s", len(r.recent), window)
	}
	return ""
}

func (r *retries) describeUnstable() string {
	if r.endedByPmcp {
		return fmt.Sprintf("ended within %s, or for their health or limits within %s", stableAfter, window)
	}
	return fmt.Sprintf("ended within %s", stableAfter)
}
