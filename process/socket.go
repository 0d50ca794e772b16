package process

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// socket is one listening TCP socket of the machine.
type socket struct {
	addr netip.AddrPort
	// key tells sockets apart: the inode on Linux.
	key uint64
	// holders are the processes that have it open, among those that were looked
	// at (Linux) or all (macOS).
	holders []int
}

func (s socket) port() int { return int(s.addr.Port()) }

// dial is the address at which this machine reaches the socket.
func (s socket) dial() string {
	host := s.addr.Addr()
	if s.addr.Addr().IsUnspecified() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if s.addr.Addr().Is6() {
			host = netip.IPv6Loopback()
		}
	}
	return netip.AddrPortFrom(host, s.addr.Port()).String()
}

// portsOf returns the ports of sockets, ascending, each once.
func portsOf(sockets []socket) []int {
	var ports []int
	for _, s := range sockets {
		ports = append(ports, s.port())
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// isDebugger says whether what listens on port with that command line is a
// debugger, which says nothing about the program's own readiness: by the port
// that node and deno have for it and nothing else is known to use, by one that
// debuggers share with others and a word that tells, or by an option.
func isDebugger(port int, commandLine string) bool {
	says := func(word string) bool { return strings.Contains(commandLine, word) }
	switch {
	case port == 9229 || port == 9230,
		port == 9222 && says("remote-debugging"),
		port == 5005 && says("jdwp"),
		port == 5678 && says("debugpy"),
		port == 2345 && (says("dlv") || says("delve")):
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
