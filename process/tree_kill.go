package process

import (
	"syscall"
	"time"

	"pmcp/process/proctab"
)

// signalEach sends sig to each process through its identity. It skips a process
// that may not be signalled (another user's); killAll will report that process.
func signalEach(procs []proctab.Proc, sig syscall.Signal) {
	for _, p := range procs {
		_ = proctab.Signal(p.ID, sig)
	}
}

// killAll kills the processes that list returns until list returns none. It
// returns the survivors: processes that may not be signalled or hang in the
// kernel. killAll stops after timeout, but its last call of list begins after
// timeout, however long the earlier calls took. Processes that multiply are
// killed without a pause between the rounds, and stopped before they are killed.
func killAll(list func() []proctab.Proc, timeout time.Duration) (left []proctab.Proc) {
	deadline := time.Now().Add(timeout)
	var killer proctab.Killer
	pause := time.Millisecond
	for late := false; ; late = !time.Now().Before(deadline) {
		left = list()
		if len(left) == 0 {
			return nil
		}
		if late {
			killer.Kill(left) // no process may remain stopped
			return left
		}
		if killer.Pass(left) {
			continue
		}
		<-time.After(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}
