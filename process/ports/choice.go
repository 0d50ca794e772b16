package ports

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"regexp"
	"sync"

	"pmcp/process/sockets"
)

// Max is the highest TCP port.
const Max = 65535

const (
	// lowest is the lowest port that is chosen where there are enough above it: below
	// it are the ports that programs have by default.
	lowest = 10000
	// lowestUser is the lowest port that needs no rights.
	lowestUser = 1024
	// enough is how many ports suffice to choose from.
	enough = 1000
	// blocked is refused by browsers (https://fetch.spec.whatwg.org/#port-blocking).
	blocked = 10080
)

// ErrNone is wrapped if every port that could be chosen is in use.
var ErrNone = errors.New("no port is free")

// variable matches what may name a port: an environment variable.
var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`) })

// IsVariable reports whether name can name a port: 1 to 64 letters, digits and
// underscores that do not begin with a digit.
func IsVariable(name string) bool { return variable().MatchString(name) }

// A Want is a port that is to be chosen.
type Want struct {
	// Key identifies the port: the same key gets the same port, as far as it is free.
	Key string
	// Preferred is the port to take if it is free; 0 means none.
	Preferred int
	// Last is the port that the key had last, which comes second; 0 means none.
	Last int
	// Reserved returns the owner of a port's reservation, or "". Nil means that no port is reserved.
	Reserved func(port int) string
	// Own reports whether a port on which a process listens will be free in time, since
	// that process will be stopped first. Nil means that no port will.
	Own func(port int) bool
}

// A Refusal is why a preferred port was not taken. Its zero value means that it was
// taken, or that none was preferred.
type Refusal struct {
	// Listens means that a process listens on the port.
	Listens bool
	// ReservedBy describes who has reserved the port.
	ReservedBy string
	// Bind is the error of an attempt to bind the port.
	Bind error
}

// A Chooser chooses ports. It holds a snapshot of the sockets of the machine, so it is
// to be used at once.
type Chooser struct {
	listening map[int]bool
	// bind and ranges are fields so that tests can replace them.
	bind   func(port int) error
	ranges []span
}

// A span is a range of ports, both ends included.
type span struct{ first, last int }

// NewChooser returns a Chooser for the sockets of now.
func NewChooser() *Chooser {
	c := &Chooser{listening: make(map[int]bool), bind: sockets.TryBind, ranges: choosable(ephemeral())}
	listeners, _ := sockets.Listening() // without the list, the attempt to bind must do
	for _, s := range listeners {
		c.listening[s.Port()] = true
	}
	return c
}

// Choose returns a port for w: the preferred one, else the last one, else one that depends
// on the key, outside the range from which the kernel takes the ports of outgoing
// connections. refusal is why it is not the preferred one. The error wraps ErrNone, or
// states that this user may not use the preferred port.
func (c *Chooser) Choose(w Want) (port int, refusal Refusal, err error) {
	if w.Preferred != 0 {
		refusal = c.check(w.Preferred, w)
		switch {
		case refusal == Refusal{}:
			return w.Preferred, refusal, nil
		case errors.Is(refusal.Bind, os.ErrPermission):
			return 0, refusal, fmt.Errorf("port %d needs rights that pmcp does not have; use %d to %d, or 0 for any", w.Preferred, lowestUser, Max)
		}
	}
	if w.Last >= lowestUser && w.Last <= Max && c.check(w.Last, w) == (Refusal{}) {
		return w.Last, refusal, nil
	}
	for port := range c.candidates(w.Key) {
		if c.check(port, w) == (Refusal{}) {
			return port, refusal, nil
		}
	}
	return 0, refusal, fmt.Errorf("%w: all %d that pmcp may choose are in use or reserved", ErrNone, c.count())
}

// check returns why port is not free for w, or the zero value.
func (c *Chooser) check(port int, w Want) Refusal {
	if w.Reserved != nil {
		if by := w.Reserved(port); by != "" {
			return Refusal{ReservedBy: by}
		}
	}
	if c.listening[port] {
		own := w.Own != nil && w.Own(port) // cannot be bound until the process is stopped
		return Refusal{Listens: !own}
	}
	if err := c.bind(port); err != nil {
		return Refusal{Bind: err}
	}
	return Refusal{}
}

// candidates yields the ports that may be chosen, beginning with the one of key.
func (c *Chooser) candidates(key string) func(yield func(port int) bool) {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key)) // never fails
	n := c.count()
	return func(yield func(int) bool) {
		for i := range n {
			if port := c.port(int((hash.Sum64() + uint64(i)) % uint64(n))); port != blocked && !yield(port) {
				return
			}
		}
	}
}

func (c *Chooser) count() (n int) {
	for _, s := range c.ranges {
		n += s.last - s.first + 1
	}
	return n
}

// port returns the i-th port that may be chosen.
func (c *Chooser) port(i int) int {
	for _, s := range c.ranges {
		if size := s.last - s.first + 1; i >= size {
			i -= size
			continue
		}
		return s.first + i
	}
	return 0
}

// URL returns the address at which a browser on this machine reaches a program that listens
// on port, or will: on localhost, unless it listens on one other address only.
func URL(port int) string {
	listeners, _ := sockets.Listening() // without the list, localhost is the best guess
	host := "localhost"
	for _, s := range listeners {
		if s.Port() != port {
			continue
		}
		addr := s.Addr.Addr().Unmap()
		if addr.IsUnspecified() || addr.IsLoopback() {
			return fmt.Sprintf("http://localhost:%d", port)
		}
		if host = addr.String(); addr.Is6() {
			host = "[" + host + "]"
		}
	}
	return fmt.Sprintf("http://%s:%d", host, port)
}

// choosable returns the ports that may be chosen: those from 10000 outside the ephemeral
// range; where these are too few, those from 1024; where these are too few, all from 10000.
func choosable(ephemeral span) []span {
	for _, low := range []int{lowest, lowestUser} {
		var outside []span
		n := 0
		for _, s := range []span{{low, min(ephemeral.first-1, Max)}, {max(low, ephemeral.last+1), Max}} {
			if s.first <= s.last {
				outside, n = append(outside, s), n+s.last-s.first+1
			}
		}
		if n >= enough {
			return outside
		}
	}
	return []span{{lowest, Max}}
}

// ephemeral returns the range from which the kernel takes the ports of outgoing
// connections, or the range that IANA has for them.
func ephemeral() span {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	s := span{}
	if err == nil {
		_, err = fmt.Sscan(string(text), &s.first, &s.last)
	}
	if err != nil || s.first < 1 || s.last < s.first {
		return span{49152, Max}
	}
	return s
}
