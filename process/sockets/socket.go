package sockets

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Socket is a listening TCP socket of the machine.
type Socket struct {
	Addr netip.AddrPort
	// Key identifies the socket: the inode on Linux.
	Key uint64
	// Holders are the pids of the processes that have the socket open: on Linux
	// those among the processes given to AddHolders, on macOS all.
	Holders []int
}

// A Connection is an end of a TCP connection. Its Key is 0 once every process has closed it.
type Connection struct {
	Socket
	State string        // "TIME_WAIT"
	Left  time.Duration // how long a closed connection will still be there; 0: not known
}

// Port returns the port of the socket.
func (s Socket) Port() int { return int(s.Addr.Port()) }

// Dial returns the address at which this machine reaches the socket.
func (s Socket) Dial() string {
	host := s.Addr.Addr()
	if s.Addr.Addr().IsUnspecified() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if s.Addr.Addr().Is6() {
			host = netip.IPv6Loopback()
		}
	}
	return netip.AddrPortFrom(host, s.Addr.Port()).String()
}

// Ports returns the ports of sockets, ascending, each once.
func Ports(sockets []Socket) []int {
	var ports []int
	for _, s := range sockets {
		ports = append(ports, s.Port())
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// IsDebugger reports whether the listener on port, in a process with that command line, is a
// debugger, which proves nothing about the readiness of the program. There are
// three proofs: only the debuggers of node and deno use the port; debuggers and programs use
// the port, and a word in the command line names a debugger; or an option names the port.
func IsDebugger(port int, commandLine string) bool {
	has := func(word string) bool { return strings.Contains(commandLine, word) }
	switch {
	case port == 9229 || port == 9230,
		port == 9222 && has("remote-debugging"),
		port == 5005 && has("jdwp"),
		port == 5678 && has("debugpy"),
		port == 2345 && (has("dlv") || has("delve")):
		return true
	}
	for _, option := range strings.Fields(commandLine) {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "--inspect", "--inspect-brk", "--inspect-wait", "--inspect-port", "--remote-debugging-port", "--debug-port":
			if value[strings.LastIndexByte(value, ':')+1:] == strconv.Itoa(port) {
				return true
			}
		}
	}
	return false
}
