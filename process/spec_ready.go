package process

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// maxPattern bounds Ready.Log, in bytes.
const maxPattern = 4096

// maxTargets bounds the URLs and paths of Ready.HTTP.
const maxTargets = 8

// Ready defines when a run counts as ready. At least one rule is required, and
// all given rules must hold. Only the run's own output and its own tree's
// sockets count.
type Ready struct {
	// Log is an RE2 pattern that a line of the run's output must match.
	Log string `json:"log,omitempty"`
	// Port is a TCP port that the tree must listen on, in any address family. 0
	// means any port except a debugger's.
	Port *int `json:"port,omitempty"`
	// HTTP is a URL, or a path on the port of the tree, that must answer with
	// status 200 to 399, or up to eight of them, separated by blanks.
	HTTP string `json:"http,omitempty"`
}

// check returns an error wrapping ErrInvalid for rules that could never hold.
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
	if n := len(r.targets()); n > maxTargets || n == 0 && r.HTTP != "" {
		return fmt.Errorf("%w: ready.http holds %d URLs or paths, want 1 to %d", ErrInvalid, n, maxTargets)
	}
	for _, target := range r.targets() {
		if err := checkReadyURL(target); err != nil {
			return err
		}
	}
	return nil
}

func (r *Ready) targets() []string { return strings.Fields(r.HTTP) }

func checkReadyURL(s string) error {
	if strings.HasPrefix(s, "/") {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%w: ready.http %q: want a URL (http://127.0.0.1:3000/health) or a path (/health)", ErrInvalid, s)
	}
	return nil
}
