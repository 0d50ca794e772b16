package health

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"pmcp/process"
)

// Defaults and bounds of a Spec.
const (
	defaultInterval    = time.Minute
	defaultTimeout     = 5 * time.Second
	defaultRetries     = 3
	defaultStartPeriod = 30 * time.Second

	minInterval    = 100 * time.Millisecond
	maxInterval    = 24 * time.Hour
	maxTimeout     = time.Minute
	maxRetries     = 100
	maxStartPeriod = time.Hour
	maxPattern     = 4096
)

// Action is what follows when a process becomes unhealthy.
type Action string

// The actions. The zero value is ActNone.
const (
	// ActNone only reports it.
	ActNone Action = ""
	// ActRestart ends the run and leaves the rest to the restart policy, as
	// after a crash.
	ActRestart Action = "restart"
)

// Spec says how a process is checked. Exactly one of Command, TCP and HTTP is
// given.
type Spec struct {
	// Command is an executable, found and run as that of a process is: no shell,
	// the directory and environment of the process that is checked. Exit code 0
	// is a success.
	Command string
	// Args are its arguments.
	Args []string
	// TCP is an address that takes a connection: "host:port", or a port on the
	// loopback interface. The kernel takes connections also for a server that
	// hangs; only HTTP and Command see that.
	TCP string
	// HTTP is a URL that answers GET with a status between StatusMin and
	// StatusMax, or a path on the port of the process: that of its readiness
	// rule, else the lowest its tree listens on. Redirects are not followed,
	// certificates not verified, proxies not used.
	HTTP string
	// StatusMin and StatusMax bound the status of a success. 0 means 200 and
	// 399. Only with HTTP.
	StatusMin, StatusMax int
	// Body is an RE2 pattern that the answer must hold, within its first 64 KiB
	// and within Timeout. "" means any answer. Only with HTTP.
	Body string
	// Interval is the time between checks of a run that has been healthy. 0
	// means the Monitor's; 100 ms to 24 h.
	Interval time.Duration
	// Timeout is how long one check may take. 0 means 5 s; at most 1 min.
	Timeout time.Duration
	// Retries is how many failures in a row make a process unhealthy. 0 means 3;
	// at most 100.
	Retries int
	// StartPeriod is the time from the beginning of a run, or of its being
	// watched, in which failures do not count. The first success ends it. 0 means
	// 30 s, negative none; at most 1 h.
	StartPeriod time.Duration
	// OnUnhealthy is what follows when the process becomes unhealthy.
	OnUnhealthy Action
}

