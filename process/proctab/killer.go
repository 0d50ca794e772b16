package proctab

import (
	"slices"
	"syscall"
	"time"
)

// freezeLimit is how long a Killer waits for processes that do not stop, such as
// one in the middle of vfork or one that hangs in the kernel.
const freezeLimit = 250 * time.Millisecond

// A Killer kills a set of processes that may multiply while it works. The zero Killer is
// ready for use by one goroutine.
//
// A Killer first sends SIGKILL. If new processes appear after that, and their number is
// limited, killing one by one only makes room for what the others fork. So the Killer
// then stops (SIGSTOP) all of them until no new one appears and all are stopped, and
// kills them when they can no longer fork.
type Killer struct {
	// Signal sends a signal to a process. If the field is nil, the function Signal is
	// used.
	Signal func(p Proc, sig syscall.Signal) error

	seen     map[ID]bool // the processes that were signalled
	freezing bool
	still    int       // passes in a row that found only stopped processes
	until    time.Time // the deadline for processes that do not stop
}

// Pass signals procs, which are all processes that are left now, parents before their
// children. It reports whether the caller should make the next pass without a pause.
func (k *Killer) Pass(procs []Proc) (again bool) {
	first := k.seen == nil
	if first {
		k.seen = make(map[ID]bool, len(procs))
	}
	fresh := slices.ContainsFunc(procs, func(p Proc) bool { return !p.Zombie && !k.seen[p.ID] })
	if fresh && !first {
		k.freezing = true
		k.until = time.Now().Add(freezeLimit)
	}
	if !k.freezing {
		k.Kill(procs)
		return fresh
	}
	if k.freeze(procs) && !fresh {
		k.still++
	} else {
		k.still = 0
	}
	// A process that was forked while the table was read appears in the next pass.
	if k.still < 2 && (fresh || time.Now().Before(k.until)) {
		return fresh || k.still > 0
	}
	k.Kill(procs)
	return true
}

// freeze stops procs and reports whether all of them had stopped before.
func (k *Killer) freeze(procs []Proc) (stopped bool) {
	stopped = true
	for _, p := range procs {
		if p.Zombie || p.Stopped && k.seen[p.ID] {
			continue
		}
		if k.send(p, syscall.SIGSTOP) == nil {
			stopped = false
		}
		k.seen[p.ID] = true
	}
	return stopped
}

// Kill sends SIGKILL to procs at once, children before their parents: when a parent ends,
// the kernel continues the stopped groups that it leaves behind.
func (k *Killer) Kill(procs []Proc) {
	k.freezing, k.still = false, 0
	if k.seen == nil {
		k.seen = make(map[ID]bool, len(procs))
	}
	for _, p := range slices.Backward(procs) {
		if !p.Zombie {
			_ = k.send(p, syscall.SIGKILL)
			k.seen[p.ID] = true
		}
	}
}

func (k *Killer) send(p Proc, sig syscall.Signal) error {
	if k.Signal != nil {
		return k.Signal(p, sig)
	}
	return Signal(p.ID, sig)
}
