package guard

import (
	"context"
	"os"

	"pmcp/process/proctab"
)

// Client returns the client of this server: the process that holds the other end of its stdin, above the wrappers
// that were put between, such as npx. parent is the process that launched pmcp. Client is to be called at the start; it
// returns zero if there is no such process.
func Client(parent int) proctab.ID {
	if above := wrappers(parent); len(above) > 0 {
		return above[len(above)-1]
	}
	p, err := proctab.Read(parent)
	if err != nil {
		return proctab.ID{}
	}
	return p.ID
}

// maxAncestors bounds what Ancestors returns.
const maxAncestors = 64

// Ancestors returns the processes above this one, its parent first, and how many of them belong to what has started it:
// the parent, the wrappers above and the process that reads our stdout.
func Ancestors() (above []proctab.ID, started int) {
	parent := os.Getppid()
	for pid := parent; pid > 1 && len(above) < maxAncestors; {
		p, err := proctab.Read(pid)
		if err != nil {
			break
		}
		above, pid = append(above, p.ID), p.PPID
	}
	return above, min(len(above), 1+len(readers(parent)))
}

// AwaitEnd waits until one of the processes has ended, and reports whether one has before ctx.
func AwaitEnd(ctx context.Context, ids []proctab.ID) bool {
	w := watchWrappers(ids, defaultTiming)
	defer w.close()
	select {
	case <-w.ended:
		return true
	case <-ctx.Done():
		return false
	}
}