// Validate answers an error wrapping process.ErrInvalid, in the words of the
// tools, for a Spec that could never work, or nil.
func (s Spec) Validate() error {
	for _, check := range []func() error{s.checkKind, s.checkTarget, s.checkHTTPOnly, s.checkTimes} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Kind is "command", "tcp" or "http"; "" for the zero Spec.
func (s Spec) Kind() string {
	switch {
	case s.Command != "":
		return "command"
	case s.TCP != "":
		return "tcp"
	case s.HTTP != "":
		return "http"
	default:
		return ""
	}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: health."+format, append([]any{process.ErrInvalid}, args...)...)
}

func (s Spec) checkKind() error {
	var given []string
	for name, value := range map[string]string{"command": s.Command, "tcp": s.TCP, "http": s.HTTP} {
		if value != "" {
			given = append(given, name)
		}
	}
	slices.Sort(given)
	switch {
	case len(given) != 1:
		return invalid("command, tcp or http: exactly one is needed, given: %s", orNone(given))
	case len(s.Args) > 0 && s.Command == "":
		return invalid("args: only with health.command")
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (s Spec) checkTarget() error {
	if s.TCP != "" {
		if _, _, err := splitAddress(s.TCP); err != nil {
			return invalid("tcp %q: want host:port, or a port from 1 to 65535", s.TCP)
		}
	}
	if s.HTTP == "" || strings.HasPrefix(s.HTTP, "/") {
		return nil
	}
	u, err := url.Parse(s.HTTP)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return invalid("http %q: want a URL (http://localhost:3000/health) or a path (/health)", s.HTTP)
	}
	return nil
}

// splitAddress takes "host:port", ":port" or "port" apart; host is "localhost"
// if it is not given.
func splitAddress(address string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	if err != nil {
		host, port, err = "", address, nil
	}
	if n, numErr := strconv.Atoi(port); numErr != nil || n < 1 || n > 65535 {
		return "", "", fmt.Errorf("no port in %q", address)
	}
	if host == "" {
		host = "localhost"
	}
	return host, port, err
}

func (s Spec) checkHTTPOnly() error {
	switch low, high := s.statuses(); {
	case s.HTTP == "" && (s.StatusMin != 0 || s.StatusMax != 0 || s.Body != ""):
		return invalid("status and body: only with health.http")
	case s.HTTP != "" && (low < 100 || high > 599 || low > high):
		return invalid("status %d-%d: want a range within 100-599", low, high)
	case len(s.Body) > maxPattern:
		return invalid("body takes %d bytes, at most %d are allowed", len(s.Body), maxPattern)
	}
	if _, err := regexp.Compile(s.Body); err != nil {
		return invalid("body: %w", err)
	}
	return nil
}

func (s Spec) checkTimes() error {
	switch {
	case s.Interval != 0 && (s.Interval < minInterval || s.Interval > maxInterval):
		return invalid("interval_ms: %s, want %s to %s", s.Interval, minInterval, maxInterval)
	case s.Timeout < 0 || s.Timeout > maxTimeout:
		return invalid("timeout_ms: %s, want at most %s", s.Timeout, maxTimeout)
	case s.Retries < 0 || s.Retries > maxRetries:
		return invalid("retries: %d, want 1 to %d", s.Retries, maxRetries)
	case s.StartPeriod > maxStartPeriod:
		return invalid("start_period_ms: %s, want at most %s", s.StartPeriod, maxStartPeriod)
	case s.OnUnhealthy != ActNone && s.OnUnhealthy != ActRestart:
		return invalid("on_unhealthy: %q, want none or restart", string(s.OnUnhealthy))
	}
	return nil
}

// statuses is the range of a success.
func (s Spec) statuses() (low, high int) {
	low, high = s.StatusMin, s.StatusMax
	if low == 0 {
		low = 200
	}
	if high == 0 {
		high = max(399, low)
	}
	return low, high
}

// resolved is s with its defaults.
func (s Spec) resolved(interval time.Duration) Spec {
	s.Args = slices.Clone(s.Args)
	if s.HTTP != "" {
		s.StatusMin, s.StatusMax = s.statuses()
	}
	if s.Interval == 0 {
		s.Interval = interval
	}
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	if s.Retries == 0 {
		s.Retries = defaultRetries
	}
	switch {
	case s.StartPeriod == 0:
		s.StartPeriod = defaultStartPeriod
	case s.StartPeriod < 0:
		s.StartPeriod = -1
	}
	return s
}

// equal says whether two resolved specs ask for the same.
func (s Spec) equal(other Spec) bool {
	return s.sameCheck(other) &&
		s.Interval == other.Interval && s.Timeout == other.Timeout && s.Retries == other.Retries &&
		s.StartPeriod == other.StartPeriod && s.OnUnhealthy == other.OnUnhealthy
}

// sameCheck says whether two resolved specs look at the same thing in the same
// way, so that results of the one speak for the other.
func (s Spec) sameCheck(other Spec) bool {
	return s.Command == other.Command && slices.Equal(s.Args, other.Args) && s.TCP == other.TCP && s.HTTP == other.HTTP &&
		s.StatusMin == other.StatusMin && s.StatusMax == other.StatusMax && s.Body == other.Body
}
