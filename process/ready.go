package process

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// maxPattern bounds Ready.Log, in bytes.
const maxPattern = 4096

// Ready says when a run counts as ready. All rules that are given must hold, at
// least one is required. Only the run's own output and its own tree's sockets
// count.
type Ready struct {
	// Log is an RE2 pattern that a line of the run's output matches.
	Log string `json:"log,omitempty"`
	// Port is a TCP port that the tree listens on, in any address family; 0
	// means any but a debugger's.
	Port *int `json:"port,omitempty"`
	// HTTP is a URL, or a path on the port of the tree, that answers 200 to 399.
	HTTP string `json:"http,omitempty"`
}

// check answers an error wrapping ErrInvalid for rules that could never hold.
func (r *Ready) check() error {
	switch {
	case r == nil:
		return nil
	case r.Log == "" && r.Port == nil && r.HTTP == "":
		return fmt.Errorf("%w: ready holds no rule: give log, port or http", ErrInvalid)
	case len(r.Log) > maxPattern:
		return fmt.Errorf("%w: ready.log takes %d bytes, at most %d are allowed", ErrInvalid, len(r.Log), maxPattern)
	case r.Port != nil && (*r.Port < 0 || *r.Port > 65535):
		return fmt.Errorf("%w: ready.port %d: want 0 (any) to 65535", ErrInvalid, *r.Port)
	}
	if _, err := regexp.Compile(r.Log); err != nil {
		return fmt.Errorf("%w: ready.log: %w", ErrInvalid, err)
	}
	return checkReadyURL(r.HTTP)
}

func checkReadyURL(s string) error {
	if s == "" || strings.HasPrefix(s, "/") {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%w: ready.http %q: want a URL (http://127.0.0.1:3000/health) or a path (/health)", ErrInvalid, s)
	}
	return nil
}

// equal says whether two sets of rules ask for the same.
func (r *Ready) equal(other *Ready) bool {
	if r == nil || other == nil {
		return r == other
	}
	samePort := r.Port == other.Port || r.Port != nil && other.Port != nil && *r.Port == *other.Port
	return r.Log == other.Log && r.HTTP == other.HTTP && samePort
}
