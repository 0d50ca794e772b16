package process

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// signal is the first signal of a stop.
func (s StopSpec) signal() syscall.Signal {
	sig, _ := parseSignal(s.Signal)
	return sig
}

// parseSignal reads "SIGINT", "INT" or "int"; "" means SIGTERM. SIGKILL and
// SIGSTOP, which no program can act on, are refused with the advice.
func parseSignal(name string) (syscall.Signal, error) {
	if name == "" {
		return syscall.SIGTERM, nil
	}
	full := strings.ToUpper(name)
	if !strings.HasPrefix(full, "SIG") {
		full = "SIG" + full
	}
	sig := unix.SignalNum(full)
	switch sig {
	case 0:
		return 0, fmt.Errorf("%w: stop signal %q: want a name such as SIGINT", ErrInvalid, name)
	case syscall.SIGKILL, syscall.SIGSTOP:
		return 0, fmt.Errorf("%w: stop signal %s cannot be caught, so it stops nothing in an orderly way: use kill_process or a short stop timeout", ErrInvalid, full)
	}
	return sig, nil
}

// signalName gives "SIGTERM", or "signal 40" for one without a name.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}
