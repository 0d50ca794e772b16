package proctab

import (
	"hash/fnv"
	"strconv"
)

// A Stamp is a number that marks a process and all its descendants for life. It survives a
// fork, a new session and an execve. It also survives that a program overwrites its
// environment, as programs do that set their title. The zero Stamp marks nothing.
//
// On Linux it is the soft limit of file locks (RLIMIT_LOCKS), which the kernel has ignored
// since 2.4.25 and which every user may read. A process that sets this limit itself loses
// its stamp. macOS has no stamps.
type Stamp uint64

// A Stamp has 63 bits: the registry, the session and the run.
const (
	stampRunBits      = 17
	stampRegistryBits = 16
)

// NewStamp returns the stamp of one run of a session.
func NewStamp(session string, run int64) Stamp {
	const runMask = 1<<stampRunBits - 1
	return SessionStamp(session) | Stamp(run&runMask)
}

// SessionStamp returns the part that all stamps of a session have in common; see
// Stamp.Session. The first four digits of a session's id, a uuid, are its registry.
func SessionStamp(session string) Stamp {
	h := fnv.New64a()
	_, _ = h.Write([]byte(session))
	s := Stamp(h.Sum64() >> 1 >> stampRunBits << stampRunBits)
	if registry, err := strconv.ParseUint(session[:min(4, len(session))], 16, stampRegistryBits); err == nil {
		const shift = 63 - stampRegistryBits
		s = s&(1<<shift-1) | Stamp(registry)<<shift
	}
	return s
}

// Session returns s without its run.
func (s Stamp) Session() Stamp { return s >> stampRunBits << stampRunBits }

// Registry returns the registry of the session.
func (s Stamp) Registry() uint16 { return uint16(s >> (63 - stampRegistryBits)) }
