package proctab

import "hash/fnv"

// A Stamp is a number that marks a process and all its descendants for life. It survives a
// fork, a new session and an execve. It also survives that a program overwrites its
// environment, as programs do that set their title. The zero Stamp marks nothing.
//
// On Linux it is the soft limit of file locks (RLIMIT_LOCKS), which the kernel has ignored
// since 2.4.25 and which every user may read. A process that sets this limit itself loses
// its stamp. macOS has no stamps.
type Stamp uint64

// stampRunBits is how many of a Stamp's 63 bits are the run; the others are the session.
const stampRunBits = 17

// NewStamp returns the stamp of one run of a session.
func NewStamp(session string, run int64) Stamp {
	const runMask = 1<<stampRunBits - 1
	return SessionStamp(session) | Stamp(run&runMask)
}

// SessionStamp returns the part that all stamps of a session have in common; see
// Stamp.Session.
func SessionStamp(session string) Stamp {
	h := fnv.New64a()
	_, _ = h.Write([]byte(session))
	return Stamp(h.Sum64() >> 1 >> stampRunBits << stampRunBits)
}

// Session returns s without its run.
func (s Stamp) Session() Stamp { return s >> stampRunBits << stampRunBits }
