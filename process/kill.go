package process

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"pmcp/process/proctab"
)

// signalEach sends sig to each process through its identity. One that may not
// be signalled (another user's) is left; killAll will name it.
func signalEach(procs []proctab.Proc, sig syscall.Signal) {
	for _, p := range procs {
		_ = proctab.Signal(p.ID, sig)
	}
}

// killAll kills whatever look returns until it returns nothing, for at most
// patience and a look. It returns what is still there then: what may not be
// signalled or hangs in the kernel. The last look begins after patience has run
// out, however long those before took. What multiplies is given no pause.
func killAll(look func() []proctab.Proc, patience time.Duration) (left []proctab.Proc) {
	deadline := time.Now().Add(patience)
	killed := make(map[proctab.ID]bool)
	pause := time.Millisecond
	for late := false; ; late = !time.Now().Before(deadline) {
		left = look()
		if len(left) == 0 || late {
			return left
		}
		signalEach(left, syscall.SIGKILL)
		known := len(killed)
		for _, p := range left {
			killed[p.ID] = true
		}
		if len(killed) > known {
			continue
		}
		<-time.After(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// describe names processes for an error: "pid 12 (node), pid 13 (sh)".
func describe(procs []proctab.Proc) string {
	var names []string
	for i, p := range procs {
		if i == 10 {
			names = append(names, fmt.Sprintf("and %d more", len(procs)-i))
			break
		}
		names = append(names, fmt.Sprintf("pid %d (%s)", p.PID, p.Comm))
	}
	return strings.Join(names, ", ")
}
