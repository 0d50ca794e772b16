package upstream

import (
	"fmt"
	"strconv"
	"time"

	"pmcp/server/args"
)

// The variables of pmcp that also count in the environment of one server, for that server alone.
const (
	startTimeoutVariable = "PM_MCP_STARTUP_TIMEOUT"
	maxMessageVariable   = "PM_MCP_MAX_MESSAGE_BYTES"
)

// The bounds of the variables, which are also those of pmcp's own (see server/config).
const (
	mostStartTimeout  = time.Hour
	leastMessageBytes = 1 << 10
	mostMessageBytes  = 1 << 30
)

// Limits are those of one server. A field is 0 where the limit of all servers holds.
type Limits struct {
	// StartTimeout is at least 1 ms and at most 1 h.
	StartTimeout time.Duration
	// MaxMessage is in bytes, from 1 KiB to 1 GiB.
	MaxMessage int
}

// LimitsOf returns the limits that a server has been given in its environment. The error names the
// variable that cannot be used; the other limit is valid even then.
func LimitsOf(env map[string]string) (l Limits, err error) {
	if text := env[maxMessageVariable]; text != "" {
		n, bad := strconv.Atoi(text)
		if bad != nil || n < leastMessageBytes || n > mostMessageBytes {
			err = fmt.Errorf("argument env: %s: want a number from %d to %d, got %q", maxMessageVariable, leastMessageBytes, mostMessageBytes, text)
		} else {
			l.MaxMessage = n
		}
	}
	if text := env[startTimeoutVariable]; text != "" {
		d, bad := args.ParseDuration(text)
		if n, isNumber := strconv.ParseInt(text, 10, 32); isNumber == nil {
			d, bad = time.Duration(n)*time.Millisecond, nil
		}
		if bad != nil || d < time.Millisecond || d > mostStartTimeout {
			return l, fmt.Errorf("argument env: %s: want a duration from 1ms to 1h, such as 5m or 300000, got %q", startTimeoutVariable, text)
		}
		l.StartTimeout = d
	}
	return l, err
}

// limited returns o with the limits that env sets.
func (o Options) limited(env map[string]string) Options {
	l, _ := LimitsOf(env) // an error was refused before the start
	if l.StartTimeout > 0 {
		o.StartTimeout = l.StartTimeout
	}
	if l.MaxMessage > 0 {
		o.MaxMessage = l.MaxMessage
	}
	return o
}

// StartTimeout returns how long a server with this environment may take to come up.
func (h *Hub) StartTimeout(env map[string]string) time.Duration { return h.o.limited(env).StartTimeout }
