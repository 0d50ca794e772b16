package process

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func (s StopSpec) signal() syscall.Signal {
	sig, _ := parseSignal(s.Signal)
	return sig
}

// parseSignal parses "SIGINT", "INT" or "int"; "" means SIGTERM. It rejects
// SIGKILL and SIGSTOP, which no program can catch.
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
		return 0, fmt.Errorf("%w: stop signal %s cannot be caught, so it lets no program shut down cleanly: use kill_process or a short stop timeout", ErrInvalid, full)
	}
	return sig, nil
}

func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}
