package health

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"pmcp/process"
	"pmcp/process/prose"
)

// The defaults and limits of a Spec.
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

// Action is what is done when a process becomes unhealthy.
type Action string

// The actions. The zero value is ActNone.
const (
	// ActNone only reports the state.
	ActNone Action = ""
	// ActRestart ends the run and applies the restart policy, as after a crash.
	ActRestart Action = "restart"
)

// Spec defines how a process is checked. Exactly one of Command, TCP and HTTP
// must be set.
type Spec struct {
	// Command is an executable, found and run like that of a process: without a
	// shell, in the directory and environment of the process that is checked.
	// Exit code 0 is a success.
	Command string
	// Args are the arguments of Command.
	Args []string
	// TCP is an address that accepts connections: "host:port", or a port on the
	// loopback interface. The kernel accepts connections even for a server that
	// hangs; only HTTP and Command detect that.
	TCP string
	// HTTP is a URL that answers GET with a status between StatusMin and
	// StatusMax, or a path on the port of the process: that of its readiness
	// rule, else the lowest that its tree listens on. Redirects are not
	// followed, certificates not verified, proxies not used.
	HTTP string
	// StatusMin and StatusMax are the range of statuses that count as success.
	// 0 means 200 and 399. Only with HTTP.
	StatusMin, StatusMax int
	// Body is an RE2 pattern that the first 64 KiB of the response must match,
	// within Timeout. "" means any response. Only with HTTP.
	Body string
	// Interval is the time between checks of a run that has been healthy, from
	// 100 ms to 24 h. 0 means the Monitor's default.
	Interval time.Duration
	// Timeout bounds one check, at most 1 min. 0 means 5 s.
	Timeout time.Duration
	// Retries is the number of consecutive failures that make a process
	// unhealthy, at most 100. 0 means 3.
	Retries int
	// StartPeriod is the time from the start of a run, or of its watch, in
	// which failures do not count, at most 1 h. The first success ends it. 0
	// means 30 s, a negative value none.
	StartPeriod time.Duration
	// OnUnhealthy is what is done when the process becomes unhealthy.
	OnUnhealthy Action
}

// Validate returns an error wrapping process.ErrInvalid, in the words of the
// tools, for a Spec that could never work, or nil.
func (s Spec) Validate() error {
	return cmp.Or(s.checkKind(), s.checkTarget(), s.checkHTTPOnly(), s.checkTimes())
}

// Kind returns "command", "tcp" or "http"; "" for the zero Spec.
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

// checkKind rejects a Spec without exactly one of Command, TCP and HTTP.
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
		return invalid("command, tcp or http: exactly one is needed, given: %s", prose.OrNone(given))
	case len(s.Args) > 0 && s.Command == "":
		return invalid("args: only with health.command")
	}
	return nil
}

// checkTarget rejects a malformed TCP address or URL.
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

// splitAddress splits "host:port", ":port" or "port". host defaults to
// "localhost".
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

// checkHTTPOnly checks the settings that belong to HTTP.
func (s Spec) checkHTTPOnly() error {
	switch low, high := s.statusRange(); {
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

// checkTimes checks the settings that every kind of check has.
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

func (s Spec) statusRange() (low, high int) {
	low = cmp.Or(s.StatusMin, 200)
	return low, cmp.Or(s.StatusMax, max(399, low))
}

// withDefaults returns s with the documented defaults in place of zero fields. interval
// is the Monitor's default of Interval.
func (s Spec) withDefaults(interval time.Duration) Spec {
	s.Args = slices.Clone(s.Args)
	if s.HTTP != "" {
		s.StatusMin, s.StatusMax = s.statusRange()
	}
	s.Interval = cmp.Or(s.Interval, interval)
	s.Timeout = cmp.Or(s.Timeout, defaultTimeout)
	s.Retries = cmp.Or(s.Retries, defaultRetries)
	s.StartPeriod = max(cmp.Or(s.StartPeriod, defaultStartPeriod), -1) // all negative values mean none
	return s
}

// equal reports whether two specs with defaults are the same.
func (s Spec) equal(other Spec) bool {
	return s.sameCheck(other) &&
		s.Interval == other.Interval && s.Timeout == other.Timeout && s.Retries == other.Retries &&
		s.StartPeriod == other.StartPeriod && s.OnUnhealthy == other.OnUnhealthy
}

// sameCheck reports whether two specs with defaults make the same check, so
// that results of one hold for the other.
func (s Spec) sameCheck(other Spec) bool {
	return s.Command == other.Command && slices.Equal(s.Args, other.Args) && s.TCP == other.TCP && s.HTTP == other.HTTP &&
		s.StatusMin == other.StatusMin && s.StatusMax == other.StatusMax && s.Body == other.Body
}
